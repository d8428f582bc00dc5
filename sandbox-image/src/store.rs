//! Where images live: one OCI layout for all of them, an unpacked root for each, and names.
//!
//! ```text
//! STORE/images/          the OCI layout: oci-layout, index.json, blobs/sha256/…
//! STORE/rootfs/HEX/      the unpacked root of sha256:HEX; renamed into place, so it is whole or absent; each run of it
//!                        holds a lock on it
//! STORE/rootfs/HEX.list  every entry of it with mode, size and sha256
//! STORE/names/default    "sha256:HEX"
//! STORE/tmp/             what a build is making; cleared by the next one
//! STORE/lock             held by the build that is changing the store
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use crate::digest::{is_sha256_hex, sha256_file, sha256_hex};
use crate::error::{At, ImageError, Result};
use crate::oci::{Configuration, Descriptor, Index, Manifest};
use crate::rootfs::{self, LayerFile};

/// The name that is meant when none is given.
pub const DEFAULT_NAME: &str = "default";

/// An image that is there, ready to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `sha256:` and 64 hex digits: the digest of its OCI manifest, which reports name the image by.
    pub digest: String,
    /// Its unpacked root. Nobody writes in it.
    pub rootfs: PathBuf,
}

/// What `list` tells of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
    /// Digest and root.
    pub image: Image,
    /// The names that point to it, sorted.
    pub names: Vec<String>,
    /// When its inputs were locked (RFC 3339); equal for equal images.
    pub created: String,
    /// Length of the blobs: what a registry or `export` moves.
    pub compressed_bytes: u64,
    /// Length of all files in its root.
    pub unpacked_bytes: u64,
    /// Each layer, lowest first: what it is, and its compressed length.
    pub layers: Vec<(String, u64)>,
}

/// What `verify` looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Blobs hashed.
    pub blobs: u64,
    /// Entries of the unpacked root compared.
    pub entries: u64,
    /// Bytes of the unpacked root hashed.
    pub bytes: u64,
}

