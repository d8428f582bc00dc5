//! What the profile promises, family by family, written by hand.

use sandglass_seccomp::{Arch, strict_for};

use crate::support::{ALLOW, Call, errno, run_stack};
use crate::{ARCHES, EAFNOSUPPORT, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM};

fn answer(arch: Arch, call: &str, args: &[u64]) -> u32 {
    let nr = arch
        .number(call)
        .unwrap_or_else(|| panic!("{arch:?} has no {call}"));
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    run_stack(strict_for(arch), &Call::new(arch, nr, all)).value
}

#[track_caller]
pub fn assert_answers(wanted: u32, calls: &[&str]) {
    for (arch, name) in ARCHES {
        let mut looked = 0;
        for call in calls.iter().filter(|call| arch.number(call).is_some()) {
            for value in [0, 1, u64::MAX] {
                assert_eq!(answer(arch, call, &[value; 6]), wanted, "{call} on {name}");
            }
            looked += 1;
        }
        assert!(looked > 0, "{name} has none of {calls:?}");
    }
}

#[test]
fn new_namespaces_are_refused_and_threads_are_not() {
    assert_answers(errno(EPERM), &["unshare", "setns"]);
    for (arch, _) in ARCHES {
        for flag in [
            0x2_0000,
            0x200_0000,
            0x400_0000,
            0x800_0000,
            0x1000_0000,
            0x2000_0000,
            0x4000_0000u64,
        ] {
            assert_eq!(answer(arch, "clone", &[flag | 17]), errno(EPERM), "{flag:#x}");
            assert_eq!(
                answer(arch, "clone", &[flag | 17 | 1 << 40]),
                errno(EPERM),
                "{flag:#x}, dirty"
            );
        }
        // fork of glibc, pthread_create of glibc, posix_spawn of glibc.
        for flags in [0x0120_0011, 0x003d_0f00, 0x4111] {
            assert_eq!(answer(arch, "clone", &[flags]), ALLOW, "{flags:#x}");
        }
    }
}

#[test]
fn clone3_answers_enosys_exactly() {
    assert_answers(errno(ENOSYS), &["clone3"]);
}

#[test]
fn io_uring_answers_enosys_so_that_libuv_falls_back() {
    assert_answers(
        errno(ENOSYS),
        &["io_uring_setup", "io_uring_enter", "io_uring_register"],
    );
}

#[test]
fn mounts_of_the_old_and_the_new_interface_are_refused() {
    assert_answers(
        errno(EPERM),
        &[
            "mount",
            "umount2",
            "fsopen",
            "fsconfig",
            "fsmount",
            "fspick",
            "open_tree",
            "move_mount",
            "mount_setattr",
            "pivot_root",
            "chroot",
            "statmount",
            "listmount",
        ],
    );
    assert_answers(errno(ENOSYS), &["open_tree_attr"]);
}

#[test]
fn other_processes_cannot_be_read_or_steered() {
    assert_answers(
        errno(EPERM),
        &[
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_getfd",
            "kcmp",
            "process_madvise",
            "process_mrelease",
            "move_pages",
            "migrate_pages",
        ],
    );
    assert_answers(errno(ENOSYS), &["pidfd_open", "pidfd_send_signal"]);
}

#[test]
fn limits_and_priorities_are_those_of_the_caller_only() {
    for (arch, _) in ARCHES {
        assert_eq!(answer(arch, "prlimit64", &[0, 7]), ALLOW);
        assert_eq!(
            answer(arch, "prlimit64", &[1, 7]),
            errno(EPERM),
            "the runner is process 1"
        );
        assert_eq!(
            answer(arch, "prlimit64", &[1 | 1 << 32, 7]),
            errno(EPERM),
            "the kernel drops the upper half"
        );
        assert_eq!(answer(arch, "setpriority", &[0, 0, 5]), ALLOW);
        for (which, who) in [(0, 1), (1, 0), (2, 0), (2, 65534)] {
            assert_eq!(
                answer(arch, "setpriority", &[which, who, 5]),
                errno(EPERM),
                "{which} {who}"
            );
        }
    }
    assert_answers(
        errno(EPERM),
        &[
            "sched_setscheduler",
            "sched_setparam",
            "sched_setattr",
            "sched_setaffinity",
            "ioprio_set",
        ],
    );
}

#[test]
fn programs_in_the_kernel_are_refused() {
    assert_answers(
        errno(EPERM),
        &[
            "bpf",
            "perf_event_open",
            "userfaultfd",
            "fanotify_init",
            "fanotify_mark",
            "lookup_dcookie",
        ],
    );
}

