//! The files of one layer, in memory: what packages unpack into and what layers are written from.
//!
//! Modes are not kept as numbers: a file is plain or executable, so nothing setuid, setgid, writable by others,
//! special or with capabilities can be said, let alone end up in the image.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::error::{At, ImageError, Result};

/// One entry of a [`Tree`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// A directory, 0755; `scratch`: 1777, a mount point for a tmpfs of everyone.
    Directory { scratch: bool },
    /// A regular file, 0644 or 0755.
    File { executable: bool, data: Vec<u8> },
    /// A symbolic link.
    Link { target: String },
}

/// What the tree already holds at a path, when something else should go there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("\"{0}\" is not a path that an image can hold")]
    BadPath(String),
    #[error("\"{0}\" is there already, with other content")]
    Conflict(String),
    #[error("\"{0}\" lies beneath something that is not a directory")]
    NotBeneathDirectory(String),
}

/// Sorted by path; every entry's parents are in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree(BTreeMap<String, Node>);

impl Tree {
    /// All entries, parents before children.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_str(), node))
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.0.get(path)
    }

    /// Sum of the lengths of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.0
            .values()
            .map(|node| match node {
                Node::File { data, .. } => data.len() as u64,
                _ => 0,
            })
            .sum()
    }

    /// Adds an entry and the directories above it. The same entry twice is fine, two different ones are not.
    pub(crate) fn insert(&mut self, path: &str, node: Node) -> Result<(), TreeError> {
        let path = normal(path)?;
        if path.is_empty() {
            return match node {
                Node::Directory { .. } => Ok(()),
                _ => Err(TreeError::BadPath("/".into())),
            };
        }
        for (at, _) in path.match_indices('/') {
            match self.0.get(&path[..at]) {
                None => {
                    self.0
                        .insert(path[..at].to_owned(), Node::Directory { scratch: false });
                }
                Some(Node::Directory { .. }) => {}
                Some(_) => return Err(TreeError::NotBeneathDirectory(path)),
            }
        }
        match self.0.get(&path) {
            None => {
                self.0.insert(path, node);
                Ok(())
            }
            Some(present) if *present == node => Ok(()),
            Some(_) => Err(TreeError::Conflict(path)),
        }
    }

    pub(crate) fn directory(&mut self, path: &str) -> Result<(), TreeError> {
        self.insert(path, Node::Directory { scratch: false })
    }

    pub(crate) fn file(&mut self, path: &str, data: impl Into<Vec<u8>>) -> Result<(), TreeError> {
        self.insert(
            path,
            Node::File {
                executable: false,
                data: data.into(),
            },
        )
    }

    pub(crate) fn program(&mut self, path: &str, data: impl Into<Vec<u8>>) -> Result<(), TreeError> {
        self.insert(
            path,
            Node::File {
                executable: true,
                data: data.into(),
            },
        )
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> Result<(), TreeError> {
        self.insert(
            path,
            Node::Link {
                target: target.into(),
            },
        )
    }

    /// Changes the content of a file that is there; `false` when none is.
    pub(crate) fn edit(&mut self, path: &str, change: impl FnOnce(&[u8]) -> Vec<u8>) -> bool {
        match self.0.get_mut(path) {
            Some(Node::File { data, .. }) => {
                *data = change(data);
                true
            }
            _ => false,
        }
    }

    /// Marks a file that is there as a program.
    pub(crate) fn set_executable(&mut self, path: &str) {
        if let Some(Node::File { executable, .. }) = self.0.get_mut(path) {
            *executable = true;
        }
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: Tree) -> Result<(), TreeError> {
        other
            .0
            .into_iter()
            .try_for_each(|(path, node)| self.insert(&path, node))
    }

    /// Writes all entries beneath `root`, which exists and in which nobody else writes.
    pub(crate) fn write_to(&self, root: &Path) -> Result<()> {
        for (path, node) in self.iter() {
            write_node(&root.join(path), node)?;
        }
        Ok(())
    }
}

