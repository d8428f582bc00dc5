//! The kernel's surface: system calls, sockets, identities, devices.

mod administration;
mod execution;
mod identity;
mod namespaces;
mod processes;
mod sockets;

use crate::case::Case;
use nix::libc::{EAFNOSUPPORT, ENOSYS, EPROTONOSUPPORT, ESOCKTNOSUPPORT};

/// Every case of this group.
pub fn cases() -> Vec<Case> {
    [
        namespaces::cases(),
        processes::cases(),
        sockets::cases(),
        execution::cases(),
        administration::cases(),
        identity::cases(),
    ]
    .concat()
}

/// The kernel was built without the call.
const NO_CALL: &[(i32, &str)] = &[(ENOSYS, "this-kernel-lacks-the-call")];

/// The kernel was built without the socket family.
const NO_FAMILY: &[(i32, &str)] = &[
    (EAFNOSUPPORT, "this-kernel-lacks-the-family"),
    (EPROTONOSUPPORT, "this-kernel-lacks-the-family"),
    (ESOCKTNOSUPPORT, "this-kernel-lacks-the-family"),
];
