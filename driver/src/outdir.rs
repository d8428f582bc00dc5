//! Storing artifacts in a directory of the person's, without ever leaving it or overwriting anything.
//!
//! The names come from the sandbox and are hostile; the directory may hold links, other people's files and
//! files of earlier runs. Everything is opened beneath one descriptor with `openat2`, which follows no link
//! and does not leave; files are made with `O_EXCL`, so what is there already stays as it is.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::refusal::Refusal;

/// Never follow a link, never leave the directory, not through `/proc` either.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Why one artifact was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Something of that name, or a file or link in the place of one of its directories, is there already.
    #[error("something of that name is there already and was not touched")]
    Exists,
    /// The path is not a plain relative one. Names were checked before; this is the second look.
    #[error("the name is not a plain relative path")]
    NameInvalid,
    /// Anything else: no room, no right.
    #[error("it could not be written: {0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for StoreError {
    fn from(e: Errno) -> Self {
        match e {
            // A file where a directory is needed, or a link where nothing may be followed.
            Errno::EXIST | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => Self::Exists,
            Errno::INVAL | Errno::NAMETOOLONG => Self::NameInvalid,
            e => Self::Io(e.into()),
        }
    }
}

/// An open directory that artifacts are stored in.
#[derive(Debug)]
pub struct OutDir {
    path: PathBuf,
    dir: OwnedFd,
}

impl OutDir {
    /// Opens `path` for artifacts; a missing last component is made.
    ///
    /// # Errors
    /// Code `out_dir`: not a directory, its parent is missing, or not writable.
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        match fs::mkdir(path, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(unusable(path, "cannot be made", e)),
        }
        // A person may well name a directory through a link here: it is their own word, not the sandbox's.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::open(path, flags, Mode::empty()).map_err(|e| unusable(path, "cannot be opened", e))?;
        fs::accessat(
            &dir,
            ".",
            fs::Access::WRITE_OK | fs::Access::EXEC_OK,
            AtFlags::EACCESS,
        )
        .map_err(|e| unusable(path, "is not writable", e))?;
        Ok(Self {
            path: path.to_owned(),
            dir,
        })
    }

    /// The directory as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file `path` (relative, `/` between its parts) and the directories that it needs.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when anything is there already, links and files in the place of a directory
    /// included; nothing is changed then.
    pub fn create(&self, path: &str) -> Result<Stored, StoreError> {
        let mut parts: Vec<&str> = path.split('/').collect();
        if parts
            .iter()
            .any(|p| p.is_empty() || *p == "." || *p == ".." || p.contains('\0'))
        {
            return Err(StoreError::NameInvalid);
        }
        let Some(name) = parts.pop() else {
            return Err(StoreError::NameInvalid);
        };
        let mut dir = self.dir.as_fd().try_clone_to_owned()?;
        for part in parts {
            match fs::mkdirat(&dir, part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            dir = fs::openat2(&dir, part, flags, Mode::empty(), BENEATH)?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // No execute bits, whatever the script set: it is data until the person says otherwise.
        let file = fs::openat2(&dir, name, flags, Mode::from_raw_mode(0o644), BENEATH)?;
        Ok(Stored {
            dir,
            name: name.to_owned(),
            file: File::from(file),
            kept: false,
        })
    }
}

/// A file that is being stored. Unless it is [kept](Self::keep) it is removed again.
#[derive(Debug)]
pub struct Stored {
    dir: OwnedFd,
    name: String,
    file: File,
    kept: bool,
}

impl Stored {
    /// Appends bytes.
    ///
    /// # Errors
    /// What the file system says, such as no room.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// The file is whole and stays.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if !self.kept {
            // Ours: it was made with O_EXCL a moment ago, in a directory of the person's own.
            let _ = fs::unlinkat(&self.dir, self.name.as_str(), AtFlags::empty());
        }
    }
}

