//! The control groups of one container of a pod, where its OCI spec says, with what its spec says.
//!
//! Unlike those of a run ([`super::Cgroup`]), their place is the caller's: a kubelet made the cgroup of the pod, and
//! the container gets a child of it in every hierarchy. They are kept as paths, since they outlive the process that
//! made them: a shim that was killed is followed by a `delete` that knows only what is on disk.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use oci_spec::runtime::LinuxResources;
use rustix::fs::{CWD, Mode};
use serde::{Deserialize, Serialize};

use super::files::{get, open_dir, open_to_write, put, value_of};
use super::host::MountLine;
use super::resources::{Setting, device_rules, settings};
use super::{REMOVE_WITHIN, Version};

/// Why a container's cgroups cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PodCgroupError {
    /// The path in the spec is not one.
    #[error("linux.cgroupsPath is `{0}`, which is not a path below the root of a hierarchy")]
    Path(String),
    /// A path in systemd's form, and the runtime is not told to ask systemd.
    #[error(
        "linux.cgroupsPath is `{0}`, in systemd's form slice:prefix:name, but the runtime's option `systemd_cgroup` is not set: set it, or give the kubelet `cgroupDriver: cgroupfs`"
    )]
    Systemd(String),
    /// systemd's cgroups on v1.
    #[error(
        "the runtime's option `systemd_cgroup` needs cgroup v2, and this host has v1: leave the option out and give the kubelet `cgroupDriver: cgroupfs`"
    )]
    SystemdOnV1,
    /// No hierarchy is mounted.
    #[error("no cgroup hierarchy is mounted: mount cgroup2 at /sys/fs/cgroup")]
    None,
    /// A step failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The spec limits what this host has no controller for.
    #[error("linux.resources sets {file}, and this host has no cgroup controller `{controller}`")]
    NoController {
        /// The controller.
        controller: String,
        /// The file that would be written.
        file: String,
    },
    /// systemd did not make the scope.
    #[error("systemd did not make the scope: {0}")]
    Scope(String),
}

fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> PodCgroupError {
    let doing = doing.into();
    move |source| PodCgroupError::Io { doing, source }
}

/// One directory in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Dir {
    /// The controllers of the hierarchy; a named one without any has its name, `name=systemd`.
    controllers: Vec<String>,
    version: Version,
    mount: PathBuf,
    path: PathBuf,
    /// Parents that were not there before, the deepest first: they go away with us, if nobody else is in them.
    #[serde(default)]
    made: Vec<PathBuf>,
}

/// The control groups of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodCgroup {
    dirs: Vec<Dir>,
    /// The scope that systemd is to make, as `slice:prefix:name`.
    #[serde(default)]
    scope: Option<String>,
    id: String,
}

impl PodCgroup {
    /// Decides where the cgroups are, from the mount table and the spec. Makes nothing.
    ///
    /// # Errors
    /// A path that is none, or a form that does not go with `systemd`.
    pub fn plan(
        mountinfo: &str,
        cgroups_path: Option<&Path>,
        id: &str,
        systemd: bool,
    ) -> Result<Self, PodCgroupError> {
        let mounts = mounts(mountinfo);
        let unified = match mounts.first() {
            None => return Err(PodCgroupError::None),
            Some(mount) => mount.version == Version::V2,
        };
        let wanted = cgroups_path
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default();
        let (below, scope) = if systemd {
            if !unified {
                return Err(PodCgroupError::SystemdOnV1);
            }
            let wanted = if wanted.is_empty() {
                format!("system.slice:sandglass:{id}")
            } else {
                wanted
            };
            let (slice, unit) = scope(&wanted).ok_or_else(|| PodCgroupError::Path(wanted.clone()))?;
            (slice_path(slice).join(unit), Some(wanted))
        } else if wanted.split(':').count() == 3 && !wanted.starts_with('/') {
            return Err(PodCgroupError::Systemd(wanted));
        } else if wanted.is_empty() {
            (Path::new(super::PARENT).join(id), None)
        } else {
            (relative(&wanted).ok_or(PodCgroupError::Path(wanted))?, None)
        };
        let dirs = mounts
            .into_iter()
            .map(|mount| Dir {
                path: mount.mount.join(&below),
                ..mount
            })
            .collect();
        Ok(Self {
            dirs,
            scope,
            id: id.to_owned(),
        })
    }

