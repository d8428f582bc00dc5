//! containerd's root with every test image in it, made once and copied at each start.
//!
//! Importing takes seconds, and two containerds cannot share a root. A copy of links takes a fraction of one: containerd
//! writes neither blobs nor committed snapshots again, only its databases, and those are copied for real.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::config::{Config, Servers};
use crate::error::{Result, StackError};
use crate::images::Index;
use crate::stack::Stack;

/// The namespaces that get the images: Kubernetes' and that of `ctr` where none is named.
const NAMESPACES: [&str; 2] = ["k8s.io", "default"];

/// A seed that stays as long as this is held.
#[derive(Debug)]
pub struct Seed {
    /// The root to copy.
    pub path: PathBuf,
    /// Shared; whoever removes old seeds holds it alone.
    _lock: File,
}

/// The seed for these servers and images, made now if it is not there. Seeds of other servers or images are removed then.
///
/// # Errors
/// Where containerd does not come up or does not take an image.
pub fn ensure(servers: &Servers) -> Result<Seed> {
    let index = Index::read(&servers.images())?;
    let path = servers.root.join(format!("seed-{}", key(servers, &index)?));
    let lock_path = servers.root.join("seed.lock");
    let lock = File::create(&lock_path).map_err(StackError::at("Opening", &lock_path))?;
    loop {
        lock.lock_shared()
            .map_err(StackError::at("Locking", &lock_path))?;
        if path.is_dir() {
            return Ok(Seed { path, _lock: lock });
        }
        lock.unlock()
            .and_then(|()| lock.lock())
            .map_err(StackError::at("Locking", &lock_path))?;
        if !path.is_dir() {
            eprintln!("Importing the test images, once …");
            clear(servers)?;
            plant(servers, &index, &path)?;
        }
        lock.unlock().map_err(StackError::at("Unlocking", &lock_path))?;
    }
}

/// Removes other seeds, and the roots that killed processes left when they made one.
fn clear(servers: &Servers) -> Result<()> {
    for (folder, prefix) in [
        (servers.root.clone(), "seed-"),
        (servers.root.join("live"), "sg-"),
    ] {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let in_use = Path::new("/run").join(&name).exists();
            if name.to_string_lossy().starts_with(prefix) && !in_use {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(StackError::at("Removing", &path))?;
            }
        }
    }
    Ok(())
}

/// Makes a root with every image in it at `seed`.
fn plant(servers: &Servers, index: &Index, seed: &Path) -> Result<()> {
    let mut config = Config::new(servers.clone(), None, &[]);
    config.images = false;
    let stack = Stack::up_to_keep(&config)?;
    let imported = import(&stack, servers, index);
    let root = stack.place().root();
    let roomy = stack.place().roomy.clone();
    stack.down()?;
    let made = imported.and_then(|()| fs::rename(&root, seed).map_err(StackError::at("Keeping", seed)));
    fs::remove_dir_all(&roomy).map_err(StackError::at("Removing", &roomy))?;
    made
}

/// What the seed depends on, as a word: the images and the containerd that unpacked them.
fn key(servers: &Servers, index: &Index) -> Result<String> {
    let program = servers.program("containerd");
    let program = fs::canonicalize(&program).map_err(StackError::at("Finding", &program))?;
    let folder = program.parent().and_then(Path::file_name).unwrap_or_default();
    let mut hash = Sha256::new();
    hash.update(index.digest());
    hash.update(folder.as_encoded_bytes());
    let mut word = hex::encode(hash.finalize());
    word.truncate(16);
    Ok(word)
}

fn import(stack: &Stack, servers: &Servers, index: &Index) -> Result<()> {
    for namespace in NAMESPACES {
        for archive in &index.archives {
            let path = servers.images().join(&archive.file);
            let output = stack
                .command(servers.program("ctr"))
                .args(["-n", namespace, "images", "import", "--local"])
                .arg(&path)
                .output()
                .map_err(StackError::doing("Starting ctr"))?;
            crate::supervise::containerd::succeeded(
                &format!("ctr images import {}", path.display()),
                &output,
            )?;
        }
    }
    Ok(())
}

/// Makes `to` a copy of the root `from`.
///
/// # Errors
/// Where the two are on different file systems, or one cannot be read or written.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let mode = fs::metadata(from)
        .map_err(StackError::at("Reading", from))?
        .permissions()
        .mode();
    fs::create_dir(to).map_err(StackError::at("Making", to))?;
    for entry in fs::read_dir(from).map_err(StackError::at("Listing", from))? {
        let entry = entry.map_err(StackError::at("Listing", from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(StackError::at("Reading", &path))?;
        if kind.is_dir() {
            copy(&path, &target)?;
        } else if kind.is_symlink() {
            let link = fs::read_link(&path).map_err(StackError::at("Reading", &path))?;
            symlink(link, &target).map_err(StackError::at("Linking", &target))?;
        } else if path.extension().is_some_and(|extension| extension == "db") {
            fs::copy(&path, &target).map_err(StackError::at("Copying", &path))?;
        } else {
            fs::hard_link(&path, &target).map_err(StackError::at("Linking", &target))?;
        }
    }
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(StackError::at("Changing", to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_copy_shares_files_and_owns_its_databases() {
        let here = tempfile::tempdir().unwrap();
        let (from, to) = (here.path().join("from"), here.path().join("to"));
        fs::create_dir_all(from.join("snapshots/1/fs/tmp")).unwrap();
        fs::set_permissions(
            from.join("snapshots/1/fs/tmp"),
            fs::Permissions::from_mode(0o1777),
        )
        .unwrap();
        fs::write(from.join("snapshots/1/fs/file"), "x").unwrap();
        fs::write(from.join("meta.db"), "y").unwrap();
        symlink("file", from.join("snapshots/1/fs/link")).unwrap();
        copy(&from, &to).unwrap();
        let inode = |path: PathBuf| fs::symlink_metadata(path).unwrap().ino();
        assert_eq!(
            inode(from.join("snapshots/1/fs/file")),
            inode(to.join("snapshots/1/fs/file"))
        );
        assert_ne!(inode(from.join("meta.db")), inode(to.join("meta.db")));
        assert_eq!(
            fs::read_link(to.join("snapshots/1/fs/link")).unwrap(),
            Path::new("file")
        );
        let mode = fs::metadata(to.join("snapshots/1/fs/tmp"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o1777);
    }
}
