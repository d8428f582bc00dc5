//! Taking an image out of the store, unless a run that is alive uses it.
//!
//! A run holds a shared lock on the image's root for as long as it lives; who removes the image takes that lock alone.
//! The kernel lets go of a lock when its process ends in whatever way.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;

use crate::digest::is_sha256_hex;
use crate::error::{At, ImageError, Result};
use crate::publish::Writer;
use crate::store::{Image, Store};

/// An image that cannot be removed for as long as this value lives.
#[derive(Debug)]
pub struct Held {
    _lock: File,
}

/// What was taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The image that was meant.
    pub digest: String,
    /// Names that are gone.
    pub names: Vec<String>,
    /// Whether the image is gone too. It stays when it was named by one of several names.
    pub image: bool,
}

impl Image {
    /// Keeps the image from being removed. Two system calls: cheap enough for every run.
    ///
    /// # Errors
    /// [`ImageError::Missing`] when it is being removed just now.
    pub fn hold(&self) -> Result<Held> {
        let missing = || ImageError::Missing {
            wanted: self.digest.clone(),
            store: self.rootfs.clone(),
        };
        let lock = File::open(&self.rootfs).at(&self.rootfs)?;
        match lock.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(missing()),
            Err(TryLockError::Error(e)) => return Err(ImageError::io(&self.rootfs, e)),
        }
        // What was locked may be on its way out by now, or replaced by a build that mended it.
        let locked = lock.metadata().at(&self.rootfs)?;
        match fs::metadata(&self.rootfs) {
            Ok(there) if (there.dev(), there.ino()) == (locked.dev(), locked.ino()) => {
                Ok(Held { _lock: lock })
            }
            _ => Err(missing()),
        }
    }
}

impl Store {
    /// Removes an image with all its names, its root, and the blobs that no other image has. By one of several names,
    /// only that name goes. What is cached for later builds stays in the cache.
    ///
    /// # Errors
    /// [`ImageError::Missing`], [`ImageError::InUse`] when a run of it is alive, or what the file system says.
    pub fn remove(&self, reference: &str) -> Result<Removed> {
        let missing = || ImageError::Missing {
            wanted: reference.to_owned(),
            store: self.root().to_owned(),
        };
        let by_digest = reference.strip_prefix("sha256:");
        match by_digest {
            Some(hex) if is_sha256_hex(hex) => {}
            Some(_) => return Err(ImageError::BadReference(reference.to_owned())),
            None => drop(self.name_path(reference)?),
        }
        if !self.root().is_dir() {
            return Err(missing());
        }
        let writer = Writer::lock(self)?;
        let all = self.names()?;
        let digest = match by_digest {
            Some(_) => reference.to_owned(),
            None => {
                let named = all.iter().find(|(name, _)| name == reference);
                named.ok_or_else(missing)?.1.clone()
            }
        };
        let hex = digest.strip_prefix("sha256:").filter(|hex| is_sha256_hex(hex));
        let hex = hex.ok_or_else(|| ImageError::corrupt(reference, "the name holds no digest"))?;
        let mut names: Vec<String> = all
            .into_iter()
            .filter_map(|(name, to)| (to == digest).then_some(name))
            .collect();
        if by_digest.is_none() && names.len() > 1 {
            writer.forget(reference)?;
            names = vec![reference.to_owned()];
            return Ok(Removed {
                digest,
                names,
                image: false,
            });
        }
        let root = self.rootfs(hex);
        let listed = self
            .index()?
            .manifests
            .iter()
            .any(|manifest| manifest.digest == digest);
        if !listed && !root.exists() && names.is_empty() {
            return Err(missing());
        }
        let _alone = alone(&root, &digest)?;
        for name in &names {
            writer.forget(name)?;
        }
        writer.withdraw(hex)?;
        Ok(Removed {
            digest,
            names,
            image: true,
        })
    }
}

/// The lock of a root that no run holds; none where there is no root.
fn alone(root: &std::path::Path, digest: &str) -> Result<Option<File>> {
    let lock = match File::open(root) {
        Ok(lock) => lock,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ImageError::io(root, e)),
    };
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Err(ImageError::InUse {
            digest: digest.to_owned(),
        }),
        Err(TryLockError::Error(e)) => Err(ImageError::io(root, e)),
    }
}