    /// Makes the cgroups; with systemd, has it make the scope around the calling process.
    ///
    /// # Errors
    /// The kernel's or systemd's refusal. What was made before is taken away again.
    pub fn create(&mut self) -> Result<(), PodCgroupError> {
        if let Some(scope) = &self.scope {
            return super::systemd::start_scope(scope, &self.id).map_err(PodCgroupError::Scope);
        }
        for index in 0..self.dirs.len() {
            if let Err(error) = self.dirs[index].create() {
                let _ = self.remove();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Moves the calling process, which has one thread, into the cgroups. What it starts is born there.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn enter(&self) -> Result<(), PodCgroupError> {
        self.dirs.iter().try_for_each(|dir| {
            let door = match dir.version {
                // Takes no lock of the whole machine, where the door of processes waits for a grace period.
                Version::V1 => "tasks",
                Version::V2 => "cgroup.procs",
            };
            write(&dir.path, door, "0").map_err(io(format!("entering the cgroup {}", dir.path.display())))
        })
    }

    /// Sets what the section says.
    ///
    /// # Errors
    /// A controller that is not there, or the kernel's refusal of a value.
    pub fn apply(&self, resources: &LinuxResources) -> Result<(), PodCgroupError> {
        let Some(first) = self.dirs.first() else {
            return Err(PodCgroupError::None);
        };
        if let Some(scope) = &self.scope {
            super::systemd::set_properties(scope, &self.id, resources).map_err(PodCgroupError::Scope)?;
        }
        let mut all = settings(resources, first.version);
        if first.version == Version::V1 {
            all.extend(device_rules(resources));
        }
        let mut again = Vec::new();
        for setting in &all {
            match self.set(setting) {
                Ok(()) => {}
                // Limits that depend on each other (memory and swap, quota and period) fit in one order only.
                Err(_) if depends(setting) => again.push(setting),
                Err(error) => return Err(error),
            }
        }
        again.into_iter().rev().try_for_each(|setting| self.set(setting))
    }

    fn set(&self, setting: &Setting) -> Result<(), PodCgroupError> {
        let carrying = self.dirs.iter().find(|dir| {
            dir.version == Version::V2 || dir.controllers.iter().any(|name| name == setting.controller)
        });
        let missing = || PodCgroupError::NoController {
            controller: setting.controller.to_owned(),
            file: setting.file.clone(),
        };
        let Some(dir) = carrying else {
            return if setting.optional { Ok(()) } else { Err(missing()) };
        };
        if setting.file.contains('/') {
            return Err(PodCgroupError::Path(setting.file.clone()));
        }
        match write(&dir.path, &setting.file, &setting.value) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && setting.optional => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing()),
            done => done.map_err(io(format!("setting {} to {}", setting.file, setting.value))),
        }
    }

    /// The processes in the cgroups and below, by their ids outside.
    pub fn processes(&self) -> Vec<i32> {
        let mut found = BTreeSet::new();
        // Each hierarchy holds them all, so the first that can be read will do.
        for dir in &self.dirs {
            let mut read = false;
            for path in tree(&dir.path) {
                if let Ok(text) = read_file(&path, "cgroup.procs") {
                    read = true;
                    found.extend(
                        text.lines()
                            .filter_map(|line| line.parse::<i32>().ok())
                            .filter(|pid| *pid > 0),
                    );
                }
            }
            if read {
                break;
            }
        }
        found.into_iter().collect()
    }

    /// Kills everything in the cgroups and below, once. `cgroup.kill` where the kernel has it.
    pub fn kill(&self) {
        if let Some(dir) = self.dirs.first()
            && dir.version == Version::V2
            && write(&dir.path, "cgroup.kill", "1").is_ok()
        {
            return;
        }
        let own = rustix::process::getpid();
        // Frozen processes take no signal on v1 until they are thawed.
        for pid in self
            .processes()
            .into_iter()
            .filter_map(rustix::process::Pid::from_raw)
        {
            if pid != own {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let _ = self.freeze(false);
    }

    /// Sends a signal to everything in the cgroups and below.
    ///
    /// # Errors
    /// A number that is no signal.
    pub fn signal(&self, number: u32) -> std::io::Result<()> {
        let number = i32::try_from(number).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        for pid in self
            .processes()
            .into_iter()
            .filter_map(rustix::process::Pid::from_raw)
        {
            if let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
                crate::sys::signal_process(std::os::fd::AsFd::as_fd(&pidfd), number)?;
            }
        }
        Ok(())
    }

    /// Freezes or thaws everything in the cgroups, and waits until that is so, a second at most.
    ///
    /// # Errors
    /// No freezer, or it did not get there.
    pub fn freeze(&self, frozen: bool) -> Result<(), PodCgroupError> {
        let missing = || PodCgroupError::NoController {
            controller: "freezer".into(),
            file: "freezer.state".into(),
        };
        let dir = self
            .dirs
            .iter()
            .find(|dir| dir.version == Version::V2 || dir.controllers.iter().any(|name| name == "freezer"))
            .ok_or_else(missing)?;
        let (file, value) = match (dir.version, frozen) {
            (Version::V1, true) => ("freezer.state", "FROZEN"),
            (Version::V1, false) => ("freezer.state", "THAWED"),
            (Version::V2, true) => ("cgroup.freeze", "1"),
            (Version::V2, false) => ("cgroup.freeze", "0"),
        };
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            write(&dir.path, file, value).map_err(io(format!("setting {file} to {value}")))?;
            let there = match dir.version {
                Version::V1 => read_file(&dir.path, file).map(|state| state.trim() == value),
                Version::V2 => read_file(&dir.path, "cgroup.events")
                    .map(|events| value_of(&events, "frozen") == Some(u64::from(frozen))),
            };
            if there.map_err(io(format!("reading {file}")))? {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(PodCgroupError::Io {
                    doing: format!("waiting for {file} to be {value}"),
                    source: std::io::ErrorKind::TimedOut.into(),
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How many processes the kernel killed here for want of memory. `None` without a memory controller.
    pub fn oom_kills(&self) -> Option<u64> {
        let (file, dir) = self.memory()?;
        value_of(&read_file(&dir.path, file).ok()?, "oom_kill")
    }

    /// The file that tells of kills for want of memory, to be watched.
    pub fn oom_file(&self) -> Option<(PathBuf, Version)> {
        let (file, dir) = self.memory()?;
        Some((dir.path.join(file), dir.version))
    }

    fn memory(&self) -> Option<(&'static str, &Dir)> {
        let dir = self
            .dirs
            .iter()
            .find(|dir| dir.version == Version::V2 || dir.controllers.iter().any(|name| name == "memory"))?;
        let file = match dir.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        Some((file, dir))
    }

    /// Which interface carries the container.
    pub fn version(&self) -> Version {
        self.dirs.first().map_or(Version::V2, |dir| dir.version)
    }

    /// The text of a control file, of the hierarchy that carries the controller.
    pub fn read(&self, controller: &str, file: &str) -> Option<String> {
        let dir = self.dirs.iter().find(|dir| {
            dir.version == Version::V2 || dir.controllers.iter().any(|name| name == controller)
        })?;
        read_file(&dir.path, file).ok()
    }

    /// The directories, each with the name under which a container sees it below `/sys/fs/cgroup`: none on v2, where
    /// the directory itself is mounted there.
    pub fn visible(&self) -> Vec<(Option<String>, PathBuf)> {
        self.dirs
            .iter()
            .map(|dir| {
                let name = dir
                    .mount
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned());
                (name.filter(|_| dir.version == Version::V1), dir.path.clone())
            })
            .collect()
    }

    /// Kills whatever is in the cgroups and removes them and what is below, and the parents that we made.
    ///
    /// # Errors
    /// The path of a cgroup that is still there after five seconds.
    pub fn remove(&self) -> Result<(), String> {
        let deadline = Instant::now() + REMOVE_WITHIN;
        let mut left = Vec::new();
        for dir in &self.dirs {
            while let Err(error) = remove_tree(&dir.path) {
                if error.kind() != std::io::ErrorKind::ResourceBusy || Instant::now() > deadline {
                    left.push(format!("{} ({error})", dir.path.display()));
                    break;
                }
                self.kill();
                std::thread::sleep(Duration::from_millis(1));
            }
            for parent in &dir.made {
                let _ = std::fs::remove_dir(parent);
            }
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(", "))
        }
    }
}

impl Dir {
    fn create(&mut self) -> Result<(), PodCgroupError> {
        let mut levels: Vec<PathBuf> = self
            .path
            .ancestors()
            .take_while(|path| *path != self.mount)
            .map(Path::to_owned)
            .collect();
        levels.reverse();
        for level in &levels {
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

fn depends(setting: &Setting) -> bool {
    [
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "cpu.cfs_quota_us",
        "cpu.cfs_period_us",
    ]
    .contains(&setting.file.as_str())
}

/// The hierarchies that carry controllers: all of v1, or the unified one. On a hybrid host v1 has the controllers.
fn mounts(mountinfo: &str) -> Vec<Dir> {
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

/// A path below the root of a hierarchy, from one that the spec gave.
fn relative(path: &str) -> Option<PathBuf> {
    let below: PathBuf = Path::new(path.trim_start_matches('/')).components().collect();
    let plain = below
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    (plain && below.components().next().is_some()).then_some(below)
}

/// `slice:prefix:name` as slice and unit.
fn scope(path: &str) -> Option<(&str, String)> {
    let name = |text: &str| !text.contains('/') && !text.contains("..");
    let mut parts = path.split(':');
    let (slice, prefix, unit) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || unit.is_empty() || ![slice, prefix, unit].into_iter().all(name) {
        return None;
    }
    let slice = if slice.is_empty() { "system.slice" } else { slice };
    Some((slice, format!("{prefix}-{unit}.scope")))
}

/// Where systemd puts a slice: `a-b.slice` lies in `a.slice`.
fn slice_path(slice: &str) -> PathBuf {
    let stem = slice.strip_suffix(".slice").unwrap_or(slice);
    if stem == "-" || stem.is_empty() {
        return PathBuf::new();
    }
    let mut path = PathBuf::new();
    let mut name = String::new();
    for part in stem.split('-') {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(part);
        path.push(format!("{name}.slice"));
    }
    path
}

fn write(dir: &Path, file: &str, value: &str) -> std::io::Result<()> {
    put(&open_dir(CWD, dir)?, file, value)
}

fn read_file(dir: &Path, file: &str) -> std::io::Result<String> {
    get(&open_dir(CWD, dir)?, file)
}

/// A directory and all below it, the parents first. A container that may write its cgroup can make children.
fn tree(dir: &Path) -> Vec<PathBuf> {
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

fn remove_tree(dir: &Path) -> std::io::Result<()> {
    for path in tree(dir).iter().rev() {
        match std::fs::remove_dir(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Opens the v1 file through which a process is told of kills for want of memory, and arms it.
///
/// # Errors
/// The kernel's refusal.
pub fn arm_v1_oom(oom_control: &Path, event: &impl std::os::fd::AsRawFd) -> std::io::Result<()> {
    let Some(dir) = oom_control.parent() else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let dir = open_dir(CWD, dir)?;
    let control = rustix::fs::openat(
        &dir,
        "memory.oom_control",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let line = format!(
        "{} {}",
        event.as_raw_fd(),
        std::os::fd::AsRawFd::as_raw_fd(&control)
    );
    rustix::io::write(open_to_write(&dir, "cgroup.event_control")?, line.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
    const UNIFIED: &str = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";

    fn paths(mountinfo: &str, path: &str, systemd: bool) -> Result<Vec<String>, String> {
        PodCgroup::plan(mountinfo, Some(Path::new(path)), "id", systemd)
            .map(|planned| {
                planned
                    .dirs
                    .iter()
                    .map(|dir| dir.path.display().to_string())
                    .collect()
            })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_container_gets_a_cgroup_in_every_v1_hierarchy() {
        assert_eq!(
            paths(HYBRID, "/kubepods/pod1/c", false).unwrap(),
            [
                "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c",
                "/sys/fs/cgroup/memory/kubepods/pod1/c",
                "/sys/fs/cgroup/systemd/kubepods/pod1/c",
            ]
        );
    }

    #[test]
    fn a_container_gets_one_cgroup_on_v2() {
        assert_eq!(
            paths(UNIFIED, "/kubepods/pod1/c", false).unwrap(),
            ["/sys/fs/cgroup/kubepods/pod1/c"]
        );
        assert_eq!(
            paths(UNIFIED, "", false).unwrap(),
            ["/sys/fs/cgroup/sandglass/id"]
        );
    }

    #[test]
    fn a_scope_lies_in_its_slices() {
        assert_eq!(
            paths(UNIFIED, "kubepods-burstable-pod1.slice:cri-containerd:abc", true).unwrap(),
            [
                "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-abc.scope"
            ]
        );
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for path in ["/../x", "/a/../../b", "/"] {
            let error = paths(UNIFIED, path, false).unwrap_err();
            assert!(error.contains("linux.cgroupsPath"), "{error}");
        }
        for path in ["a/b:c:d", "s:p:", "s:p:a:b", "..:p:x"] {
            assert!(paths(UNIFIED, path, true).is_err(), "{path}");
        }
    }

    #[test]
    fn the_form_of_systemd_needs_the_option_and_v2() {
        let error = paths(UNIFIED, "s.slice:p:n", false).unwrap_err();
        assert!(error.contains("systemd_cgroup"), "{error}");
        let error = paths(HYBRID, "s.slice:p:n", true).unwrap_err();
        assert!(error.contains("needs cgroup v2"), "{error}");
        assert!(PodCgroup::plan("", None, "id", false).is_err());
    }
}
