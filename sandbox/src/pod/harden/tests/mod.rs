mod mounts;
mod properties;

use std::collections::BTreeMap;
use std::path::Path;

use oci_spec::runtime::{Mount, PosixRlimitType, Spec};
use serde_json::{Value, json};

use super::*;
use crate::pod::mount;
use crate::pod::samples::{Sample, container, edited, pause, plain};

fn hardened(from: Spec, edit: impl FnOnce(&mut Value)) -> Spec {
    harden(edited(from, edit), &Policy::default(), &Sample).unwrap()
}

fn mount_at<'a>(spec: &'a Spec, target: &str) -> &'a Mount {
    let mut found = spec
        .mounts()
        .iter()
        .flatten()
        .filter(|mount| mount.destination() == Path::new(target));
    let mount = found
        .next()
        .unwrap_or_else(|| panic!("nothing is mounted on {target}"));
    assert!(found.next().is_none(), "{target} is mounted twice");
    mount
}

fn options(mount: &Mount) -> Vec<&str> {
    mount::options(mount).collect()
}

fn targets(spec: &Spec) -> Vec<&str> {
    spec.mounts()
        .iter()
        .flatten()
        .filter_map(|mount| mount.destination().to_str())
        .collect()
}

#[test]
fn no_capability_is_left_and_none_can_be_gained() {
    for from in [container(), pause(), plain()] {
        let spec = hardened(from, |spec| spec["process"]["noNewPrivileges"] = false.into());
        assert_unprivileged(&spec);
    }
    let bare = hardened(container(), |spec| {
        spec["process"].as_object_mut().unwrap().remove("capabilities");
    });
    assert_unprivileged(&bare);
}

fn assert_unprivileged(spec: &Spec) {
    let process = spec.process().as_ref().unwrap();
    let sets = process.capabilities().as_ref().unwrap();
    for set in [
        sets.bounding(),
        sets.effective(),
        sets.inheritable(),
        sets.permitted(),
        sets.ambient(),
    ] {
        assert_eq!(set.as_ref().map(|set| set.len()), Some(0));
    }
    assert_eq!(process.no_new_privileges(), Some(true));
}

#[test]
fn the_root_is_read_only_whatever_the_pod_says() {
    let spec = hardened(container(), |spec| spec["root"]["readonly"] = false.into());
    assert_eq!(spec.root().as_ref().unwrap().readonly(), Some(true));
    assert_eq!(spec.root().as_ref().unwrap().path(), Path::new("rootfs"));
}

#[test]
fn masks_are_the_tables_and_the_pods() {
    let spec = hardened(container(), |spec| {
        spec["linux"]["maskedPaths"]
            .as_array_mut()
            .unwrap()
            .push("/proc/meminfo".into());
        spec["linux"]["readonlyPaths"]
            .as_array_mut()
            .unwrap()
            .push("/proc/sys/net".into());
    });
    let linux = spec.linux().as_ref().unwrap();
    let masked = linux.masked_paths().as_ref().unwrap();
    for path in
        table::MASKED_PATHS
            .iter()
            .chain(&["/proc/meminfo", "/sys/firmware", "/sys/devices/virtual/powercap"])
    {
        assert_eq!(masked.iter().filter(|masked| masked == path).count(), 1, "{path}");
    }
    assert!(
        !masked.iter().any(|path| path == "/dev/tty"),
        "an exec may have a terminal"
    );
    assert_eq!(
        linux.readonly_paths().as_ref().unwrap(),
        &["/proc/sys", "/proc/sysrq-trigger", "/proc/sys/net"]
    );
}

#[test]
fn resource_limits_are_the_tables_or_lower_ones() {
    let spec = hardened(container(), |spec| {
        spec["process"]["rlimits"] = json!([
            {"type": "RLIMIT_CORE", "hard": 0, "soft": 0},
            {"type": "RLIMIT_NOFILE", "hard": 1 << 20, "soft": 64},
            {"type": "RLIMIT_MEMLOCK", "hard": 10, "soft": 20},
            {"type": "RLIMIT_FSIZE", "hard": 4096, "soft": 4096},
        ]);
    });
    let limits: BTreeMap<String, (u64, u64)> = spec
        .process()
        .as_ref()
        .unwrap()
        .rlimits()
        .iter()
        .flatten()
        .map(|limit| (format!("{:?}", limit.typ()), (limit.soft(), limit.hard())))
        .collect();
    assert_eq!(
        limits["RlimitCore"],
        (1, 1),
        "0 would let a crash reach the node's core handler"
    );
    assert_eq!(limits["RlimitNofile"], (64, table::OPEN_FILES));
    assert_eq!(limits["RlimitMemlock"], (10, 10));
    assert_eq!(limits["RlimitFsize"], (4096, 4096));
    assert_eq!(limits["RlimitMsgqueue"], (0, 0));
}

