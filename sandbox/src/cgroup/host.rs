//! Where the hierarchies of this host are mounted, read from the mount table.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::leaf::{LEAF, obstacle};

/// A controller that a sandbox needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    /// Memory, swap included.
    Memory,
    /// CPU time.
    Cpu,
    /// Processes and threads.
    Pids,
}

impl Controller {
    /// The kernel's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }
}

/// Which of the kernel's two interfaces a hierarchy speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// A hierarchy for each controller or group of controllers.
    V1,
    /// The unified hierarchy.
    V2,
}

/// The hierarchies of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchies {
    v1: Vec<(Controller, PathBuf)>,
    unified: Option<(PathBuf, Vec<Controller>)>,
}

impl Hierarchies {
    /// Reads the host's mount table, and on v2 what the directory of our own runs can be given.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn detect(privileged: bool) -> std::io::Result<Self> {
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo")?;
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut found = Self::parse(&mountinfo, &own, privileged);
        if let Some((base, controllers)) = &mut found.unified {
            let text = std::fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
            *controllers = listed(&text);
        }
        Ok(found)
    }

    /// The pure half: mount points by controller. An ordinary user can only make children of its own cgroup.
    fn parse(mountinfo: &str, own: &str, privileged: bool) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            let Some(mount) = MountLine::parse(line) else {
                continue;
            };
            match mount.fs_type {
                "cgroup" => {
                    for controller in [Controller::Memory, Controller::Cpu, Controller::Pids] {
                        if mount.carries(controller)
                            && !found.v1.iter().any(|(known, _)| *known == controller)
                        {
                            found.v1.push((controller, PathBuf::from(mount.mount_point)));
                        }
                    }
                }
                "cgroup2" if found.unified.is_none() => {
                    let root = PathBuf::from(mount.mount_point);
                    let base = if privileged { root } else { below(&root, own) };
                    found.unified = Some((base, Vec::new()));
                }
                _ => {}
            }
        }
        found
    }

    /// Directory in which the cgroups for a controller are made.
    pub fn base(&self, controller: Controller) -> Option<(&Path, Version)> {
        if let Some((_, path)) = self.v1.iter().find(|(known, _)| *known == controller) {
            return Some((path, Version::V1));
        }
        let (path, controllers) = self.unified.as_ref()?;
        controllers.contains(&controller).then_some((path, Version::V2))
    }

    /// Where a controller was looked for that [`Hierarchies::base`] does not know.
    pub fn not_found_in(&self) -> String {
        match &self.unified {
            Some((path, _)) => format!(
                "the cgroup {} is not given it, and no v1 hierarchy carries it",
                path.display()
            ),
            None => "no cgroup hierarchy carries it".to_owned(),
        }
    }

    /// What keeps the cgroups for a controller from being made although the caller may write there: on v2, processes
    /// of others in the caller's own cgroup.
    pub fn obstacle(&self, controller: Controller) -> Option<String> {
        match self.base(controller)? {
            (path, Version::V2) => obstacle(path),
            (_, Version::V1) => None,
        }
    }

    /// Directories for a set of controllers, each once with what it carries.
    pub(super) fn bases(
        &self,
        controllers: impl Iterator<Item = Controller>,
    ) -> Vec<(PathBuf, Version, Vec<Controller>)> {
        let mut bases: Vec<(PathBuf, Version, Vec<Controller>)> = Vec::new();
        for controller in controllers {
            let Some((path, version)) = self.base(controller) else {
                continue;
            };
            match bases.iter_mut().find(|(known, _, _)| known == path) {
                Some((_, _, carried)) => carried.push(controller),
                None => bases.push((path.to_owned(), version, vec![controller])),
            }
        }
        bases
    }

    /// One line for people: which interface carries what.
    pub fn describe(&self) -> String {
        let of = |controller: Controller| match self.base(controller) {
            Some((_, Version::V1)) => format!("{} v1", controller.name()),
            Some((_, Version::V2)) => format!("{} v2", controller.name()),
            None => format!("{} absent", controller.name()),
        };
        [Controller::Memory, Controller::Cpu, Controller::Pids]
            .map(of)
            .join(", ")
    }
}

