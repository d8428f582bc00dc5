//! One layer, as an uncompressed tar. Unlike the layers of the sandbox image these may hold a setuid file and hard
//! links: tests want both.

use crate::error::{Result, StackError};

/// What a layer holds.
#[derive(Debug, Clone, Default)]
pub struct Layer {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    path: String,
    mode: u32,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Folder,
    File(Vec<u8>),
    HardLink(String),
    SymbolicLink(String),
}

impl Layer {
    /// With a folder.
    #[must_use]
    pub fn folder(self, path: &str, mode: u32) -> Self {
        self.with(path, mode, Kind::Folder)
    }

    /// With a file.
    #[must_use]
    pub fn file(self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        self.with(path, mode, Kind::File(content.into()))
    }

    /// With a second name of a file that is in the layer already.
    #[must_use]
    pub fn hard_link(self, path: &str, to: &str) -> Self {
        self.with(path, 0o755, Kind::HardLink(to.to_owned()))
    }

    /// With a symbolic link.
    #[must_use]
    pub fn symbolic_link(self, path: &str, to: &str) -> Self {
        self.with(path, 0o777, Kind::SymbolicLink(to.to_owned()))
    }

    fn with(mut self, path: &str, mode: u32, kind: Kind) -> Self {
        self.entries.push(Entry {
            path: path.to_owned(),
            mode,
            kind,
        });
        self
    }

    /// The tar: everything belongs to root and is of 1970.
    pub(super) fn tar(&self) -> Result<Vec<u8>> {
        let mut builder = tar::Builder::new(Vec::new());
        for entry in &self.entries {
            append(&mut builder, entry).map_err(StackError::doing(format!("Packing {}", entry.path)))?;
        }
        builder.into_inner().map_err(StackError::doing("Packing a layer"))
    }
}

fn append(builder: &mut tar::Builder<Vec<u8>>, entry: &Entry) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_mode(entry.mode);
    header.set_size(0);
    match &entry.kind {
        Kind::Folder => {
            header.set_entry_type(tar::EntryType::Directory);
            builder.append_data(&mut header, format!("{}/", entry.path), std::io::empty())
        }
        Kind::File(content) => {
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, &entry.path, content.as_slice())
        }
        Kind::HardLink(to) => {
            header.set_entry_type(tar::EntryType::Link);
            builder.append_link(&mut header, &entry.path, to)
        }
        Kind::SymbolicLink(to) => {
            header.set_entry_type(tar::EntryType::Symlink);
            builder.append_link(&mut header, &entry.path, to)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_keeps_setuid_and_links_and_is_the_same_each_time() {
        let layer = Layer::default()
            .folder("tmp", 0o1777)
            .file("bin/busybox", 0o755, "x")
            .hard_link("bin/sh", "bin/busybox")
            .symbolic_link("var/run", "/run")
            .file("nonewprivs", 0o4755, "y");
        let bytes = layer.tar().unwrap();
        assert_eq!(bytes, layer.tar().unwrap());
        let mut archive = tar::Archive::new(bytes.as_slice());
        let found: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                (
                    entry.path().unwrap().display().to_string(),
                    header.entry_type(),
                    header.mode().unwrap(),
                    header.uid().unwrap(),
                )
            })
            .collect();
        assert_eq!(found[0], ("tmp/".into(), tar::EntryType::Directory, 0o1777, 0));
        assert_eq!(found[2], ("bin/sh".into(), tar::EntryType::Link, 0o755, 0));
        assert_eq!(
            found[4],
            ("nonewprivs".into(), tar::EntryType::Regular, 0o4755, 0)
        );
    }
}
