//! The shim's side of a worker: start it, give it its request, read its answer.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::mount::MountAttrFlags;
use rustix::process::{Pid, PidfdFlags};

use super::{Done, Request};
use crate::control::{self, DESCRIPTORS};
use crate::mounts::clone_tree;

/// The hidden word that makes a process of ours a worker for containers.
pub(super) const WORKER: &str = "sandbox-container";

/// Our own program, through a mount of its own that cannot be written to.
///
/// A container's first process is a copy of the worker until it executes its program. Whoever reaches its
/// `/proc/PID/exe` in that moment, as CVE-2019-5736 did with runc's, finds a file that refuses to be opened for
/// writing, for good: the mount is in no tree, so nothing can remount it.
#[derive(Debug)]
pub struct Worker(OwnedFd);

/// Opens our own program for [`spawn`]. Once for each shim.
///
/// # Errors
/// The kernel is older than 5.12, or the caller may not mount.
pub fn own_program() -> std::io::Result<Worker> {
    let own = std::fs::read_link("/proc/self/exe")?;
    let tree = clone_tree(&own, false)?;
    crate::sys::set_mount_attributes(
        &tree,
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID,
    )?;
    // The name may lead to another file by now, after an upgrade: the worker must be of our own version.
    let same = rustix::fs::stat("/proc/self/exe")?;
    let found = rustix::fs::fstat(&tree)?;
    if (same.st_dev, same.st_ino) != (found.st_dev, found.st_ino) {
        return Err(std::io::Error::other(
            "our own program was replaced while it started",
        ));
    }
    Ok(Worker(tree))
}

/// A worker at work. It is a child of the caller, which has to wait for it.
#[derive(Debug)]
pub struct Spawned {
    /// Its id.
    pub pid: i32,
    /// Becomes readable when it has ended.
    pub pidfd: OwnedFd,
    /// Its answer comes here, then the end of file.
    pub answer: UnixStream,
}

/// Why a worker gave no container: the sentence that it said, or how it ended.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// Starts a worker and gives it its request. `stdio` becomes the new process's; through `status` PID 1 says what it does
/// before its program begins.
///
/// # Errors
/// No process or descriptor can be had, or the request is too long.
pub fn spawn(
    program: &Worker,
    request: &Request,
    stdio: [BorrowedFd<'_>; 3],
    status: Option<BorrowedFd<'_>>,
) -> std::io::Result<Spawned> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new(format!("/proc/self/fd/{}", program.0.as_raw_fd()))
        .arg(WORKER)
        .env_clear()
        // The container library looks for helpers in PATH and fails where there is none.
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let pid = i32::try_from(child.id()).map_err(std::io::Error::other)?;
    let raw = Pid::from_raw(pid).ok_or(std::io::ErrorKind::NotFound)?;
    let pidfd = rustix::process::pidfd_open(raw, PidfdFlags::empty())?;
    let [stdin, stdout, stderr] = stdio;
    // The transport always carries as many; a worker that makes no first process looks at three.
    let fds: [BorrowedFd<'_>; DESCRIPTORS] = [stdin, stdout, stderr, status.unwrap_or(stderr)];
    control::send_request(&ours, request, &fds)?;
    ours.shutdown(std::net::Shutdown::Write)?;
    Ok(Spawned {
        pid,
        pidfd,
        answer: ours,
    })
}

/// Reads a worker's answer from all that it wrote.
///
/// # Errors
/// What it said went wrong, or that it said nothing.
pub fn parse_reply(body: &[u8]) -> Result<Done, Failed> {
    if body.is_empty() {
        return Err(Failed("the sandbox worker ended without an answer".into()));
    }
    serde_json::from_slice::<Result<Done, String>>(body)
        .map_err(|error| Failed(format!("the sandbox worker's answer cannot be read: {error}")))?
        .map_err(Failed)
}

/// `/dev/null`, for a stream that nobody wants.
pub(super) fn null() -> std::io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}
