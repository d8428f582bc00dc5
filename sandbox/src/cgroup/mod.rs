//! The control groups of one sandbox, v1 and v2.
//!
//! The container library's own manager joins every v1 hierarchy that is mounted and reads the mount table a dozen
//! times for it; a sandbox needs three controllers. So the worker hides the hierarchies from the library and this
//! module makes, joins, reads and removes them. Everything after [`Cgroup::create`] goes through directory
//! descriptors, since by then the worker has left the host's mount tree.

mod bus;
mod files;
mod host;
mod leaf;
mod pod;
mod properties;
mod resources;
mod systemd;
mod view;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

pub use host::{Controller, Hierarchies, Version};
pub use pod::{PodCgroup, PodCgroupError, arm_v1_oom};
pub use view::View;

use files::{get, get_u64, open_dir, open_to_write, put, value_of};

/// Directory that holds the cgroups of all runs; it goes away with the last of them.
pub const PARENT: &str = "sandglass";

/// The period over which a CPU limit is counted, in microseconds: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// How long to wait for the last process of a killed sandbox to be gone before its cgroup can be removed.
const REMOVE_WITHIN: Duration = Duration::from_secs(5);

/// What a cgroup shall enforce. `None`: waived by the person, so that the controller is not touched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// Bytes of memory, swap not added to it.
    pub memory_bytes: Option<u64>,
    /// CPUs, such as 0.5.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

impl Wanted {
    /// The controllers that are needed, each with the text of its limit files.
    fn controllers(&self) -> impl Iterator<Item = Controller> {
        [
            self.memory_bytes.map(|_| Controller::Memory),
            self.cpus.map(|_| Controller::Cpu),
            self.pids.map(|_| Controller::Pids),
        ]
        .into_iter()
        .flatten()
    }
}

/// What the kernel answers when its limit files are read back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// CPUs.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// What a sandbox used, as the kernel counted it. Absent where the kernel or a waiver gives no figure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Highest memory charge in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Most processes and threads at once.
    pub processes_peak: Option<u64>,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: u64,
}

/// Why a cgroup could not be made: the controller, what was tried, what the kernel said.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct CgroupError {
    /// Which limit this concerns.
    pub controller: Controller,
    what: String,
    source: std::io::Error,
}

#[derive(Debug)]
struct Group {
    /// Controllers of this directory: one on v1, all of them on v2.
    controllers: Vec<Controller>,
    version: Version,
    parent: OwnedFd,
    dir: OwnedFd,
    name: String,
    base: OwnedFd,
    path: PathBuf,
}

/// The cgroups of one live sandbox.
#[derive(Debug)]
pub struct Cgroup {
    groups: Vec<Group>,
}

impl Cgroup {
    /// Paths that [`Cgroup::create`] is about to make, to be written down before it makes them.
    pub fn plan(hosts: &Hierarchies, run_id: &str, wanted: &Wanted) -> Vec<PathBuf> {
        hosts
            .bases(wanted.controllers())
            .into_iter()
            .map(|(base, _, _)| base.join(PARENT).join(run_id))
            .collect()
    }

    /// Makes the cgroups of a run and sets their limits, but for [`Cgroup::cpu_limit`].
    ///
    /// # Errors
    /// A controller that the host does not have or that the caller may not use.
    pub fn create(hosts: &Hierarchies, run_id: &str, wanted: &Wanted) -> Result<Self, CgroupError> {
        for controller in wanted.controllers() {
            if hosts.base(controller).is_none() {
                return Err(CgroupError {
                    controller,
                    what: format!("the controller `{}`", controller.name()),
                    source: std::io::Error::new(std::io::ErrorKind::NotFound, hosts.not_found_in()),
                });
            }
        }
        let mut made = Self { groups: Vec::new() };
        for (base, version, controllers) in hosts.bases(wanted.controllers()) {
            match Group::create(&base, version, controllers, run_id) {
                Ok(group) => made.groups.push(group),
                Err(error) => return Err(made.undo(error)),
            }
        }
        match made.limit(wanted) {
            Ok(()) => Ok(made),
            Err(error) => Err(made.undo(error)),
        }
    }

    fn undo(&self, error: CgroupError) -> CgroupError {
        let _ = self.remove();
        error
    }

    fn limit(&self, wanted: &Wanted) -> Result<(), CgroupError> {
        [Controller::Memory, Controller::Pids]
            .into_iter()
            .try_for_each(|which| self.limit_one(which, wanted))
    }

