//! Reading what is on this host: processes, namespaces, control groups, directories, clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A process below the suite.
#[derive(Debug)]
pub struct OurProcess {
    /// Its name.
    pub name: String,
    /// Its real uid, as the host sees it.
    pub uid: u32,
}

/// Every process below the suite, those of sandboxes included.
pub fn our_processes() -> Vec<OurProcess> {
    let all = processes();
    let ours = descendants(&all, std::process::id());
    all.values()
        .filter(|p| ours.contains(&p.pid) && p.pid != std::process::id() && p.state != "Z")
        .filter_map(|p| {
            let status = read(&format!("/proc/{}/status", p.pid));
            let uid = status
                .lines()
                .find_map(|line| line.strip_prefix("Uid:\t"))?
                .split('\t')
                .next()?
                .parse()
                .ok()?;
            Some(OurProcess {
                name: p.name.clone(),
                uid,
            })
        })
        .collect()
}

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent: u32,
    /// When it started, in ticks since boot: with the number, who it is.
    pub started: String,
    /// `R`, `S`, `Z` …
    pub state: String,
    /// Its name.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// Its control groups.
    pub cgroup: String,
}

impl Process {
    /// For people.
    pub fn describe(&self) -> String {
        format!(
            "{} ({}, state {}, child of {}) {}",
            self.pid, self.name, self.state, self.parent, self.command
        )
    }
}

/// Every process.
pub fn processes() -> BTreeMap<u32, Process> {
    list(Path::new("/proc"))
        .into_iter()
        .filter_map(|name| {
            let pid: u32 = name.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            parse_stat(&stat).map(|mut process| {
                process.command = read(&format!("/proc/{pid}/cmdline")).replace('\0', " ");
                process.cgroup = read(&format!("/proc/{pid}/cgroup"));
                (pid, process)
            })
        })
        .collect()
}

/// Reads `/proc/PID/stat`; the name in parentheses may itself hold parentheses and spaces.
pub fn parse_stat(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        started: (*fields.get(19)?).to_owned(),
        state: (*fields.first()?).to_owned(),
        name: name.to_owned(),
        command: String::new(),
        cgroup: String::new(),
    })
}

/// Everything below a process. The suite is the reaper of its orphans, so they stay below it.
pub fn descendants(processes: &BTreeMap<u32, Process>, of: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([of]);
    loop {
        let more: Vec<u32> = processes
            .values()
            .filter(|p| found.contains(&p.parent) && !found.contains(&p.pid))
            .map(|p| p.pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Waits for those of our children that are dead: orphans of a killed command line, of which the suite is the reaper.
/// Only called while no case runs, so that nobody else waits for them.
pub fn reap_orphans() {
    use nix::sys::wait::{WaitPidFlag, waitpid};
    for process in processes().values() {
        if process.parent == std::process::id() && process.state == "Z" {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(process.pid).unwrap_or(i32::MAX));
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }
}

/// The namespaces that a process is in: key and description.
pub fn namespaces(process: &Process) -> Vec<(String, String)> {
    list(Path::new(&format!("/proc/{}/ns", process.pid)))
        .into_iter()
        .filter_map(|name| {
            let target = fs::read_link(format!("/proc/{}/ns/{name}", process.pid)).ok()?;
            let key = target.display().to_string();
            Some((key.clone(), format!("{key} of {}", process.describe())))
        })
        .collect()
}

/// Where control groups are mounted.
pub fn cgroup_roots() -> Vec<PathBuf> {
    read("/proc/self/mountinfo")
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let kind = right.split(' ').next()?;
            matches!(kind, "cgroup" | "cgroup2")
                .then(|| left.split(' ').nth(4).map(PathBuf::from))
                .flatten()
        })
        .collect()
}

/// Directories below a root, down to a depth.
pub fn directories(root: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(root) else {
        return found;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
            if depth > 1 {
                found.extend(directories(&entry.path(), depth - 1));
            }
        }
    }
    found
}

/// Calls back for everything below a directory.
pub fn everything_below(dir: &Path, seen: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        seen(&entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            everything_below(&entry.path(), seen);
        }
    }
}

/// The names in a directory; none where it cannot be read.
pub fn list(dir: &Path) -> Vec<String> {
    fs::read_dir(dir)
        .map(|entries| {
            entries
                .flatten()
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default()
}

/// A file as text; nothing where it cannot be read.
pub fn read(path: &str) -> String {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// Realtime minus time since boot.
pub fn clock_offset() -> i64 {
    let since_boot = read("/proc/uptime")
        .split('.')
        .next()
        .and_then(|s| s.parse::<i64>().ok())
        .unwrap_or(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map(|d| d.as_secs())
        .unwrap_or(0);
    i64::try_from(now).unwrap_or(0) - since_boot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_hide_its_parent() {
        let stat = "77 (a) S 1 ) R 42 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 123456 0 0";
        let process = parse_stat(stat).unwrap();
        assert_eq!(
            (process.pid, process.parent, process.started.as_str()),
            (77, 42, "123456")
        );
        assert_eq!(process.name, "a) S 1 ");
    }
}
