//! Settings of the kernel and control groups.

use super::{NO_FILE, OUT_OF_REACH};
use crate::case::{Case, Want};
use crate::judge::Expect;
use nix::libc::{EACCES, EBUSY, EINVAL, ENODEV, ENOENT};

/// The cases.
pub fn cases() -> Vec<Case> {
    [kernel_settings(), cgroups()].concat()
}

fn kernel_settings() -> Vec<Case> {
    let mut all: Vec<Case> = [
        ("core-pattern", "/proc/sys/kernel/core_pattern"),
        ("sysrq-trigger", "/proc/sysrq-trigger"),
        ("overcommit", "/proc/sys/vm/overcommit_memory"),
        ("drop-caches", "/proc/sys/vm/drop_caches"),
        ("panic-on-oom", "/proc/sys/vm/panic_on_oom"),
        ("modprobe", "/proc/sys/kernel/modprobe"),
        ("hostname", "/proc/sys/kernel/hostname"),
        ("uevent-helper", "/sys/kernel/uevent_helper"),
        ("binfmt", "/proc/sys/fs/binfmt_misc/register"),
        ("ns-last-pid", "/proc/sys/kernel/ns_last_pid"),
    ]
    .into_iter()
    .map(|(name, path)| {
        Case::refused(
            format!("files/setting-{name}"),
            &[29],
            &format!("open-for-writing {path}"),
            format!("{path} does not open for writing"),
        )
        .exactly(OUT_OF_REACH)
        .absent(&[
            (ENOENT, "this-kernel-lacks-the-file"),
            (EACCES, "the-control-may-not-write-it-either"),
        ])
    })
    .collect();
    all.push(
        Case::refused(
            "files/settings-all",
            &[29],
            "open-tree-for-writing /proc/sys",
            "no setting of the kernel opens for writing",
        )
        .exactly(OUT_OF_REACH),
    );
    all
}

fn cgroups() -> Vec<Case> {
    let files = "cgroup.procs,tasks,memory.max,memory.limit_in_bytes,pids.max,cpu.max,cpu.cfs_quota_us,release_agent,notify_on_release";
    vec![
        Case::refused(
            "files/cgroup-mount-v1",
            &[30],
            "cgroup mount-v1",
            "no hierarchy is mounted",
        )
        .absent(&[
            (ENODEV, "this-kernel-lacks-cgroup-v1"),
            (EBUSY, "this-host-has-no-cgroup-v1"),
            (EINVAL, "this-host-has-no-cgroup-v1"),
        ]),
        Case::refused(
            "files/cgroup-mount-v2",
            &[30],
            "cgroup mount-v2",
            "nor the unified one",
        ),
        Case::refused(
            "files/cgroup-mkdir",
            &[30],
            "cgroup mkdir",
            "no group of one's own",
        )
        .exactly(OUT_OF_REACH),
        Case::refused(
            "files/cgroup-release-agent",
            &[30],
            "cgroup release_agent",
            "no program at the end of a group",
        )
        .exactly(OUT_OF_REACH)
        .absent(NO_FILE),
        Case::refused(
            "files/cgroup-write",
            &[30],
            &format!("cgroup {files}"),
            "no limit is raised and no group is left",
        )
        .exactly(OUT_OF_REACH),
        Case::refused(
            "files/cgroup-path",
            &[30],
            "cgroup-path",
            "the place in the host's hierarchy does not show",
        )
        .expect(Expect::Nothing)
        // The control has a cgroup namespace of its own, so its path is "/" as well.
        .want(Want::Works),
    ]
}
