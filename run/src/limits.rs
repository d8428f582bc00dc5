//! What one run may use.

use std::time::Duration;

use crate::parse::{format_bound, format_bytes, format_duration};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What one run may use. [`Default`] holds the documented defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Wall clock from the start of the script. 1 ms to 24 h.
    pub wall: Duration,
    /// Memory of all processes and of all scratch together, in bytes; swap is none.
    pub memory_bytes: u64,
    /// CPUs' worth of time, by quota.
    pub cpus: f64,
    /// Size of each of `/work`, `/out` and `/tmp`, in bytes.
    pub scratch_bytes: u64,
    /// Processes and threads of the script; the runner is one more.
    pub pids: u32,
    /// Bytes kept of each output stream: the first and the last half.
    pub output_bytes: u64,
    /// Artifacts taken from `/out`.
    pub artifacts_max: u32,
    /// Bytes of all artifacts together.
    pub artifacts_bytes: u64,
    /// Bytes of all inputs together.
    pub inputs_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(60),
            memory_bytes: 512 * MIB,
            cpus: 0.5,
            scratch_bytes: 128 * MIB,
            pids: 128,
            output_bytes: MIB,
            artifacts_max: 100,
            artifacts_bytes: 128 * MIB,
            inputs_bytes: 64 * MIB,
        }
    }
}

/// What the host has, or a part of it that runs may use. Read by the caller: this crate asks no kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct HostCapacity {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// CPUs that this process may run on.
    pub cpus: f64,
    /// Processes that the kernel would take (`kernel.pid_max`, or a tighter cgroup limit).
    pub pids: u32,
}

/// A limit that cannot be granted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{setting} is {value}, which is not allowed: it must be from {least} to {most}{because}.")]
pub struct LimitError {
    /// The setting's name, as in `--memory`, without dashes.
    pub setting: &'static str,
    /// What was asked for.
    pub value: String,
    /// The least that is allowed.
    pub least: String,
    /// The most that is allowed.
    pub most: String,
    /// Why that is the most, where the host is the reason.
    pub because: &'static str,
}

const HOST: &str = " (all that this host has)";

impl Limits {
    /// Longest wall clock.
    pub const MAX_WALL: Duration = Duration::from_secs(24 * 60 * 60);
    /// Least memory in which an interpreter has a chance to start.
    pub const MIN_MEMORY_BYTES: u64 = 16 * MIB;
    /// The kernel's least CPU quota is 1 ms in a period of 100 ms.
    pub const MIN_CPUS: f64 = 0.01;
    /// Most that can be kept of one output stream: the report holds it in memory.
    pub const MAX_OUTPUT_BYTES: u64 = 64 * MIB;
    /// Most artifacts of one run.
    pub const MAX_ARTIFACTS: u32 = 10_000;

