//! The record of live runs: one locked file for each, so that a run whose processes were all killed is told from
//! one that is alive without trusting process ids, and what it left can be found and taken away.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::error::SandboxError;
use crate::spec::Identity;

/// First host id of the ranges: above what systemd gives to its own containers and below what it reserves for
/// foreign images (systemd's "Users, Groups, UIDs and GIDs" documents the gap as unused).
const FIRST_ID: u32 = 0x7000_0000;
/// Host ids for each run.
const IDS_PER_RUN: u32 = 0x1_0000;
/// Ranges in that gap.
const RANGES: u32 = 4_094;
/// A record is a few hundred bytes; no more than this is read of one.
const LONGEST_RECORD: u64 = 64 << 10;

/// What a run may leave behind, written down before it is made.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub cgroups: Vec<PathBuf>,
}

/// The state directory of this host or user.
#[derive(Debug)]
pub(crate) struct Registry {
    root: PathBuf,
    runs: OwnedFd,
}

impl Registry {
    /// Opens the state directory, and makes it where it is not there yet.
    pub(crate) fn open(root: &Path) -> Result<Self, SandboxError> {
        let runs_path = root.join("runs");
        let failed = |error: std::io::Error| SandboxError::state(&runs_path, error);
        let open = || {
            rustix::fs::open(
                &runs_path,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        let runs = match open() {
            Err(rustix::io::Errno::NOENT) => {
                use std::os::unix::fs::DirBuilderExt;
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&runs_path)
                    .map_err(failed)?;
                open()
            }
            other => other,
        };
        let runs = runs.map_err(|error| failed(error.into()))?;
        let owner = rustix::fs::fstat(&runs)
            .map_err(|error| failed(error.into()))?
            .st_uid;
        if owner != rustix::process::geteuid().as_raw() {
            return Err(failed(std::io::Error::other("it belongs to another user")));
        }
        Ok(Self {
            root: root.to_owned(),
            runs,
        })
    }

    /// Enters a run. The file appears under its name with the lock already held: there is no moment in which a
    /// reaper could take a fresh run for a dead one.
    pub(crate) fn enter(&self, run_id: &str, record: &Record) -> Result<OwnedFd, SandboxError> {
        let failed = |error: std::io::Error| SandboxError::state(&self.root.join("runs"), error);
        let io = |error: rustix::io::Errno| failed(error.into());
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.runs, c".", flags, Mode::from_raw_mode(0o600)).map_err(io)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io)?;
        let mut file = File::from(file);
        let body = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        file.write_all(&body).map_err(failed)?;
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        match rustix::fs::linkat(rustix::fs::CWD, link, &self.runs, run_id, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(file.into()),
            Err(rustix::io::Errno::EXIST) => Err(SandboxError::Exists {
                run_id: run_id.to_owned(),
            }),
            Err(error) => Err(io(error)),
        }
    }

    /// The identity of a run's record, for a worker to strike off its own and no later one of the same name.
    pub(crate) fn identity(&self, run_id: &str) -> Option<(u64, u64)> {
        let found = rustix::fs::statat(&self.runs, run_id, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((found.st_dev, found.st_ino))
    }

    /// Strikes a run off. Only who knows that it is the run's own record may.
    pub(crate) fn strike(&self, run_id: &str) -> Result<(), SandboxError> {
        match rustix::fs::unlinkat(&self.runs, run_id, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(SandboxError::state(&self.root.join("runs").join(run_id), error)),
        }
    }

    /// Takes a range of host ids for as long as the descriptor, or a copy of it in another process, is open.
    pub(crate) fn take_ids(&self) -> Result<(Identity, OwnedFd), SandboxError> {
        let path = self.root.join("ids");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))
            .map_err(|error| SandboxError::state(&path, error))?;
        // Begin somewhere else in each process, so that many runs that start at once do not all ask for the first.
        let start = std::process::id() % RANGES;
        for range in (start..RANGES).chain(0..start) {
            if lock_byte(&file, i64::from(range)).map_err(|error| SandboxError::state(&path, error))? {
                return Ok((
                    Identity::Range {
                        base: FIRST_ID + range * IDS_PER_RUN,
                    },
                    file,
                ));
            }
        }
        Err(SandboxError::NoIds { ranges: RANGES })
    }

    /// Takes away what runs left whose processes are all gone, and names them. Never touches a live run: its lock is
    /// held by its driver's process or its worker.
    pub(crate) fn reap(&self) -> Result<Vec<String>, SandboxError> {
        let mut reaped = Vec::new();
        let mut first_error = None;
        let failed = |error: rustix::io::Errno| SandboxError::state(&self.root.join("runs"), error);
        for entry in rustix::fs::Dir::read_from(&self.runs).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            // One that is stuck does not keep the others.
            match self.reap_one(name) {
                Ok(true) => reaped.push(name.to_owned()),
                Ok(false) => {}
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(reaped), Err)
    }

    fn reap_one(&self, name: &str) -> Result<bool, SandboxError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(&self.runs, name, flags, Mode::empty()) else {
            return Ok(false);
        };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        // Between the listing and the lock the run may have ended and another have taken its name.
        if !self.is_still(name, &file) {
            return Ok(false);
        }
        let mut body = String::new();
        let _ = File::from(
            file.try_clone()
                .map_err(|error| SandboxError::worker("reaping", error))?,
        )
        .take(LONGEST_RECORD)
        .read_to_string(&mut body);
        let record: Record = serde_json::from_str(&body).unwrap_or_default();
        Cgroup::left_by(&record.cgroups)
            .remove()
            .map_err(|what| SandboxError::Left { what })?;
        self.strike(name)?;
        Ok(true)
    }

    fn is_still(&self, name: &str, file: &OwnedFd) -> bool {
        let named = rustix::fs::statat(&self.runs, name, AtFlags::SYMLINK_NOFOLLOW);
        match (named, rustix::fs::fstat(file)) {
            (Ok(named), Ok(held)) => (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino),
            _ => false,
        }
    }
}

