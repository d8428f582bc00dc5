//! What the driver's process and the sandbox's worker say to each other: one request with its descriptors, then
//! one line of JSON for each phase, over a socket that also tells each of them that the other is gone.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use sandglass_run::Waiver;
use serde::{Deserialize, Serialize};

use crate::cgroup::{Counted, InForce, Wanted};
use crate::error::SandboxError;
use crate::spec::Identity;

/// Longest message of either side, in bytes.
const LONGEST: usize = 64 << 10;
/// Descriptors that come with a request: stdin, stdout and stderr of the process to be, and one more.
pub(crate) const DESCRIPTORS: usize = 4;

/// What the worker is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Request {
    pub run_id: String,
    pub state_root: PathBuf,
    pub rootfs: PathBuf,
    pub args: Vec<String>,
    pub identity: Identity,
    pub scratch_bytes: u64,
    pub pids: u32,
    pub cgroup: Wanted,
    pub waived: Vec<Waiver>,
}

impl Request {
    pub(crate) fn waives(&self, layer: Waiver) -> bool {
        self.waived.contains(&layer)
    }
}

/// Descriptors that travel with a [`Request`].
#[derive(Debug)]
pub(crate) struct Descriptors {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// The file whose byte lock holds the run's range of ids; `/dev/null` for an ordinary user.
    pub ids: OwnedFd,
}

impl From<[OwnedFd; DESCRIPTORS]> for Descriptors {
    fn from([stdin, stdout, stderr, ids]: [OwnedFd; DESCRIPTORS]) -> Self {
        Self {
            stdin,
            stdout,
            stderr,
            ids,
        }
    }
}

/// What the worker answers, in this order: `Ready` or `Failed`, then, when PID 1 is gone, `Ended`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Ready(Box<HostObserved>),
    Failed(SandboxError),
    Ended(Ended),
}

/// What was read back from the kernel, from outside, once PID 1 ran its own program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostObserved {
    /// PID 1's id outside.
    pub pid: i32,
    /// Real, effective, saved and file-system uid outside.
    pub uids: Vec<u32>,
    /// Real, effective, saved and file-system gid outside.
    pub gids: Vec<u32>,
    /// Supplementary groups outside.
    pub groups: Vec<u32>,
    /// `/proc/PID/uid_map`, spaces squeezed.
    pub uid_map: String,
    /// `/proc/PID/gid_map`, spaces squeezed.
    pub gid_map: String,
    /// Inheritable, permitted, effective, bounding and ambient capabilities.
    pub capabilities: [u64; 5],
    /// `NoNewPrivs`.
    pub no_new_privileges: bool,
    /// `Seccomp`: 2 is filter mode.
    pub seccomp_mode: u32,
    /// `Seccomp_filters`, as counted by the kernel, those of our own process included.
    pub seccomp_filters: u32,
    /// Filters that our own process was under before it added the sandbox's.
    pub seccomp_filters_inherited: u32,
    /// Namespaces that differ from ours: `user`, `pid`, `mnt`, `net`, `ipc`, `uts`, `cgroup`.
    pub namespaces: Vec<String>,
    /// Landlock ABI in force; absent when waived.
    pub landlock_abi: Option<u32>,
    /// Limits read back from the cgroup.
    pub limits: InForce,
    /// What the run went without, by the person's choice.
    pub waived: Vec<Waiver>,
    /// Milliseconds of the worker's phases: name and time.
    pub phases: Vec<(String, f64)>,
}

/// How a sandbox ended and what it used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Exit code of PID 1, the runner, which is 0 after a complete run.
    pub code: Option<i32>,
    /// Signal that ended PID 1.
    pub signal: Option<i32>,
    /// CPU time of everything inside, in milliseconds.
    pub cpu_ms: u64,
    /// What the cgroup counted.
    pub counted: Counted,
    /// What could not be taken away, by name.
    pub left: Option<String>,
}

