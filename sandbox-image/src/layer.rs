//! A tree as a layer: a tar archive whose bytes depend on nothing but the tree and one time stamp, gzipped.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::digest::HashWriter;
use crate::error::{At, ImageError, Result};
use crate::tree::{Node, Tree, mode, normal};

/// gzip's level: 6 takes almost three times as long for two percent.
const LEVEL: u32 = 4;

/// What OCI wants to know about a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layer {
    /// What is in it, for a person.
    pub name: String,
    /// sha256 of the gzipped tar, hex.
    pub digest: String,
    /// Its length.
    pub bytes: u64,
    /// sha256 of the tar, hex.
    pub diff_id: String,
    /// Bytes of all its files.
    pub unpacked: u64,
}

/// Writes the layer of `tree` to a new file at `target`; `written` hears how many bytes of files are in it so far.
pub(crate) fn write(
    name: &str,
    tree: &Tree,
    epoch: u64,
    target: &Path,
    written: &mut dyn FnMut(u64),
) -> Result<Layer> {
    let file = File::create_new(target).at(target)?;
    let gz = gzip(HashWriter::new(BufWriter::with_capacity(1 << 20, file)));
    let (gz, diff_id, _) = write_tar(tree, epoch, HashWriter::new(gz), written)
        .at(target)?
        .finish();
    let (mut file, digest, bytes) = gz.finish().at(target)?.finish();
    file.flush().at(target)?;
    Ok(Layer {
        name: name.to_owned(),
        digest,
        bytes,
        diff_id,
        unpacked: tree.bytes(),
    })
}

/// A gzip writer without time, name or operating system in its header.
pub(crate) fn gzip<W: Write>(inner: W) -> flate2::write::GzEncoder<W> {
    flate2::GzBuilder::new()
        .mtime(0)
        .operating_system(255)
        .write(inner, flate2::Compression::new(LEVEL))
}

fn write_tar<W: Write>(
    tree: &Tree,
    epoch: u64,
    writer: W,
    written: &mut dyn FnMut(u64),
) -> std::io::Result<W> {
    let mut done = 0;
    let mut builder = tar::Builder::new(writer);
    for (path, node) in tree.iter() {
        let mut header = tar::Header::new_gnu();
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(epoch);
        header.set_mode(mode(node));
        header.set_size(0);
        match node {
            Node::Directory { .. } => {
                header.set_entry_type(tar::EntryType::Directory);
                builder.append_data(&mut header, format!("{path}/"), std::io::empty())?;
            }
            Node::File { data, .. } => {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(data.len() as u64);
                builder.append_data(&mut header, path, data.as_slice())?;
                done += data.len() as u64;
                written(done);
            }
            Node::Link { target } => {
                header.set_entry_type(tar::EntryType::Symlink);
                builder.append_link(&mut header, path, target)?;
            }
        }
    }
    builder.into_inner()
}

/// Gives every entry of a layer's tar to `visit`; anything that [`write`] cannot have written is an error.
pub(crate) fn read(
    label: &str,
    gzipped: impl Read,
    mut visit: impl FnMut(String, Node) -> Result<()>,
) -> Result<()> {
    let bad = |why: &dyn std::fmt::Display| ImageError::corrupt(label, why);
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(gzipped));
    for entry in archive.entries().map_err(|e| bad(&e))? {
        let mut entry = entry.map_err(|e| bad(&e))?;
        let raw = String::from_utf8(entry.path_bytes().into_owned()).map_err(|e| bad(&e))?;
        let path = normal(&raw).map_err(|e| bad(&e))?;
        if path.is_empty() {
            return Err(bad(&"an entry without a name"));
        }
        let found = entry.header().mode().map_err(|e| bad(&e))?;
        let node = match entry.header().entry_type() {
            tar::EntryType::Directory => Node::Directory {
                scratch: found == 0o1777,
            },
            tar::EntryType::Regular => {
                let mut data = Vec::new();
                entry.read_to_end(&mut data).map_err(|e| bad(&e))?;
                Node::File {
                    executable: found & 0o111 != 0,
                    data,
                }
            }
            tar::EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                Node::Link {
                    target: String::from_utf8(target).map_err(|e| bad(&e))?,
                }
            }
            other => return Err(bad(&format!("{path} is of kind {other:?}"))),
        };
        if found != mode(&node) {
            return Err(bad(&format!("{path} has mode {found:o}")));
        }
        visit(path, node)?;
    }
    Ok(())
}

