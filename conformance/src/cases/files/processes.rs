//! Other processes in /proc, and descriptors.

use super::{READ_ONLY, seen};
use crate::case::{Case, Need, Want};
use crate::judge::Expect;
use nix::libc::{EACCES, ENOENT, EPERM, EROFS, ETXTBSY};

/// The cases.
pub fn cases() -> Vec<Case> {
    [other_processes()].concat()
}

fn other_processes() -> Vec<Case> {
    let mut all = Vec::new();
    for name in [
        "exe",
        "root",
        "cwd",
        "fd",
        "environ",
        "maps",
        "mem",
        "auxv",
        "stack",
        "map_files",
        "syscall",
        "mem-write",
    ] {
        all.push(
            Case::refused(
                format!("files/init-{}", name.replace('_', "-")),
                &[31, 49],
                &format!("proc-of 1 {name}"),
                format!("/proc/1/{name} stays closed"),
            )
            .exactly(&[EACCES, EPERM, ENOENT])
            .absent(&[(ENOENT, "this-kernel-lacks-the-file")])
            .needs(&[Need::Runner]),
        );
    }
    all.extend([
        Case::refused(
            "files/init-not-dumpable",
            &[49],
            "dumpable",
            "PID 1 cannot be looked into",
        )
        .expect(Expect::Nothing)
        .want(Want::Allowed)
        .needs(&[Need::Runner]),
        Case::refused(
            "files/sibling-memory-write",
            &[49],
            "proc-of-sibling mem-write",
            "no writing to the memory of a sibling",
        )
        .exactly(&[EACCES, EPERM, EROFS]),
        Case::refused(
            "files/own-proc",
            &[31, 34],
            "own-proc-for-writing",
            "not even our own entry of /proc opens for writing",
        )
        .expect(Expect::Nothing)
        .needs(&[Need::Landlock]),
        Case::refused(
            "files/only-own-processes",
            &[31],
            "processes-seen",
            "no process but the runner's and the script's shows",
        )
        .expect(Expect::Detail(seen::few_processes))
        .want(Want::Works),
        Case::refused(
            "files/no-descriptors",
            &[32],
            "inherited-descriptors self",
            "nothing but 0, 1 and 2 is open",
        )
        .expect(Expect::Nothing),
        Case::refused(
            "files/no-descriptors-exec",
            &[32],
            "inherited-descriptors exec",
            "nor in a program that the script starts",
        )
        .expect(Expect::Nothing)
        .want(Want::Fails),
    ]);
    for how in ["path", "self", "reopen"] {
        all.push(
            Case::refused(
                format!("files/own-executable-{how}"),
                &[31],
                &format!("own-executable-for-writing {how}"),
                "the interpreter that runs us does not open for writing",
            )
            .exactly(READ_ONLY)
            .answers(&[ETXTBSY]),
        );
    }
    all
}
