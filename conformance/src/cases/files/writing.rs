//! Writing outside scratch.

use super::{READ_ONLY, seen};
use crate::case::{Case, Planted, Want};
use crate::judge::Expect;
use nix::libc::{EACCES, EISDIR, ELOOP, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM, EROFS};

/// The cases.
pub fn cases() -> Vec<Case> {
    [writing(), hierarchies()].concat()
}

fn writing() -> Vec<Case> {
    vec![
        Case::refused(
            "files/write-everywhere",
            &[26],
            "write-everywhere",
            "no directory outside scratch takes a file",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/overwrite-passwd",
            &[26],
            "open-for-writing /etc/passwd",
            "no file of the image opens for writing",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/overwrite-image",
            &[26],
            "open-tree-for-writing /usr",
            "not one of them",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/chmod-image",
            &[26],
            "change-attributes /etc/passwd mode",
            "no mode is changed",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/chown-image",
            &[26],
            "change-attributes /etc/passwd owner",
            "no owner is changed",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/utime-image",
            &[26],
            "change-attributes /etc/passwd time",
            "no time is changed",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/unlink-image",
            &[26],
            "change-attributes /etc/passwd unlink",
            "nothing is removed",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/xattr-image",
            &[26, 37],
            "change-attributes /etc/passwd xattr",
            "no attribute is set",
        )
        .exactly(&[EROFS, EACCES, EPERM, ENOSYS, EOPNOTSUPP]),
        Case::refused(
            "files/scratch-flags",
            &[26, 25],
            "scratch-flags",
            "scratch is nosuid, nodev, noexec, and capped",
        )
        .expect(Expect::Detail(seen::scratch_flags))
        .want(Want::Fails),
        Case::refused(
            "files/root-mount",
            &[26],
            "mountinfo",
            "the root is mounted read-only, and nothing of the host is mounted",
        )
        .expect(Expect::Detail(seen::mounts))
        .want(Want::Fails),
        Case::refused(
            "files/scratch-starts-empty",
            &[38],
            "scratch-is-empty",
            "a run starts with nothing but its inputs",
        )
        .expect(Expect::Nothing)
        .planted(&[Planted {
            path: "/out/of-another-run",
            mode: 0o644,
        }]),
    ]
}

fn hierarchies() -> Vec<Case> {
    vec![
        Case::refused(
            "files/link-in-image",
            &[33],
            "link-across /etc/passwd /etc/passwd-2",
            "no hard link in the image",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/rename-in-image",
            &[33],
            "rename-across /etc/passwd /etc/passwd-2",
            "nothing in the image is renamed",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/reopen-path-descriptor",
            &[33],
            "reopen-for-writing /etc/passwd",
            "a path descriptor does not open again for writing",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/truncate-image",
            &[34],
            "truncate /etc/passwd",
            "no file of the image is truncated",
        )
        .exactly(READ_ONLY),
        Case::refused(
            "files/device-ioctl",
            &[34],
            "device-ioctl",
            "no question to a device beyond reading",
        )
        .exactly(&[EACCES, EPERM, ENOTTY]),
        Case::refused(
            "files/follow-proc-links",
            &[33],
            "open-for-writing /proc/self/root/etc/passwd",
            "nor by the way of /proc",
        )
        .exactly(&[EROFS, EACCES, EPERM, ELOOP, EISDIR]),
    ]
}
