//! Namespaces and mounts.

use super::NO_CALL;
use crate::case::{Case, Want};
use crate::judge::Expect;
use nix::libc::{EBADF, EFAULT, EINVAL, ENOENT, ENOSYS};

/// The cases.
pub fn cases() -> Vec<Case> {
    [namespaces(), mounts()].concat()
}

fn namespaces() -> Vec<Case> {
    let mut all = Vec::new();
    for kind in ["user", "mnt", "net", "pid", "ipc", "uts", "cgroup", "time"] {
        all.push(Case::refused(
            format!("kernel/unshare-{kind}"),
            &[1],
            &format!("unshare {kind}"),
            format!("no new {kind} namespace by unshare"),
        ));
    }
    for kind in ["user", "mnt", "net", "pid"] {
        all.push(Case::refused(
            format!("kernel/clone-{kind}"),
            &[1],
            &format!("clone {kind}"),
            format!("no new {kind} namespace by clone"),
        ));
    }
    all.extend([
        Case::refused(
            "kernel/clone3-user",
            &[2],
            "clone3 user",
            "clone3 is not there, so libraries fall back to clone",
        )
        .exactly(&[ENOSYS]),
        Case::refused(
            "kernel/clone3-plain",
            &[2],
            "clone3 none",
            "clone3 is not there even without flags",
        )
        .exactly(&[ENOSYS]),
        Case::refused(
            "kernel/threads-work",
            &[2],
            "threads-work",
            "threads work without clone3",
        )
        .expect(Expect::Works)
        .want(Want::Works),
        Case::refused(
            "kernel/setns-own-uts",
            &[4],
            "setns self uts",
            "no entering of a namespace, not even one's own",
        ),
        Case::refused(
            "kernel/setns-init-mnt",
            &[4],
            "setns 1 mnt",
            "no entering of PID 1's mount namespace",
        ),
        Case::refused(
            "kernel/setns-init-net",
            &[4],
            "setns 1 net",
            "no entering of PID 1's network namespace",
        ),
        Case::refused(
            "kernel/setns-init-cgroup",
            &[4],
            "setns 1 cgroup",
            "no entering of PID 1's cgroup namespace",
        ),
        Case::refused(
            "kernel/setns-call",
            &[4],
            "setns-bad-fd",
            "setns itself is refused",
        )
        .answers(&[EBADF]),
    ]);
    all
}

fn mounts() -> Vec<Case> {
    let mut all: Vec<Case> = ["tmpfs", "proc", "sysfs", "bind", "remount"]
        .into_iter()
        .map(|kind| {
            Case::refused(
                format!("kernel/mount-{kind}"),
                &[3],
                &format!("mount {kind}"),
                format!("no mount of {kind}"),
            )
        })
        .collect();
    all.extend([
        Case::refused("kernel/umount", &[3], "umount /tmp", "nothing can be unmounted"),
        Case::refused("kernel/fsopen", &[3], "fsopen", "no mount through the new calls"),
        Case::refused("kernel/fspick", &[3], "fspick", "no reconfiguring of a mount"),
        Case::refused(
            "kernel/fsmount",
            &[3],
            "fsmount",
            "no mount through the new calls",
        )
        .answers(&[EBADF]),
        // CVE-2022-0185 was in this call.
        Case::refused(
            "kernel/fsconfig",
            &[3],
            "fsconfig",
            "no parameters of a file system",
        )
        .answers(&[EINVAL, EBADF]),
        Case::refused("kernel/open-tree", &[3], "open-tree", "no copy of a mount"),
        Case::refused(
            "kernel/open-tree-attr",
            &[3],
            "open-tree-attr",
            "no copy of a mount",
        )
        .absent(NO_CALL),
        Case::refused("kernel/move-mount", &[3], "move-mount", "no mount is moved").answers(&[EBADF]),
        Case::refused(
            "kernel/mount-setattr",
            &[3],
            "mount-setattr",
            "no mount is made writable",
        )
        .absent(NO_CALL),
        Case::refused(
            "kernel/statmount",
            &[3],
            "statmount",
            "mounts cannot be asked about by number",
        )
        .answers(&[EFAULT])
        .absent(NO_CALL),
        Case::refused(
            "kernel/listmount",
            &[3],
            "listmount",
            "mounts cannot be listed by number",
        )
        .answers(&[EFAULT])
        .absent(NO_CALL),
        Case::refused("kernel/chroot", &[5], "chroot", "no other root by chroot"),
        Case::refused(
            "kernel/pivot-root",
            &[5],
            "pivot-root",
            "no other root by pivot_root",
        )
        .answers(&[ENOENT]),
    ]);
    all
}
