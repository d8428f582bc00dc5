//! What this host can enforce, for `doctor`: each layer with what was found and how to mend it.

use std::path::Path;

use serde::Serialize;

use crate::cgroup::{Controller, Hierarchies};
use crate::confine;

/// One layer of the sandbox on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The layer's name, as errors and waivers have it.
    pub layer: String,
    /// Whether a run can have it.
    pub ok: bool,
    /// Whether the runs that were asked about go without it, by their own word.
    pub waived: bool,
    /// What was found.
    pub found: String,
    /// What to do about it; empty when nothing is to be done.
    pub mend: String,
}

impl Finding {
    fn new(layer: &str, ok: bool, found: impl Into<String>, mend: &str) -> Self {
        let mend = if ok { String::new() } else { mend.to_owned() };
        Self {
            layer: layer.to_owned(),
            ok,
            waived: false,
            found: found.into(),
            mend,
        }
    }

    /// Whether it keeps a run from being accepted.
    pub fn hinders(&self) -> bool {
        !self.ok && !self.waived
    }
}

/// Looks at every layer. Reads only, but for Landlock, which is tried for real in a thread that ends at once.
pub fn probe_host() -> Vec<Finding> {
    let root = rustix::process::geteuid().is_root();
    let mut findings = vec![user_namespaces(), landlock(), seccomp(), core_dumps()];
    findings.extend(cgroups(root));
    if !root {
        findings.push(groups());
    }
    findings
}

fn sysctl(path: &str) -> Option<u64> {
    std::fs::read_to_string(Path::new("/proc/sys").join(path))
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn user_namespaces() -> Finding {
    judge_user_namespaces(
        sysctl("user/max_user_namespaces"),
        sysctl("kernel/unprivileged_userns_clone"),
        sysctl("kernel/apparmor_restrict_unprivileged_userns"),
        rustix::process::geteuid().is_root(),
    )
}

fn judge_user_namespaces(max: Option<u64>, clone: Option<u64>, apparmor: Option<u64>, root: bool) -> Finding {
    let new = |ok, found: &str, mend| Finding::new("user_namespace", ok, found, mend);
    match (max, clone, apparmor) {
        (None, _, _) => new(false, "the kernel has none", "Use a kernel with CONFIG_USER_NS."),
        (Some(0), _, _) => new(
            false,
            "user.max_user_namespaces is 0",
            "sysctl user.max_user_namespaces=15000",
        ),
        (_, Some(0), _) if !root => new(
            false,
            "kernel.unprivileged_userns_clone is 0",
            "sysctl kernel.unprivileged_userns_clone=1, or run as root.",
        ),
        (_, _, Some(1)) if !root => new(
            false,
            "AppArmor restricts user namespaces of ordinary users",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give sandglass a profile with `userns,`, or run as root.",
        ),
        _ => new(true, "available", ""),
    }
}

fn landlock() -> Finding {
    // Confines only the thread that tries it.
    let tried = std::thread::spawn(|| confine::restrict_self(&confine::Policy::of_a_run())).join();
    let mend = format!(
        "Use a kernel of Linux 6.12 or newer (Landlock ABI {}) with `landlock` in its lsm= boot parameter; or accept it with --waive landlock.",
        confine::LEAST_ABI as i32
    );
    match tried {
        Ok(Ok(abi)) => Finding::new("landlock", true, format!("ABI {abi}"), ""),
        Ok(Err(error)) => Finding::new("landlock", false, error.to_string(), &mend),
        Err(_) => Finding::new("landlock", false, "the attempt failed", &mend),
    }
}

fn seccomp() -> Finding {
    let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let has = ["errno", "allow", "kill_process"]
        .iter()
        .all(|word| actions.split_whitespace().any(|a| a == *word));
    let found = if has {
        format!("profile {}", crate::filters::PROFILE_NAME)
    } else {
        "no filter mode".into()
    };
    Finding::new("seccomp", has, found, "Use a kernel with CONFIG_SECCOMP_FILTER.")
}

fn core_dumps() -> Finding {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let hard = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
    // With the hard limit at 0 the soft one cannot be 1, and at 0 the kernel still runs a program behind a pipe.
    let ok = !(pattern.starts_with('|') && hard == Some(0));
    Finding::new(
        "core_dumps",
        ok,
        if ok {
            "no crash reaches a program of the host"
        } else {
            "core_pattern pipes into a program and the hard limit is 0"
        },
        "Raise the hard core limit to 1 (ulimit -Hc), or set kernel.core_pattern to a file name.",
    )
}

fn cgroups(root: bool) -> Vec<Finding> {
    let Ok(hosts) = Hierarchies::detect(root) else {
        return vec![Finding::new(
            "memory",
            false,
            "/proc is not mounted",
            "Mount /proc.",
        )];
    };
    [Controller::Memory, Controller::Cpu, Controller::Pids]
        .into_iter()
        .map(|controller| {
            let name = controller.name();
            match hosts.base(controller) {
                None => Finding::new(name, false, hosts.not_found_in(), &cgroup_mend(name, root)),
                Some((base, version)) => {
                    let obstacle = match rustix::fs::access(base, rustix::fs::Access::WRITE_OK) {
                        Ok(()) => hosts.obstacle(controller),
                        Err(_) => Some("not writable by this user".to_owned()),
                    };
                    let version = format!("{version:?}").to_lowercase();
                    let found = format!("cgroup {version} at {}", base.display());
                    let found = obstacle
                        .iter()
                        .fold(found, |found, obstacle| format!("{found}: {obstacle}"));
                    Finding::new(name, obstacle.is_none(), found, &cgroup_mend(name, root))
                }
            }
        })
        .collect()
}

fn cgroup_mend(name: &str, root: bool) -> String {
    if root {
        return format!(
            "Mount the cgroup hierarchies and enable the controller; in a container, give it a cgroup namespace and a writable hierarchy, and move other processes out of its root cgroup into one below; or accept it with --waive {name}."
        );
    }
    format!(
        "Run as root; or, with systemd and cgroup v2, in a scope of your own (systemd-run --user --scope -p Delegate=yes sandglass …), for which `systemctl cat user@.service` must list {name} in Delegate=; or accept it with --waive {name}."
    )
}

fn groups() -> Finding {
    let own = nix::unistd::getegid();
    let others = nix::unistd::getgroups()
        .map(|all| all.into_iter().filter(|gid| *gid != own).count())
        .unwrap_or(0);
    Finding::new(
        "groups",
        others == 0,
        format!("{others} supplementary groups"),
        "Run as a user with no other group than its own, or accept it with --waive groups.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_an_ordinary_user_from_namespaces_does_not_keep_root() {
        for (max, clone, apparmor) in [(Some(9), Some(0), None), (Some(9), Some(1), Some(1))] {
            assert!(!judge_user_namespaces(max, clone, apparmor, false).ok);
            assert!(judge_user_namespaces(max, clone, apparmor, true).ok);
        }
    }

    #[test]
    fn a_kernel_without_user_namespaces_serves_nobody_and_the_mend_is_said() {
        for max in [None, Some(0)] {
            let finding = judge_user_namespaces(max, None, None, true);
            assert!(!finding.ok && !finding.mend.is_empty());
        }
    }
}
