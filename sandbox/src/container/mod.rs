//! A container of a pod, for a containerd shim: made, joined, started and taken away.
//!
//! Each step that forks happens in a worker of its own, a re-executed process with one thread that ends with the step
//! ([`worker_main`]). The container's processes are born as the worker's siblings, so that they are children of the
//! shim, which waits for them. What a container is made of lies in one directory, `BUNDLE/sandglass`, mode 0700, so
//! that [`remove`] needs nothing but the disk when the shim was killed.
//!
//! ```text
//! shim ── worker: create      gone when the container stands
//!   ├──── PID 1               waits at its socket for [`start`]
//!   ├──── worker: exec        gone when the program runs
//!   └──── exec'ed process
//! ```

mod cwd;
mod hierarchy;
mod idmap;
mod joining;
mod launch;
mod mapped_root;
mod prepare;
mod propagation;
mod userns;
mod volumes;
mod worker;

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespace, Spec};
use serde::{Deserialize, Serialize};

use crate::cgroup::PodCgroup;

pub use crate::observe::Observed;
pub use crate::sys::{cloexec_from_three, signal_process, some_zombie};
pub use idmap::IdMap;
pub use launch::{Failed, Spawned, Worker, own_program, parse_reply, spawn};
pub use mapped_root::{map_mounted, mount_mapped_overlay};
pub use worker::{Prepare, has_own_pid_namespace, is_unborn, is_worker, kill, prctl_thp, worker_main};

/// The directory of a container's state, in its bundle.
pub const STATE: &str = "sandglass";
/// Longest id: containerd's own bound.
const LONGEST_ID: usize = 76;

/// How a container is made: what the request to the worker says besides descriptors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Create {
    /// The container's id.
    pub id: String,
    /// containerd's bundle.
    pub bundle: PathBuf,
    /// Landlock, the profile `strict`: everything that no OCI spec can say. The spec itself was hardened before.
    pub confined: bool,
    /// systemd makes the cgroup.
    pub systemd_cgroup: bool,
    /// The socket that gets the terminal's other end, for a process that has one.
    pub console: Option<PathBuf>,
    /// The working directory of the overlay that is the root, where that is mounted `volatile`.
    pub volatile: Option<PathBuf>,
    /// What the caller's own preparation needs, such as the mounts of the root.
    pub prepare: serde_json::Value,
}

/// How a process joins a container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Exec {
    /// The container's id.
    pub id: String,
    /// containerd's bundle.
    pub bundle: PathBuf,
    /// As [`Create::confined`].
    pub confined: bool,
    /// The OCI process, as JSON, in the state directory.
    pub process: PathBuf,
    /// As [`Create::console`].
    pub console: Option<PathBuf>,
}

/// What a worker is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Make a container, up to the point where only its program is missing.
    Create(Create),
    /// Start a process in one.
    Exec(Exec),
}

/// What a worker did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The new process, by its id outside.
    pub pid: i32,
    /// Landlock ABI in force, where the program runs already and Landlock was asked for.
    pub landlock_abi: Option<u32>,
    /// What this host could not give and the container went without, a sentence each.
    pub warnings: Vec<String>,
    /// Milliseconds by phase, in their order.
    pub phases: Vec<(String, f64)>,
}

/// What is on disk of a container, beside the container library's own state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its control groups.
    pub cgroup: PodCgroup,
    /// As [`Create::volatile`].
    #[serde(default)]
    pub volatile: Option<PathBuf>,
}

/// The places below a bundle.
#[derive(Debug, Clone)]
pub struct Places {
    /// `BUNDLE/sandglass`.
    pub state: PathBuf,
    /// `BUNDLE/rootfs`, where containerd wants the root mounted.
    pub rootfs: PathBuf,
}

impl Places {
    /// Those of a bundle.
    pub fn of(bundle: &Path) -> Self {
        Self {
            state: bundle.join(STATE),
            rootfs: bundle.join("rootfs"),
        }
    }

    /// The spec in force, hardened where that was asked for, as [`write_spec`] left it.
    pub fn spec(&self) -> PathBuf {
        self.state.join("spec.json")
    }

    fn record(&self) -> PathBuf {
        self.state.join("record.json")
    }