/// A directory with images. Opening and resolving only read.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The store at a path. Nothing is created or checked before it is needed.
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// `$SANDGLASS_STORE`, else `/var/lib/sandglass` for root, else `$XDG_DATA_HOME/sandglass` or
    /// `~/.local/share/sandglass`.
    pub fn default_root() -> PathBuf {
        let set = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        if let Some(root) = set("SANDGLASS_STORE") {
            return root;
        }
        if rustix::process::geteuid().is_root() {
            return "/var/lib/sandglass".into();
        }
        set("XDG_DATA_HOME")
            .map(|data| data.join("sandglass"))
            .or_else(|| set("HOME").map(|home| home.join(".local/share/sandglass")))
            .unwrap_or_else(|| "/var/lib/sandglass".into())
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Finds an image by name or `sha256:…`; `None` means [`DEFAULT_NAME`]. One small read and one `stat`: cheap
    /// enough for every run. Whether the bytes are still right is [`Store::verify`]'s question.
    ///
    /// # Errors
    /// [`ImageError::BadReference`], [`ImageError::Missing`], or [`ImageError::Corrupt`] when a name points to an
    /// image whose root is gone.
    pub fn resolve(&self, reference: Option<&str>) -> Result<Image> {
        let wanted = reference.unwrap_or(DEFAULT_NAME);
        let missing = || ImageError::Missing {
            wanted: wanted.to_owned(),
            store: self.root.clone(),
        };
        if let Some(hex) = wanted.strip_prefix("sha256:") {
            if !is_sha256_hex(hex) {
                return Err(ImageError::BadReference(wanted.to_owned()));
            }
            let rootfs = self.rootfs(hex);
            return if rootfs.is_dir() {
                Ok(image(hex, rootfs))
            } else {
                Err(missing())
            };
        }
        let path = self.name_path(wanted)?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(missing()),
            Err(e) => return Err(ImageError::io(&path, e)),
        };
        let hex = text
            .trim_end()
            .strip_prefix("sha256:")
            .filter(|hex| is_sha256_hex(hex))
            .ok_or_else(|| ImageError::corrupt(&path, "it holds no digest"))?;
        let rootfs = self.rootfs(hex);
        if !rootfs.is_dir() {
            return Err(ImageError::corrupt(&rootfs, "the unpacked root is gone"));
        }
        Ok(image(hex, rootfs))
    }

    /// All images, in the order of their digests.
    pub fn list(&self) -> Result<Vec<Details>> {
        let names = self.names()?;
        let mut all = Vec::new();
        for manifest in self.index()?.manifests {
            let hex = manifest
                .sha256()
                .ok_or_else(|| self.bad_index("a digest that is not sha256"))?;
            let (manifest, configuration) = self.documents(hex)?;
            let image = image(hex, self.rootfs(hex));
            let layers = manifest
                .layers
                .iter()
                .zip(&configuration.history)
                .map(|(layer, history)| (history.created_by.clone(), layer.size));
            all.push(Details {
                names: names
                    .iter()
                    .filter(|(_, to)| *to == image.digest)
                    .map(|(name, _)| name.clone())
                    .collect(),
                created: configuration.created.clone(),
                compressed_bytes: manifest.layers.iter().map(|layer| layer.size).sum(),
                unpacked_bytes: label(&configuration, UNPACKED_LABEL),
                layers: layers.collect(),
                image,
            });
        }
        Ok(all)
    }

    /// Hashes every blob of an image and compares its unpacked root, entry by entry, with the list made with it.
    ///
    /// # Errors
    /// [`ImageError::DigestMismatch`] or [`ImageError::Corrupt`] naming the first thing that is not as it was made.
    pub fn verify(&self, reference: Option<&str>) -> Result<Verified> {
        let image = self.resolve(reference)?;
        let hex = image.digest.trim_start_matches("sha256:");
        let (manifest, configuration) = self.documents(hex)?;
        if configuration.rootfs.diff_ids.len() != manifest.layers.len() {
            return Err(ImageError::corrupt(
                self.blob(hex),
                "manifest and configuration disagree about layers",
            ));
        }
        for descriptor in std::iter::once(&manifest.config).chain(&manifest.layers) {
            let layer = self.layer_file(descriptor)?;
            let (found, bytes) = sha256_file(&layer.path).at(&layer.path)?;
            if found != layer.sha256 || bytes != descriptor.size {
                return Err(ImageError::DigestMismatch {
                    what: layer.path.display().to_string(),
                    expected: layer.sha256,
                    found,
                });
            }
        }
        let (entries, bytes) = rootfs::verify(&image.rootfs, &self.list_path(hex))?;
        Ok(Verified {
            blobs: manifest.layers.len() as u64 + 2,
            entries,
            bytes,
        })
    }

    /// The manifest of an image, and the blobs that it names, for export.
    pub(crate) fn manifest(&self, hex: &str) -> Result<(Vec<u8>, Manifest)> {
        let path = self.blob(hex);
        let text = fs::read(&path).at(&path)?;
        let found = sha256_hex(&text);
        if found != hex {
            let what = path.display().to_string();
            return Err(ImageError::DigestMismatch {
                what,
                expected: hex.to_owned(),
                found,
            });
        }
        let manifest = serde_json::from_slice(&text).map_err(|e| ImageError::corrupt(&path, e))?;
        Ok((text, manifest))
    }

    /// Where a descriptor's blob is.
    pub(crate) fn layer_file(&self, descriptor: &Descriptor) -> Result<LayerFile> {
        let hex = descriptor
            .sha256()
            .ok_or_else(|| self.bad_index("a digest that is not sha256"))?;
        Ok(LayerFile {
            path: self.blob(hex),
            sha256: hex.to_owned(),
        })
    }

    pub(crate) fn documents(&self, hex: &str) -> Result<(Manifest, Configuration)> {
        let (_, manifest) = self.manifest(hex)?;
        let file = self.layer_file(&manifest.config)?;
        let text = fs::read(&file.path).at(&file.path)?;
        let configuration = serde_json::from_slice(&text).map_err(|e| ImageError::corrupt(&file.path, e))?;
        Ok((manifest, configuration))
    }

    pub(crate) fn index(&self) -> Result<Index> {
        let path = self.index_path();
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|e| ImageError::corrupt(&path, e)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Index::new(Vec::new())),
            Err(e) => Err(ImageError::io(&path, e)),
        }
    }

    pub(crate) fn names(&self) -> Result<Vec<(String, String)>> {
        let directory = self.root.join("names");
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(ImageError::io(&directory, e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.at(&directory)?.file_name().to_string_lossy().into_owned();
            if valid_name(&name) {
                let path = directory.join(&name);
                names.push((name, fs::read_to_string(&path).at(&path)?.trim_end().to_owned()));
            }
        }
        names.sort();
        Ok(names)
    }

    pub(crate) fn bad_index(&self, why: &str) -> ImageError {
        ImageError::corrupt(self.index_path(), why)
    }

    pub(crate) fn index_path(&self) -> PathBuf {
        self.root.join("images/index.json")
    }

    pub(crate) fn blob(&self, hex: &str) -> PathBuf {
        self.root.join("images/blobs/sha256").join(hex)
    }

    pub(crate) fn rootfs(&self, hex: &str) -> PathBuf {
        self.root.join("rootfs").join(hex)
    }

    pub(crate) fn list_path(&self, hex: &str) -> PathBuf {
        self.root.join("rootfs").join(format!("{hex}.list"))
    }

    pub(crate) fn name_path(&self, name: &str) -> Result<PathBuf> {
        if valid_name(name) {
            Ok(self.root.join("names").join(name))
        } else {
            Err(ImageError::BadReference(name.to_owned()))
        }
    }
}

/// The label under which the configuration says what the image weighs.
pub(crate) const UNPACKED_LABEL: &str = "sandglass.unpacked-bytes";

fn label(configuration: &Configuration, name: &str) -> u64 {
    configuration
        .config
        .labels
        .get(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

pub(crate) fn image(hex: &str, rootfs: PathBuf) -> Image {
    Image {
        digest: format!("sha256:{hex}"),
        rootfs,
    }
}

/// Whether a text can be an image's name: 1 to 64 of `a-z 0-9 . _ -`, beginning with a letter or digit.
pub fn valid_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
}
