//! Executing what a script made.

use super::NO_CALL;
use crate::case::Case;
use crate::judge::Expect;
use nix::libc::{EACCES, EINVAL, ENOSYS, EOPNOTSUPP, EPERM, ESTALE};

/// The cases.
pub fn cases() -> Vec<Case> {
    [executable_files()].concat()
}

fn executable_files() -> Vec<Case> {
    let mut all = vec![
        Case::refused(
            "kernel/name-to-handle-at",
            &[17],
            "name-to-handle-at",
            "no file handles",
        ),
        Case::refused(
            "kernel/open-by-handle-at",
            &[17],
            "open-by-handle-at",
            "no file opened by its handle",
        )
        .answers(&[ESTALE, EINVAL]),
        Case::refused(
            "kernel/memfd-create",
            &[18],
            "memfd-create 0",
            "no file without a name",
        ),
        Case::refused(
            "kernel/memfd-create-sealed",
            &[18],
            "memfd-create 3",
            "whatever its flags",
        ),
        Case::refused("kernel/memfd-secret", &[18], "memfd-secret", "no secret memory").absent(NO_CALL),
        Case::refused(
            "kernel/execveat-empty-path",
            &[18],
            "exec-image-descriptor",
            "no execution through a descriptor",
        ),
    ];
    for (name, dir) in [
        ("work", "/work"),
        ("out", "/out"),
        ("tmp", "/tmp"),
        ("shm", "/dev/shm"),
    ] {
        all.extend([
            Case::refused(
                format!("kernel/exec-in-{name}"),
                &[18],
                &format!("exec-file {dir}"),
                format!("nothing in {dir} is executed"),
            ),
            Case::refused(
                format!("kernel/loader-in-{name}"),
                &[18],
                &format!("exec-through-loader {dir}"),
                format!("nor mapped by the dynamic loader from {dir}"),
            )
            .expect(Expect::Nothing),
            Case::refused(
                format!("kernel/unnamed-exec-in-{name}"),
                &[18],
                &format!("exec-descriptor {dir}"),
                format!("nor executed from an unnamed file in {dir}"),
            )
            // A tmpfs knows O_TMPFILE; where it does not, there is no such file to execute.
            .exactly(&[EPERM, EACCES, ENOSYS, EOPNOTSUPP]),
            Case::refused(
                format!("kernel/map-exec-in-{name}"),
                &[18],
                &format!("map-executable {dir} mmap"),
                format!("no file in {dir} is mapped executable"),
            ),
            Case::refused(
                format!("kernel/protect-exec-in-{name}"),
                &[18],
                &format!("map-executable {dir} mprotect"),
                format!("nor made so afterwards in {dir}"),
            ),
        ]);
    }
    all
}
