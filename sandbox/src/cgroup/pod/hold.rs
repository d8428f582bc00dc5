//! What is done to the processes in a container's cgroups.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::dir::{read_file, tree, write};
use super::{PodCgroup, PodCgroupError, io};
use crate::cgroup::Version;
use crate::cgroup::files::value_of;

impl PodCgroup {
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
}
