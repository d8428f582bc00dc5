//! Everything that can go wrong with an image, each as a sentence that says what to do next.

use std::io;
use std::path::{Path, PathBuf};

/// Why an image could not be built, found, checked or exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// No image of that name or digest is in the store.
    #[error("there is no image \"{wanted}\" in {store}.")]
    Missing {
        /// The name or digest that was asked for.
        wanted: String,
        /// The store that was looked into.
        store: PathBuf,
    },

    /// A name or digest that cannot be one.
    #[error(
        "\"{0}\" is neither an image name (1 to 64 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit) nor a digest (sha256: and 64 hex digits)."
    )]
    BadReference(String),

    /// Bytes are there, and they are not the ones that their digest promises.
    #[error("{what} does not match its digest: expected sha256:{expected}, found sha256:{found}.")]
    DigestMismatch {
        /// Which file.
        what: String,
        /// The promised sha256, in hex.
        expected: String,
        /// The sha256 of what is there, in hex.
        found: String,
    },

    /// The OCI layout, a record or an unpacked root is not in the shape it must have.
    #[error("the image store is damaged: {what}: {why}.")]
    Corrupt {
        /// Which file or directory.
        what: String,
        /// What is wrong with it.
        why: String,
    },

    /// A run that is alive uses the image.
    #[error("the image {digest} is in use by a run that is alive.")]
    InUse {
        /// Which image.
        digest: String,
    },

    /// No permission to write where the store or the cache is.
    #[error(
        "{path} is not writable ({source}). Choose another place with SANDGLASS_STORE or SANDGLASS_CACHE, or change its owner."
    )]
    NotWritable {
        /// The place.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },

    /// The file system or the quota is full.
    #[error(
        "no space is left at {path} ({source}). An image needs about 1 GiB while it is built; free some, or choose another place with SANDGLASS_STORE and SANDGLASS_CACHE."
    )]
    DiskFull {
        /// The place.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },

    /// Any other refusal of the file system.
    #[error("{path} could not be used: {source}")]
    Io {
        /// The place.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },

    /// The list of pinned inputs is not valid.
    #[error("the lock of the image's inputs is not valid: {0}")]
    Lock(String),

    /// A client that fetches an input is not installed.
    #[error(
        "`{tool}` is needed to {purpose} and is not installed. On Debian: apt-get install --no-install-recommends {package}"
    )]
    ToolMissing {
        /// The command.
        tool: String,
        /// What it is needed for.
        purpose: String,
        /// The Debian package that has it.
        package: String,
    },

    /// A client ran and failed.
    #[error("{purpose} failed: `{command}` ended with {status}.\n{detail}")]
    Tool {
        /// What was attempted.
        purpose: String,
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it said.
        detail: String,
    },

    /// The registry no longer has a pinned version.
    #[error(
        "{name} {version} is no longer served. Pin the versions of today with `sandglass image build --relock --lock FILE`, and build again.\n{detail}"
    )]
    Gone {
        /// The package.
        name: String,
        /// The pinned version.
        version: String,
        /// The end of what the client said.
        detail: String,
    },

    /// A client brought something other than what the lock pins.
    #[error(
        "{name} {version} arrived with sha256:{found}, and the lock pins sha256:{expected}. It is not used. If the change is legitimate, pin it with `sandglass image build --relock --lock FILE`."
    )]
    UnpinnedInput {
        /// The package.
        name: String,
        /// Its version.
        version: String,
        /// The sha256 in the lock.
        expected: String,
        /// The sha256 of what came.
        found: String,
    },

    /// Inputs are missing from the cache and the build may not fetch.
    #[error("the build is offline and the cache lacks {0}. Build once without --offline.")]
    Offline(String),

    /// No Debian mirror could be learned from the machine.
    #[error(
        "apt on this machine names no Debian archive ({0}). Name a mirror with SANDGLASS_DEBIAN_MIRROR, and install debian-archive-keyring."
    )]
    NoMirror(String),

    /// A package holds something that does not belong into the image.
    #[error("{package} holds {what}, which the image must not carry.")]
    Unacceptable {
        /// The package file.
        package: String,
        /// The entry and what is wrong with it.
        what: String,
    },

    /// A package is not in the format that its kind has.
    #[error("{package} could not be unpacked: {why}")]
    Unpack {
        /// The package file.
        package: String,
        /// What is wrong.
        why: String,
    },

    /// The runner is missing or not a program for this machine.
    #[error(
        "the runner {path} {why}. Build it with `cargo build --release -p sandglass-runner`, or name it with --runner."
    )]
    Runner {
        /// Where it was looked for.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },

    /// A step inside the image (bytecode, font cache, self-check) failed.
    #[error("the image's own Python failed at {step}: {status}\n{detail}{hint}")]
    Inside {
        /// Which step.
        step: String,
        /// How it ended.
        status: String,
        /// The end of what it said.
        detail: String,
        /// What may help.
        hint: String,
    },

    /// This machine is not of the kind that the lock is for.
    #[error("the lock is for {wanted}, this machine is {found}. Build the image on a machine of that kind.")]
    Platform {
        /// As in the lock.
        wanted: String,
        /// As found.
        found: String,
    },
}

impl ImageError {
    /// What to do next, where the message does not say it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } => {
                "Build one with `sandglass image build`, or look at what there is with `sandglass image list`."
            }
            Self::BadReference(_) => "`sandglass image list` shows what there is.",
            Self::DigestMismatch { .. } | Self::Corrupt { .. } => {
                "Build it anew with `sandglass image build`, which replaces what is damaged."
            }
            Self::InUse { .. } => "Wait until its runs have ended.",
            _ => "",
        }
    }

    /// Sorts an I/O error by what a person can do about it.
    pub(crate) fn io(path: impl AsRef<Path>, source: io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path, source }
            }
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn corrupt(what: impl AsRef<Path>, why: impl ToString) -> Self {
        Self::Corrupt {
            what: what.as_ref().display().to_string(),
            why: why.to_string(),
        }
    }

    pub(crate) fn unpack(package: &str, why: impl ToString) -> Self {
        Self::Unpack {
            package: package.to_owned(),
            why: why.to_string(),
        }
    }
}

/// `Result` with [`ImageError`].
pub type Result<T, E = ImageError> = std::result::Result<T, E>;

/// `.at(path)`: names the path that an I/O error belongs to.
pub(crate) trait At<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| ImageError::io(path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_read_only_place_are_told_apart() {
        let full = ImageError::io("/x", io::Error::from(io::ErrorKind::StorageFull));
        assert!(matches!(full, ImageError::DiskFull { .. }));
        let denied = ImageError::io("/x", io::Error::from(io::ErrorKind::ReadOnlyFilesystem));
        assert!(matches!(denied, ImageError::NotWritable { .. }));
        let other = ImageError::io("/x", io::Error::from(io::ErrorKind::NotADirectory));
        assert!(matches!(other, ImageError::Io { .. }));
    }
}