    /// Checks every limit against fixed bounds and what the host has.
    ///
    /// # Errors
    /// All limits that cannot be granted, not only the first.
    pub fn validate(&self, host: &HostCapacity) -> Result<(), Vec<LimitError>> {
        let mut errors = Vec::new();
        let mut check = |fits: bool, setting, value: String, least: String, most: String, because| {
            if !fits {
                errors.push(LimitError {
                    setting,
                    value,
                    least,
                    most,
                    because,
                });
            }
        };
        let mut bytes = |setting, value: u64, least: u64, most: u64, because| {
            let (shown, least_shown, most_shown) =
                (format_bytes(value), format_bytes(least), format_bound(most));
            check(
                (least..=most).contains(&value),
                setting,
                shown,
                least_shown,
                most_shown,
                because,
            );
        };
        bytes(
            "memory",
            self.memory_bytes,
            Self::MIN_MEMORY_BYTES,
            host.memory_bytes,
            HOST,
        );
        bytes("scratch", self.scratch_bytes, 64 * KIB, host.memory_bytes, HOST);
        bytes("output", self.output_bytes, KIB, Self::MAX_OUTPUT_BYTES, "");
        bytes(
            "artifacts-bytes",
            self.artifacts_bytes,
            0,
            host.memory_bytes,
            HOST,
        );
        bytes("inputs-bytes", self.inputs_bytes, 0, host.memory_bytes, HOST);
        check(
            (Duration::from_millis(1)..=Self::MAX_WALL).contains(&self.wall),
            "timeout",
            format_duration(self.wall),
            "1ms".to_owned(),
            format_duration(Self::MAX_WALL),
            "",
        );
        // Not a number fits no range, so it is refused too.
        check(
            (Self::MIN_CPUS..=host.cpus).contains(&self.cpus),
            "cpus",
            self.cpus.to_string(),
            Self::MIN_CPUS.to_string(),
            host.cpus.to_string(),
            HOST,
        );
        // The runner is one of them and the script another.
        check(
            (2..=host.pids).contains(&self.pids),
            "pids",
            self.pids.to_string(),
            "2".to_owned(),
            host.pids.to_string(),
            HOST,
        );
        check(
            self.artifacts_max <= Self::MAX_ARTIFACTS,
            "artifacts",
            self.artifacts_max.to_string(),
            "0".to_owned(),
            Self::MAX_ARTIFACTS.to_string(),
            "",
        );
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostCapacity {
        HostCapacity {
            memory_bytes: 2 << 30,
            cpus: 2.0,
            pids: 32_768,
        }
    }

    fn refused(change: impl FnOnce(&mut Limits)) -> Vec<&'static str> {
        let mut limits = Limits::default();
        change(&mut limits);
        limits
            .validate(&host())
            .err()
            .unwrap_or_default()
            .into_iter()
            .map(|error| error.setting)
            .collect()
    }

    #[test]
    fn the_defaults_are_the_documented_ones_and_valid() {
        let limits = Limits::default();
        assert_eq!(limits.wall, Duration::from_secs(60));
        assert_eq!(
            (limits.memory_bytes, limits.scratch_bytes),
            (512 << 20, 128 << 20)
        );
        assert_eq!((limits.cpus, limits.pids, limits.artifacts_max), (0.5, 128, 100));
        assert_eq!((limits.output_bytes, limits.inputs_bytes), (1 << 20, 64 << 20));
        assert_eq!(limits.validate(&host()), Ok(()));
    }

    #[test]
    fn zero_absurd_and_beyond_the_host_are_refused_by_name() {
        assert_eq!(refused(|l| l.wall = Duration::ZERO), ["timeout"]);
        assert_eq!(refused(|l| l.wall = Duration::from_secs(86_401)), ["timeout"]);
        assert_eq!(refused(|l| l.memory_bytes = 0), ["memory"]);
        assert_eq!(refused(|l| l.memory_bytes = (2 << 30) + 1), ["memory"]);
        for cpus in [0.0, -1.0, f64::NAN, f64::INFINITY, 2.1, 0.001] {
            assert_eq!(refused(|l| l.cpus = cpus), ["cpus"], "{cpus}");
        }
        assert_eq!(refused(|l| l.scratch_bytes = 0), ["scratch"]);
        assert_eq!(refused(|l| l.pids = 0), ["pids"]);
        assert_eq!(refused(|l| l.pids = 40_000), ["pids"]);
        assert_eq!(refused(|l| l.output_bytes = u64::MAX), ["output"]);
        assert_eq!(refused(|l| l.artifacts_max = u32::MAX), ["artifacts"]);
        assert_eq!(refused(|l| l.artifacts_bytes = u64::MAX), ["artifacts-bytes"]);
        assert_eq!(refused(|l| l.inputs_bytes = u64::MAX), ["inputs-bytes"]);
        assert_eq!(refused(|l| (l.pids, l.cpus) = (0, 0.0)), ["cpus", "pids"]);
    }

    #[test]
    fn the_message_names_setting_value_and_what_is_allowed() {
        let limits = Limits {
            memory_bytes: 0,
            ..Limits::default()
        };
        let message = limits.validate(&host()).unwrap_err()[0].to_string();
        assert_eq!(
            message,
            "memory is 0, which is not allowed: it must be from 16Mi to 2Gi (all that this host has)."
        );
    }
}
