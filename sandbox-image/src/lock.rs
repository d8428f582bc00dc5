//! The lock: every input of the image, pinned by name, version, file name and sha256.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::digest::{is_sha256_hex, sha256_hex};
use crate::error::{At, ImageError, Result};

/// The format of the lock that this version reads and writes.
const SCHEMA: u32 = 1;

/// The lock as shipped with the sources.
const SHIPPED: &str = include_str!("../lock.toml");

/// Which client fetches an input, and how it is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A Debian package, fetched by apt.
    Deb,
    /// A Python wheel, fetched by pip.
    Wheel,
    /// A jar by its Maven coordinates, fetched by mvn.
    Maven,
    /// A package of the npm registry, fetched by npm.
    Npm,
}

/// One pinned input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// How it is fetched and unpacked.
    pub kind: Kind,
    /// The package; for Maven `group:artifact`.
    pub name: String,
    /// The exact version.
    pub version: String,
    /// The Maven classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier: Option<String>,
    /// The name of the file as its client delivers it.
    pub file: String,
    /// sha256 of that file, 64 hex digits.
    pub sha256: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// All inputs of the image. Two builds from equal locks give images with equal digests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Version of this format.
    pub schema: u32,
    /// What the image runs on, as OCI writes it: `linux/amd64`.
    pub platform: String,
    /// The one time stamp in the image, seconds since 1970.
    pub source_date_epoch: u64,
    /// The Debian suite that the packages come from.
    pub debian_suite: String,
    /// `3.12`: what wheels are chosen for, and the name of the interpreter in the image.
    pub python: String,
    /// The Python packages that the image promises; their dependencies are found when the lock is made.
    pub python_packages: Vec<String>,
    /// The inputs, sorted by kind and name.
    #[serde(rename = "input")]
    pub inputs: Vec<Input>,
}

impl Lock {
    /// The lock that this version was released with.
    pub fn shipped() -> Result<Self> {
        Self::parse(SHIPPED)
    }

    /// Reads a lock from a file.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&std::fs::read_to_string(path).at(path)?)
    }

    /// Parses and validates the TOML text of a lock.
    pub fn parse(text: &str) -> Result<Self> {
        let lock: Self = toml::from_str(text).map_err(|e| ImageError::Lock(e.to_string()))?;
        lock.validate()?;
        Ok(lock)
    }

    /// The TOML text of this lock.
    pub fn to_toml(&self) -> Result<String> {
        let body = toml::to_string(self).map_err(|e| ImageError::Lock(e.to_string()))?;
        Ok(format!(
            "# Every input of the sandbox image. Made by `sandglass image build --relock --lock FILE`; do not edit the pins by hand.\n{body}"
        ))
    }

    /// The inputs of one kind.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Input> {
        self.inputs.iter().filter(move |input| input.kind == kind)
    }

    /// sha256 of the lock's own text.
    pub(crate) fn digest(&self) -> Result<String> {
        Ok(sha256_hex(self.to_toml()?.as_bytes()))
    }

    fn validate(&self) -> Result<()> {
        let fail = |why: String| Err(ImageError::Lock(why));
        if self.schema != SCHEMA {
            return fail(format!(
                "its schema is {}, this version reads {SCHEMA}",
                self.schema
            ));
        }
        if !word(&self.debian_suite) || !word(&self.python) || !self.python_packages.iter().all(|p| word(p)) {
            return fail("suite, python and python_packages may hold only letters, digits and ._-".into());
        }
        let mut seen = BTreeSet::new();
        for input in &self.inputs {
            let Input {
                kind,
                name,
                version,
                classifier,
                file,
                sha256,
                ..
            } = input;
            // These words end up on command lines and in file names.
            let name_ok = match kind {
                Kind::Maven => name.split(':').count() == 2 && name.split(':').all(word),
                _ => word(name),
            };
            if !name_ok || !version_word(version) || !classifier.as_deref().is_none_or(word) {
                return fail(format!(
                    "\"{name}\" \"{version}\" is not a package name and version"
                ));
            }
            if file.is_empty() || file.contains('/') || file.starts_with(['.', '-']) {
                return fail(format!("\"{file}\" is not a plain file name"));
            }
            if !is_sha256_hex(sha256) {
                return fail(format!("the sha256 of {name} is not 64 lower-case hex digits"));
            }
            if !seen.insert((kind, name)) {
                return fail(format!("{name} is pinned twice"));
            }
        }
        Ok(())
    }
}

/// A word that no shell, client or path reads as anything else: begins with a letter or digit.
fn word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c))
}

/// A version; Debian's may also hold `~` and `:`.
fn version_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-+~:!".contains(c))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn tiny() -> Lock {
        Lock {
            schema: SCHEMA,
            platform: "linux/amd64".into(),
            source_date_epoch: 1_000_000_000,
            debian_suite: "trixie".into(),
            python: "3.12".into(),
            python_packages: vec!["numpy".into()],
            inputs: vec![Input {
                kind: Kind::Deb,
                name: "dash".into(),
                version: "0.5.12-12".into(),
                classifier: None,
                file: "dash_0.5.12-12_amd64.deb".into(),
                sha256: "ab".repeat(32),
                bytes: 10,
            }],
        }
    }

    #[test]
    fn the_shipped_lock_is_valid_and_pins_what_the_image_promises() {
        let lock = Lock::shipped().unwrap();
        assert_eq!(lock.platform, "linux/amd64");
        for package in [
            "numpy",
            "pandas",
            "matplotlib",
            "pillow",
            "reportlab",
            "fpdf2",
            "pypdf",
        ] {
            assert!(
                lock.of(Kind::Wheel).any(|i| i.name == package),
                "{package} is not pinned"
            );
        }
        assert!(lock.of(Kind::Maven).any(|i| i.version.starts_with("3.12.")));
        assert!(lock.of(Kind::Npm).any(|i| i.version.starts_with("20.")));
        for package in [
            "libc6",
            "coreutils",
            "dash",
            "fonts-dejavu-core",
            "fonts-droid-fallback",
        ] {
            assert!(
                lock.of(Kind::Deb).any(|i| i.name == package),
                "{package} is not pinned"
            );
        }
    }

    #[test]
    fn a_lock_survives_being_written_and_read() {
        let lock = tiny();
        assert_eq!(Lock::parse(&lock.to_toml().unwrap()).unwrap(), lock);
    }

    #[test]
    fn pins_that_could_mean_something_else_are_refused() {
        type Spoil = fn(&mut Input);
        let spoils: [(&str, Spoil); 6] = [
            ("option as name", |i| i.name = "--config".into()),
            ("path as file", |i| i.file = "../dash.deb".into()),
            ("short digest", |i| i.sha256 = "ab".into()),
            ("shell in version", |i| i.version = "1;id".into()),
            ("slash in name", |i| i.name = "a/b".into()),
            ("option as classifier", |i| i.classifier = Some("-x".into())),
        ];
        for (what, spoil) in spoils {
            let mut lock = tiny();
            spoil(&mut lock.inputs[0]);
            assert!(lock.validate().is_err(), "{what} was accepted");
        }
        let mut twice = tiny();
        twice.inputs.push(twice.inputs[0].clone());
        assert!(twice.validate().is_err());
        let mut newer = tiny();
        newer.schema += 1;
        assert!(newer.validate().is_err());
        assert!(Lock::parse("not a lock").is_err());
    }
}
