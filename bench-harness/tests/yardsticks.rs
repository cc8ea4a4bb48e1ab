//! Yardsticks with a known delay must be measured as they are.

#![expect(clippy::unwrap_used, reason = "a test fails by it, with the place")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use corelane_bench::clock::Timing;
use corelane_bench::yardstick;

const TIMING: Timing = Timing {
    warmup: Duration::from_millis(20),
    duration: Duration::from_millis(200),
    patience: Duration::from_secs(2),
};

/// Echoes messages of `size` bytes, each after `delay`, on one connection.
fn start_echo(size: usize, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut buffer = vec![0; size];
        while stream.read_exact(&mut buffer).is_ok() {
            thread::sleep(delay);
            if stream.write_all(&buffer).is_err() {
                return;
            }
        }
    });
    address
}

/// Moves bytes from the connection that says `P` to the one that says `C`, with `pause` before each piece.
fn start_relay(pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut role, mut buffer) = ([0], vec![0; 64 << 10]);
        let (mut consumer, _) = listener.accept().unwrap();
        consumer.read_exact(&mut role).unwrap();
        assert_eq!(role, *b"C");
        let (mut producer, _) = listener.accept().unwrap();
        producer.read_exact(&mut role).unwrap();
        assert_eq!(role, *b"P");
        while let Ok(count) = producer.read(&mut buffer) {
            thread::sleep(pause);
            if count == 0 || consumer.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    });
    address
}

#[test]
fn an_echo_with_a_known_delay() {
    for size in [1, 100, 100_000] {
        let delay = Duration::from_millis(2);
        let sample = yardstick::echo(start_echo(size, delay), size, &TIMING, &mut |_| {}).unwrap();
        let least = sample.latencies.percentile_us(0.0).unwrap();
        assert!(least >= 1990.0, "{least} us are less than the echo waits");
        // One exchange at a time: nothing but their latencies fills the time.
        let us_each = sample.elapsed.as_secs_f64() / sample.count as f64 * 1e6;
        let p50 = sample.latencies.percentile_us(50.0).unwrap();
        assert!(p50 <= 2.0 * us_each, "{p50} us, but an exchange took {us_each} us");
        assert_eq!(sample.latencies.count(), sample.count);
        assert!(sample.elapsed >= TIMING.duration);
    }
}

#[test]
fn a_relay_with_a_known_pause() {
    let pause = Duration::from_millis(2);
    let sample = yardstick::relay(start_relay(pause), 1024, 1, &TIMING, &mut |_| {}).unwrap();
    let rate = sample.rate_per_s().unwrap();
    // At most 64 pieces of 1 KiB every 2 ms.
    assert!(0.0 < rate && rate <= 32_000.0 * 1.1, "{rate} messages a second");
}

#[test]
fn an_echo_that_is_silent_is_an_error() {
    let timing = Timing { patience: Duration::from_millis(100), ..TIMING };
    let address = start_echo(2, Duration::ZERO);
    // One byte of the two that it waits for.
    let error = yardstick::echo(address, 1, &timing, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("yardstick"), "{error}");
}
