//! What is on this machine of a test: processes, cgroups, mounts, sockets, descriptors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Outcome, until};

/// The file of a process, empty where it is gone.
pub fn proc(pid: impl std::fmt::Display, file: &str) -> String {
    std::fs::read(format!("/proc/{pid}/{file}"))
        .map(|body| String::from_utf8_lossy(&body).replace('\0', " "))
        .unwrap_or_default()
}

/// A field of `/proc/PID/status`.
pub fn status(pid: u32, field: &str) -> String {
    field_of(&proc(pid, "status"), field)
}

/// A field of such a text.
pub fn field_of(text: &str, field: &str) -> String {
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Every process, by its id.
pub fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Processes that have the tag in their command line or their cgroups, ours excepted; zombies have neither.
pub fn processes(tag: &str) -> Vec<String> {
    let own = std::process::id();
    pids()
        .into_iter()
        .filter(|pid| *pid != own)
        .filter_map(|pid| {
            let (line, cgroup) = (proc(pid, "cmdline"), proc(pid, "cgroup"));
            (line.contains(tag) || cgroup.contains(tag)).then(|| format!("{pid} {line}"))
        })
        .collect()
}

/// The children of a process, zombies included, each with its state and name.
pub fn children(pid: u32) -> Vec<(u32, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let mut all = Vec::new();
    for task in tasks {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in text
            .split_whitespace()
            .filter_map(|word| word.parse::<u32>().ok())
        {
            let said = format!("{child} {} {}", status(child, "State"), status(child, "Name"));
            all.push((child, said));
        }
    }
    all
}

/// What the descriptors of a process lead to, counted; numbers in brackets are left out.
pub fn descriptors(pid: u32) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
    {
        if let Ok(target) = std::fs::read_link(entry.path()) {
            // The program may be built anew while a test runs.
            let target = target.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
            let kind = match target.split_once(":[") {
                Some((kind, _)) if !target.starts_with("anon_inode") => kind.to_owned(),
                _ => target,
            };
            *counted.entry(kind).or_insert(0) += 1;
        }
    }
    counted
}

/// Waits until a process has no more descriptors of any kind than before. Fewer is no leak: what the last container
/// held may not have been let go of when they were counted.
pub async fn no_more_descriptors(pid: u32, before: &BTreeMap<String, usize>) -> Outcome {
    let more = || {
        let now = descriptors(pid);
        now.iter()
            .any(|(kind, count)| before.get(kind).is_none_or(|known| known < count))
    };
    until("no more descriptors than before", || !more())
        .await
        .map_err(|_| format!("descriptors: {:?}, before {before:?}", descriptors(pid)).into())
}

/// The hierarchies of cgroups: the controllers (empty for v2) and where each is mounted.
pub fn hierarchies() -> Vec<(Vec<String>, PathBuf)> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut right = right.split(' ');
            let kind = right.next()?;
            let options = right.nth(1)?;
            let place = PathBuf::from(left.split(' ').nth(4)?);
            match kind {
                "cgroup" => Some((options.split(',').skip(1).map(str::to_owned).collect(), place)),
                "cgroup2" => Some((Vec::new(), place)),
                _ => None,
            }
        })
        .collect()
}

/// Whether the controllers are those of v1, as on hybrid hosts.
pub fn is_v1() -> bool {
    hierarchies()
        .iter()
        .any(|(controllers, _)| controllers.iter().any(|name| name == "memory"))
}

/// Where a container's control files of a controller are.
pub fn cgroup(controller: &str, path: &str) -> PathBuf {
    let below = path.trim_start_matches('/');
    let all = hierarchies();
    let found = all
        .iter()
        .find(|(controllers, _)| controllers.iter().any(|name| name == controller))
        .or_else(|| all.iter().find(|(controllers, _)| controllers.is_empty()));
    found.map(|(_, place)| place.join(below)).unwrap_or_default()
}

/// A control file of a container, trimmed: the first name on v1, the second on v2.
pub fn control(controller: &str, path: &str, (v1, v2): (&str, &str)) -> Outcome<String> {
    let file = cgroup(controller, path).join(if is_v1() { v1 } else { v2 });
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// Cgroups with the tag in their name, at the top of each hierarchy or one below.
pub fn cgroups(tag: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (_, place) in hierarchies() {
        for entry in std::fs::read_dir(&place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.contains(tag) {
                found.push(entry.path());
            }
            if name == "sandglass" {
                let below = std::fs::read_dir(entry.path()).into_iter().flatten().flatten();
                found.extend(
                    below
                        .map(|entry| entry.path())
                        .filter(|path| path.to_string_lossy().contains(tag)),
                );
            }
        }
    }
    found
}

/// Mounts with the tag in their place.
pub fn mounts(tag: &str) -> Vec<String> {
    std::fs::read_to_string("/proc/self/mountinfo")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|place| place.contains(tag))
        .map(str::to_owned)
        .collect()
}

/// Unix sockets with the tag in their name.
pub fn sockets(tag: &str) -> Vec<String> {
    std::fs::read_to_string("/proc/net/unix")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7))
        .filter(|name| name.contains(tag))
        .map(str::to_owned)
        .collect()
}

/// Kills one process.
pub fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// All that is below a directory, with the directory's own part of the path cut off.
pub fn files(dir: &Path) -> Vec<String> {
    let mut found: Vec<String> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}
