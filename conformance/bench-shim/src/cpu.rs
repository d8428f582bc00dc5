//! The processor time of everything in a stack (containerd, shims, runtimes, containers), as its control group counts
//! it: a figure that what else runs on the machine hardly touches.

use std::path::PathBuf;

use sandglass_stack::Stack;

use crate::error::{BenchError, Result};

/// Where a stack's account of processor time is read.
#[derive(Debug, Clone)]
pub struct Account {
    file: PathBuf,
    /// Milliseconds of one unit.
    unit_ms: f64,
    /// What comes before the number on its line.
    key: &'static str,
}

impl Account {
    /// That of a stack.
    ///
    /// # Errors
    /// The host accounts for no processor time where a stack would find it.
    pub fn of(stack: &Stack) -> Result<Self> {
        let read = |path: String| {
            std::fs::read_to_string(&path).map_err(BenchError::doing(format!("Reading {path}")))
        };
        let groups = read(format!("/proc/{}/cgroup", stack.supervisor()))?;
        let mounts = read("/proc/self/mountinfo".to_owned())?;
        find(&groups, &mounts, &stack.place().name).ok_or_else(|| {
            BenchError::Setup("There is no control group of the stack that counts processor time.".into())
        })
    }

    /// Milliseconds used since the stack came up.
    ///
    /// # Errors
    /// The group is gone.
    pub fn used_ms(&self) -> Result<f64> {
        let text = std::fs::read_to_string(&self.file)
            .map_err(BenchError::doing(format!("Reading {}", self.file.display())))?;
        let units: Option<f64> = text
            .lines()
            .find_map(|line| line.strip_prefix(self.key)?.trim().parse().ok());
        units
            .map(|units| units * self.unit_ms)
            .ok_or_else(|| BenchError::Setup(format!("{} has no number.", self.file.display())))
    }
}

/// The account of the group `name`, in which a process with those `groups` is, or in one below.
fn find(groups: &str, mounts: &str, name: &str) -> Option<Account> {
    let v1 = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers
            .split(',')
            .any(|name| name == "cpuacct")
            .then_some(path)
    });
    let (path, kind, option) = match v1 {
        Some(path) => (path, "cgroup", Some("cpuacct")),
        None => (
            groups.lines().find_map(|line| line.strip_prefix("0::"))?,
            "cgroup2",
            None,
        ),
    };
    let (above, _) = path.split_once(name)?;
    let mount = mounts.lines().find_map(|line| {
        let (fields, file_system) = line.split_once(" - ")?;
        let mut words = file_system.split(' ');
        let fits = words.next() == Some(kind);
        let options = words.nth(1)?;
        let has = option.is_none_or(|wanted| options.split(',').any(|option| option == wanted));
        (fits && has).then(|| fields.split(' ').nth(4))?
    })?;
    let group = PathBuf::from(format!("{mount}{above}{name}"));
    Some(match v1 {
        Some(_) => Account {
            file: group.join("cpuacct.usage"),
            unit_ms: 1e-6,
            key: "",
        },
        None => Account {
            file: group.join("cpu.stat"),
            unit_ms: 1e-3,
            key: "usage_usec ",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
35 31 0:32 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn the_account_is_of_the_whole_stack_and_not_of_the_group_that_the_supervisor_sits_in() {
        let found = find("9:memory:/x\n8:cpuacct:/a/sg-1/inner\n0::/\n", MOUNTS, "sg-1").unwrap();
        assert_eq!(
            found.file,
            PathBuf::from("/sys/fs/cgroup/cpuacct/a/sg-1/cpuacct.usage")
        );
        assert_eq!(
            find("8:cpuacct:/other\n", MOUNTS, "sg-1").map(|found| found.file),
            None
        );
    }

    #[test]
    fn without_version_1_it_is_that_of_version_2() {
        let found = find("0::/sg-1\n", MOUNTS, "sg-1").unwrap();
        assert_eq!(found.file, PathBuf::from("/sys/fs/cgroup/unified/sg-1/cpu.stat"));
    }

    #[test]
    fn both_versions_are_read_as_milliseconds() {
        let dir = std::env::temp_dir().join(format!("bench-shim-cpu-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let account = |file: &str, text: &str, unit_ms, key| {
            let file = dir.join(file);
            std::fs::write(&file, text).unwrap();
            Account { file, unit_ms, key }.used_ms().unwrap()
        };
        let v1 = account("cpuacct.usage", "2500000\n", 1e-6, "");
        let v2 = account("cpu.stat", "usage_usec 2500\nuser_usec 1\n", 1e-3, "usage_usec ");
        std::fs::remove_dir_all(&dir).unwrap();
        assert!((v1 - 2.5).abs() < 1e-9 && (v2 - 2.5).abs() < 1e-9, "{v1} {v2}");
    }
}