/// What a line of mountinfo (proc(5)) says of a mount.
pub(super) struct MountLine<'a> {
    /// The part of the file system that is mounted.
    pub root: &'a str,
    pub mount_point: &'a str,
    pub fs_type: &'a str,
    super_options: &'a str,
}

impl<'a> MountLine<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, mount_point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        Some(Self {
            root,
            mount_point,
            fs_type: after.next()?,
            super_options: after.nth(1)?,
        })
    }

    /// The controllers of a v1 hierarchy, or its name where it has none.
    pub(super) fn controllers(&self) -> Vec<String> {
        const OF_THE_MOUNT: [&str; 5] = ["rw", "ro", "xattr", "clone_children", "noprefix"];
        let options = self.super_options.split(',');
        options
            .filter(|option| {
                !OF_THE_MOUNT.contains(option) && (!option.contains('=') || option.starts_with("name="))
            })
            .map(str::to_owned)
            .collect()
    }

    /// True for a v1 hierarchy with this controller.
    pub(super) fn carries(&self, controller: Controller) -> bool {
        self.fs_type == "cgroup"
            && self
                .super_options
                .split(',')
                .any(|option| option == controller.name())
    }
}

fn below(root: &Path, own: &str) -> PathBuf {
    let path = own
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap_or("");
    // Where an earlier run moved us, or the person put us, into the leaf, the cgroup around it is the one to use.
    let path = Path::new(path);
    root.join(if path.ends_with(LEAF) {
        path.parent().unwrap_or(path)
    } else {
        path
    })
}

fn listed(text: &str) -> Vec<Controller> {
    [Controller::Memory, Controller::Cpu, Controller::Pids]
        .into_iter()
        .filter(|controller| text.split_whitespace().any(|word| word == controller.name()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
    const UNIFIED: &str = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";

    #[test]
    fn a_hybrid_host_gives_its_controllers_through_v1() {
        let found = Hierarchies::parse(HYBRID, "0::/\n", true);
        for (controller, path) in [
            (Controller::Cpu, "/sys/fs/cgroup/cpu,cpuacct"),
            (Controller::Memory, "/sys/fs/cgroup/memory"),
            (Controller::Pids, "/sys/fs/cgroup/pids"),
        ] {
            assert_eq!(found.base(controller), Some((Path::new(path), Version::V1)));
        }
    }

    #[test]
    fn a_unified_host_gives_what_it_lists_and_all_in_one_directory() {
        let mut found = Hierarchies::parse(UNIFIED, "0::/user.slice\n", true);
        assert_eq!(found.base(Controller::Memory), None, "nothing is listed yet");
        if let Some((_, controllers)) = &mut found.unified {
            *controllers = listed("cpuset cpu io memory pids");
        }
        let all = [Controller::Memory, Controller::Cpu, Controller::Pids];
        assert_eq!(
            found.bases(all.into_iter()),
            [(PathBuf::from("/sys/fs/cgroup"), Version::V2, all.to_vec())]
        );
    }

    #[test]
    fn an_ordinary_user_makes_children_of_its_own_cgroup() {
        let found = Hierarchies::parse(UNIFIED, "0::/user.slice/user-1000.slice/x.scope\n", false);
        let (base, _) = found.unified.expect("mounted");
        assert_eq!(
            base,
            Path::new("/sys/fs/cgroup/user.slice/user-1000.slice/x.scope")
        );
    }

    #[test]
    fn a_driver_in_its_leaf_makes_cgroups_beside_the_leaf() {
        for (own, base) in [
            (
                "0::/u.slice/x.scope/sandglass-driver\n",
                "/sys/fs/cgroup/u.slice/x.scope",
            ),
            (
                "0::/u.slice/not-sandglass-driver\n",
                "/sys/fs/cgroup/u.slice/not-sandglass-driver",
            ),
        ] {
            let found = Hierarchies::parse(UNIFIED, own, false).unified.expect("mounted");
            assert_eq!(found.0, Path::new(base));
        }
    }
}