fn unusable(path: &Path, what: &str, e: Errno) -> Refusal {
    let hint = match e {
        Errno::NOENT => "Make its parent directory first, or name another one with --out.",
        Errno::NOTDIR | Errno::EXIST => "Name a directory with --out.",
        Errno::ROFS => "It is on a read-only file system; name another one with --out.",
        _ => "Give this user the right to write there, or name another directory with --out.",
    };
    Refusal::new(
        "out_dir",
        format!("The directory for artifacts {} {what}: {e}.", path.display()),
        hint,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn out() -> (tempfile::TempDir, OutDir) {
        let tmp = tempfile::tempdir().unwrap();
        let out = OutDir::open(&tmp.path().join("out")).unwrap();
        (tmp, out)
    }

    fn store(out: &OutDir, path: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let mut stored = out.create(path)?;
        stored.write(bytes)?;
        stored.keep();
        Ok(())
    }

    #[test]
    fn files_are_stored_with_their_directories_and_without_execute_bits() {
        let (_tmp, out) = out();
        store(&out, "a/b/c.txt", b"hello").unwrap();
        store(&out, "a/d.txt", b"again").unwrap();
        let file = out.path().join("a/b/c.txt");
        assert_eq!(std::fs::read(&file).unwrap(), b"hello");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7111, 0);
    }

    #[test]
    fn an_existing_file_is_never_overwritten() {
        let (_tmp, out) = out();
        std::fs::write(out.path().join("x.csv"), b"precious").unwrap();
        assert!(matches!(store(&out, "x.csv", b"new"), Err(StoreError::Exists)));
        assert_eq!(std::fs::read(out.path().join("x.csv")).unwrap(), b"precious");
        assert_eq!(
            std::fs::read_dir(out.path()).unwrap().count(),
            1,
            "it is saved under no other name"
        );
    }

    #[test]
    fn a_link_in_the_place_of_a_file_or_directory_is_not_followed() {
        let (tmp, out) = out();
        let elsewhere = tmp.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(tmp.path().join("victim"), b"precious").unwrap();
        symlink(&elsewhere, out.path().join("sub")).unwrap();
        symlink(tmp.path().join("victim"), out.path().join("file")).unwrap();
        symlink(tmp.path().join("nothing"), out.path().join("dangling")).unwrap();
        symlink("/", out.path().join("root")).unwrap();
        symlink("../..", out.path().join("up")).unwrap();
        for path in ["sub/x", "file", "dangling", "root/x", "up/x", "sub/deep/x"] {
            assert!(
                matches!(store(&out, path, b"new"), Err(StoreError::Exists)),
                "{path}"
            );
        }
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert_eq!(std::fs::read(tmp.path().join("victim")).unwrap(), b"precious");
        assert!(!tmp.path().join("nothing").exists());
    }

    #[test]
    fn hostile_names_are_refused() {
        let (tmp, out) = out();
        for path in [
            "",
            ".",
            "..",
            "../x",
            "/etc/x",
            "a/../../x",
            "a//b",
            "a/",
            "./x",
            "x\0y",
            "a/.",
        ] {
            assert!(
                matches!(store(&out, path, b"new"), Err(StoreError::NameInvalid)),
                "{path:?}"
            );
        }
        let long = "n".repeat(256);
        assert!(matches!(store(&out, &long, b"new"), Err(StoreError::NameInvalid)));
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_in_the_place_of_a_directory_stays_as_it_is() {
        let (_tmp, out) = out();
        std::fs::write(out.path().join("a"), b"precious").unwrap();
        assert!(matches!(store(&out, "a/b", b"new"), Err(StoreError::Exists)));
        assert_eq!(std::fs::read(out.path().join("a")).unwrap(), b"precious");
    }

    #[test]
    fn a_file_that_is_not_kept_is_gone() {
        let (_tmp, out) = out();
        let mut stored = out.create("half").unwrap();
        stored.write(b"only the first ha").unwrap();
        drop(stored);
        assert!(!out.path().join("half").exists());
    }

    #[test]
    fn a_directory_that_cannot_take_artifacts_is_refused_before_anything_runs() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("file"), b"").unwrap();
        for path in ["file", "missing/out", "file/out"] {
            assert_eq!(
                OutDir::open(&tmp.path().join(path)).unwrap_err().code,
                "out_dir",
                "{path}"
            );
        }
    }
}
