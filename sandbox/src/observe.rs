//! Reading back from the kernel what a sandbox is under: the half of the receipt that nothing inside can forge.

use crate::control::HostObserved;
use crate::error::SandboxError;

/// Namespaces by the kernel's names below `/proc/PID/ns`.
const NAMESPACES: [&str; 7] = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];

/// What the host's own process was in before it entered anything.
#[derive(Debug)]
pub(crate) struct HostFacts {
    namespaces: Vec<(&'static str, std::path::PathBuf)>,
    seccomp_filters: u32,
}

impl HostFacts {
    /// Reads the facts of the calling process.
    pub(crate) fn read() -> Result<Self, SandboxError> {
        let status = read("/proc/self/status")?;
        let namespaces = NAMESPACES
            .iter()
            .map(|name| Ok((*name, link(&format!("/proc/self/ns/{name}"))?)))
            .collect::<Result<Vec<_>, SandboxError>>()?;
        Ok(Self {
            namespaces,
            seccomp_filters: number(&status, "Seccomp_filters").unwrap_or(0),
        })
    }

    /// Reads the facts of PID 1 of a sandbox, by its id outside.
    pub(crate) fn observe(&self, pid: i32) -> Result<HostObserved, SandboxError> {
        let mut observed = parse(&read(&format!("/proc/{pid}/status"))?);
        observed.pid = pid;
        observed.uid_map = squeeze(&read(&format!("/proc/{pid}/uid_map"))?);
        observed.gid_map = squeeze(&read(&format!("/proc/{pid}/gid_map"))?);
        observed.seccomp_filters_inherited = self.seccomp_filters;
        for (name, ours) in &self.namespaces {
            if link(&format!("/proc/{pid}/ns/{name}"))? != *ours {
                observed.namespaces.push((*name).to_owned());
            }
        }
        Ok(observed)
    }
}

/// What the kernel says of one process of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Its uid outside.
    pub uid: u32,
    /// Inheritable, permitted, effective, bounding and ambient capabilities.
    pub capabilities: [u64; 5],
    /// `NoNewPrivs`.
    pub no_new_privileges: bool,
    /// `Seccomp`: 2 is filter mode.
    pub seccomp_mode: u32,
    /// How many filters it is under.
    pub seccomp_filters: u32,
    /// The Landlock ABI that the process said was in force when it confined itself. No file of the kernel tells it.
    pub landlock_abi: Option<u32>,
}

impl Observed {
    /// Reads them. `None` where the process is gone, or over: a zombie's filters are not counted any more.
    pub fn read(pid: i32, landlock_abi: Option<u32>) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        if field(&status, "State").is_none_or(|state| state.starts_with(['Z', 'X'])) {
            return None;
        }
        let observed = parse(&status);
        // Read after the status: one that is ending now may have let go of its filters before, and was confined.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        if is_exiting(&stat) {
            return None;
        }
        Some(Self {
            uid: *observed.uids.first()?,
            capabilities: observed.capabilities,
            no_new_privileges: observed.no_new_privileges,
            seccomp_mode: observed.seccomp_mode,
            seccomp_filters: observed.seccomp_filters,
            landlock_abi,
        })
    }

    /// `none`, or the bounding set in hexadecimal digits.
    pub fn capabilities_word(&self) -> String {
        let all = self.capabilities.iter().fold(0, |all, set| all | set);
        if all == 0 {
            "none".into()
        } else {
            format!("{all:016x}")
        }
    }
}

/// The kernel's mark of a process that has begun to end (`PF_EXITING`), among the flags of `/proc/PID/stat`
/// (proc_pid_stat(5)). True where it cannot be told.
fn is_exiting(stat: &str) -> bool {
    const EXITING: u64 = 4;
    // The second field is a name, which may hold anything; the flags are the seventh after it.
    let flags = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(6)?.parse::<u64>().ok());
    flags.is_none_or(|flags| flags & EXITING != 0)
}

fn read(path: &str) -> Result<String, SandboxError> {
    std::fs::read_to_string(path).map_err(|error| gone(path, &error))
}

fn link(path: &str) -> Result<std::path::PathBuf, SandboxError> {
    std::fs::read_link(path).map_err(|error| gone(path, &error))
}

/// A process that can no longer be looked at gives no receipt, and a run without a receipt is refused.
fn gone(path: &str, error: &std::io::Error) -> SandboxError {
    let ended = "PID 1 ended before it could be looked at";
    SandboxError::worker("reading back the sandbox", format!("{ended} ({path}: {error})"))
}

/// The fields of `/proc/PID/status` that the receipt is made of (proc_pid_status(5)).
fn parse(status: &str) -> HostObserved {
    let hex = |key| {
        field(status, key)
            .and_then(|v| u64::from_str_radix(v, 16).ok())
            .unwrap_or(u64::MAX)
    };
    HostObserved {
        uids: numbers(status, "Uid"),
        gids: numbers(status, "Gid"),
        groups: numbers(status, "Groups"),
        capabilities: ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(hex),
        no_new_privileges: number(status, "NoNewPrivs") == Some(1),
        seccomp_mode: number(status, "Seccomp").unwrap_or(0),
        seccomp_filters: number(status, "Seccomp_filters").unwrap_or(0),
        ..HostObserved::default()
    }
}

fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
}

fn number(status: &str, key: &str) -> Option<u32> {
    field(status, key)?.parse().ok()
}

fn numbers(status: &str, key: &str) -> Vec<u32> {
    field(status, key)
        .map(|value| {
            value
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect()
        })
        .unwrap_or_default()
}

fn squeeze(text: &str) -> String {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\trunner\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t \nNStgid:\t40\t1\n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
        CapBnd:\t0000000000000001\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";

    #[test]
    fn a_process_that_has_begun_to_end_is_told_by_its_flags() {
        let stat = |flags| format!("7 (a) b (c) S 1 7 7 0 -1 {flags} 128 0");
        assert!(!is_exiting(&stat("4194560")));
        assert!(is_exiting(&stat("4194564")));
        assert!(is_exiting("7 (a"));
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(!is_exiting(&own), "{own}");
    }

    #[test]
    fn takes_each_fact_from_its_own_line() {
        let observed = parse(STATUS);
        assert_eq!(observed.uids, [7, 7, 7, 7]);
        assert!(observed.groups.is_empty());
        assert_eq!(observed.capabilities, [0, 0, 0, 1, 0]);
        assert!(observed.no_new_privileges);
        assert_eq!((observed.seccomp_mode, observed.seccomp_filters), (2, 3));
    }

    #[test]
    fn what_is_missing_never_counts_as_confined() {
        let observed = parse("");
        assert!(!observed.no_new_privileges);
        assert_eq!(observed.seccomp_mode, 0);
        assert_eq!(observed.capabilities, [u64::MAX; 5]);
    }
}
