//! The control groups of one container of a pod, where its OCI spec says, with what its spec says.
//!
//! Unlike those of a run ([`super::Cgroup`]), their place is the caller's: a kubelet made the cgroup of the pod, and
//! the container gets a child of it in every hierarchy. They are kept as paths, since they outlive the process that
//! made them: a shim that was killed is followed by a `delete` that knows only what is on disk.

mod dir;
mod hold;
mod path;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use oci_spec::runtime::LinuxResources;
use rustix::fs::{CWD, Mode};
use serde::{Deserialize, Serialize};

use super::files::{open_dir, open_to_write, value_of};
use super::resources::{Setting, device_rules, settings};
use super::{REMOVE_WITHIN, Version};
use dir::{Dir, mounts, read_file, remove_tree, write};
use path::{relative, scope, slice_path};

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
    /// systemd cannot be told the limits of the scope.
    #[error("{0}")]
    Limits(String),
}

fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> PodCgroupError {
    let doing = doing.into();
    move |source| PodCgroupError::Io { doing, source }
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

    /// Notes the parents that are not there, which [`PodCgroup::create`] makes. For whoever finds us killed before what
    /// was made could be written down. One that somebody else makes in that moment is taken for ours, and removed if it
    /// is empty; a kubelet makes the cgroup of a pod long before.
    pub fn foresee(&mut self) {
        // The slices around a scope are systemd's, which takes them away itself.
        if self.scope.is_none() {
            self.dirs.iter_mut().for_each(Dir::foresee);
        }
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
        let mut all = settings(resources, first.version);
        if let Some((_, unit)) = self.scope.as_deref().and_then(scope) {
            super::systemd::set_properties(&unit, &all).map_err(PodCgroupError::Limits)?;
        }
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

    /// Kills whatever is in the cgroups and removes them and what is below, and the parents that we made. Has systemd
    /// let go of the scope.
    ///
    /// # Errors
    /// The path of a cgroup that is still there after five seconds, or why systemd does not let go.
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
        if let Some((_, unit)) = self.scope.as_deref().and_then(scope) {
            left.extend(super::systemd::forget(&unit).err());
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(", "))
        }
    }
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
mod tests;