#[test]
fn keyrings_are_refused() {
    assert_answers(errno(EPERM), &["add_key", "request_key", "keyctl"]);
}

#[test]
fn files_cannot_be_opened_by_handle() {
    assert_answers(errno(EPERM), &["open_by_handle_at", "name_to_handle_at"]);
}

#[test]
fn no_file_outside_of_a_mount_can_be_made_or_run() {
    assert_answers(
        errno(EPERM),
        &["memfd_create", "memfd_secret", "execveat", "mknod", "mknodat"],
    );
}

#[test]
fn the_machine_below_is_refused() {
    assert_answers(errno(EPERM), &["personality", "modify_ldt", "iopl", "ioperm"]);
    assert_answers(
        errno(ENOSYS),
        &["vserver", "afs_syscall", "remap_file_pages", "nfsservctl"],
    );
}

#[test]
fn the_host_cannot_be_administered() {
    assert_answers(
        errno(EPERM),
        &[
            "kexec_load",
            "kexec_file_load",
            "init_module",
            "finit_module",
            "delete_module",
            "reboot",
            "swapon",
            "swapoff",
            "acct",
            "quotactl",
            "quotactl_fd",
            "syslog",
            "settimeofday",
            "clock_settime",
            "clock_adjtime",
            "adjtimex",
            "sethostname",
            "setdomainname",
            "vhangup",
        ],
    );
}

#[test]
fn identity_and_ownership_stay() {
    assert_answers(
        errno(EPERM),
        &[
            "setuid",
            "setgid",
            "setreuid",
            "setregid",
            "setresuid",
            "setresgid",
            "setgroups",
            "setfsuid",
            "setfsgid",
            "capset",
            "chown",
            "lchown",
            "fchown",
            "fchownat",
        ],
    );
}

#[test]
fn extended_attributes_look_like_a_file_system_without_them() {
    assert_answers(
        errno(EOPNOTSUPP),
        &[
            "setxattr",
            "lsetxattr",
            "fsetxattr",
            "listxattr",
            "getxattr",
            "removexattr",
        ],
    );
    assert_answers(errno(ENOSYS), &["setxattrat", "getxattrat"]);
}

#[test]
fn sockets_are_af_unix_only() {
    for (arch, _) in ARCHES {
        for call in ["socket", "socketpair"] {
            for family in 0..64u64 {
                let wanted = if family == 1 { ALLOW } else { errno(EAFNOSUPPORT) };
                for dirt in [0, 1 << 32, 0xffff_ffff << 32] {
                    assert_eq!(answer(arch, call, &[family | dirt, 1]), wanted, "{call} {family}");
                }
            }
        }
    }
}

#[test]
fn sockets_carry_no_out_of_band_data() {
    const MSG_OOB: u64 = 1;
    const MSG_NOSIGNAL: u64 = 0x4000;
    for (arch, _) in ARCHES {
        for (call, before) in [("sendto", 3), ("recvfrom", 3), ("sendmsg", 2), ("recvmsg", 2)] {
            let with = |flags| answer(arch, call, &[&[0; 3][..before], &[flags]].concat());
            assert_eq!(with(MSG_NOSIGNAL), ALLOW, "{call}");
            assert_eq!(with(MSG_OOB | MSG_NOSIGNAL), errno(EOPNOTSUPP), "{call}");
        }
    }
    assert_answers(errno(ENOSYS), &["sendmmsg", "recvmmsg"]);
}

#[test]
fn terminals_cannot_be_typed_into() {
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541c;
    for (arch, _) in ARCHES {
        for request in [
            TIOCSTI,
            TIOCLINUX,
            TIOCSTI | 1 << 32,
            TIOCLINUX | 0xffff_ffff << 32,
        ] {
            assert_eq!(
                answer(arch, "ioctl", &[0, request]),
                errno(ENOTTY),
                "{request:#x}"
            );
        }
        assert_eq!(answer(arch, "ioctl", &[0, 0x5401]), ALLOW, "isatty");
    }
}

#[test]
fn filters_and_listeners_cannot_be_installed_inside() {
    assert_answers(errno(ENOSYS), &["seccomp"]);
    for (arch, _) in ARCHES {
        assert_eq!(answer(arch, "prctl", &[22, 2]), errno(EPERM), "PR_SET_SECCOMP");
        assert_eq!(
            answer(arch, "prctl", &[38, 1]),
            ALLOW,
            "PR_SET_NO_NEW_PRIVS, before each filter of the stack"
        );
    }
}

#[test]
fn system_v_ipc_and_queues_are_absent() {
    assert_answers(errno(ENOSYS), &["shmget", "semget", "msgget", "mq_open"]);
}
