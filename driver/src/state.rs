//! The state root: the one directory of the host in which live runs leave a mark.
//!
//! It holds the slots of the concurrency cap and what the sandbox needs while a run lives. Nothing in it is
//! of use after a run, so a tmpfs such as `/run` is the right place.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::refusal::Refusal;

/// Less free space than this counts as full: a run writes a few small files, and half-written ones are worse
/// than none.
const MIN_FREE_BYTES: u64 = 256 * 1024;
/// The same for inodes, where the file system counts them.
const MIN_FREE_INODES: u64 = 32;

/// An opened and checked state root.
#[derive(Debug)]
pub struct StateRoot {
    path: PathBuf,
    dir: OwnedFd,
}

/// Where the state root is when no setting names it: `/run/sandglass` for root, `$XDG_RUNTIME_DIR/sandglass`
/// for everyone else.
///
/// `env` looks up one variable, so that this is a function on values.
///
/// # Errors
/// A user other than root without `XDG_RUNTIME_DIR` has no such place, and none is made up: a directory in
/// `/tmp` could be someone else's.
pub fn default_path(is_root: bool, env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Refusal> {
    if is_root {
        return Ok(PathBuf::from("/run/sandglass"));
    }
    match env("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()) {
        Some(dir) if Path::new(&dir).is_absolute() => Ok(Path::new(&dir).join("sandglass")),
        Some(dir) => Err(refused(
            format!("XDG_RUNTIME_DIR is {dir:?}, which is not an absolute path."),
            "Set SANDGLASS_STATE to a directory of your own.",
        )),
        None => Err(refused(
            "There is no place for the state of runs: SANDGLASS_STATE and XDG_RUNTIME_DIR are both unset."
                .into(),
            "Set SANDGLASS_STATE to a directory of your own, on a tmpfs if there is one.",
        )),
    }
}

impl StateRoot {
    /// Opens the state root, makes it (mode 0711) when it is missing, and checks that it is ours and usable.
    ///
    /// # Errors
    /// Code `state_dir`: not a directory or a link, owned by someone else, writable for others, not writable
    /// for us, or full.
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        if !path.is_absolute() {
            return Err(refused(
                format!("The state directory {} is not an absolute path.", path.display()),
                "Set SANDGLASS_STATE to an absolute path.",
            ));
        }
        match fs::mkdir(path, Mode::from_raw_mode(0o711)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => {
                return Err(refused(
                    format!(
                        "The state directory {} cannot be made: its parent is missing.",
                        path.display()
                    ),
                    "Make the parent directory, or set SANDGLASS_STATE to another place.",
                ));
            }
            Err(e) => return Err(unusable(path, "cannot be made", e)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = fs::open(path, flags, Mode::empty()).map_err(|e| unusable(path, "cannot be opened", e))?;
        let stat = fs::fstat(&dir).map_err(|e| unusable(path, "cannot be read", e))?;
        let me = rustix::process::geteuid().as_raw();
        if stat.st_uid != me {
            return Err(refused(
                format!(
                    "The state directory {} belongs to uid {}, not to uid {me}.",
                    path.display(),
                    stat.st_uid
                ),
                "Set SANDGLASS_STATE to a directory of your own.",
            ));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(refused(
                format!(
                    "The state directory {} may be written by others (mode {:04o}).",
                    path.display(),
                    stat.st_mode & 0o7777
                ),
                "Take that away with chmod go-w, or set SANDGLASS_STATE to another directory.",
            ));
        }
        let root = Self {
            path: path.to_owned(),
            dir,
        };
        root.check_usable()?;
        Ok(root)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory.
    pub fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Writable and not full; asked of the kernel without writing anything.
    fn check_usable(&self) -> Result<(), Refusal> {
        fs::accessat(
            &self.dir,
            ".",
            fs::Access::WRITE_OK | fs::Access::EXEC_OK,
            AtFlags::EACCESS,
        )
        .map_err(|e| unusable(&self.path, "is not writable", e))?;
        let vfs = fs::fstatvfs(&self.dir).map_err(|e| unusable(&self.path, "cannot be read", e))?;
        if let Some(what) = full(
            vfs.f_bavail.saturating_mul(vfs.f_frsize),
            vfs.f_files,
            vfs.f_favail,
        ) {
            return Err(refused(
                format!("The state directory {} is full: {what}.", self.path.display()),
                "Make room there, or set SANDGLASS_STATE to a directory on another file system.",
            ));
        }
        Ok(())
    }
}

/// Whether a file system with these numbers is full, and of what. A file system that counts no inodes says 0.
fn full(free_bytes: u64, inodes: u64, free_inodes: u64) -> Option<String> {
    if free_bytes < MIN_FREE_BYTES {
        return Some(format!(
            "{free_bytes} bytes are free and {MIN_FREE_BYTES} are needed"
        ));
    }
    if inodes > 0 && free_inodes < MIN_FREE_INODES {
        return Some(format!(
            "{free_inodes} inodes are free and {MIN_FREE_INODES} are needed"
        ));
    }
    None
}

fn refused(message: String, hint: &str) -> Refusal {
    Refusal::new("state_dir", message, hint)
}

/// A refusal for an error number of the kernel about the state directory.
pub(crate) fn unusable(path: &Path, what: &str, e: Errno) -> Refusal {
    let hint = match e {
        Errno::ROFS => "It is on a read-only file system; set SANDGLASS_STATE to a directory on another one.",
        Errno::NOSPC | Errno::DQUOT => "Make room there, or set SANDGLASS_STATE to another directory.",
        Errno::LOOP | Errno::NOTDIR => {
            "It must be a directory and not a link; set SANDGLASS_STATE to another one."
        }
        _ => "Give this user the right to write there, or set SANDGLASS_STATE to a directory of its own.",
    };
    refused(
        format!("The state directory {} {what}: {e}.", path.display()),
        hint,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn root_uses_run_and_others_their_runtime_directory() {
        assert_eq!(default_path(true, |_| None).unwrap(), Path::new("/run/sandglass"));
        let path = default_path(false, |k| (k == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into())).unwrap();
        assert_eq!(path, Path::new("/run/user/7/sandglass"));
    }

    #[test]
    fn a_user_without_a_runtime_directory_is_told_which_setting_to_use() {
        for env in [None, Some(OsString::new()), Some(OsString::from("relative"))] {
            let e = default_path(false, |_| env.clone()).unwrap_err();
            assert_eq!(e.code, "state_dir");
            assert!(e.hint.contains("SANDGLASS_STATE"), "{e}");
        }
    }

    #[test]
    fn a_missing_state_root_is_made_with_mode_0711() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("state");
        StateRoot::open(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o711
        );
        StateRoot::open(&path).unwrap();
    }

    #[test]
    fn a_link_a_file_and_a_missing_parent_are_refused() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir(tmp.path().join("real")).unwrap();
        std::os::unix::fs::symlink(tmp.path().join("real"), tmp.path().join("link")).unwrap();
        std::fs::write(tmp.path().join("file"), b"").unwrap();
        for name in ["link", "file", "a/b"] {
            let e = StateRoot::open(&tmp.path().join(name)).unwrap_err();
            assert_eq!(e.code, "state_dir", "{name}: {e}");
        }
        assert_eq!(StateRoot::open(Path::new("state")).unwrap_err().code, "state_dir");
    }

    #[test]
    fn a_state_root_that_others_may_write_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::set_permissions(tmp.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let e = StateRoot::open(tmp.path()).unwrap_err();
        assert!(e.message.contains("0777"), "{e}");
    }

    #[test]
    fn full_means_no_bytes_or_no_inodes() {
        assert!(full(1 << 30, 1000, 1000).is_none());
        assert!(full(0, 1000, 1000).is_some());
        assert!(full(1 << 30, 1000, 3).is_some());
        assert!(
            full(1 << 30, 0, 0).is_none(),
            "a file system that counts no inodes is not full"
        );
    }
}