#[test]
fn the_processes_of_a_uid_are_not_counted_across_pods() {
    let spec = hardened(container(), |_| {});
    let limits = spec.process().as_ref().unwrap().rlimits().as_ref().unwrap();
    assert!(
        limits
            .iter()
            .all(|limit| limit.typ() != PosixRlimitType::RlimitNproc)
    );
    let pids = |spec: &Spec| {
        spec.linux()
            .as_ref()?
            .resources()
            .as_ref()?
            .pids()
            .map(|pids| pids.limit())
    };
    assert_eq!(
        pids(&spec),
        Some(i64::from(table::PIDS)),
        "the cgroup counts them"
    );
    for (said, becomes) in [(32, 32), (0, 128), (-1, 128)] {
        let spec = hardened(container(), |spec| {
            spec["linux"]["resources"]["pids"] = json!({"limit": said})
        });
        assert_eq!(pids(&spec), Some(becomes));
    }
}

#[test]
fn there_is_no_swap_and_a_full_memory_kills() {
    let spec = hardened(container(), |spec| {
        spec["linux"]["resources"]["memory"] =
            json!({"limit": 1 << 29, "swap": -1, "disableOOMKiller": true});
        spec["linux"]["resources"]["unified"] =
            json!({"memory.swap.max": "max", "pids.max": "max", "memory.oom.group": "1"});
    });
    let resources = spec.linux().as_ref().unwrap().resources().clone().unwrap();
    let memory = resources.memory().unwrap();
    assert_eq!(
        (memory.limit(), memory.swap(), memory.disable_oom_killer()),
        (Some(1 << 29), Some(1 << 29), None)
    );
    let unified = resources.unified().clone().unwrap();
    assert_eq!(
        unified.into_iter().collect::<Vec<_>>(),
        [("memory.oom.group".to_owned(), "1".to_owned())]
    );
}

#[test]
fn devices_are_denied_before_any_is_allowed() {
    for rules in [
        json!(null),
        json!([]),
        json!([{"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"}]),
    ] {
        let spec = hardened(container(), |spec| {
            spec["linux"]["resources"]["devices"] = rules.clone()
        });
        let rules = spec
            .linux()
            .as_ref()
            .unwrap()
            .resources()
            .as_ref()
            .unwrap()
            .devices()
            .clone()
            .unwrap();
        assert_eq!(
            (rules[0].allow(), rules[0].major(), rules[0].access().as_deref()),
            (false, None, Some("rwm"))
        );
    }
}

#[test]
fn what_a_pod_runs_and_where_stays_as_it_is() {
    let from = edited(container(), |spec| {
        spec["process"]["terminal"] = true.into();
        spec["process"]["apparmorProfile"] = "cri-containerd".into();
        spec["linux"]["seccomp"] = json!({"defaultAction": "SCMP_ACT_ERRNO"});
    });
    let to = harden(from.clone(), &Policy::default(), &Sample).unwrap();
    let (before, after) = (from.process().as_ref().unwrap(), to.process().as_ref().unwrap());
    assert_eq!(before.user(), after.user());
    assert_eq!(before.args(), after.args());
    assert_eq!(before.env(), after.env());
    assert_eq!(before.cwd(), after.cwd());
    assert_eq!(before.terminal(), after.terminal());
    assert_eq!(before.apparmor_profile(), after.apparmor_profile());
    assert_eq!(before.oom_score_adj(), after.oom_score_adj());
    let (before, after) = (from.linux().as_ref().unwrap(), to.linux().as_ref().unwrap());
    assert_eq!(before.namespaces(), after.namespaces());
    assert_eq!(before.cgroups_path(), after.cgroups_path());
    assert_eq!(before.seccomp(), after.seccomp());
    assert_eq!(before.sysctl(), after.sysctl());
    assert_eq!(from.annotations(), to.annotations());
    assert_eq!(from.hostname(), to.hostname());
    assert_eq!(from.version(), to.version());
}

#[test]
fn an_empty_list_of_hooks_does_not_stay() {
    let spec = hardened(container(), |spec| spec["hooks"] = json!({"prestart": []}));
    assert_eq!(spec.hooks(), &None);
}

#[test]
fn a_spec_that_is_refused_is_not_hardened() {
    let spec = edited(container(), |spec| spec["process"]["user"]["uid"] = 0.into());
    assert_eq!(
        harden(spec, &Policy::default(), &Sample).unwrap_err().field,
        "process.user.uid"
    );
}
