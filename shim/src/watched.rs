//! A descriptor that the reactor watches.

#![allow(unsafe_code)]

use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the reactor watch a descriptor until it can be read.
///
/// # Errors
/// The reactor takes no more, or the descriptor is of a kind that cannot be watched.
pub fn readable(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd owns the descriptor, and an OwnedFd answers with the same open descriptor all its life, which
    // is what the reactor's registration relies on.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(std::io::Error::from)
}
