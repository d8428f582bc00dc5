//! The cgroup namespace of a sandbox: one whose root is the sandbox's own cgroup, so that no place in the host's
//! hierarchy shows inside.
//!
//! A cgroup namespace is rooted where the process that makes it sits (cgroup_namespaces(7)). PID 1 enters its cgroup
//! after its other namespaces exist, when it has no privilege left to make this one. So the worker, whose children
//! inherit it, visits the cgroup for a moment and goes home again.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::files::{open_dir, open_to_write};
use super::host::MountLine;
use super::{Cgroup, Controller, Version, enter};

/// The way to the sandbox's cgroups and home again, opened while the host's mount tree is still there.
#[derive(Debug)]
pub struct View {
    there: Vec<OwnedFd>,
    home: Vec<OwnedFd>,
    nursery: Option<usize>,
}

impl View {
    /// Gives the calling process, which has one thread, the sandbox's view of the hierarchies, and leaves it in one of
    /// the sandbox's cgroups: what it starts before [`View::go_home`] is found there by a reaper, should the caller
    /// be killed and the container library's helper be left waiting for it. On v1 that is not the one that counts
    /// processes.
    ///
    /// # Errors
    /// The way there or home, or the namespace, is refused.
    pub fn unshare(&self) -> std::io::Result<()> {
        enter(&self.there)?;
        let unshared = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWCGROUP);
        for (index, home) in self.home.iter().enumerate() {
            if Some(index) != self.nursery {
                enter(std::slice::from_ref(home))?;
            }
        }
        Ok(unshared?)
    }

    /// Takes the calling process out of the sandbox's cgroups, before anything in them is killed.
    ///
    /// # Errors
    /// The way home is refused.
    pub fn go_home(&self) -> std::io::Result<()> {
        enter(&self.home)
    }
}

impl Cgroup {
    /// Opens the way for [`View::unshare`].
    ///
    /// # Errors
    /// A door cannot be opened, or the caller's own cgroup is not below any mount.
    pub fn view(&self) -> std::io::Result<View> {
        let counts = |group: &super::Group| group.controllers.contains(&Controller::Pids);
        let doors = self
            .groups
            .iter()
            .map(|group| open_to_write(&group.dir, door(group.version)));
        Ok(View {
            there: doors.collect::<std::io::Result<_>>()?,
            home: self.homes()?,
            nursery: self
                .groups
                .iter()
                .position(|group| !counts(group))
                .or(self.groups.len().checked_sub(1)),
        })
    }

    /// The doors of the cgroups that the caller sits in now, in the order of the sandbox's.
    fn homes(&self) -> std::io::Result<Vec<OwnedFd>> {
        if self.groups.is_empty() {
            return Ok(Vec::new());
        }
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo")?;
        let own = std::fs::read_to_string("/proc/self/cgroup")?;
        let open = |group: &super::Group| {
            let first = group.controllers.first().copied();
            let home = home(&mountinfo, &own, group.version, first)
                .ok_or_else(|| std::io::Error::other("our own cgroup is not below any mount"))?;
            open_to_write(&open_dir(rustix::fs::CWD, &home)?, door(group.version))
        };
        self.groups.iter().map(open).collect()
    }
}

/// The file through which a process moves itself. On v1 that of threads, which takes no lock of the whole machine.
fn door(version: Version) -> &'static str {
    match version {
        Version::V1 => "tasks",
        Version::V2 => "cgroup.procs",
    }
}

/// Where the caller sits: the path in its hierarchy, below that hierarchy's mount. In a container the mount may show
/// only a part of the hierarchy, named by its root.
fn home(mountinfo: &str, own: &str, version: Version, controller: Option<Controller>) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let ours = match (version, controller) {
            (Version::V2, _) => controllers.is_empty(),
            (Version::V1, Some(controller)) => controllers.split(',').any(|name| name == controller.name()),
            (Version::V1, None) => false,
        };
        ours.then_some(path)
    })?;
    mountinfo.lines().find_map(|line| {
        let mount = MountLine::parse(line)?;
        let ours = match (version, controller) {
            (Version::V2, _) => mount.fs_type == "cgroup2",
            (Version::V1, Some(controller)) => mount.carries(controller),
            (Version::V1, None) => false,
        };
        let below = Path::new(path).strip_prefix(mount.root).ok()?;
        ours.then(|| Path::new(mount.mount_point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 /docker/x /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";

    #[test]
    fn home_is_found_below_the_mount_of_its_hierarchy() {
        let own = "8:pids:/docker/x/y\n4:memory:/a/b\n0::/c\n";
        for (version, controller, expected) in [
            (Version::V1, Some(Controller::Memory), "/sys/fs/cgroup/memory/a/b"),
            (Version::V1, Some(Controller::Pids), "/sys/fs/cgroup/pids/y"),
            (Version::V2, Some(Controller::Pids), "/sys/fs/cgroup/unified/c"),
        ] {
            assert_eq!(
                home(MOUNTS, own, version, controller).as_deref(),
                Some(Path::new(expected))
            );
        }
    }

    #[test]
    fn a_home_outside_of_what_is_mounted_is_not_made_up() {
        assert_eq!(
            home(MOUNTS, "8:pids:/elsewhere\n", Version::V1, Some(Controller::Pids)),
            None
        );
        assert_eq!(home(MOUNTS, "", Version::V1, Some(Controller::Cpu)), None);
    }
}
