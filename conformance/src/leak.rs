//! What is left on the host: a picture before, a picture after, and the difference.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::host::{
    cgroup_roots, clock_offset, descendants, directories, everything_below, list, namespaces, processes,
    read, reap_orphans,
};

/// How long something may take to vanish after the command line has ended. The contract says that it is gone by then;
/// this covers only what the kernel does late by itself, such as taking a dead process out of `/proc`.
const SETTLE: Duration = Duration::from_millis(1_500);
/// Settings of the host that no run may change.
const VALUES: [&str; 12] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/panic",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/net/ipv4/ip_forward",
    "/sys/kernel/uevent_helper",
    "/proc/swaps",
];

/// Whose traces are looked at.
#[derive(Debug, Clone)]
pub enum Scope {
    /// Whatever is new on the host: for a machine on which nothing else goes on.
    Whole,
    /// Our descendants, and what carries the tag of our runs: for a machine that others use as well.
    Own {
        /// The word in every run id.
        tag: String,
    },
}

/// One trace, under a key that stays the same as long as the thing lives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trace {
    /// `process`, `mount` …
    pub kind: &'static str,
    /// Which one.
    pub key: String,
}

/// A picture of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    /// What is there, each with a description.
    pub traces: BTreeMap<Trace, String>,
    /// Settings of the host.
    pub values: BTreeMap<String, String>,
    /// Realtime minus monotonic clock, in seconds: changes when somebody sets the clock.
    pub clock_offset: i64,
}

/// The difference of two pictures, as sentences; empty if there is none.
pub fn difference(before: &Picture, after: &Picture) -> Vec<String> {
    let mut found: Vec<String> = after
        .traces
        .iter()
        .filter(|(trace, _)| !before.traces.contains_key(trace))
        .map(|(trace, says)| format!("{} {says}", trace.kind))
        .collect();
    for (name, value) in &before.values {
        let now = after.values.get(name);
        if now != Some(value) {
            found.push(format!("{name} was {value:?} and is {now:?}"));
        }
    }
    if (before.clock_offset - after.clock_offset).abs() > 1 {
        found.push("the clock of the host was set".to_owned());
    }
    found
}

/// What is looked at.
#[derive(Debug)]
pub struct Watch {
    scope: Scope,
    state_dirs: Vec<PathBuf>,
}

impl Watch {
    /// Watches the host, and these directories to their bottom.
    pub fn new(scope: Scope, state_dirs: Vec<PathBuf>) -> Self {
        Self { scope, state_dirs }
    }