    /// Opens the files of the CPU limit, for [`CpuLimit::set`].
    ///
    /// Before the worker has a cgroup namespace of its own: where namespaces are delegation boundaries (`nsdelegate`,
    /// as systemd mounts), a limit file opened inside one refuses to be written at its root.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn cpu_limit(&self, wanted: &Wanted) -> Result<CpuLimit, CgroupError> {
        let mut files = Vec::new();
        let Some(cpus) = wanted.cpus else {
            return Ok(CpuLimit { files });
        };
        let carrying = self
            .groups
            .iter()
            .filter(|group| group.controllers.contains(&Controller::Cpu));
        for group in carrying {
            for (name, value) in group.cpu_files(cpus) {
                let file =
                    open_to_write(&group.dir, name).map_err(|source| cpu_error(&group.path, source))?;
                files.push((group.path.clone(), file, value));
            }
        }
        Ok(CpuLimit { files })
    }

    fn limit_one(&self, controller: Controller, wanted: &Wanted) -> Result<(), CgroupError> {
        let mut carrying = self
            .groups
            .iter()
            .filter(|group| group.controllers.contains(&controller));
        carrying.try_for_each(|group| {
            group.limit(controller, wanted).map_err(|source| CgroupError {
                controller,
                what: format!("setting the limit in {}", group.path.display()),
                source,
            })
        })
    }

    /// The v1 files through which a single-threaded process enters by itself, with [`enter`].
    ///
    /// Moving another process takes a lock that waits for a grace period of the whole machine: 10 to 20 ms where
    /// none was taken just before. A thread that moves itself through `tasks` does not
    /// (`cgroup_procs_write_start` in the kernel).
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn entrances(&self) -> std::io::Result<Vec<OwnedFd>> {
        let v1 = self.groups.iter().filter(|group| group.version == Version::V1);
        v1.map(|group| open_to_write(&group.dir, "tasks")).collect()
    }

    /// Moves a process into the unified cgroup, which has no such entrance; what it starts later is born there.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn attach(&self, pid: i32) -> std::io::Result<()> {
        let mut v2 = self.groups.iter().filter(|group| group.version == Version::V2);
        v2.try_for_each(|group| put(&group.dir, "cgroup.procs", &pid.to_string()))
    }

    /// True when the kernel counts a process in every one of the cgroups.
    pub fn holds(&self, pid: i32) -> bool {
        let pid = pid.to_string();
        self.groups.iter().all(|group| {
            get(&group.dir, "cgroup.procs").is_ok_and(|procs| procs.lines().any(|line| line == pid))
        })
    }

    /// Reads the limits back from the kernel.
    pub fn in_force(&self) -> InForce {
        let mut found = InForce::default();
        for group in &self.groups {
            let v2 = group.version == Version::V2;
            for controller in &group.controllers {
                match controller {
                    Controller::Memory => {
                        found.memory_bytes = get_u64(
                            &group.dir,
                            if v2 { "memory.max" } else { "memory.limit_in_bytes" },
                        );
                    }
                    Controller::Pids => found.pids = get_u64(&group.dir, "pids.max"),
                    Controller::Cpu => found.cpus = group.cpus_in_force(),
                }
            }
        }
        found
    }

    /// What the sandbox has used up to now.
    pub fn counted(&self) -> Counted {
        let mut counted = Counted::default();
        for group in &self.groups {
            let v2 = group.version == Version::V2;
            for controller in &group.controllers {
                match controller {
                    Controller::Memory => {
                        let (peak, events) = if v2 {
                            ("memory.peak", "memory.events")
                        } else {
                            ("memory.max_usage_in_bytes", "memory.oom_control")
                        };
                        counted.memory_peak_bytes = get_u64(&group.dir, peak);
                        counted.oom_kills = get(&group.dir, events)
                            .ok()
                            .and_then(|text| value_of(&text, "oom_kill"))
                            .unwrap_or(0);
                    }
                    Controller::Pids => counted.processes_peak = get_u64(&group.dir, "pids.peak"),
                    Controller::Cpu => {}
                }
            }
        }
        counted
    }

    /// Kills whatever is in the cgroups and removes them, and the parent directory with the last of its children.
    ///
    /// # Errors
    /// The path of a cgroup that is still there after five seconds.
    pub fn remove(&self) -> Result<(), String> {
        let deadline = Instant::now() + REMOVE_WITHIN;
        let mut left = Vec::new();
        for group in &self.groups {
            if !group.remove(deadline) {
                left.push(group.path.display().to_string());
            }
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(", "))
        }
    }

    /// Opens the cgroups that a killed run left, to remove them. Paths that are gone are not an error.
    pub fn left_by(paths: &[PathBuf]) -> Self {
        Self {
            groups: paths.iter().filter_map(|path| Group::open_left(path)).collect(),
        }
    }
}

