//! Reading the two archive formats that packages come in. Archives are not trusted: names, kinds, modes and sizes are
//! checked before anything is taken over.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{At, ImageError, Result};
use crate::tree::{Node, Tree, normal};

/// No file of an image is larger than this; what says otherwise is broken or hostile.
const FILE_MAX: u64 = 512 << 20;

/// Adds the entries of a tar archive for which `place` gives a path.
pub(crate) fn tar_into(
    label: &str,
    reader: impl Read,
    tree: &mut Tree,
    place: impl Fn(&str) -> Option<String>,
) -> Result<()> {
    let bad = |why: String| ImageError::unpack(label, why);
    let unacceptable = |what: String| ImageError::Unacceptable {
        package: label.to_owned(),
        what,
    };
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries().map_err(|e| bad(e.to_string()))? {
        let mut entry = entry.map_err(|e| bad(e.to_string()))?;
        let raw = String::from_utf8(entry.path_bytes().into_owned())
            .map_err(|_| bad("a name in it is not UTF-8".into()))?;
        let path = normal(&raw).map_err(|e| e.of(label))?;
        let Some(path) = place(&path) else { continue };
        let placed = match entry.header().entry_type() {
            tar::EntryType::Directory => tree.directory(&path),
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let mode = entry.header().mode().map_err(|e| bad(e.to_string()))?;
                if mode & 0o6000 != 0 {
                    return Err(unacceptable(format!("a setuid or setgid file, {path}")));
                }
                let data = read_all(&mut entry).map_err(|e| bad(format!("{path}: {e}")))?;
                tree.insert(
                    &path,
                    Node::File {
                        executable: mode & 0o111 != 0,
                        data,
                    },
                )
            }
            tar::EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default();
                let target = std::str::from_utf8(&target).map_err(|e| bad(e.to_string()))?;
                tree.link(&path, target)
            }
            tar::EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default();
                let target = std::str::from_utf8(&target).map_err(|e| bad(e.to_string()))?;
                let target = normal(target).map_err(|e| e.of(label))?;
                match tree.get(&target).cloned() {
                    Some(node @ Node::File { .. }) => tree.insert(&path, node),
                    _ => return Err(unacceptable(format!("a hard link to something left out, {path}"))),
                }
            }
            other => return Err(unacceptable(format!("an entry of kind {other:?}, {path}"))),
        };
        placed.map_err(|e| e.of(label))?;
    }
    Ok(())
}

/// Gives every file of a zip archive to `visit`. Modes and links that zip can hold are not taken over.
pub(crate) fn zip_into(
    label: &str,
    file: &Path,
    mut visit: impl FnMut(&str, Vec<u8>) -> Result<()>,
) -> Result<()> {
    let bad = |why: &dyn std::fmt::Display| ImageError::unpack(label, why);
    let mut archive =
        zip::ZipArchive::new(std::io::BufReader::new(File::open(file).at(file)?)).map_err(|e| bad(&e))?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|e| bad(&e))?;
        if entry.is_dir() {
            continue;
        }
        let path = entry.name().map_err(|e| bad(&e))?.into_owned();
        if entry.is_symlink() {
            return Err(ImageError::Unacceptable {
                package: label.into(),
                what: format!("a link, {path}"),
            });
        }
        let data = read_all(&mut entry).map_err(|e| bad(&format!("{path}: {e}")))?;
        visit(&path, data)?;
    }
    Ok(())
}

fn read_all(reader: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut data = Vec::new();
    reader.take(FILE_MAX + 1).read_to_end(&mut data)?;
    if data.len() as u64 > FILE_MAX {
        return Err(std::io::Error::other("larger than any file of an image"));
    }
    Ok(data)
}