    /// Compares with a picture until nothing is left or the time for that is over.
    pub fn compare(&self, before: &Picture) -> Vec<String> {
        let deadline = Instant::now() + SETTLE;
        loop {
            reap_orphans();
            let found = difference(before, &self.look());
            if found.is_empty() || Instant::now() > deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Takes a picture.
    pub fn look(&self) -> Picture {
        let mut picture = Picture::default();
        let whole = matches!(self.scope, Scope::Whole);
        let processes = processes();
        let ours = descendants(&processes, std::process::id());
        for process in processes.values() {
            if whole
                || ours.contains(&process.pid)
                || self.tagged(&process.cgroup)
                || self.tagged(&process.command)
            {
                if process.pid != std::process::id() && process.parent != 2 {
                    picture.add(
                        "process",
                        format!("{}/{}", process.pid, process.started),
                        process.describe(),
                    );
                }
                if whole || ours.contains(&process.pid) {
                    for (key, says) in namespaces(process) {
                        picture.add("namespace", key, says);
                    }
                }
            }
        }
        for line in read("/proc/self/mountinfo").lines() {
            let path = line.split(' ').nth(4).unwrap_or_default().to_owned();
            if whole || self.tagged(line) {
                picture.add("mount", line.to_owned(), format!("at {path}"));
            }
        }
        for root in cgroup_roots() {
            for dir in directories(&root, 4) {
                let name = dir.display().to_string();
                if whole || self.tagged(&name) {
                    picture.add("cgroup", name.clone(), name);
                }
            }
        }
        for entry in list(Path::new("/sys/class/net")) {
            picture.add("network link", entry.clone(), entry);
        }
        for dir in [
            "/tmp",
            "/dev/shm",
            "/run",
            "/var/tmp",
            "/run/sandglass",
            "/var/lib/sandglass",
        ] {
            for entry in list(Path::new(dir)) {
                if whole || self.tagged(&entry) {
                    picture.add("file", format!("{dir}/{entry}"), format!("{dir}/{entry}"));
                }
            }
        }
        for dir in &self.state_dirs {
            everything_below(dir, &mut |path| {
                let name = path.display().to_string();
                picture.add("state file", name.clone(), name);
            });
        }
        for ipc in ["shm", "sem", "msg"] {
            for (key, creator) in system_v_objects(&read(&format!("/proc/sysvipc/{ipc}"))) {
                if whole || may_be_ours(creator, nix::unistd::geteuid().as_raw()) {
                    let says = format!("{ipc} {key}, made by uid {creator}");
                    picture.add("System V object", format!("{ipc} {key}"), says);
                }
            }
        }
        for name in VALUES {
            picture.values.insert(name.to_owned(), read(name));
        }
        picture.clock_offset = clock_offset();
        picture
    }

    fn tagged(&self, text: &str) -> bool {
        match &self.scope {
            Scope::Whole => text.contains("sandglass"),
            Scope::Own { tag } => text.contains(tag.as_str()),
        }
    }
}

/// Key and number of each object in a file of `/proc/sysvipc`, and the uid that made it.
fn system_v_objects(text: &str) -> Vec<(String, u32)> {
    let mut lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let at = lines
        .next()
        .and_then(|heading| heading.iter().position(|word| *word == "cuid"));
    let object = |words: Vec<&str>| {
        let creator = words.get(at?)?.parse().ok()?;
        Some((words.get(..2)?.join(" "), creator))
    };
    lines.filter_map(object).collect()
}

/// First id of the ranges from which root's runs get theirs.
const FIRST_ID: u32 = 0x7000_0000;

/// Whether a uid of the host may be that of a script of ours: in the ranges of root's runs, or an ordinary user's own.
fn may_be_ours(creator: u32, own: u32) -> bool {
    creator >= FIRST_ID || (own != 0 && creator == own)
}

impl Picture {
    fn add(&mut self, kind: &'static str, key: String, says: String) {
        self.traces.insert(Trace { kind, key }, says);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn picture(traces: &[(&'static str, &str)]) -> Picture {
        let mut picture = Picture::default();
        for (kind, key) in traces {
            picture.add(kind, (*key).to_owned(), (*key).to_owned());
        }
        picture
    }

    #[test]
    fn what_is_new_is_named_and_what_is_gone_is_not() {
        let before = picture(&[("mount", "a"), ("process", "1")]);
        assert!(difference(&before, &before).is_empty());
        assert!(difference(&before, &picture(&[("mount", "a")])).is_empty());
        let after = picture(&[("mount", "a"), ("process", "1"), ("cgroup", "/sys/fs/cgroup/x")]);
        assert_eq!(difference(&before, &after), ["cgroup /sys/fs/cgroup/x"]);
    }

    #[test]
    fn a_changed_setting_and_a_set_clock_are_found() {
        let mut before = Picture::default();
        before.values.insert("core_pattern".into(), "core".into());
        let mut after = before.clone();
        after.values.insert("core_pattern".into(), "|/evil".into());
        after.clock_offset = 3600;
        let found = difference(&before, &after);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn an_object_that_a_script_made_is_told_from_one_of_the_hosts_own_services() {
        let text = "       key      shmid perms       size  cpid  lpid nattch   uid   gid  cuid  cgid\n-9439          0   644    1048576 27614     0      0     0     0     0     0\n  12 7 600 4096 9 0 0 70001 5 1879113728 5\n";
        let found = system_v_objects(text);
        assert_eq!(
            found,
            [("-9439 0".to_owned(), 0), ("12 7".to_owned(), 1_879_113_728)]
        );
        assert!(may_be_ours(found[1].1, 0) && !may_be_ours(0, 0) && !may_be_ours(999, 0));
        assert!(may_be_ours(64_999, 64_999) && !may_be_ours(0, 64_999));
        assert!(system_v_objects("").is_empty());
        let kernels = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        assert_eq!(system_v_objects(&kernels).len(), kernels.lines().count() - 1);
    }

    #[test]
    fn the_picture_of_this_host_sees_a_child_and_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::new(
            Scope::Own {
                tag: "no-such-tag".into(),
            },
            vec![dir.path().to_owned()],
        );
        let before = watch.look();
        fs::write(dir.path().join("left"), b"").unwrap();
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let found = watch.compare(&before);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            found
                .iter()
                .any(|f| f.starts_with("process") && f.contains("sleep")),
            "{found:?}"
        );
        assert!(
            found
                .iter()
                .any(|f| f.starts_with("state file") && f.contains("left")),
            "{found:?}"
        );
        fs::remove_file(dir.path().join("left")).unwrap();
        assert!(
            watch
                .compare(&before)
                .iter()
                .all(|f| !f.contains("sleep") && !f.contains("left"))
        );
    }
}
