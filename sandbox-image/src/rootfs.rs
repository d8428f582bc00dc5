//! The unpacked root of an image: made from its layers in one go, and checked against the list made with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::digest::{HashReader, sha256_file, sha256_hex};
use crate::error::{At, ImageError, Result};
use crate::fetch::join;
use crate::layer;
use crate::tree::{Node, mode, write_node};

/// One line of the list that lies beside an unpacked root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(crate) enum Listed {
    Directory {
        path: String,
        mode: u32,
    },
    File {
        path: String,
        mode: u32,
        bytes: u64,
        sha256: String,
    },
    Link {
        path: String,
        target: String,
    },
}

impl Listed {
    fn of(path: String, node: &Node) -> Self {
        match node {
            Node::Directory { .. } => Self::Directory {
                path,
                mode: mode(node),
            },
            Node::File { data, .. } => Self::File {
                path,
                mode: mode(node),
                bytes: data.len() as u64,
                sha256: sha256_hex(data),
            },
            Node::Link { target } => Self::Link {
                path,
                target: target.clone(),
            },
        }
    }

    fn path(&self) -> &str {
        match self {
            Self::Directory { path, .. } | Self::File { path, .. } | Self::Link { path, .. } => path,
        }
    }
}

/// A layer's blob and the digests that it must have.
pub(crate) struct LayerFile {
    pub path: PathBuf,
    pub sha256: String,
}

/// Unpacks layers, lowest first, into the new directory `root`, and writes the list of what was made to `list`.
/// The blobs' digests are checked on the way. Images made here never put two things at one path, and no path lies
/// beneath a link: both are errors, so nothing is ever written outside `root`.
///
/// Files that another image's root (`donor`) has with the same bytes and mode become links to those: images that
/// differ in their runner only share the disk and the page cache. `unpacked` hears how many bytes are done.
pub(crate) fn unpack(
    layers: &[LayerFile],
    root: &Path,
    list: &Path,
    donor: Option<&Path>,
    unpacked: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let done = AtomicU64::new(0);
    let count = &|bytes| unpacked(done.fetch_add(bytes, Ordering::Relaxed) + bytes);
    fs::create_dir(root).at(root)?;
    let made_by_layer: Vec<BTreeMap<String, Listed>> = thread::scope(|scope| {
        let workers: Vec<_> = layers
            .iter()
            .map(|layer| scope.spawn(move || unpack_layer(layer, root, donor, count)))
            .collect();
        workers.into_iter().map(join).collect::<Result<_>>()
    })?;
    let mut made: BTreeMap<String, Listed> = BTreeMap::new();
    for (path, listed) in made_by_layer.into_iter().flatten() {
        match made.insert(path, listed.clone()) {
            Some(other) if other != listed => {
                return Err(ImageError::corrupt(
                    root.join(listed.path()),
                    "two layers make it differently",
                ));
            }
            _ => {}
        }
    }
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).at(root)?;
    let mut out = BufWriter::new(File::create(list).at(list)?);
    for listed in made.values() {
        let line = serde_json::to_string(listed).map_err(|e| ImageError::corrupt(list, e))?;
        writeln!(out, "{line}").at(list)?;
    }
    out.flush().at(list)
}

/// Unpacks one layer, while others may be unpacked into the same root. A layer brings all directories above its
/// entries, so it depends on no other.
fn unpack_layer(
    blob: &LayerFile,
    root: &Path,
    donor: Option<&Path>,
    count: &(dyn Fn(u64) + Sync),
) -> Result<BTreeMap<String, Listed>> {
    let label = blob.path.display().to_string();
    let mut made: BTreeMap<String, Listed> = BTreeMap::new();
    let mut reader = HashReader::new(BufReader::with_capacity(
        1 << 20,
        File::open(&blob.path).at(&blob.path)?,
    ));
    layer::read(&label, &mut reader, |path, node| {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent);
        if !parent.is_none_or(|parent| matches!(made.get(parent), Some(Listed::Directory { .. }))) {
            return Err(ImageError::corrupt(
                &label,
                format!("{path} lies beneath no directory of its layer"),
            ));
        }
        let target = root.join(&path);
        if !donor.is_some_and(|donor| share(&donor.join(&path), &target, &node)) {
            write_node(&target, &node)?;
        }
        if let Node::File { data, .. } = &node {
            count(data.len() as u64);
        }
        made.insert(path.clone(), Listed::of(path, &node));
        Ok(())
    })?;
    let (found, _) = reader.finish().at(&blob.path)?;
    if found == blob.sha256 {
        return Ok(made);
    }
    Err(ImageError::DigestMismatch {
        what: label,
        expected: blob.sha256.clone(),
        found,
    })
}

