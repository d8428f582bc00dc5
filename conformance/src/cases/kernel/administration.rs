//! Subsystems of the kernel, and the administration of the machine.

use super::NO_CALL;
use crate::case::{Case, Need, Want};
use nix::libc::{EACCES, EBADF, EFAULT, EINVAL, ENODEV, ENOENT, ENOKEY, ENOSYS, ENOTBLK, EOPNOTSUPP, EPERM};

/// The cases.
pub fn cases() -> Vec<Case> {
    [subsystems(), administration()].concat()
}

fn subsystems() -> Vec<Case> {
    vec![
        Case::refused(
            "kernel/bpf-program",
            &[8],
            "bpf program",
            "no program in the kernel",
        ),
        Case::refused("kernel/bpf-map", &[8], "bpf map", "no map in the kernel"),
        Case::refused(
            "kernel/perf-event-open",
            &[8],
            "perf-event-open",
            "no performance counters",
        )
        .absent(&[
            (ENOENT, "this-kernel-lacks-the-counter"),
            (EOPNOTSUPP, "this-kernel-lacks-the-counter"),
        ]),
        Case::refused(
            "kernel/userfaultfd",
            &[9],
            "userfaultfd",
            "no page faults answered by a script",
        ),
        Case::refused(
            "kernel/userfaultfd-device",
            &[9],
            "open-device /dev/userfaultfd",
            "nor through the device",
        )
        .exactly(&[EPERM, EACCES, ENOENT])
        .absent(&[(ENOENT, "this-kernel-lacks-the-device")]),
        Case::refused(
            "kernel/io-uring-setup",
            &[10],
            "io-uring io_uring_setup",
            "io_uring is not there, so Node falls back",
        )
        .exactly(&[ENOSYS]),
        Case::refused(
            "kernel/io-uring-enter",
            &[10],
            "io-uring io_uring_enter",
            "io_uring is not there",
        )
        .exactly(&[ENOSYS])
        .answers(&[EBADF]),
        Case::refused(
            "kernel/io-uring-register",
            &[10],
            "io-uring io_uring_register",
            "io_uring is not there",
        )
        .exactly(&[ENOSYS])
        .answers(&[EBADF, EINVAL]),
        Case::refused("kernel/linux-aio", &[10], "linux-aio", "nor its predecessor"),
        Case::refused("kernel/add-key", &[11], "keys add_key", "no keys in the kernel"),
        Case::refused(
            "kernel/request-key",
            &[11],
            "keys request_key",
            "no keys asked for",
        )
        .answers(&[ENOKEY, ENOENT]),
        Case::refused("kernel/keyctl", &[11], "keys keyctl", "no keyrings"),
    ]
}

fn administration() -> Vec<Case> {
    let mut all = vec![
        Case::refused(
            "kernel/personality-no-randomize",
            &[19],
            "personality 0x0040000",
            "addresses stay random",
        ),
        Case::refused(
            "kernel/personality-read-implies-exec",
            &[19],
            "personality 0x0400000",
            "reading does not imply executing",
        ),
        Case::refused(
            "kernel/modify-ldt",
            &[19],
            "modify-ldt",
            "no segments of one's own",
        )
        .absent(NO_CALL)
        .needs(&[Need::X86]),
        Case::refused("kernel/iopl", &[19], "iopl", "no ports of the machine")
            .absent(NO_CALL)
            .needs(&[Need::X86]),
        Case::refused("kernel/ioperm", &[19], "ioperm", "no ports of the machine")
            .absent(NO_CALL)
            .needs(&[Need::X86]),
    ];
    // Each with the kernel's answer to arguments that do nothing.
    let calls: &[(&str, Want, &str)] = &[
        ("kexec_load", Want::Errno(&[EINVAL]), "no other kernel"),
        (
            "kexec_file_load",
            Want::Errno(&[EBADF, EINVAL]),
            "no other kernel",
        ),
        ("init_module", Want::Errno(&[EFAULT, EINVAL]), "no module"),
        ("finit_module", Want::Errno(&[EBADF]), "no module"),
        ("delete_module", Want::Errno(&[ENOENT]), "no module taken out"),
        ("reboot", Want::Errno(&[EINVAL]), "no reboot"),
        ("swapon", Want::Errno(&[ENOENT]), "no swap"),
        ("swapoff", Want::Errno(&[ENOENT, EINVAL]), "no swap taken away"),
        ("acct", Want::Errno(&[ENOENT]), "no accounting file"),
        (
            "quotactl",
            Want::Errno(&[ENOENT, ENODEV, ENOTBLK, EINVAL]),
            "no quotas",
        ),
        ("quotactl_fd", Want::Errno(&[EBADF]), "no quotas"),
        ("syslog", Want::Allowed, "no kernel log"),
        ("settimeofday", Want::Errno(&[EFAULT]), "no clock is set"),
        ("clock_settime", Want::Errno(&[EFAULT]), "no clock is set"),
        ("clock_adjtime", Want::Errno(&[EFAULT]), "no clock is adjusted"),
        ("sethostname", Want::Allowed, "no other host name"),
        ("setdomainname", Want::Allowed, "no other domain name"),
        ("vhangup", Want::Allowed, "no terminal is hung up"),
        (
            "fanotify_init",
            Want::Allowed,
            "no watching of other processes' files",
        ),
        (
            "lookup_dcookie",
            Want::Errno(&[EINVAL]),
            "no cookies of the profiler",
        ),
        ("uselib", Want::Errno(&[ENOENT, EACCES]), "no old libraries"),
        ("sysfs", Want::Allowed, "no list of file systems"),
        (
            "ustat",
            Want::Errno(&[EINVAL, EFAULT]),
            "no old questions about devices",
        ),
        (
            "map_shadow_stack",
            Want::Errno(&[EINVAL, EOPNOTSUPP]),
            "no shadow stacks",
        ),
    ];
    for (name, want, says) in calls {
        all.push(
            Case::refused(
                format!("kernel/{}", name.replace('_', "-")),
                &[20],
                &format!("privileged {name}"),
                format!("{name}: {says}"),
            )
            .want(*want)
            .absent(NO_CALL),
        );
    }
    for name in ["cachestat", "lsm_get_self_attr", "lsm_list_modules", "setxattrat"] {
        all.push(
            Case::refused(
                format!("kernel/newer-{}", name.replace('_', "-")),
                &[20],
                &format!("newer-call {name}"),
                format!("{name} is younger than what libraries need: not there, and no kill"),
            )
            .exactly(&[ENOSYS])
            .answers(&[EBADF, EINVAL, EFAULT, EOPNOTSUPP])
            .absent(NO_CALL),
        );
    }
    all
}