    /// The bundle that the container library is given.
    fn bundle(&self) -> PathBuf {
        self.state.join("bundle")
    }

    /// The container library's own state.
    fn library(&self) -> PathBuf {
        self.state.join("library")
    }
}

/// The namespaces that a spec lists.
fn namespaces(spec: &Spec) -> impl Iterator<Item = &LinuxNamespace> {
    let linux = spec.linux().as_ref();
    linux
        .and_then(|linux| linux.namespaces().as_ref())
        .into_iter()
        .flatten()
}

/// True for an id that can be a name in a directory.
pub fn is_id(id: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (1..=LONGEST_ID).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.chars().all(plain)
}

/// Makes the state directory, mode 0700, and writes the spec in force there.
///
/// # Errors
/// The file system's.
pub fn write_spec(bundle: &Path, spec: &Spec) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let places = Places::of(bundle);
    std::fs::DirBuilder::new().mode(0o700).create(&places.state)?;
    serde_json::to_vec(spec)
        .map_err(std::io::Error::from)
        .and_then(|body| std::fs::write(places.spec(), body))
        .inspect_err(|_| {
            // Half a state, on a full disk, would be in the way of the next try.
            let _ = std::fs::remove_dir_all(&places.state);
        })
}

/// Reads the spec in force.
///
/// # Errors
/// It is not there, or not a spec.
pub fn read_spec(bundle: &Path) -> std::io::Result<Spec> {
    Ok(serde_json::from_slice(&std::fs::read(
        Places::of(bundle).spec(),
    )?)?)
}

