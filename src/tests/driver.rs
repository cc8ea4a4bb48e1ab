//! The pump over real sockets, with the yardsticks as its service: no byte is lost, doubled or kept back, whatever the other
//! end does, and nothing is left open.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use corelane::driver::baseline::{Baseline, CONSUMER, PRODUCER, Running};
use corelane::driver::{Idle, Placement};
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// A test that waits longer than this for anything has failed.
const PATIENCE: Duration = Duration::from_secs(30);

const IDLES: [Idle; 3] = [Idle::Park, Idle::Adaptive { spin: Duration::from_micros(20) }, Idle::Spin];

fn start(kind: Baseline, idle: Idle) -> Running {
    // A thousand connections have two thousand ends.
    corelane::boot::raise_file_limit();
    kind.start(SocketAddr::from(([127, 0, 0, 1], 0)), Placement::Unpinned, idle).unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Ends in time, or the test fails.
fn stop(running: Running) {
    let (done, is_done) = channel();
    thread::spawn(move || {
        let _ = done.send(running.stop());
    });
    is_done.recv_timeout(PATIENCE).expect("stops in time").unwrap();
}

/// Bytes that differ from place to place and from seed to seed.
fn pattern(seed: u32, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..size).map(|_| next()).collect()
}

fn echoes(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes);
}

fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn echo_with_every_idle_policy() {
    for idle in IDLES {
        let running = start(Baseline::Echo, idle);
        let mut stream = connect(running.address);
        for size in [1, 2, 100, 32 << 10, (32 << 10) + 1, 1 << 20] {
            echoes(&mut stream, &pattern(size as u32, size));
        }
        drop(stream);
        stop(running);
    }
}

#[test]
fn a_burst_larger_than_every_buffer_comes_back_in_order() {
    let running = start(Baseline::Echo, Idle::Park);
    let writers: Vec<_> = (0..4)
        .map(|seed| {
            let mut stream = connect(running.address);
            thread::spawn(move || {
                let bytes = pattern(seed, 24 << 20);
                let mut reader = stream.try_clone().unwrap();
                let expected = bytes.clone();
                let reader = thread::spawn(move || {
                    let mut back = vec![0; expected.len()];
                    reader.read_exact(&mut back).unwrap();
                    assert!(back == expected);
                });
                for part in bytes.chunks(100_003) {
                    stream.write_all(part).unwrap();
                }
                reader.join().unwrap();
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    stop(running);
}

#[test]
fn a_reader_that_is_slow_holds_up_nobody_and_loses_nothing() {
    let running = start(Baseline::Echo, Idle::Park);
    let mut slow = connect(running.address);
    SockRef::from(&slow).set_recv_buffer_size(64 << 10).unwrap();
    let bytes = pattern(7, 8 << 20);
    let mut writer = slow.try_clone().unwrap();
    let written = {
        let bytes = bytes.clone();
        thread::spawn(move || writer.write_all(&bytes).unwrap())
    };
    // While its output is stuck, others are served.
    let mut other = connect(running.address);
    for round in 0..1000 {
        echoes(&mut other, &pattern(round, 100));
    }
    let mut back = vec![0; bytes.len()];
    for part in back.chunks_mut(9973) {
        slow.read_exact(part).unwrap();
    }
    assert!(back == bytes);
    written.join().unwrap();
    stop(running);
}

#[test]
fn what_was_sent_before_the_other_side_closed_its_half_is_answered() {
    let running = start(Baseline::Echo, Idle::Park);
    for size in [1, 5000, 3 << 20] {
        let mut stream = connect(running.address);
        let bytes = pattern(size as u32, size);
        let mut reader = stream.try_clone().unwrap();
        let reader = thread::spawn(move || {
            let mut back = Vec::new();
            reader.read_to_end(&mut back).map(|_| back)
        });
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(reader.join().unwrap().unwrap() == bytes);
    }
    stop(running);
}

#[test]
fn resets_in_every_state_leave_the_others_alone() {
    let running = start(Baseline::Echo, Idle::Park);
    let mut witness = connect(running.address);
    for round in 0..300 {
        let mut stream = connect(running.address);
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        match round % 3 {
            0 => {}
            1 => echoes(&mut stream, b"hello"),
            _ => stream.write_all(&pattern(round, 200_000)).unwrap(),
        }
        drop(stream);
        echoes(&mut witness, &pattern(round, 10));
    }
    drop(witness);
    stop(running);
}

#[test]
fn a_thousand_connections_that_close_at_once() {
    let running = start(Baseline::Echo, Idle::Park);
    for _ in 0..3 {
        let mut streams: Vec<_> = (0..1000).map(|_| connect(running.address)).collect();
        for (seed, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&pattern(seed as u32, 64)).unwrap();
        }
        for (seed, stream) in streams.iter_mut().enumerate() {
            let mut back = [0; 64];
            stream.read_exact(&mut back).unwrap();
            assert!(back[..] == pattern(seed as u32, 64));
        }
        drop(streams);
        echoes(&mut connect(running.address), b"still here");
    }
    stop(running);
}

#[test]
fn a_thousand_connections_with_more_bytes_than_there_are_buffers() {
    let running = start(Baseline::Echo, Idle::Adaptive { spin: Duration::from_micros(20) });
    let size = 50_000;
    let mut streams: Vec<_> = (0..1000).map(|_| connect(running.address)).collect();
    for (seed, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&pattern(seed as u32, size)).unwrap();
    }
    let mut back = vec![0; size];
    for (seed, stream) in streams.iter_mut().enumerate() {
        stream.read_exact(&mut back).unwrap();
        assert!(back == pattern(seed as u32, size));
    }
    stop(running);
    for stream in &mut streams {
        assert!(is_closed(stream));
    }
}

#[test]
fn stopping_ends_a_connection_that_reads_nothing() {
    let running = start(Baseline::Echo, Idle::Park);
    let mut stream = connect(running.address);
    stream.set_nonblocking(true).unwrap();
    let bytes = pattern(3, 1 << 20);
    // Until nothing moves any more.
    let mut quiet = 0;
    while quiet < 20 {
        match stream.write(&bytes) {
            Ok(_) => quiet = 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                quiet += 1;
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
    stop(running);
    stream.set_nonblocking(false).unwrap();
    assert!(is_closed(&mut stream));
}

#[test]
fn the_relay_forwards_producers_to_the_consumer() {
    let running = start(Baseline::Relay, Idle::Adaptive { spin: Duration::from_micros(20) });
    let mut consumer = connect(running.address);
    consumer.write_all(&[CONSUMER]).unwrap();
    let size = 40 << 20;
    let mut producer = connect(running.address);
    producer.write_all(&[PRODUCER]).unwrap();
    // The consumer's first byte may still be on its way; once a byte came through it is not.
    let mut probe = [0];
    consumer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    while consumer.read(&mut probe).is_err() {
        producer.write_all(&[1]).unwrap();
    }
    consumer.set_read_timeout(Some(PATIENCE)).unwrap();
    producer.write_all(&[2]).unwrap();
    while probe != [2] {
        consumer.read_exact(&mut probe).unwrap();
    }
    let bytes = pattern(11, size);
    let expected = bytes.clone();
    let writer = thread::spawn(move || {
        for part in bytes.chunks(65_536) {
            producer.write_all(part).unwrap();
        }
        producer
    });
    let mut back = vec![0; size];
    consumer.read_exact(&mut back).unwrap();
    assert!(back == expected);
    drop(writer.join().unwrap());
    stop(running);
}
