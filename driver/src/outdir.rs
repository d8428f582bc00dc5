//! Storing artifacts in a directory of the person's, without ever leaving it or overwriting anything.
//!
//! The names come from the sandbox and are hostile; the directory may hold links, other people's files and
//! files of earlier runs. Everything is opened beneath one descriptor with `openat2`, which follows no link
//! and does not leave; files are made with `O_EXCL`, so what is there already stays as it is.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::refusal::Refusal;

/// Never follow a link, never leave the directory, not through `/proc` either.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Whether entries can be made in a directory.
fn writable(dir: &OwnedFd) -> rustix::io::Result<()> {
    let wanted = fs::Access::WRITE_OK | fs::Access::EXEC_OK;
    fs::accessat(dir, ".", wanted, AtFlags::EACCESS)
}

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

/// A directory that artifacts are stored in. It may be missing until the run is admitted: see [`OutDir::make`].
#[derive(Debug)]
pub struct OutDir {
    path: PathBuf,
    /// Where it is to be made, if it is missing.
    missing: Option<Missing>,
    dir: OnceLock<OwnedFd>,
}

#[derive(Debug)]
struct Missing {
    parent: OwnedFd,
    name: OsString,
    made: AtomicBool,
}

impl OutDir {
    /// Looks at `path` and changes nothing: it is a directory that can take artifacts, or it is missing and its parent
    /// can take it.
    ///
    /// # Errors
    /// Code `out_dir`: not a directory, its parent is missing, or not writable.
    pub fn look(path: &Path) -> Result<Self, Refusal> {
        let new = |missing, dir: Option<OwnedFd>| Self {
            path: path.to_owned(),
            missing,
            dir: dir.map_or_else(OnceLock::new, OnceLock::from),
        };
        // A person may well name a directory through a link here: it is their own word, not the sandbox's.
        match fs::open(path, DIRECTORY, Mode::empty()) {
            Ok(dir) => {
                writable(&dir).map_err(|e| unusable(path, "is not writable", e))?;
                Ok(new(None, Some(dir)))
            }
            Err(Errno::NOENT) => {
                let cannot = |e| unusable(path, "cannot be made", e);
                let name = path.file_name().ok_or_else(|| cannot(Errno::NOENT))?;
                let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
                let parent =
                    fs::open(parent.unwrap_or(Path::new(".")), DIRECTORY, Mode::empty()).map_err(cannot)?;
                // A link that points to nothing.
                if fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                    return Err(unusable(path, "cannot be opened", Errno::NOENT));
                }
                writable(&parent).map_err(cannot)?;
                let missing = Missing {
                    parent,
                    name: name.to_owned(),
                    made: AtomicBool::new(false),
                };
                Ok(new(Some(missing), None))
            }
            Err(e) => Err(unusable(path, "cannot be opened", e)),
        }
    }

    /// Makes it, if it is missing. A run calls this when it was admitted, so that a refused one leaves no directory.
    ///
    /// # Errors
    /// Code `out_dir`: it cannot be made or used after all.
    pub fn make(&self) -> Result<(), Refusal> {
        let (None, Some(missing)) = (self.dir.get(), &self.missing) else {
            return Ok(());
        };
        match fs::mkdirat(&missing.parent, &missing.name, Mode::from_raw_mode(0o777)) {
            Ok(()) => missing.made.store(true, Ordering::Relaxed),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(unusable(&self.path, "cannot be made", e)),
        }
        let dir = fs::openat(&missing.parent, &missing.name, DIRECTORY, Mode::empty())
            .map_err(|e| unusable(&self.path, "cannot be opened", e))?;
        writable(&dir).map_err(|e| unusable(&self.path, "is not writable", e))?;
        // Made by another thread meanwhile, it is the same one.
        let _ = self.dir.set(dir);
        Ok(())
    }

    /// Takes it away again, if it was made by [`OutDir::make`] and holds nothing: for a run that never started.
    pub fn unmake(&self) {
        if let Some(missing) = self.missing.as_ref().filter(|m| m.made.load(Ordering::Relaxed)) {
            let _ = fs::unlinkat(&missing.parent, &missing.name, AtFlags::REMOVEDIR);
        }
    }

    /// Opens `path` for artifacts; a missing last component is made at once.
    ///
    /// # Errors
    /// Code `out_dir`: not a directory, its parent is missing, or not writable.
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        let out = Self::look(path)?;
        out.make()?;
        Ok(out)
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
        let dir = self.dir.get().ok_or(Errno::NOENT)?;
        let mut dir = dir.as_fd().try_clone_to_owned()?;
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
        symlink(tmp.path().join("nothing"), tmp.path().join("dangling")).unwrap();
        for path in ["file", "missing/out", "file/out", "dangling", "missing/.."] {
            assert_eq!(
                OutDir::look(&tmp.path().join(path)).unwrap_err().code,
                "out_dir",
                "{path}"
            );
        }
        assert_eq!(OutDir::look(Path::new("")).unwrap_err().code, "out_dir");
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_missing_directory_is_made_when_it_is_asked_for_and_not_before() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("out/");
        let out = OutDir::look(&path).unwrap();
        assert!(!path.exists() && matches!(out.create("x"), Err(StoreError::Io(_))));
        out.make().unwrap();
        out.make().unwrap();
        store(&out, "x", b"1").unwrap();
        out.unmake();
        assert_eq!(
            std::fs::read(path.join("x")).unwrap(),
            b"1",
            "what holds something stays"
        );
    }

    #[test]
    fn only_an_empty_directory_that_was_made_here_is_taken_away() {
        let tmp = tempfile::tempdir().unwrap();
        let made = OutDir::open(&tmp.path().join("made")).unwrap();
        made.unmake();
        assert!(!made.path().exists());
        std::fs::create_dir(tmp.path().join("theirs")).unwrap();
        let theirs = OutDir::open(&tmp.path().join("theirs")).unwrap();
        theirs.unmake();
        let raced = OutDir::look(&tmp.path().join("raced")).unwrap();
        std::fs::create_dir(raced.path()).unwrap();
        raced.make().unwrap();
        raced.unmake();
        assert!(theirs.path().exists() && raced.path().exists());
    }
}
