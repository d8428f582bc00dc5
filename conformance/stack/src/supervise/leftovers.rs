//! What runtimes leave after their containers were removed: processes, mounts, control groups, files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::cgroup::Groups;
use super::private::mounts_of_servers;
use crate::place::STATE;

/// What containerd, CNI and runtimes keep for good, by the end of the path.
const KEPT: [&str; 4] = ["xtables.lock", "/lock", "last_reserved_ip.0", ".sock"];

/// A picture of what is there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Picture(BTreeSet<String>);

impl Picture {
    /// Takes one. `expected` are the processes that belong there.
    pub fn take(groups: &Groups, expected: &[u32]) -> Self {
        let mut seen = BTreeSet::new();
        for pid in groups.processes() {
            if !expected.contains(&pid) {
                seen.extend(describe(pid));
            }
        }
        seen.extend(
            mounts_of_servers()
                .iter()
                .map(|at| format!("mount {}", at.display())),
        );
        seen.extend(
            groups
                .of_containers()
                .iter()
                .map(|at| format!("control group {}", at.display())),
        );
        for folder in [STATE, "/run/netns", "/var/lib/cni"] {
            seen.extend(
                files(Path::new(folder))
                    .iter()
                    .map(|at| format!("file {}", at.display())),
            );
        }
        Self(seen)
    }

    /// All of it, in order.
    pub fn phrases(self) -> Vec<String> {
        self.0.into_iter().collect()
    }

    /// What is in this one and not in `before`.
    pub fn since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

/// A process for people; none where it is dead or about to be reaped.
fn describe(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = status.rsplit(')').next()?.trim_start().chars().next()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let name = status.split(['(', ')']).nth(1).unwrap_or_default();
    let shown = if command.is_empty() {
        name
    } else {
        command.trim_end()
    };
    Some(format!("process {pid} ({state}) {shown}"))
}

/// What counts as somebody's: every file, socket and FIFO, and each folder as deep as runtimes keep one for a container
/// (`…/NAMESPACE/ID`); the folders above those stay when the container goes.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut todo) = (Vec::new(), vec![(folder.to_owned(), 0)]);
    while let Some((folder, depth)) = todo.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && depth < 2 {
                todo.push((path, depth + 1));
            } else if !KEPT.iter().any(|end| path.to_string_lossy().ends_with(end)) {
                found.push(path);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_counts_and_its_namespace_does_not() {
        let here = tempfile::tempdir().unwrap();
        let tasks = here.path().join("io.containerd.runtime.v2.task/k8s.io");
        fs::create_dir_all(&tasks).unwrap();
        assert_eq!(files(here.path()), Vec::<PathBuf>::new());
        fs::create_dir_all(tasks.join("0123/rootfs")).unwrap();
        fs::write(here.path().join("containerd.sock"), "").unwrap();
        fs::write(here.path().join("stray"), "").unwrap();
        let mut found = files(here.path());
        found.sort();
        assert_eq!(found, [tasks.join("0123"), here.path().join("stray")]);
    }

    #[test]
    fn a_process_is_described_by_what_it_was_started_as() {
        let me = describe(std::process::id()).unwrap();
        assert!(
            me.starts_with(&format!("process {} (", std::process::id())),
            "{me}"
        );
    }

    #[test]
    fn only_what_is_new_counts() {
        let picture = |names: &[&str]| Picture(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(picture(&["a", "b"]).since(&picture(&["a", "c"])), ["b"]);
    }
}
