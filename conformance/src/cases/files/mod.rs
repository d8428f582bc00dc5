//! Files: what can be read, written, linked and opened again.

mod processes;
mod reading;
mod seen;
mod settings;
mod writing;

use crate::case::Case;
use nix::libc::{EACCES, ENOENT, EPERM, EROFS};

/// Every case of this group.
pub fn cases() -> Vec<Case> {
    [
        writing::cases(),
        reading::cases(),
        settings::cases(),
        processes::cases(),
    ]
    .concat()
}

/// A read-only file system, or no right.
const READ_ONLY: &[i32] = &[EROFS, EACCES, EPERM];

/// Not there, or no right.
const HIDDEN: &[i32] = &[ENOENT, EACCES, EPERM];

/// Read-only, not there, or no right.
const OUT_OF_REACH: &[i32] = &[EROFS, EACCES, EPERM, ENOENT];

/// A control where the kernel or the machine has no such file.
const NO_FILE: &[(i32, &str)] = &[(ENOENT, "this-kernel-lacks-the-file")];