/// Tries to lock one byte for this open file description; false when another holds it.
fn lock_byte(file: &OwnedFd, at: i64) -> nix::Result<bool> {
    let lock = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as nix::libc::c_short,
        l_whence: nix::libc::SEEK_SET as nix::libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    };
    match nix::fcntl::fcntl(file.as_fd().as_raw_fd(), nix::fcntl::FcntlArg::F_OFD_SETLK(&lock)) {
        Ok(_) => Ok(true),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_run_is_not_reaped_and_a_dead_one_is() {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::open(root.path()).unwrap();
        let live = registry.enter("live", &Record::default()).unwrap();
        drop(registry.enter("dead", &Record::default()).unwrap());
        // Another process's view: its own open file descriptions.
        let other = Registry::open(root.path()).unwrap();
        assert_eq!(other.reap().unwrap(), ["dead"]);
        assert!(other.reap().unwrap().is_empty());
        drop(live);
        assert_eq!(other.reap().unwrap(), ["live"]);
    }

    #[test]
    fn an_id_is_taken_once() {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::open(root.path()).unwrap();
        let _held = registry.enter("a", &Record::default()).unwrap();
        let error = registry.enter("a", &Record::default()).unwrap_err();
        assert!(matches!(error, SandboxError::Exists { .. }), "{error}");
        registry.strike("a").unwrap();
        registry.enter("a", &Record::default()).unwrap();
    }

    #[test]
    fn two_live_runs_never_share_a_range_of_ids() {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::open(root.path()).unwrap();
        let (first, held) = registry.take_ids().unwrap();
        let (second, _held_too) = registry.take_ids().unwrap();
        assert_ne!(first, second);
        drop(held);
        let (third, _held_three) = registry.take_ids().unwrap();
        assert_eq!(third, first, "a range is free again when its last holder is gone");
    }

    #[test]
    fn every_range_stays_in_the_gap() {
        let end = u64::from(FIRST_ID) + u64::from(RANGES) * u64::from(IDS_PER_RUN);
        assert!(end <= 2_147_352_576, "systemd's foreign range begins there");
    }

    #[test]
    fn a_state_directory_that_cannot_be_made_is_named() {
        let error = Registry::open(Path::new("/proc/no/such/place")).unwrap_err();
        assert!(error.to_string().contains("/proc/no/such/place/runs"), "{error}");
        assert_eq!(error.code(), "state_dir");
    }
}