/// Links `target` to the donor's file if that is the same in every byte and its mode; says whether it did.
fn share(donor: &Path, target: &Path, node: &Node) -> bool {
    let Node::File { data, .. } = node else {
        return false;
    };
    fs::symlink_metadata(donor).is_ok_and(|found| {
        found.is_file()
            && found.len() == data.len() as u64
            && found.permissions().mode() & 0o7777 == mode(node)
    }) && fs::read(donor).is_ok_and(|found| found == *data)
        && fs::hard_link(donor, target).is_ok()
}

/// Compares an unpacked root with its list: every entry, its mode, its bytes, and nothing besides. Gives the number
/// of entries and of bytes.
pub(crate) fn verify(root: &Path, list: &Path) -> Result<(u64, u64)> {
    let mut known = BTreeSet::new();
    let mut total = 0;
    for line in BufReader::new(File::open(list).at(list)?).lines() {
        let listed: Listed =
            serde_json::from_str(&line.at(list)?).map_err(|e| ImageError::corrupt(list, e))?;
        total += verify_entry(root, &listed)?;
        known.insert(listed.path().to_owned());
    }
    refuse_unlisted(root, "", &known)?;
    Ok((known.len() as u64, total))
}

fn verify_entry(root: &Path, listed: &Listed) -> Result<u64> {
    let path = root.join(listed.path());
    let found = match fs::symlink_metadata(&path) {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(ImageError::corrupt(&path, "it is gone"));
        }
        Err(e) => return Err(ImageError::io(&path, e)),
    };
    let kind_and_mode = match listed {
        Listed::Directory { mode, .. } => found.is_dir() && found.permissions().mode() & 0o7777 == *mode,
        Listed::File { mode, bytes, .. } => {
            found.is_file() && found.permissions().mode() & 0o7777 == *mode && found.len() == *bytes
        }
        Listed::Link { .. } => found.is_symlink(),
    };
    if !kind_and_mode {
        return Err(ImageError::corrupt(
            &path,
            "its kind, mode or size is not that of the image",
        ));
    }
    match listed {
        Listed::Directory { .. } => Ok(0),
        Listed::Link { target, .. } => {
            if fs::read_link(&path).at(&path)?.as_os_str() == target.as_str() {
                Ok(0)
            } else {
                Err(ImageError::corrupt(
                    &path,
                    "it points elsewhere than in the image",
                ))
            }
        }
        Listed::File { sha256, .. } => {
            let (digest, bytes) = sha256_file(&path).at(&path)?;
            if digest == *sha256 {
                Ok(bytes)
            } else {
                Err(ImageError::DigestMismatch {
                    what: path.display().to_string(),
                    expected: sha256.clone(),
                    found: digest,
                })
            }
        }
    }
}

