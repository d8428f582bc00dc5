//! Changing the store: one build at a time, and nothing visible before it is whole.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::cache::{clear, write_atomically};
use crate::digest::{is_sha256_hex, sha256_file, sha256_hex};
use crate::error::{At, ImageError, Result};
use crate::oci::{self, Descriptor, Index};
use crate::rootfs::{self, LayerFile};
use crate::store::{Image, Store, image};

/// A store that one build at a time changes.
pub(crate) struct Writer<'a> {
    store: &'a Store,
    /// The kernel lets go of it when the process dies.
    _lock: File,
}

/// A finished layer, wherever it lies.
pub(crate) struct Blob {
    pub descriptor: Descriptor,
    pub file: PathBuf,
}

impl<'a> Writer<'a> {
    /// Creates what is missing, waits for other builds to end, and clears what killed ones left.
    pub(crate) fn lock(store: &'a Store) -> Result<Self> {
        fs::create_dir_all(store.root()).at(store.root())?;
        // Sandboxes reach the root as another user: readable for all whatever the umask.
        for directory in [
            "",
            "images",
            "images/blobs",
            "images/blobs/sha256",
            "rootfs",
            "names",
            "tmp",
        ] {
            let path = store.root().join(directory);
            match fs::create_dir(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                other => other.at(&path)?,
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).at(&path)?;
        }
        let path = store.root().join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .at(&path)?;
        lock.lock().at(&path)?;
        clear(&store.root().join("tmp"))?;
        Ok(Self { store, _lock: lock })
    }

    /// Puts a finished layer into the layout: by a link where cache and store share a file system, else by a copy.
    /// Bytes that do not match the digest are removed from the cache, so that the next build makes them anew.
    pub(crate) fn add_blob(&self, blob: &Blob) -> Result<()> {
        let hex = blob
            .descriptor
            .sha256()
            .ok_or_else(|| self.store.bad_index("a digest that is not sha256"))?;
        let target = self.store.blob(hex);
        if sha256_file(&target).is_ok_and(|(found, _)| found == hex) {
            return Ok(());
        }
        let scratch = self.store.root().join("tmp").join(hex);
        if fs::hard_link(&blob.file, &scratch).is_err() {
            fs::copy(&blob.file, &scratch).at(&scratch)?;
        }
        let (found, _) = sha256_file(&scratch).at(&scratch)?;
        if found != hex {
            fs::remove_file(&blob.file).at(&blob.file)?;
            let what = blob.file.display().to_string();
            return Err(ImageError::DigestMismatch {
                what,
                expected: hex.to_owned(),
                found,
            });
        }
        fs::set_permissions(&scratch, fs::Permissions::from_mode(0o644)).at(&scratch)?;
        fs::rename(&scratch, &target).at(&target)
    }

    /// Puts a small document into the layout.
    pub(crate) fn add_document(&self, media_type: &str, text: &[u8]) -> Result<Descriptor> {
        let hex = sha256_hex(text);
        write_atomically(&self.store.blob(&hex), text)?;
        Ok(Descriptor::new(media_type, &hex, text.len() as u64))
    }

    /// Unpacks the root of an image, unless a whole one is there, and says where it is.
    pub(crate) fn add_rootfs(
        &self,
        hex: &str,
        layers: &[LayerFile],
        unpacked: &(dyn Fn(u64) + Sync),
    ) -> Result<PathBuf> {
        let (target, list) = (self.store.rootfs(hex), self.store.list_path(hex));
        if target.is_dir() && list.is_file() && rootfs::verify(&target, &list).is_ok() {
            return Ok(target);
        }
        let tmp = self.store.root().join("tmp");
        let (new, new_list) = (tmp.join("rootfs"), tmp.join("list"));
        let donor = self.store.resolve(None).ok().map(|image| image.rootfs);
        rootfs::unpack(layers, &new, &new_list, donor.as_deref(), unpacked)?;
        fs::rename(&new_list, &list).at(&list)?;
        if target.exists() {
            // A damaged one makes room; runs that still use it keep their mounts.
            let old = tmp.join("damaged");
            fs::rename(&target, &old).at(&target)?;
        }
        fs::rename(&new, &target).at(&target)?;
        clear(&tmp)?;
        Ok(target)
    }

    /// Takes the name from whatever it points to.
    pub(crate) fn forget(&self, name: &str) -> Result<()> {
        let path = self.store.name_path(name)?;
        fs::remove_file(&path).at(&path)
    }

    /// Takes an image out of the index, its root out of the store, and the blobs that no image needs any more.
    pub(crate) fn withdraw(&self, hex: &str) -> Result<()> {
        let mut index = self.store.index()?;
        index.manifests.retain(|present| present.sha256() != Some(hex));
        let mut needed = BTreeSet::new();
        for manifest in &index.manifests {
            let Some(hex) = manifest.sha256() else { continue };
            let (_, document) = self.store.manifest(hex)?;
            needed.insert(hex.to_owned());
            let blobs = std::iter::once(&document.config).chain(&document.layers);
            needed.extend(blobs.filter_map(|blob| blob.sha256().map(str::to_owned)));
        }
        let text = serde_json::to_vec(&index).map_err(|e| ImageError::corrupt(self.store.index_path(), e))?;
        write_atomically(&self.store.index_path(), &text)?;
        let (root, tmp) = (self.store.rootfs(hex), self.store.root().join("tmp"));
        if root.exists() {
            // In one step: from here on nobody finds it.
            let gone = tmp.join("removed");
            fs::rename(&root, &gone).at(&root)?;
        }
        let list = self.store.list_path(hex);
        if list.exists() {
            fs::remove_file(&list).at(&list)?;
        }
        let blobs = self.store.blob("");
        for entry in fs::read_dir(&blobs).at(&blobs)? {
            let entry = entry.at(&blobs)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_sha256_hex(&name) && !needed.contains(&name) {
                fs::remove_file(entry.path()).at(entry.path())?;
            }
        }
        clear(&tmp)
    }

    /// Adds the image to the index and points a name to it: from here on it is visible.
    pub(crate) fn publish(&self, manifest: &Descriptor, name: &str) -> Result<Image> {
        let hex = manifest
            .sha256()
            .ok_or_else(|| self.store.bad_index("a digest that is not sha256"))?;
        let name_path = self.store.name_path(name)?;
        let mut manifests = match self.store.index() {
            Ok(index) => index.manifests,
            // A damaged index is made anew; names and roots do not depend on it.
            Err(ImageError::Corrupt { .. }) => Vec::new(),
            Err(e) => return Err(e),
        };
        manifests.retain(|present| present.digest != manifest.digest);
        manifests.push(manifest.clone());
        manifests.sort_by(|a, b| a.digest.cmp(&b.digest));
        let text = serde_json::to_vec(&Index::new(manifests))
            .map_err(|e| ImageError::corrupt(self.store.index_path(), e))?;
        let layout = self.store.root().join("images/oci-layout");
        write_atomically(&layout, oci::LAYOUT.as_bytes())?;
        write_atomically(&self.store.index_path(), &text)?;
        let mut line = Vec::new();
        writeln!(line, "{}", manifest.digest).at(&name_path)?;
        write_atomically(&name_path, &line)?;
        Ok(image(hex, self.store.rootfs(hex)))
    }
}