/// sha256 of what this build's gzip makes of a fixed text. Part of every cache key, so that layers which another
/// compressor wrote are never mixed in.
pub(crate) fn compressor_fingerprint() -> Result<String> {
    let mut gz = gzip(HashWriter::new(std::io::sink()));
    let sample: Vec<u8> = (0..64_u32 * 1024).map(|i| ((i * i) >> 7) as u8 & 0x3f).collect();
    gz.write_all(&sample).at("gzip")?;
    Ok(gz.finish().at("gzip")?.finish().1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha256_file;

    fn sample(order: impl Iterator<Item = usize>) -> Tree {
        let mut tree = Tree::default();
        let long = format!("usr/share/{}/{}", "d".repeat(90), "f".repeat(90));
        let entries: [(&str, Node); 5] = [
            ("tmp", Node::Directory { scratch: true }),
            (
                "usr/bin/x",
                Node::File {
                    executable: true,
                    data: b"#!/bin/sh".to_vec(),
                },
            ),
            (
                "usr/lib/y",
                Node::File {
                    executable: false,
                    data: vec![7; 100_000],
                },
            ),
            (
                &long,
                Node::File {
                    executable: false,
                    data: b"long".to_vec(),
                },
            ),
            (
                "bin",
                Node::Link {
                    target: "usr/bin".into(),
                },
            ),
        ];
        for index in order {
            tree.insert(entries[index].0, entries[index].1.clone()).unwrap();
        }
        tree
    }

    #[test]
    fn a_layer_depends_on_its_files_and_not_on_the_order_they_came_in() {
        let here = tempfile::tempdir().unwrap();
        let one = write("x", &sample(0..5), 1, &here.path().join("1"), &mut |_| {}).unwrap();
        let two = write("x", &sample((0..5).rev()), 1, &here.path().join("2"), &mut |_| {}).unwrap();
        assert_eq!(one, two);
        assert_eq!(
            sha256_file(&here.path().join("1")).unwrap(),
            (one.digest.clone(), one.bytes)
        );
        let later = write("x", &sample(0..5), 2, &here.path().join("3"), &mut |_| {}).unwrap();
        assert_ne!(one.digest, later.digest);
        assert_ne!(one.diff_id, later.diff_id);
    }

    #[test]
    fn what_was_written_is_read_back_alike() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("layer");
        let tree = sample(0..5);
        write("x", &tree, 1, &path, &mut |_| {}).unwrap();
        let mut back = Tree::default();
        read("x", File::open(&path).unwrap(), |path, node| {
            back.insert(&path, node).map_err(|e| e.of("the layer"))
        })
        .unwrap();
        assert_eq!(tree, back);
    }

    #[test]
    fn everything_in_a_layer_belongs_to_root_at_one_time_without_names() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("layer");
        write("x", &sample(0..5), 1234, &path, &mut |_| {}).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&path).unwrap()));
        let mut count = 0;
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(
                (
                    header.uid().unwrap(),
                    header.gid().unwrap(),
                    header.mtime().unwrap()
                ),
                (0, 0, 1234)
            );
            assert_eq!(header.username().unwrap(), Some(""));
            assert_eq!(header.mode().unwrap() & 0o6000, 0);
            count += 1;
        }
        assert_eq!(count, sample(0..5).iter().count());
    }

    /// Fails when another crate of the workspace switches flate2 to a back end that compresses differently: the
    /// image's digest would then depend on how the program was built.
    #[test]
    fn the_bytes_of_gzip_are_pinned() {
        assert_eq!(
            compressor_fingerprint().unwrap(),
            "5eb139e35e4b7af3a3cb369c9486d3fc426df8196866e67ce8cb448ec4e9c4c2"
        );
    }

    #[test]
    fn a_layer_that_we_cannot_have_written_is_refused() {
        let mut builder = tar::Builder::new(gzip(Vec::new()));
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o4755);
        header.set_size(0);
        builder
            .append_data(&mut header, "usr/bin/x", std::io::empty())
            .unwrap();
        let bytes = builder.into_inner().unwrap().finish().unwrap();
        let found = read("x", &bytes[..], |_, _| Ok(()));
        assert!(matches!(found, Err(ImageError::Corrupt { .. })), "{found:?}");
        assert!(read("x", &b"no gzip"[..], |_, _| Ok(())).is_err());
    }
}
