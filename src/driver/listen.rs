//! How are connections accepted?
//!
//! The first shard accepts them, with one lasting accept for each listener, and deals them out to all shards in turn. Were
//! every shard to accept from the same socket, the kernel would wake the one that waits longest for the first of a burst, and
//! this one would take the rest; sockets of their own that share the port would spread by chance (two producers and two
//! consumers may well meet on one shard) and let other programs of the same user in on the port. Dealing costs one mail for each
//! connection. It does mean that nobody gets in while the first shard stands still.
//!
//! What is set on a listener its connections inherit: no delay of small writes, and probes that find dead peers.

use corelane_shard::Peer;
use rustix::net::getpeername;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

/// A peer that has been silent for so long is probed, so that half-open connections without an idle timeout are found.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// How long to wait for a port. The kernel takes the ring of a killed process apart after the process is gone, and until then
/// its listeners hold their ports: a broker that is started again at once must not fail for that.
const PORT_PATIENCE: Duration = Duration::from_secs(1);
const PORT_RETRY_EVERY: Duration = Duration::from_millis(10);

/// A socket that listens.
#[derive(Debug)]
pub struct Listening {
    socket: OwnedFd,
    address: SocketAddr,
}

/// Binds and listens. A port that another process has is an error, after a second; a port that was used a moment ago is not.
/// An IPv6 address stands for IPv6 alone.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<Listening> {
    let give_up = Instant::now() + PORT_PATIENCE;
    loop {
        match try_to_listen(address, backlog) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < give_up => {
                thread::sleep(PORT_RETRY_EVERY);
            }
            result => return result,
        }
    }
}

fn try_to_listen(address: SocketAddr, backlog: i32) -> io::Result<Listening> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    set_options(&SockRef::from(&socket))?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    let bound = socket.local_addr()?.as_socket();
    Ok(Listening { socket: socket.into(), address: bound.unwrap_or(address) })
}

fn set_options(socket: &SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive)
}

impl Listening {
    /// Where; the port is the real one if any was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Who is at the other end of a connection that was accepted here.
    pub(super) fn peer(&self, socket: &OwnedFd) -> Peer {
        let address =
            getpeername(socket).ok().flatten().and_then(|address| SocketAddr::try_from(address).ok());
        let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        // Nobody else reaches a loopback address.
        Peer { loopback: is_loopback(self.address) || address.is_some_and(is_loopback), address }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpStream};

    fn accept_one(address: &str) -> (Listening, OwnedFd) {
        let listening = listen(address.parse().unwrap(), 8).unwrap();
        let port = listening.address().port();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let socket = rustix::net::accept(listening.socket()).unwrap();
        (listening, socket)
    }

    #[test]
    fn a_connection_inherits_what_its_listener_has() {
        let (_, socket) = accept_one("127.0.0.1:0");
        let socket = SockRef::from(&socket);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_AFTER);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_EVERY);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_PROBES);
    }

    #[test]
    fn a_local_peer_is_known_on_any_listener() {
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let (listening, socket) = accept_one(address);
            let peer = listening.peer(&socket);
            assert!(peer.loopback);
            assert_eq!(peer.address.unwrap().ip().to_canonical(), Ipv4Addr::LOCALHOST);
        }
    }

    #[test]
    fn a_port_that_somebody_has_is_an_error() {
        let first = listen("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let error = listen(first.address(), 8).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
