//! One directory of a container in one hierarchy.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode};
use serde::{Deserialize, Serialize};

use super::{PodCgroupError, io};
use crate::cgroup::Version;
use crate::cgroup::files::{get, open_dir, put};
use crate::cgroup::host::MountLine;

/// One directory in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Dir {
    /// The controllers of the hierarchy; a named one without any has its name, `name=systemd`.
    pub(super) controllers: Vec<String>,
    pub(super) version: Version,
    pub(super) mount: PathBuf,
    pub(super) path: PathBuf,
    /// Parents that were not there before, the deepest first: they go away with us, if nobody else is in them.
    #[serde(default)]
    pub(super) made: Vec<PathBuf>,
}

impl Dir {
    /// Notes which parents are not there.
    pub(super) fn foresee(&mut self) {
        let mut parents = self.levels();
        parents.pop();
        self.made = parents
            .into_iter()
            .rev()
            .filter(|level| !level.exists())
            .collect();
    }

    /// The directory and its parents below the root of the hierarchy, the outermost first.
    fn levels(&self) -> Vec<PathBuf> {
        let mut levels: Vec<PathBuf> = self
            .path
            .ancestors()
            .take_while(|path| *path != self.mount)
            .map(Path::to_owned)
            .collect();
        levels.reverse();
        levels
    }

    /// Makes the directory and what is missing above it.
    pub(super) fn create(&mut self) -> Result<(), PodCgroupError> {
        // From here on exactly what was made, whatever was foreseen.
        self.made.clear();
        for level in &self.levels() {
            if self.version == Version::V2
                && let Some(parent) = level.parent()
            {
                enable_controllers(parent).map_err(io(format!(
                    "giving controllers to the children of {}",
                    parent.display()
                )))?;
            }
            match rustix::fs::mkdirat(CWD, level, Mode::from_raw_mode(0o755)) {
                Ok(()) if *level != self.path => self.made.insert(0, level.clone()),
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(io(format!("making the cgroup {}", level.display()))(error.into())),
            }
            if self.version == Version::V1 && self.controllers.iter().any(|name| name == "cpuset") {
                inherit_cpuset(level).map_err(io(format!("filling the cpuset of {}", level.display())))?;
            }
        }
        Ok(())
    }
}

/// A fresh cpuset of v1 has no CPU and no memory node, and nothing can enter it.
fn inherit_cpuset(level: &Path) -> std::io::Result<()> {
    let Some(parent) = level.parent() else {
        return Ok(());
    };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if read_file(level, file)?.trim().is_empty() {
            write(level, file, read_file(parent, file)?.trim())?;
        }
    }
    Ok(())
}

/// Gives the children of a cgroup every controller that it has itself; one that is refused is missed where it is used.
fn enable_controllers(dir: &Path) -> std::io::Result<()> {
    let has = read_file(dir, "cgroup.controllers")?;
    let given = read_file(dir, "cgroup.subtree_control")?;
    let missing: Vec<&str> = has
        .split_whitespace()
        .filter(|name| !given.split_whitespace().any(|known| known == *name))
        .collect();
    for name in missing {
        let _ = write(dir, "cgroup.subtree_control", &format!("+{name}"));
    }
    Ok(())
}

/// The hierarchies that carry controllers: all of v1, or the unified one. On a hybrid host v1 has the controllers.
pub(super) fn mounts(mountinfo: &str) -> Vec<Dir> {
    let mut v1: Vec<Dir> = Vec::new();
    let mut v2 = Vec::new();
    for mount in mountinfo.lines().filter_map(MountLine::parse) {
        let dir = |version, controllers| Dir {
            controllers,
            version,
            mount: mount.mount_point.into(),
            path: PathBuf::new(),
            made: Vec::new(),
        };
        match mount.fs_type {
            "cgroup" => {
                let controllers = mount.controllers();
                if !v1.iter().any(|known| known.controllers == controllers) {
                    v1.push(dir(Version::V1, controllers));
                }
            }
            "cgroup2" if v2.is_empty() => v2.push(dir(Version::V2, Vec::new())),
            _ => {}
        }
    }
    if v1
        .iter()
        .any(|dir| dir.controllers.iter().any(|name| !name.contains('=')))
    {
        v1
    } else {
        v2
    }
}

pub(super) fn write(dir: &Path, file: &str, value: &str) -> std::io::Result<()> {
    put(&open_dir(CWD, dir)?, file, value)
}

pub(super) fn read_file(dir: &Path, file: &str) -> std::io::Result<String> {
    get(&open_dir(CWD, dir)?, file)
}

/// A directory and all below it, the parents first. A container that may write its cgroup can make children.
pub(super) fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![dir.to_owned()];
    let mut next = 0;
    while next < all.len() {
        let children = std::fs::read_dir(&all[next]).into_iter().flatten().flatten();
        let dirs = children.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        all.extend(dirs.map(|entry| entry.path()).collect::<Vec<_>>());
        next += 1;
    }
    all
}

pub(super) fn remove_tree(dir: &Path) -> std::io::Result<()> {
    for path in tree(dir).iter().rev() {
        match std::fs::remove_dir(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