/// Reads what is on disk of a container. `None` where none was begun.
///
/// # Errors
/// The file cannot be read or is not a record.
pub fn read_record(bundle: &Path) -> std::io::Result<Option<Record>> {
    match std::fs::read(Places::of(bundle).record()) {
        Ok(body) => Ok(Some(serde_json::from_slice(&body)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes what is on disk of a container, in place of what was there: at no moment is there half of it, since a worker
/// may be killed at any.
fn write_record(places: &Places, record: &Record) -> std::io::Result<()> {
    let body = serde_json::to_vec(record)?;
    let new = places.state.join("record.new");
    std::fs::write(&new, body)?;
    std::fs::rename(new, places.record())
}

/// The first process, by its id outside, as the container library noted it: for one whose shim was lost. `None` where it was
/// not made, or is not told.
pub fn noted_pid(bundle: &Path, id: &str) -> Option<u32> {
    #[derive(Deserialize)]
    struct Noted {
        pid: Option<u32>,
    }
    let body = std::fs::read(Places::of(bundle).library().join(id).join("state.json")).ok()?;
    serde_json::from_slice::<Noted>(&body).ok()?.pid
}

/// Lets the program of a created container begin. Does not block: PID 1 waits at the other end of the socket.
///
/// # Errors
/// PID 1 is gone.
pub fn start(bundle: &Path, id: &str) -> std::io::Result<()> {
    let dir = std::fs::File::open(Places::of(bundle).library().join(id))?;
    // The path may be longer than a socket's name can be.
    let short = format!("/proc/self/fd/{}/notify.sock", dir.as_raw_fd());
    UnixStream::connect(short)?.write_all(b"start container")
}

/// Takes the Landlock ABI in force from what PID 1 said between its creation and its `execve`: all that came through the
/// pipe, whose end is the `execve` itself.
///
/// # Errors
/// The sentence in which it said why it could not begin.
pub fn parse_status(said: &str) -> Result<Option<u32>, String> {
    crate::worker::parse_status(said).map_err(|error| match error {
        crate::SandboxError::Container { reason, .. } => reason,
        other => other.to_string(),
    })
}

/// Takes away everything of a container that a shim may have left: its processes, its cgroups, the mount of its root,
/// its state. Not an error where there is nothing. Blocks.
///
/// # Errors
/// What is still there, by name.
pub fn remove(bundle: &Path) -> Result<(), String> {
    let places = Places::of(bundle);
    let mut left = Vec::new();
    match read_record(bundle) {
        Ok(Some(record)) => {
            left.extend(record.cgroup.remove().err());
            left.extend(unmount(&places.rootfs).err());
            record.volatile.as_deref().map(forget_volatile);
        }
        Ok(None) => left.extend(unmount(&places.rootfs).err()),
        Err(error) => left.push(format!("{}: {error}", places.record().display())),
    }
    match std::fs::remove_dir_all(&places.state) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            left.push(format!("{}: {error}", places.state.display()));
        }
        _ => {}
    }
    if left.is_empty() {
        Ok(())
    } else {
        Err(left.join(", "))
    }
}

/// Lets an overlay that was mounted `volatile` be mounted again: the kernel refuses that until somebody who knows that
/// the machine did not crash in between takes its note away (overlayfs in the kernel's documentation).
fn forget_volatile(workdir: &Path) {
    let _ = std::fs::remove_file(workdir.join("work/incompat/volatile/dirty"));
    for note in ["work/incompat/volatile", "work/incompat"] {
        let _ = std::fs::remove_dir(workdir.join(note));
    }
}

/// Unmounts what is mounted on the root's place, all of it.
fn unmount(rootfs: &Path) -> Result<(), String> {
    use nix::errno::Errno;
    use nix::mount::{MntFlags, umount2};
    // More than one only where somebody mounted over it.
    for _ in 0..16 {
        match umount2(rootfs, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(format!("unmounting {}: {error}", rootfs.display())),
        }
    }
    Err(format!("{} is still mounted", rootfs.display()))
}

/// A pipe through which PID 1 says what it did: the end to read, the end to give to the worker.
///
/// # Errors
/// No descriptors are left.
pub fn status_pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_plain_name() {
        for id in ["a", "0af", "a.b_c-d", &"x".repeat(76)] {
            assert!(is_id(id), "{id}");
        }
        for id in ["", ".", "..", "-a", "a/b", "a b", "a\0", "é", &"x".repeat(77)] {
            assert!(!is_id(id), "{id}");
        }
    }

    #[test]
    fn what_is_not_there_is_removed_without_complaint() {
        let bundle = tempfile::tempdir().unwrap();
        assert_eq!(remove(bundle.path()), Ok(()));
        assert_eq!(read_record(bundle.path()).unwrap(), None);
    }

    #[test]
    fn the_first_process_of_a_lost_shim_is_known_from_disk() {
        let bundle = tempfile::tempdir().unwrap();
        assert_eq!(noted_pid(bundle.path(), "id"), None);
        let dir = Places::of(bundle.path()).library().join("id");
        std::fs::create_dir_all(&dir).unwrap();
        let note = |body: &str| std::fs::write(dir.join("state.json"), body).unwrap();
        note(r#"{"ociVersion":"1.2.0","id":"id","pid":4711}"#);
        assert_eq!(noted_pid(bundle.path(), "id"), Some(4711));
        for unknown in ["{}", r#"{"pid":null}"#, r#"{"pid":-1}"#, "{"] {
            note(unknown);
            assert_eq!(noted_pid(bundle.path(), "id"), None, "{unknown}");
        }
    }

    #[test]
    fn a_record_is_there_as_a_whole_while_it_is_written_again() {
        use std::io::Read;
        let bundle = tempfile::tempdir().unwrap();
        let places = Places::of(bundle.path());
        std::fs::create_dir(&places.state).unwrap();
        let mount = "31 30 0:27 / /cg rw - cgroup cgroup rw,cpu";
        let mut record = Record {
            cgroup: PodCgroup::plan(mount, None, "id", false).unwrap(),
            volatile: None,
        };
        write_record(&places, &record).unwrap();
        let mut before = std::fs::File::open(places.record()).unwrap();
        let first = record.clone();
        record.volatile = Some("/work".into());
        write_record(&places, &record).unwrap();
        assert_eq!(read_record(bundle.path()).unwrap(), Some(record));
        let mut text = String::new();
        before.read_to_string(&mut text).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), first);
    }

    #[test]
    fn the_state_is_closed_to_others() {
        use std::os::unix::fs::PermissionsExt;
        let bundle = tempfile::tempdir().unwrap();
        write_spec(bundle.path(), &Spec::default()).unwrap();
        let mode = std::fs::metadata(bundle.path().join(STATE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(read_spec(bundle.path()).unwrap(), Spec::default());
        assert!(
            write_spec(bundle.path(), &Spec::default()).is_err(),
            "a second container in one bundle"
        );
    }
}
