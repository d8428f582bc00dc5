//! A control group of the stack's own in every hierarchy of the host, which is the root of all that happens inside.
//!
//! Whatever a runtime makes lies below it, so what it leaves is found; whoever still runs in it belongs to the stack.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::error::{Result, StackError};

/// The group of containerd, the supervisor and the commands, below the stack's own.
pub const LEAF: &str = "stack";

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// What to mount it again with; `None` on cgroup v2.
    pub v1_options: Option<String>,
}

impl Hierarchy {
    /// The hierarchies in a `/proc/self/mountinfo`, each once.
    pub fn all(mountinfo: &str) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for hierarchy in mountinfo.lines().filter_map(Self::of_line) {
            if !found.iter().any(|known| known.v1_options == hierarchy.v1_options) {
                found.push(hierarchy);
            }
        }
        found
    }

    fn of_line(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let kind = after.next()?;
        let options = after.nth(1)?;
        let mount = PathBuf::from(before.split(' ').nth(4)?);
        match kind {
            "cgroup2" => Some(Self {
                mount,
                v1_options: None,
            }),
            "cgroup" => {
                let named = options.split(',').find(|option| option.starts_with("name="));
                let v1_options = match named {
                    Some(name) => format!("none,{name}"),
                    None => options
                        .split(',')
                        .filter(|option| {
                            !matches!(*option, "rw" | "ro" | "xattr" | "clone_children" | "noprefix")
                        })
                        .collect::<Vec<_>>()
                        .join(","),
                };
                Some(Self {
                    mount,
                    v1_options: Some(v1_options),
                })
            }
            _ => None,
        }
    }

    /// The path of a process in this hierarchy, from its `/proc/PID/cgroup`.
    fn path_in<'a>(&self, membership: &'a str) -> Option<&'a str> {
        membership.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let same = match &self.v1_options {
                None => controllers.is_empty(),
                Some(options) => {
                    let wanted: BTreeSet<_> = options.trim_start_matches("none,").split(',').collect();
                    !controllers.is_empty() && controllers.split(',').collect::<BTreeSet<_>>() == wanted
                }
            };
            same.then_some(path)
        })
    }
}

/// The stack's group in one hierarchy.
#[derive(Debug)]
struct Group {
    /// The group that it was made in, opened before the mounts changed.
    parent: OwnedFd,
    /// Where it was, seen from the host.
    outside: PathBuf,
    /// The root of the hierarchy, seen from inside.
    inside: PathBuf,
}

/// The stack's groups.
#[derive(Debug)]
pub struct Groups {
    name: String,
    groups: Vec<Group>,
}