impl Group {
    fn create(
        base: &Path,
        version: Version,
        controllers: Vec<Controller>,
        run_id: &str,
    ) -> Result<Self, CgroupError> {
        let path = base.join(PARENT).join(run_id);
        let first = controllers.first().copied().unwrap_or(Controller::Memory);
        Self::make(base, version, &controllers, run_id)
            .map(|(base, parent, dir)| Self {
                controllers,
                version,
                parent,
                dir,
                base,
                name: run_id.to_owned(),
                path: path.clone(),
            })
            .map_err(|source| {
                // Fails while other runs live, and where it was never made.
                let _ = open_dir(rustix::fs::CWD, base)
                    .map(|base| rustix::fs::unlinkat(&base, PARENT, AtFlags::REMOVEDIR));
                CgroupError {
                    controller: first,
                    what: format!("making the cgroup {}", path.display()),
                    source,
                }
            })
    }

    fn make(
        base: &Path,
        version: Version,
        controllers: &[Controller],
        run_id: &str,
    ) -> std::io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
        let base_dir = open_dir(rustix::fs::CWD, base)?;
        // The parent goes away with its last child, so another run may take it away between our two calls.
        for _ in 0..100 {
            make_dir(&base_dir, PARENT)?;
            let Ok(parent) = open_dir(&base_dir, Path::new(PARENT)) else {
                continue;
            };
            if version == Version::V2 {
                let enable = controllers
                    .iter()
                    .map(|c| format!("+{}", c.name()))
                    .collect::<Vec<_>>()
                    .join(" ");
                leaf::make_room(&base_dir)?;
                match put(&base_dir, "cgroup.subtree_control", &enable) {
                    // One of our own processes was born there in between.
                    Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => continue,
                    other => other?,
                }
                match put(&parent, "cgroup.subtree_control", &enable) {
                    Err(error) if is_gone(&error) => continue,
                    other => other?,
                }
            }
            match rustix::fs::mkdirat(&parent, run_id, Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    let dir = open_dir(&parent, Path::new(run_id))?;
                    return Ok((base_dir, parent, dir));
                }
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(std::io::ErrorKind::ResourceBusy.into())
    }

    fn open_left(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_owned();
        let parent_path = path.parent()?;
        Some(Self {
            controllers: Vec::new(),
            version: Version::V1,
            base: open_dir(rustix::fs::CWD, parent_path.parent()?).ok()?,
            parent: open_dir(rustix::fs::CWD, parent_path).ok()?,
            dir: open_dir(rustix::fs::CWD, path).ok()?,
            name,
            path: path.to_owned(),
        })
    }

    fn limit(&self, controller: Controller, wanted: &Wanted) -> std::io::Result<()> {
        match (self.version, controller) {
            (Version::V1, Controller::Memory) => {
                let Some(bytes) = wanted.memory_bytes else {
                    return Ok(());
                };
                put(&self.dir, "memory.limit_in_bytes", &bytes.to_string())?;
                // Absent where the kernel does not account swap; then there is no swap to hide in, or swappiness rules.
                put_if_there(&self.dir, "memory.memsw.limit_in_bytes", &bytes.to_string())?;
                put_if_there(&self.dir, "memory.swappiness", "0")
            }
            (Version::V2, Controller::Memory) => {
                let Some(bytes) = wanted.memory_bytes else {
                    return Ok(());
                };
                put(&self.dir, "memory.max", &bytes.to_string())?;
                put_if_there(&self.dir, "memory.swap.max", "0")
            }
            // Set later: `CpuLimit`.
            (_, Controller::Cpu) => Ok(()),
            (_, Controller::Pids) => {
                let Some(pids) = wanted.pids else { return Ok(()) };
                put(&self.dir, "pids.max", &pids.to_string())
            }
        }
    }

