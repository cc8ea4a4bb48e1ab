//! What is done to a socket outside the ring?
#![expect(unsafe_code, reason = "descriptors travel through the shard as numbers")]

use corelane_shard::Socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Gives the descriptor to whoever has the number.
pub(super) fn into_socket(descriptor: OwnedFd) -> Socket {
    Socket(descriptor.into_raw_fd() as u64)
}

/// Takes the descriptor back. Once for each [`into_socket`]: a shard asks once for a socket to be registered, and what is
/// on its way from shard to shard is in one place.
pub(super) fn from_socket(socket: Socket) -> OwnedFd {
    let descriptor = RawFd::try_from(socket.0).expect("sockets are made by `into_socket`");
    // SAFETY: the number came from `into_socket`, and this is the only time it is turned back (see above).
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Tells the peer that nothing more will come.
pub(super) fn end_output(socket: impl AsFd) -> Result<(), Errno> {
    shutdown(socket, Shutdown::Write)
}

/// Whether the peer has ended its side, or the connection, whatever of it is still to be read.
pub(super) fn has_hung_up(socket: impl AsFd) -> bool {
    let mut watched = [PollFd::new(&socket, PollFlags::RDHUP)];
    let looked = poll(&mut watched, Some(&Timespec::default()));
    looked.is_ok() && watched[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// Makes every operation on the socket complete.
pub(super) fn end_all(socket: impl AsFd) {
    // It may have ended by itself.
    let _ = shutdown(socket, Shutdown::Both);
}

/// When it is closed, what was not sent is thrown away and the peer is told that the connection is gone.
pub(super) fn reset_on_close(socket: impl AsFd) {
    // Fails for no socket that we have; without it the kernel would go on sending for a while.
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}
