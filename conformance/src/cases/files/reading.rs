//! Reading what is the host's.

use super::HIDDEN;
use crate::case::{Case, Planted};
use crate::judge::Expect;
use nix::libc::{EACCES, EAGAIN, ECONNREFUSED, ENODATA, ENOENT, ENOTDIR, EPERM};

/// The cases.
pub fn cases() -> Vec<Case> {
    [reading()].concat()
}

fn reading() -> Vec<Case> {
    let mut all = vec![
        Case::refused(
            "files/canaries",
            &[27],
            "find-canary {token} {canaries}",
            "no secret of the host is found",
        )
        .exactly(&[ENOENT]),
        Case::refused(
            "files/host-socket",
            &[27],
            "connect-unix {socket}",
            "no socket of the host's services is reached",
        )
        .exactly(HIDDEN),
        Case::refused(
            "files/abstract-socket",
            &[27, 34],
            "connect-unix {abstract}",
            "nor one that has no path",
        )
        .exactly(&[ECONNREFUSED, EPERM, EACCES]),
    ];
    for (name, path) in [
        ("shadow", "/etc/shadow"),
        ("gshadow", "/etc/gshadow"),
        ("root-home", "/root/.ssh"),
        ("docker-socket", "/run/docker.sock"),
        ("containerd-socket", "/run/containerd/containerd.sock"),
        ("kubelet", "/var/lib/kubelet"),
        (
            "service-account",
            "/var/run/secrets/kubernetes.io/serviceaccount/token",
        ),
        ("host-root", "/proc/1/root/etc/shadow"),
    ] {
        let case = Case::refused(
            format!("files/read-{name}"),
            &[27],
            &format!("read-path {path}"),
            format!("{path} is not to be read"),
        );
        all.push(
            case.exactly(&[ENOENT, EACCES, EPERM, ENOTDIR])
                .planted(planted(path)),
        );
    }
    for path in [
        "/proc/kcore",
        "/proc/keys",
        "/proc/key-users",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/scsi",
        "/proc/acpi",
        "/proc/kallsyms",
        "/proc/config.gz",
        "/proc/kmsg",
        "/proc/latency_stats",
        "/proc/interrupts",
        "/proc/asound",
        "/sys/firmware",
        "/sys/kernel/debug",
        "/sys/kernel/security",
        "/sys/class/dmi/id/product_uuid",
        "/sys/fs/cgroup",
        "/sys/block",
        "/sys/class/net",
    ] {
        all.push(
            Case::refused(
                format!("files/masked{}", path.replace(['/', '_', '.'], "-")),
                &[28],
                &format!("read-path {path}"),
                format!("{path} tells nothing"),
            )
            .expect(Expect::Nothing)
            .absent(&[
                (ENOENT, "this-kernel-lacks-the-file"),
                (EPERM, "the-control-may-not-read-it-either"),
                (EAGAIN, "nothing-to-read-now"),
                (ENODATA, "this-machine-has-nothing-there"),
            ]),
        );
    }
    all
}

/// Files that a control needs, since the image has none of that name.
fn planted(path: &str) -> &'static [Planted] {
    const FILES: &[&[Planted]] = &[
        &[Planted {
            path: "/etc/shadow",
            mode: 0o644,
        }],
        &[Planted {
            path: "/etc/gshadow",
            mode: 0o644,
        }],
        &[Planted {
            path: "/root/.ssh",
            mode: 0o644,
        }],
        &[Planted {
            path: "/run/docker.sock",
            mode: 0o644,
        }],
        &[Planted {
            path: "/run/containerd/containerd.sock",
            mode: 0o644,
        }],
        &[Planted {
            path: "/var/lib/kubelet",
            mode: 0o644,
        }],
        &[Planted {
            path: "/var/run/secrets/kubernetes.io/serviceaccount/token",
            mode: 0o644,
        }],
        &[Planted {
            path: "/etc/shadow",
            mode: 0o644,
        }],
    ];
    FILES
        .iter()
        .find(|files| files.iter().any(|file| path.ends_with(file.path)))
        .copied()
        .unwrap_or(&[])
}