impl Groups {
    /// Makes the groups and puts this process in them. A new cgroup namespace that is made next has them as its root.
    pub fn enter(name: &str) -> Result<Self> {
        let (mountinfo, membership) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
        let mut entered = Self {
            name: name.to_owned(),
            groups: Vec::new(),
        };
        for hierarchy in Hierarchy::all(&mountinfo) {
            let path = hierarchy.path_in(&membership).unwrap_or("/");
            // v2 lets a group have either processes or controllers for its children; only the root may have both.
            let parent = match hierarchy.v1_options {
                Some(_) => hierarchy.mount.join(path.trim_start_matches('/')),
                None => hierarchy.mount.clone(),
            };
            let group = parent.join(name);
            let opened = rustix::fs::open(&parent, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(StackError::at("Opening", &parent))?;
            fs::create_dir(&group).map_err(StackError::at("Making", &group))?;
            entered.groups.push(Group {
                parent: opened,
                outside: group.clone(),
                inside: hierarchy.mount.clone(),
            });
            fill_cpuset(&parent, &group)?;
            write(&group.join("cgroup.procs"), "0")?;
        }
        if entered.groups.is_empty() {
            return Err(StackError::Setting(
                "This host has no control groups mounted.".to_owned(),
            ));
        }
        Ok(entered)
    }

    /// Moves this process out of the way of controllers, once the hierarchies are mounted anew.
    pub fn settle(&self) -> Result<()> {
        for group in &self.groups {
            let leaf = group.inside.join(LEAF);
            fs::create_dir(&leaf).map_err(StackError::at("Making", &leaf))?;
            fill_cpuset(&group.inside, &leaf)?;
            write(&leaf.join("cgroup.procs"), "0")?;
            if let Ok(controllers) = fs::read_to_string(group.inside.join("cgroup.controllers")) {
                for controller in controllers.split_whitespace() {
                    write(
                        &group.inside.join("cgroup.subtree_control"),
                        &format!("+{controller}"),
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Where commands from the host join, seen from the host.
    pub fn outside(&self) -> Vec<String> {
        self.groups
            .iter()
            .map(|group| group.outside.join(LEAF).display().to_string())
            .collect()
    }

    /// Everyone inside, this process excepted.
    pub fn processes(&self) -> BTreeSet<u32> {
        let me = std::process::id();
        self.groups
            .iter()
            .flat_map(|group| below(&group.inside))
            .filter_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok())
            .flat_map(|pids| {
                pids.lines()
                    .filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<u32>>()
            })
            .filter(|pid| *pid != me && *pid != 0)
            .collect()
    }

    /// The groups that runtimes made for containers: two levels down, since they keep the level between.
    pub fn of_containers(&self) -> BTreeSet<PathBuf> {
        self.groups
            .iter()
            .flat_map(|group| {
                below(&group.inside).into_iter().filter(|folder| {
                    folder
                        .strip_prefix(&group.inside)
                        .is_ok_and(|rest| rest.components().count() >= 2)
                })
            })
            .collect()
    }

    /// Leaves the groups and removes them; returns what cannot be removed. Everyone else must be gone.
    pub fn leave(self) -> Vec<String> {
        let mut left = Vec::new();
        for group in &self.groups {
            for folder in below(&group.inside).iter().rev() {
                if folder != &group.inside && !folder.ends_with(LEAF) {
                    // One that holds on is reported with the group as a whole.
                    let _ = fs::remove_dir(folder);
                }
            }
            let outcome = rustix::fs::openat(
                &group.parent,
                "cgroup.procs",
                OFlags::WRONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .map_err(std::io::Error::from)
            .and_then(|file| File::from(file).write_all(b"0"))
            .and_then(|()| fs::remove_dir(group.inside.join(LEAF)))
            .and_then(|()| {
                Ok(rustix::fs::unlinkat(
                    &group.parent,
                    &self.name,
                    AtFlags::REMOVEDIR,
                )?)
            });
            if let Err(error) = outcome {
                left.push(format!("control group {}: {error}", group.outside.display()));
            }
        }
        left
    }
}

/// A folder and all folders below it, parents first.
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(folder) = found.get(next).cloned() {
        next += 1;
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        found.extend(
            entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    found
}

/// A v1 cpuset takes no process before it has CPUs and memory nodes.
fn fill_cpuset(parent: &Path, group: &Path) -> Result<()> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        if group.join("cgroup.controllers").exists() {
            return Ok(());
        }
        if let Ok(inherited) = fs::read_to_string(parent.join(name)) {
            write(&group.join(name), inherited.trim())?;
        }
    }
    Ok(())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(StackError::doing(format!("Reading {path}")))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(StackError::at("Writing", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 20 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/systemd rw,relatime shared:5 - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
34 20 0:29 / /mnt/again rw,relatime - cgroup2 cgroup2 rw
35 20 0:30 / / rw - ext4 /dev/vda rw";

    #[test]
    fn every_hierarchy_is_found_once_and_can_be_mounted_again() {
        let found = Hierarchy::all(HYBRID);
        let options: Vec<_> = found.iter().map(|h| h.v1_options.as_deref()).collect();
        assert_eq!(options, [Some("cpu,cpuacct"), Some("none,name=systemd"), None]);
        assert_eq!(found[2].mount, Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn a_process_is_found_in_each_hierarchy_whatever_the_order_of_controllers() {
        let membership = "9:name=systemd:/init.scope\n2:cpuacct,cpu:/a/b:c\n0::/x\n";
        let paths: Vec<_> = Hierarchy::all(HYBRID)
            .iter()
            .map(|h| h.path_in(membership).map(str::to_owned))
            .collect();
        assert_eq!(
            paths,
            [
                Some("/a/b:c".into()),
                Some("/init.scope".into()),
                Some("/x".into())
            ]
        );
    }
}