fn refuse_unlisted(root: &Path, inside: &str, known: &BTreeSet<String>) -> Result<()> {
    let directory = root.join(inside);
    for entry in fs::read_dir(&directory).at(&directory)? {
        let entry = entry.at(&directory)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if inside.is_empty() {
            name
        } else {
            format!("{inside}/{name}")
        };
        if !known.contains(&path) {
            return Err(ImageError::corrupt(
                root.join(&path),
                "it is not part of the image",
            ));
        }
        if entry.file_type().at(&directory)?.is_dir() {
            refuse_unlisted(root, &path, known)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn quietly(layers: &[LayerFile], root: &Path, list: &Path, donor: Option<&Path>) -> Result<()> {
        unpack(layers, root, list, donor, &|_| {})
    }

    fn layer_of(here: &Path, name: &str, fill: impl FnOnce(&mut Tree)) -> LayerFile {
        let mut tree = Tree::default();
        fill(&mut tree);
        let path = here.join(name);
        let layer = layer::write(name, &tree, 1, &path, &mut |_| {}).unwrap();
        LayerFile {
            path,
            sha256: layer.digest,
        }
    }

    fn two_layers(here: &Path) -> Vec<LayerFile> {
        vec![
            layer_of(here, "one", |tree| {
                tree.program("usr/bin/sh", "sh").unwrap();
                tree.link("bin", "usr/bin").unwrap();
                tree.insert("tmp", Node::Directory { scratch: true }).unwrap();
            }),
            layer_of(here, "two", |tree| tree.file("usr/share/x", "x").unwrap()),
        ]
    }

    #[test]
    fn layers_are_unpacked_over_each_other_and_verify_against_the_list() {
        let here = tempfile::tempdir().unwrap();
        let (root, list) = (here.path().join("root"), here.path().join("list"));
        quietly(&two_layers(here.path()), &root, &list, None).unwrap();
        assert_eq!(fs::read(root.join("bin/sh")).unwrap(), b"sh");
        assert_eq!(verify(&root, &list).unwrap(), (7, 3));
    }

    #[test]
    fn equal_files_of_another_root_are_shared_and_damaged_ones_are_not() {
        use std::os::unix::fs::MetadataExt;
        let here = tempfile::tempdir().unwrap();
        let layers = two_layers(here.path());
        let (donor, root, list) = (
            here.path().join("donor"),
            here.path().join("root"),
            here.path().join("list"),
        );
        quietly(&layers, &donor, &list, None).unwrap();
        fs::write(donor.join("usr/share/x"), "y").unwrap();
        quietly(&layers, &root, &list, Some(&donor)).unwrap();
        verify(&root, &list).unwrap();
        let links = |path: &str| fs::metadata(root.join(path)).unwrap().nlink();
        assert_eq!((links("usr/bin/sh"), links("usr/share/x")), (2, 1));
    }

    #[test]
    fn every_kind_of_damage_is_found() {
        type Damage = fn(&Path);
        let damages: [(&str, Damage); 7] = [
            ("content", |root| {
                fs::write(root.join("usr/share/x"), "y").unwrap()
            }),
            ("length", |root| {
                fs::write(root.join("usr/share/x"), "xx").unwrap()
            }),
            ("absence", |root| {
                fs::remove_file(root.join("usr/share/x")).unwrap()
            }),
            ("addition", |root| {
                fs::write(root.join("usr/share/evil"), "").unwrap()
            }),
            ("setuid", |root| {
                fs::set_permissions(root.join("usr/bin/sh"), fs::Permissions::from_mode(0o4755)).unwrap();
            }),
            ("link", |root| {
                fs::remove_file(root.join("bin")).unwrap();
                std::os::unix::fs::symlink("/etc", root.join("bin")).unwrap();
            }),
            ("kind", |root| {
                fs::remove_file(root.join("usr/share/x")).unwrap();
                fs::create_dir(root.join("usr/share/x")).unwrap();
            }),
        ];
        for (what, damage) in damages {
            let here = tempfile::tempdir().unwrap();
            let (root, list) = (here.path().join("root"), here.path().join("list"));
            quietly(&two_layers(here.path()), &root, &list, None).unwrap();
            damage(&root);
            assert!(verify(&root, &list).is_err(), "{what} was not noticed");
        }
    }

    #[test]
    fn a_layer_with_other_bytes_than_its_digest_is_refused() {
        let here = tempfile::tempdir().unwrap();
        let mut layers = two_layers(here.path());
        layers[1].sha256 = "ab".repeat(32);
        let found = quietly(
            &layers,
            &here.path().join("root"),
            &here.path().join("list"),
            None,
        );
        assert!(
            matches!(found, Err(ImageError::DigestMismatch { .. })),
            "{found:?}"
        );
    }

    #[test]
    fn nothing_is_written_through_a_link_of_a_lower_layer() {
        let here = tempfile::tempdir().unwrap();
        let outside = here.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let layers = [
            layer_of(here.path(), "one", |tree| {
                tree.link("etc", outside.to_str().unwrap()).unwrap()
            }),
            layer_of(here.path(), "two", |tree| {
                tree.file("etc/passwd", "evil").unwrap()
            }),
        ];
        assert!(
            quietly(
                &layers,
                &here.path().join("root"),
                &here.path().join("list"),
                None
            )
            .is_err()
        );
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn an_upper_layer_does_not_replace_a_file_of_a_lower_one() {
        let here = tempfile::tempdir().unwrap();
        let layers = [
            layer_of(here.path(), "one", |tree| tree.file("x", "1").unwrap()),
            layer_of(here.path(), "two", |tree| tree.file("x", "2").unwrap()),
        ];
        assert!(
            quietly(
                &layers,
                &here.path().join("root"),
                &here.path().join("list"),
                None
            )
            .is_err()
        );
    }
}
