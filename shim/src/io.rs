//! The streams of a process: pipes or a terminal on its side, containerd's FIFOs on the other.
//!
//! A FIFO is never handed to a process: containerd may be restarted, and a process would see its output break. The
//! copying between the two is containerd-shim's, which keeps the FIFOs open on both ends.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use containerd_shim::asynchronous::io::{IoTasks, Pty, Stdio};
use tokio::net::unix::pipe;

use crate::error::{Result, failed, invalid};

/// The ends that the worker is given for the new process.
#[derive(Debug)]
pub struct Theirs {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Theirs {
    /// In the order of their numbers.
    pub fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [self.stdin.as_fd(), self.stdout.as_fd(), self.stderr.as_fd()]
    }
}

/// The ends that the shim keeps until the process stands.
#[derive(Debug, Default)]
pub struct Ours {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

/// Checks what containerd wants for streams: paths of FIFOs, or nothing.
///
/// # Errors
/// An address of another kind: a shim that honours `binary://` runs what a label says, as root, on the host.
pub fn check(stdio: &Stdio) -> Result<()> {
    for (name, address) in [
        ("stdin", &stdio.stdin),
        ("stdout", &stdio.stdout),
        ("stderr", &stdio.stderr),
    ] {
        if !(address.is_empty() || address.starts_with('/')) {
            let scheme = address.split(':').next().unwrap_or_default();
            return Err(invalid(format!(
                "{name} is an address of the kind `{scheme}:`, and this runtime writes to FIFOs only: leave the log URI out"
            )));
        }
    }
    Ok(())
}

/// Makes the pipes of a process without a terminal. `uid` may open its own streams by name, as `/dev/stdout`.
///
/// # Errors
/// No descriptors are left.
pub fn pipes(stdio: &Stdio, uid: u32) -> Result<(Theirs, Ours)> {
    let io = |error: std::io::Error| failed("making the pipes of a process", error);
    let mut ours = Ours::default();
    let mut end = |address: &str, keep: fn(&mut Ours) -> &mut Option<OwnedFd>, theirs_reads: bool| {
        if address.is_empty() {
            return null();
        }
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (theirs, kept) = if theirs_reads {
            (read, write)
        } else {
            (write, read)
        };
        rustix::fs::fchown(&theirs, Some(rustix::fs::Uid::from_raw(uid)), None)?;
        *keep(&mut ours) = Some(kept);
        Ok(theirs)
    };
    let theirs = Theirs {
        stdin: end(&stdio.stdin, |ours| &mut ours.stdin, true).map_err(io)?,
        stdout: end(&stdio.stdout, |ours| &mut ours.stdout, false).map_err(io)?,
        stderr: end(&stdio.stderr, |ours| &mut ours.stderr, false).map_err(io)?,
    };
    Ok((theirs, ours))
}

/// The streams of a process that gets its terminal from elsewhere.
///
/// # Errors
/// No descriptors are left.
pub fn nowhere() -> Result<Theirs> {
    let null = || null().map_err(|error| failed("opening /dev/null", error));
    Ok(Theirs {
        stdin: null()?,
        stdout: null()?,
        stderr: null()?,
    })
}

/// Starts copying between the pipes and the FIFOs.
///
/// # Errors
/// A FIFO that is not there.
pub fn copy(tasks: &IoTasks, stdio: &Stdio, ours: Ours) -> Result<()> {
    let io = |error: std::io::Error| failed("copying the streams", error);
    let shim = |error: containerd_shim::Error| failed("opening the FIFOs", error);
    if let Some(fd) = ours.stdin {
        tasks
            .copy_from_fifo(&stdio.stdin, pipe::Sender::from_owned_fd(fd).map_err(io)?)
            .map_err(shim)?;
    }
    if let Some(fd) = ours.stdout {
        tasks
            .copy_to_fifo(pipe::Receiver::from_owned_fd(fd).map_err(io)?, &stdio.stdout)
            .map_err(shim)?;
    }
    if let Some(fd) = ours.stderr {
        tasks
            .copy_to_fifo(pipe::Receiver::from_owned_fd(fd).map_err(io)?, &stdio.stderr)
            .map_err(shim)?;
    }
    Ok(())
}

/// Starts copying between a terminal and the FIFOs.
///
/// # Errors
/// As [`copy`].
pub fn copy_terminal(tasks: &IoTasks, stdio: &Stdio, master: OwnedFd) -> Result<Pty> {
    let shim = |error: containerd_shim::Error| failed("copying the terminal", error);
    let pty = Pty::new(File::from(master)).map_err(shim)?;
    if !stdio.stdin.is_empty() {
        tasks.copy_from_fifo(&stdio.stdin, pty.clone()).map_err(shim)?;
    }
    if !stdio.stdout.is_empty() {
        tasks.copy_to_fifo(pty.clone(), &stdio.stdout).map_err(shim)?;
    }
    Ok(pty)
}

fn null() -> std::io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_a_path_or_nothing() {
        assert!(check(&Stdio::new("/run/fifo/in", "/run/fifo/out", "", false)).is_ok());
        for address in ["binary:///bin/sh", "file:///etc/passwd", "relative", "pty://x"] {
            let error = check(&Stdio::new("", address, "", false))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("stdout") && error.contains("FIFOs only"),
                "{error}"
            );
        }
    }
}