    /// The files of the CPU limit and what goes into them, in this order.
    fn cpu_files(&self, cpus: f64) -> Vec<(&'static str, String)> {
        let quota = quota_us(cpus);
        match self.version {
            Version::V1 => vec![
                ("cpu.cfs_period_us", CPU_PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
            ],
            Version::V2 => vec![("cpu.max", format!("{quota} {CPU_PERIOD_US}"))],
        }
    }

    fn cpus_in_force(&self) -> Option<f64> {
        let (quota, period) = match self.version {
            Version::V1 => (
                get_u64(&self.dir, "cpu.cfs_quota_us")?,
                get_u64(&self.dir, "cpu.cfs_period_us")?,
            ),
            Version::V2 => {
                let text = get(&self.dir, "cpu.max").ok()?;
                let mut words = text.split_whitespace();
                (words.next()?.parse().ok()?, words.next()?.parse().ok()?)
            }
        };
        // Both are far below 2^52, so the quotient is exact enough for a comparison of limits.
        #[allow(clippy::cast_precision_loss)]
        (period > 0).then(|| quota as f64 / period as f64)
    }

    fn remove(&self, deadline: Instant) -> bool {
        loop {
            match rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => break,
                Err(rustix::io::Errno::BUSY) if Instant::now() < deadline => {
                    self.kill();
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => return false,
            }
        }
        // Fails while other runs live: theirs to take away.
        let _ = rustix::fs::unlinkat(&self.base, PARENT, AtFlags::REMOVEDIR);
        true
    }

    /// `cgroup.kill` where the kernel has it, else each process by its id; the caller loops.
    fn kill(&self) {
        if put(&self.dir, "cgroup.kill", "1").is_ok() {
            return;
        }
        for pid in get(&self.dir, "cgroup.procs")
            .unwrap_or_default()
            .lines()
            .filter_map(|l| l.parse().ok())
        {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// The CPU limit of a sandbox, its files open.
#[derive(Debug)]
pub struct CpuLimit {
    files: Vec<(PathBuf, OwnedFd, String)>,
}

impl CpuLimit {
    /// Sets it: last, when the worker has left, so that a sandbox is not made at the script's speed.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn set(&self) -> Result<(), CgroupError> {
        self.files.iter().try_for_each(|(path, file, value)| {
            rustix::io::write(file, value.as_bytes())
                .map(drop)
                .map_err(|errno| cpu_error(path, errno.into()))
        })
    }
}

fn cpu_error(path: &Path, source: std::io::Error) -> CgroupError {
    CgroupError {
        controller: Controller::Cpu,
        what: format!("setting the limit in {}", path.display()),
        source,
    }
}

/// Moves the calling thread, the only one of its process, through files such as [`Cgroup::entrances`] gives.
///
/// # Errors
/// The kernel's refusal.
pub fn enter(entrances: &[OwnedFd]) -> std::io::Result<()> {
    entrances
        .iter()
        .try_for_each(|entrance| rustix::io::write(entrance, b"0").map(drop).map_err(Into::into))
}

/// The directory was removed before its control file was opened (ENOENT) or written (ENODEV).
fn is_gone(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|errno| errno == Errno::NOENT || errno == Errno::NODEV)
}

fn make_dir(at: &OwnedFd, name: &str) -> std::io::Result<()> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn put_if_there(dir: &OwnedFd, name: &str, value: &str) -> std::io::Result<()> {
    match rustix::fs::openat(dir, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => put(dir, name, value),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// CPUs as microseconds of each period; the kernel's floor is one millisecond.
fn quota_us(cpus: f64) -> u64 {
    // Limits are validated to (0, number of CPUs], so the product fits.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    let quota = (cpus * CPU_PERIOD_US as f64).round() as u64;
    quota.max(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_limit_becomes_a_quota_of_the_period() {
        assert_eq!(quota_us(0.5), 50_000);
        assert_eq!(quota_us(2.0), 200_000);
        assert_eq!(
            quota_us(0.001),
            1_000,
            "the kernel refuses less than a millisecond"
        );
    }

    #[test]
    fn a_waived_limit_needs_no_controller() {
        assert_eq!(Wanted::default().controllers().count(), 0);
        let some = Wanted {
            pids: Some(8),
            ..Wanted::default()
        };
        assert_eq!(some.controllers().collect::<Vec<_>>(), [Controller::Pids]);
    }
}
