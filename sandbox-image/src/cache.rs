//! What a build keeps for the next one: fetched inputs and finished layers, each file named by its sha256.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Serialize, de::DeserializeOwned};

use crate::digest::{is_sha256_hex, sha256_file};
use crate::error::{At, ImageError, Result};

/// `$SANDGLASS_CACHE`, else `$XDG_CACHE_HOME/sandglass`, else `~/.cache/sandglass`, else a directory in `/var/tmp`
/// for accounts without a home.
pub fn default_cache() -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("SANDGLASS_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("sandglass")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/sandglass")))
        .unwrap_or_else(|| {
            PathBuf::from(format!(
                "/var/tmp/sandglass-{}",
                rustix::process::geteuid().as_raw()
            ))
        })
}

/// A cache directory, held by one build at a time.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    /// Locked for as long as this value lives; the kernel lets go when the process dies.
    _lock: File,
}

impl Cache {
    /// Opens the cache, waits until no other build holds it, and clears what killed builds left.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        for directory in ["blobs", "layers", "tmp"] {
            let path = root.join(directory);
            fs::create_dir_all(&path).at(&path)?;
        }
        let path = root.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .at(&path)?;
        lock.lock().at(&path)?;
        clear(&root.join("tmp"))?;
        Ok(Self {
            root: root.to_owned(),
            _lock: lock,
        })
    }

    /// Where the blob of this digest is or would be.
    pub(crate) fn blob(&self, sha256: &str) -> PathBuf {
        self.root.join("blobs").join(sha256)
    }

    /// Whether the blob is there, with bytes that match its name. One that does not match is removed.
    pub(crate) fn has(&self, sha256: &str) -> Result<bool> {
        let path = self.blob(sha256);
        match sha256_file(&path) {
            Ok((found, _)) if found == sha256 => Ok(true),
            Ok(_) => {
                fs::remove_file(&path).at(&path)?;
                Ok(false)
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(ImageError::io(&path, e)),
        }
    }

    /// Whether a blob of this length is there; for those whose bytes are checked when they are used.
    pub(crate) fn has_length(&self, sha256: &str, bytes: u64) -> bool {
        fs::metadata(self.blob(sha256)).is_ok_and(|found| found.len() == bytes)
    }

    /// Moves a file, made in a directory of [`Cache::scratch`], to its name.
    pub(crate) fn keep(&self, file: &Path, sha256: &str) -> Result<PathBuf> {
        let target = self.blob(sha256);
        fs::rename(file, &target).at(file)?;
        Ok(target)
    }

    /// A new directory on the cache's file system, removed when dropped.
    pub(crate) fn scratch(&self) -> Result<tempfile::TempDir> {
        let parent = self.root.join("tmp");
        tempfile::Builder::new()
            .prefix("build-")
            .tempdir_in(&parent)
            .at(&parent)
    }

    /// What was noted under a key, if its note is readable.
    pub(crate) fn note<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let text = fs::read(self.note_path(key)?).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Notes something under a key (64 hex digits).
    pub(crate) fn set_note<T: Serialize>(&self, key: &str, value: &T) -> Result<()> {
        let path = self
            .note_path(key)
            .ok_or_else(|| ImageError::corrupt(key, "not a cache key"))?;
        let text = serde_json::to_vec(value).map_err(|e| ImageError::corrupt(&path, e))?;
        write_atomically(&path, &text)
    }

    fn note_path(&self, key: &str) -> Option<PathBuf> {
        is_sha256_hex(key).then(|| self.root.join("layers").join(format!("{key}.json")))
    }
}

/// Removes everything in a directory.
pub(crate) fn clear(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).at(directory)? {
        let path = entry.at(directory)?.path();
        let is_dir = fs::symlink_metadata(&path).at(&path)?.is_dir();
        if is_dir {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        }
        .at(&path)?;
    }
    Ok(())
}

/// Writes a file so that readers see the old content or the new, never a part.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .tempfile_in(parent)
        .at(parent)?;
    std::io::Write::write_all(&mut file, content).at(path)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).at(path)?;
    file.as_file().sync_data().at(path)?;
    file.persist(path).map_err(|e| ImageError::io(path, e.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha256_hex;

    #[test]
    fn a_blob_whose_bytes_changed_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::open(root.path()).unwrap();
        let digest = sha256_hex(b"input");
        let scratch = cache.scratch().unwrap();
        let file = scratch.path().join("f");
        fs::write(&file, "input").unwrap();
        assert!(!cache.has(&digest).unwrap());
        cache.keep(&file, &digest).unwrap();
        assert!(cache.has(&digest).unwrap());
        fs::write(cache.blob(&digest), "tampered").unwrap();
        assert!(!cache.has(&digest).unwrap());
        assert!(!cache.blob(&digest).exists());
    }

    #[test]
    fn what_a_killed_build_left_is_cleared_and_notes_stay() {
        let root = tempfile::tempdir().unwrap();
        let key = "0".repeat(64);
        {
            let cache = Cache::open(root.path()).unwrap();
            cache.set_note(&key, &7).unwrap();
            fs::create_dir_all(root.path().join("tmp/build-x/rootfs/usr")).unwrap();
        }
        let cache = Cache::open(root.path()).unwrap();
        assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0);
        assert_eq!(cache.note::<u32>(&key), Some(7));
        assert_eq!(cache.note::<u32>(&"1".repeat(64)), None);
        assert!(cache.set_note("../x", &7).is_err());
    }
}
