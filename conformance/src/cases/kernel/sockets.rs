//! Sockets, and the entries of foreign ABIs.

use super::NO_FAMILY;
use crate::case::{Case, Need, Want};
use crate::judge::{Expect, REFUSED};
use nix::libc::{EACCES, EAFNOSUPPORT, EFAULT, ENOSYS, EOPNOTSUPP, EPERM};

/// The cases.
pub fn cases() -> Vec<Case> {
    [sockets(), foreign_abi()].concat()
}

/// Refused, possibly as the kernel itself does for a family that it lacks, since programs expect that answer. Whether this
/// kernel has the family is what the control shows.
const NO_SOCKET: &[i32] = &[EPERM, EACCES, EAFNOSUPPORT];

fn sockets() -> Vec<Case> {
    let mut all = Vec::new();
    let mut refuse = |families: &'static [u8], names: &[&str]| {
        for name in names {
            all.push(
                Case::refused(
                    format!("kernel/socket-{name}"),
                    families,
                    &format!("open-socket {name}"),
                    format!("no {name} socket"),
                )
                .exactly(NO_SOCKET)
                .absent(NO_FAMILY),
            );
        }
    };
    refuse(&[12], &["alg"]);
    refuse(&[13], &["vsock"]);
    refuse(
        &[14],
        &[
            "rxrpc",
            "key",
            "bluetooth",
            "packet",
            "xdp",
            "inet-raw",
            "inet6-raw",
            "inet-ping",
        ],
    );
    refuse(
        &[14],
        &[
            "inet-stream",
            "inet-dgram",
            "inet6-stream",
            "inet6-dgram",
            "mptcp",
            "sctp",
            "smc",
            "tipc",
            "can",
        ],
    );
    refuse(&[14], &["qipcrtr", "nfc", "ax25", "x25", "rds", "pppox", "kcm"]);
    refuse(
        &[15],
        &[
            "netlink-route",
            "netlink-audit",
            "netlink-xfrm",
            "netlink-netfilter",
            "netlink-uevent",
            "netlink-connector",
            "netlink-generic",
        ],
    );
    all.extend([
        Case::refused(
            "kernel/socketpair-inet",
            &[14],
            "socketpair-inet",
            "no pair of internet sockets",
        )
        .exactly(NO_SOCKET)
        .answers(&[EOPNOTSUPP]),
        Case::refused(
            "kernel/unix-sockets-work",
            &[14],
            "unix-sockets-work",
            "the one family that stays works",
        )
        .expect(Expect::Works)
        .want(Want::Works),
    ]);
    all
}

fn foreign_abi() -> Vec<Case> {
    let ended = Expect::RefusedOrEnded(REFUSED);
    let i386 = |name: &str, what: &str, says: &str| {
        Case::refused(
            format!("kernel/i386-{name}"),
            &[16],
            &format!("i386 {what}"),
            says,
        )
        .expect(ended)
        .needs(&[Need::X86])
        .absent(&[(ENOSYS, "this-kernel-lacks-the-abi")])
    };
    let mut all = vec![
        i386("getpid", "getpid", "no call at all through the i386 entry"),
        i386(
            "socket-inet",
            "socket-inet-stream",
            "no socket through the i386 entry",
        ),
        i386(
            "socketcall-inet",
            "socketcall-inet-stream",
            "nor through socketcall",
        ),
        i386(
            "socketcall-packet",
            "socketcall-packet",
            "no packet socket through socketcall",
        ),
        i386("unshare", "unshare", "no user namespace through the i386 entry"),
        i386("mount", "mount", "no mount through the i386 entry").answers(&[EFAULT]),
    ];
    for what in ["alg", "vsock", "rxrpc"] {
        all.push(
            i386(
                &format!("socketcall-{what}"),
                &format!("socketcall-{what}"),
                "no such socket through socketcall",
            )
            .absent(NO_FAMILY),
        );
    }
    for what in ["getpid", "socket", "ptrace", "unshare"] {
        all.push(
            Case::refused(
                format!("kernel/x32-{what}"),
                &[16],
                &format!("x32 {what}"),
                "no number of the x32 ABI",
            )
            .expect(ended)
            .needs(&[Need::X86])
            .absent(&[(ENOSYS, "this-kernel-lacks-the-abi")]),
        );
    }
    all
}
