//! The process and the machine: limits that are too low, ports that are not free yet, and a broker that dies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The echo yardstick: it starts as a shard does, and needs no client.
struct Echo {
    process: Child,
    address: SocketAddr,
}

impl Echo {
    /// With limits as `ulimit` takes them.
    fn start(limits: &str, listen: &str) -> Echo {
        let mut command = with_limits(limits, &["baseline", "echo", "--idle", "park", "--listen", listen]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("the address").parse().unwrap();
        Echo { process, address }
    }

    fn signal(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < give_up, "it ends in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn with_limits(limits: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{limits} exec \"$0\" \"$@\"")).arg(env!("CARGO_BIN_EXE_corelane"));
    command.args(arguments);
    command
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn echoes(stream: &mut TcpStream) {
    stream.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
}

#[test]
fn a_killed_process_gives_its_port_back_to_the_next() {
    let mut address = "127.0.0.1:0".to_owned();
    for _ in 0..5 {
        let mut echo = Echo::start("", &address);
        address = echo.address.to_string();
        let mut streams: Vec<_> = (0..20).map(|_| connect(echo.address)).collect();
        streams.iter_mut().for_each(echoes);
        assert_eq!(echo.signal(Signal::KILL), None);
    }
}

#[test]
fn a_stop_ends_with_zero() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut echo = Echo::start("", "127.0.0.1:0");
        let mut stream = connect(echo.address);
        echoes(&mut stream);
        assert_eq!(echo.signal(signal), Some(0));
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "closed in order, not reset");
    }
}

/// Whatever the process is busy with: here it waits with a complaint about its arguments that is longer than a pipe.
#[test]
fn a_broker_takes_signals_before_it_reads_its_arguments() {
    let unknown = format!("--{}", "x".repeat(100_000));
    let mut command = with_limits("", &["serve", &unknown]);
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut error = process.stderr.take().unwrap();
    error.read_exact(&mut [0]).unwrap();
    kill_process(Pid::from_child(&process), Signal::HUP).unwrap();
    error.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(2));
}

#[test]
fn connections_beyond_the_file_limit_wait_until_others_go() {
    let echo = Echo::start("ulimit -n 100;", "127.0.0.1:0");
    let mut streams: Vec<_> = (0..150).map(|_| connect(echo.address)).collect();
    // Those that were accepted are served while others wait.
    for stream in &mut streams[..40] {
        echoes(stream);
    }
    let mut late = streams.split_off(100);
    drop(streams);
    late.iter_mut().for_each(echoes);
}

#[test]
fn too_little_locked_memory_is_told_with_what_to_do() {
    let mut command = with_limits("ulimit -l 64;", &["--in-memory", "--listen", "127.0.0.1:0"]);
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    for part in ["64 KiB", "ulimit -l", "LimitMEMLOCK"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_core_that_is_not_there_is_told() {
    let mut command = with_limits("", &["--in-memory", "--listen", "127.0.0.1:0", "--cores", "900"]);
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("core 900 cannot be used"), "{message}");
}