/// Sends a request with its descriptors.
pub(crate) fn send_request<T: Serialize>(
    socket: &UnixStream,
    request: &T,
    fds: &[BorrowedFd<'_>; DESCRIPTORS],
) -> std::io::Result<()> {
    let body = serde_json::to_vec(request).map_err(std::io::Error::other)?;
    if body.len() > LONGEST {
        return Err(std::io::Error::other("the request is longer than 64 KiB"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(std::io::Error::other("no room for the descriptors"));
    }
    // A fresh stream socket takes 64 KiB in one piece: its buffer is larger and empty.
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&body)], &mut ancillary, SendFlags::empty())?;
    if sent == body.len() {
        Ok(())
    } else {
        Err(std::io::ErrorKind::WriteZero.into())
    }
}

/// Receives what [`send_request`] sent: the request, and the descriptors in their order.
pub(crate) fn receive_request<T: serde::de::DeserializeOwned>(
    socket: &UnixStream,
) -> std::io::Result<(T, [OwnedFd; DESCRIPTORS])> {
    let mut body = vec![0_u8; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut body)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let fds: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    let fds = fds
        .try_into()
        .map_err(|_| std::io::Error::other("the request lacks a descriptor"))?;
    let request = serde_json::from_slice(&body[..got.bytes]).map_err(std::io::Error::other)?;
    Ok((request, fds))
}

/// Sends one reply.
pub(crate) fn send_reply(mut socket: &UnixStream, reply: &Reply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply).map_err(std::io::Error::other)?;
    line.push(b'\n');
    socket.write_all(&line)
}

/// The driver's end: reads replies one by one.
#[derive(Debug)]
pub(crate) struct Replies {
    socket: BufReader<UnixStream>,
}

impl Replies {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self {
            socket: BufReader::with_capacity(4096, socket),
        }
    }

    /// The next reply; an end of file when the worker is gone.
    pub(crate) fn next(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        let mut bounded = std::io::Read::take(&mut self.socket, LONGEST as u64);
        if bounded.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&line).map_err(std::io::Error::other)
    }

    /// Tells the worker to end the sandbox now.
    pub(crate) fn hang_up(&self) -> std::io::Result<()> {
        self.socket.get_ref().shutdown(std::net::Shutdown::Write)
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        self.socket.get_ref()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn request() -> Request {
        Request {
            run_id: "r".into(),
            state_root: "/state".into(),
            rootfs: "/rootfs".into(),
            args: vec!["/bin/true".into()],
            identity: Identity::Range { base: 7 },
            scratch_bytes: 1,
            pids: 1,
            cgroup: Wanted::default(),
            waived: vec![Waiver::Memory],
        }
    }

    #[test]
    fn a_request_arrives_whole_with_its_descriptors() {
        let (left, right) = UnixStream::pair().unwrap();
        let files: Vec<_> = (0..DESCRIPTORS).map(|_| tempfile::tempfile().unwrap()).collect();
        let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        send_request(&left, &request(), fds.as_slice().try_into().unwrap()).unwrap();
        let (got, descriptors) = receive_request::<Request>(&right).unwrap();
        let descriptors = Descriptors::from(descriptors);
        assert_eq!(got.identity, Identity::Range { base: 7 });
        assert!(got.waives(Waiver::Memory) && !got.waives(Waiver::Pids));
        let ino = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(ino(descriptors.stdin.as_fd()), ino(files[0].as_fd()));
        assert_eq!(ino(descriptors.ids.as_fd()), ino(files[3].as_fd()));
    }

    #[test]
    fn a_request_without_descriptors_is_refused() {
        let (mut left, right) = UnixStream::pair().unwrap();
        left.write_all(&serde_json::to_vec(&request()).unwrap()).unwrap();
        let error = receive_request::<Request>(&right).unwrap_err();
        assert!(error.to_string().contains("lacks a descriptor"), "{error}");
    }

    #[test]
    fn replies_come_in_order_and_the_end_is_told() {
        let (left, right) = UnixStream::pair().unwrap();
        send_reply(&left, &Reply::Ready(Box::default())).unwrap();
        send_reply(
            &left,
            &Reply::Ended(Ended {
                code: Some(0),
                ..Ended::default()
            }),
        )
        .unwrap();
        drop(left);
        let mut replies = Replies::new(right);
        assert!(matches!(replies.next().unwrap(), Reply::Ready(_)));
        assert!(matches!(
            replies.next().unwrap(),
            Reply::Ended(Ended { code: Some(0), .. })
        ));
        assert_eq!(
            replies.next().unwrap_err().kind(),
            std::io::ErrorKind::UnexpectedEof
        );
    }
}
