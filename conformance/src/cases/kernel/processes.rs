//! Other processes' memory, descriptors and scheduling.

use super::NO_CALL;
use crate::case::Case;
use nix::libc::{EBADF, EFAULT};

/// The cases.
pub fn cases() -> Vec<Case> {
    [other_processes()].concat()
}

fn other_processes() -> Vec<Case> {
    let mut all = vec![
        Case::refused("kernel/ptrace-traceme", &[6], "ptrace-traceme", "no tracing"),
        Case::refused(
            "kernel/ptrace-sibling",
            &[6],
            "ptrace-attach sibling",
            "no tracing of another process",
        ),
        Case::refused(
            "kernel/ptrace-init",
            &[6],
            "ptrace-attach init",
            "no tracing of PID 1",
        ),
        Case::refused(
            "kernel/process-vm-readv-sibling",
            &[7],
            "process-vm process_vm_readv sibling",
            "no reading of another memory",
        ),
        Case::refused(
            "kernel/process-vm-writev-sibling",
            &[7],
            "process-vm process_vm_writev sibling",
            "no writing of another memory",
        ),
        Case::refused(
            "kernel/process-vm-readv-init",
            &[7],
            "process-vm process_vm_readv init",
            "no reading of PID 1's memory",
        )
        .answers(&[EFAULT]),
        Case::refused(
            "kernel/process-vm-writev-init",
            &[7],
            "process-vm process_vm_writev init",
            "no writing of PID 1's memory",
        )
        .answers(&[EFAULT]),
        Case::refused(
            "kernel/process-madvise",
            &[7],
            "process-madvise",
            "no advice about another memory",
        )
        .answers(&[EBADF, EFAULT])
        .absent(NO_CALL),
        Case::refused(
            "kernel/process-mrelease",
            &[7],
            "process-mrelease",
            "no release of another memory",
        )
        .answers(&[EBADF])
        .absent(NO_CALL),
        Case::refused(
            "kernel/pidfd-open-init",
            &[7],
            "pidfd-open init",
            "no descriptor of PID 1",
        ),
        Case::refused(
            "kernel/pidfd-getfd",
            &[7],
            "pidfd-getfd",
            "no descriptor taken from another process",
        )
        .answers(&[EBADF]),
        Case::refused(
            "kernel/pidfd-send-signal",
            &[7],
            "pidfd-send-signal",
            "no signal through a descriptor",
        )
        .answers(&[EBADF]),
        Case::refused("kernel/kcmp", &[7], "kcmp", "no comparing of kernel objects").absent(NO_CALL),
    ];
    for name in [
        "prlimit64",
        "setpriority",
        "ioprio_set",
        "sched_setscheduler",
        "sched_setattr",
        "sched_setaffinity",
    ] {
        all.push(Case::refused(
            format!("kernel/of-init-{}", name.replace('_', "-")),
            &[7, 43],
            &format!("about-another-process {name}"),
            format!("{name} is not for PID 1, which has the script's uid"),
        ));
    }
    for name in ["migrate_pages", "move_pages"] {
        all.push(
            Case::refused(
                format!("kernel/of-init-{}", name.replace('_', "-")),
                &[7],
                &format!("about-another-process {name}"),
                format!("{name} is not for PID 1"),
            )
            .absent(NO_CALL),
        );
    }
    all
}
