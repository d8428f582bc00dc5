//! The terminal of a process: the container library sends its other end through a socket.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::error::{Result, failed};

/// The container library sends before its process stands, so it is there already.
const COMES_WITHIN: Duration = Duration::from_secs(2);

/// A socket that waits for a terminal.
#[derive(Debug)]
pub struct Console {
    listener: UnixListener,
    path: PathBuf,
}

impl Console {
    /// Makes the socket, in a directory that nobody else may enter.
    ///
    /// # Errors
    /// The file system's.
    pub fn listen(dir: &Path, name: &str) -> Result<Self> {
        let open = std::fs::File::open(dir).map_err(|error| failed("opening the state directory", error))?;
        let path = dir.join(name);
        // The whole path may be longer than a socket's name can be.
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()))
            .map_err(|error| failed("making the console socket", error))?;
        Ok(Self { listener, path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the terminal's other end, once the process stands.
    ///
    /// # Errors
    /// Nobody sent one.
    pub async fn receive(&self) -> Result<OwnedFd> {
        let failed = |error: std::io::Error| failed("receiving the terminal", error);
        self.listener.set_nonblocking(true).map_err(failed)?;
        let listener = self
            .listener
            .try_clone()
            .and_then(tokio::net::UnixListener::from_std)
            .map_err(failed)?;
        let (stream, _) = tokio::time::timeout(COMES_WITHIN, listener.accept())
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            .map_err(failed)?;
        tokio::time::timeout(COMES_WITHIN, stream.readable())
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            .map_err(failed)?;
        descriptor(&stream).map_err(failed)
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn descriptor(stream: &impl AsFd) -> std::io::Result<OwnedFd> {
    let mut body = [0_u8; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut body)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    ancillary
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or_else(|| std::io::Error::other("the message carries no descriptor"))
}
