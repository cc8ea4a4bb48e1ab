//! What does the same generator measure where there is no broker? Bare bytes through an echo and through a relay.
//!
//! The echo has the two hops of a message; the relay moves bytes from one connection to another, as a broker does.

use crate::clock::{Clock, Phase, Stopwatch, Timing};
use crate::error::BenchError;
use crate::sample::Sample;
use crate::saturate::WRITE_BYTES;
use crate::socket::Socket;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// First byte of a relay's connection that sends.
const PRODUCER: u8 = b'P';
/// First byte of a relay's connection that is sent to.
const CONSUMER: u8 = b'C';
/// How long a relay may take to notice who is who.
const ROLE_PAUSE: Duration = Duration::from_millis(20);
/// Bytes on their way through a relay, unless the window is larger.
const RELAY_BYTES_MIN: u64 = 256 << 10;
/// How often the clock is read while nothing comes.
const CLOCK_EVERY: u32 = 1024;

/// One exchange of `size` bytes at a time with an echo at `address`.
pub fn echo(
    address: SocketAddr,
    size: usize,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let mut socket = Socket::connect(&[address]).map_err(|error| broken(address, error))?;
    one_by_one(size, clock, timing, watch, |bytes, deadline_ns| {
        exchange(None, &mut socket, bytes, clock, deadline_ns)
    })
    .map_err(|error| broken(address, error))
}

fn one_by_one(
    size: usize,
    clock: Clock,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
    mut exchange: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<Sample> {
    let bytes = vec![7; size];
    let mut sample = Sample::default();
    let mut stopwatch = Stopwatch::new(timing, clock.now_ns());
    loop {
        let now = clock.now_ns();
        if stopwatch.starts(now) {
            watch(Phase::Measuring);
        }
        if stopwatch.is_over(now) {
            sample.elapsed = stopwatch.elapsed(now);
            watch(Phase::Measured);
            return Ok(sample);
        }
        let sent_ns = clock.now_ns();
        exchange(&bytes, sent_ns + timing.patience.as_nanos() as u64)?;
        if stopwatch.is_measuring() {
            sample.latencies.record(clock.now_ns() - sent_ns);
            sample.count += 1;
        }
    }
}

/// Sends `bytes` by the producer, or by the consumer itself, and waits until as many have come.
#[inline]
fn exchange(
    mut producer: Option<&mut Socket>,
    consumer: &mut Socket,
    bytes: &[u8],
    clock: Clock,
    deadline_ns: u64,
) -> io::Result<()> {
    let (mut sent, mut received, mut looks) = (0, 0, 0_u32);
    while received < bytes.len() {
        if sent < bytes.len() {
            sent += match &mut producer {
                Some(producer) => producer.write(&bytes[sent..])?,
                None => consumer.write(&bytes[sent..])?,
            };
        }
        let count = consumer.fill()?;
        consumer.consume(count);
        received += count;
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(CLOCK_EVERY) && clock.now_ns() > deadline_ns {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// One message of `size` bytes at a time through a relay at `address`: the floor of a broker, whose messages come by one
/// connection and go by another, too.
pub fn relay_one_by_one(
    address: SocketAddr,
    size: usize,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let (mut producer, mut consumer) = join_relay(address).map_err(|error| broken(address, error))?;
    one_by_one(size, clock, timing, watch, |bytes, deadline_ns| {
        exchange(Some(&mut producer), &mut consumer, bytes, clock, deadline_ns)
    })
    .map_err(|error| broken(address, error))
}

/// As many bytes as a relay at `address` moves, counted as messages of `size` bytes; at most `window` of them on their way.
pub fn relay(
    address: SocketAddr,
    size: usize,
    window: u32,
    timing: &Timing,
    watch: &mut dyn FnMut(Phase),
) -> Result<Sample, BenchError> {
    let clock = Clock::start();
    let (mut producer, mut consumer) = join_relay(address).map_err(|error| broken(address, error))?;
    let window_bytes = (u64::from(window) * size as u64).max(RELAY_BYTES_MIN);
    let bytes = vec![7; WRITE_BYTES];
    let (mut sent, mut received, mut received_before) = (0_u64, 0_u64, 0_u64);
    let mut sample = Sample::default();
    let mut stopwatch = Stopwatch::new(timing, clock.now_ns());
    let mut moved_ns = clock.now_ns();
    loop {
        let room = window_bytes.saturating_sub(sent - received).min(bytes.len() as u64) as usize;
        if room > 0 {
            sent += producer.write(&bytes[..room]).map_err(|error| broken(address, error))? as u64;
        }
        let count = consumer.fill().map_err(|error| broken(address, error))?;
        consumer.consume(count);
        received += count as u64;
        let now = clock.now_ns();
        if count > 0 {
            moved_ns = now;
        } else if now - moved_ns > timing.patience.as_nanos() as u64 {
            return Err(broken(address, io::ErrorKind::TimedOut.into()));
        }
        if stopwatch.starts(now) {
            watch(Phase::Measuring);
            received_before = received;
        }
        if stopwatch.is_over(now) {
            sample.elapsed = stopwatch.elapsed(now);
            sample.count = (received - received_before) / size as u64;
            watch(Phase::Measured);
            return Ok(sample);
        }
    }
}

/// The consumer first: a relay drops what it has nobody for.
fn join_relay(address: SocketAddr) -> io::Result<(Socket, Socket)> {
    let mut consumer = Socket::connect(&[address])?;
    consumer.write(&[CONSUMER])?;
    std::thread::sleep(ROLE_PAUSE);
    let mut producer = Socket::connect(&[address])?;
    producer.write(&[PRODUCER])?;
    std::thread::sleep(ROLE_PAUSE);
    Ok((producer, consumer))
}

fn broken(address: SocketAddr, error: io::Error) -> BenchError {
    BenchError::Broken { peer: format!("the yardstick at {address}"), error }
}