/// Creates one entry with exactly the mode that its kind has, whatever the umask. A directory may be there already.
pub(crate) fn write_node(target: &Path, node: &Node) -> Result<()> {
    match node {
        Node::Directory { .. } => {
            match fs::create_dir(target) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && is_directory(target) => {}
                other => other.at(target)?,
            }
            fs::set_permissions(target, fs::Permissions::from_mode(mode(node))).at(target)
        }
        Node::File { data, .. } => {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(target)
                .at(target)?;
            file.write_all(data).at(target)?;
            file.set_permissions(fs::Permissions::from_mode(mode(node)))
                .at(target)
        }
        Node::Link { target: to } => std::os::unix::fs::symlink(to, target).at(target),
    }
}

/// Whether a directory, not a link to one, is there.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// The mode that an entry of this kind has in the image.
pub(crate) fn mode(node: &Node) -> u32 {
    match node {
        Node::Directory { scratch: true } => 0o1777,
        Node::Directory { scratch: false } | Node::File { executable: true, .. } => 0o755,
        Node::File {
            executable: false, ..
        } => 0o644,
        Node::Link { .. } => 0o777,
    }
}

/// A path relative to the image's root, without `.`, `..`, empty parts or control characters, `""` for the root;
/// `/bin`, `/sbin`, `/lib` and `/lib64` are the links into `/usr` that Debian made them.
pub(crate) fn normal(path: &str) -> Result<String, TreeError> {
    let bad = || TreeError::BadPath(path.to_owned());
    if path.chars().any(char::is_control) {
        return Err(bad());
    }
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        return Err(bad());
    }
    let joined = parts.join("/");
    Ok(match parts.first() {
        Some(&("bin" | "sbin" | "lib" | "lib64")) if parts.len() > 1 => format!("usr/{joined}"),
        _ => joined,
    })
}

impl TreeError {
    pub(crate) fn of(self, package: &str) -> ImageError {
        ImageError::Unacceptable {
            package: package.to_owned(),
            what: self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_and_inside_and_merged_into_usr() {
        assert_eq!(normal("./usr/bin/sh").unwrap(), "usr/bin/sh");
        assert_eq!(
            normal("/lib/x86_64-linux-gnu/libc.so.6").unwrap(),
            "usr/lib/x86_64-linux-gnu/libc.so.6"
        );
        assert_eq!(normal("bin").unwrap(), "bin");
        assert_eq!(normal("./").unwrap(), "");
        for bad in ["../etc/passwd", "usr/../../x", "a/..", "a\nb", "a\0b"] {
            assert_eq!(normal(bad), Err(TreeError::BadPath(bad.into())), "{bad:?}");
        }
    }

    #[test]
    fn parents_come_first_and_are_made_when_missing() {
        let mut tree = Tree::default();
        tree.file("usr/share/x", "1").unwrap();
        let paths: Vec<_> = tree.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["usr", "usr/share", "usr/share/x"]);
    }

    #[test]
    fn nothing_is_written_through_a_link_or_over_another_file() {
        let mut tree = Tree::default();
        tree.link("usr/evil", "/etc").unwrap();
        assert!(matches!(
            tree.file("usr/evil/passwd", "x"),
            Err(TreeError::NotBeneathDirectory(_))
        ));
        tree.file("a", "1").unwrap();
        tree.file("a", "1").unwrap();
        assert_eq!(tree.file("a", "2"), Err(TreeError::Conflict("a".into())));
        assert!(tree.file("a/b", "x").is_err());
        assert!(tree.link("/", "x").is_err());
    }

    #[test]
    fn files_on_disk_have_the_image_modes_whatever_the_umask() {
        let root = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        tree.insert("tmp", Node::Directory { scratch: true }).unwrap();
        tree.program("usr/bin/x", "#!").unwrap();
        tree.file("usr/data", "d").unwrap();
        tree.link("bin", "usr/bin").unwrap();
        tree.write_to(root.path()).unwrap();
        let mode = |p: &str| {
            fs::symlink_metadata(root.path().join(p))
                .unwrap()
                .permissions()
                .mode()
                & 0o7777
        };
        assert_eq!(mode("tmp"), 0o1777);
        assert_eq!(mode("usr/bin"), 0o755);
        assert_eq!(mode("usr/bin/x"), 0o755);
        assert_eq!(mode("usr/data"), 0o644);
        assert_eq!(fs::read(root.path().join("bin/x")).unwrap(), b"#!");
    }
}
