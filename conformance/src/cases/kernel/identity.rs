//! Identity, terminals, filters and devices.

use crate::case::{Case, Need, Planted, Want};
use crate::judge::Expect;
use nix::libc::{EACCES, EINVAL, ENODEV, ENOENT, ENOSYS, ENOTTY, ENXIO, EPERM};
use serde_json::Value;

/// The cases.
pub fn cases() -> Vec<Case> {
    [terminals_and_filters(), identity(), devices()].concat()
}

fn terminals_and_filters() -> Vec<Case> {
    vec![
        Case::refused(
            "kernel/tiocsti",
            &[21],
            "tiocsti",
            "nothing is typed into a terminal",
        )
        .exactly(&[EPERM, EACCES, ENOENT, ENXIO, ENOTTY, ENODEV]),
        Case::refused(
            "kernel/tioclinux",
            &[21],
            "tioclinux",
            "nothing is asked of a console",
        )
        .exactly(&[EPERM, EACCES, ENOENT, ENXIO])
        .absent(&[
            (ENOTTY, "this-machine-has-no-console"),
            (EINVAL, "this-machine-has-no-console"),
        ]),
        Case::refused(
            "kernel/no-terminal",
            &[21],
            "standard-streams-are-terminals",
            "the script has no terminal",
        )
        .expect(Expect::Nothing)
        .control_args(&["plant"]),
        Case::refused(
            "kernel/seccomp-listener",
            &[22],
            "seccomp-listener",
            "no listener that answers calls",
        ),
        Case::refused(
            "kernel/no-new-privs",
            &[23],
            "no-new-privs",
            "no new privileges, ever",
        )
        .expect(Expect::Detail(no_new_privs))
        .want(Want::Fails),
        Case::refused(
            "kernel/setuid-in-work",
            &[23],
            "setuid-program /work",
            "a setuid file does not even run",
        ),
        Case::refused(
            "kernel/setuid-in-tmp",
            &[23],
            "setuid-program /tmp",
            "a setuid file does not even run",
        ),
        Case::refused(
            "kernel/no-privileged-files",
            &[23],
            "privileged-files",
            "nothing setuid, setgid or with capabilities in the image",
        )
        .expect(Expect::Nothing)
        .planted(&[Planted {
            path: "/usr/bin/prober-setuid",
            mode: 0o4755,
        }]),
    ]
}

fn identity() -> Vec<Case> {
    let mut all = vec![
        Case::refused(
            "kernel/status",
            &[24],
            "status self",
            "no capability, no new privileges, filtered",
        )
        .expect(Expect::Detail(status))
        .want(Want::Fails),
        Case::refused(
            "kernel/status-of-exec",
            &[24],
            "status exec",
            "the same for a program that the script starts",
        )
        .expect(Expect::Detail(status))
        .want(Want::Fails),
    ];
    for (what, says) in [
        ("root", "not root again"),
        ("group", "no other group"),
        ("groups", "no further groups"),
        ("other", "nobody else"),
        ("ambient", "no ambient capability"),
        ("capset", "no capability"),
    ] {
        let case = Case::refused(
            format!("kernel/become-{what}"),
            &[24],
            &format!("become {what}"),
            says,
        );
        all.push(case.exactly(&[EPERM, EACCES, ENOSYS, EINVAL]));
    }
    all
}

fn devices() -> Vec<Case> {
    let mut all: Vec<Case> = ["mem", "sda", "null", "kmsg"]
        .into_iter()
        .map(|kind| {
            Case::refused(
                format!("kernel/mknod-{kind}"),
                &[25],
                &format!("mknod {kind}"),
                format!("no device node {kind}"),
            )
        })
        .collect();
    all.push(
        Case::refused(
            "kernel/five-devices",
            &[25],
            "devices",
            "null, zero, full, random, urandom, and no other",
        )
        .expect(Expect::Nothing)
        .needs(&[Need::NoTerminals]),
    );
    all.push(
        Case::refused(
            "kernel/devices-of-pods",
            &[25],
            "devices",
            "beside those five, none but pseudo terminals of the container's own",
        )
        .expect(Expect::NothingOr(only_terminals))
        .want(Want::Fails),
    );
    for device in [
        "/dev/mem",
        "/dev/kmsg",
        "/dev/kvm",
        "/dev/fuse",
        "/dev/net/tun",
        "/dev/loop0",
        "/dev/loop-control",
        "/dev/ptmx",
    ] {
        let case = Case::refused(
            format!("kernel/open{}", device.replace('/', "-")),
            &[25],
            &format!("open-device {device}"),
            format!("no {device}"),
        )
        .exactly(&[EPERM, EACCES, ENOENT])
        .absent(&[
            (ENOENT, "this-machine-lacks-the-device"),
            (ENODEV, "this-machine-lacks-the-device"),
            (ENXIO, "this-machine-lacks-the-device"),
        ]);
        all.push(match device {
            "/dev/ptmx" => case.needs(&[Need::NoTerminals]),
            _ => case,
        });
    }
    all.push(
        Case::refused(
            "kernel/speculation",
            &[48],
            "speculation",
            "speculation is controlled where the processor leaves a choice",
        )
        .expect(Expect::Detail(speculation))
        .want(Want::Works),
    );
    all
}

fn no_new_privs(detail: &Value) -> Result<(), String> {
    match detail.get("no_new_privs").and_then(Value::as_i64) {
        Some(1) => Ok(()),
        other => Err(format!("PR_GET_NO_NEW_PRIVS is {other:?}")),
    }
}

/// Devices by which a terminal of the container's own is made and used.
fn only_terminals(detail: &Value) -> Result<(), String> {
    let found = detail.as_array().ok_or("no list")?;
    let terminal = |path: &Value| {
        path.as_str()
            .is_some_and(|path| ["/dev/tty", "/dev/ptmx"].contains(&path) || path.starts_with("/dev/pts/"))
    };
    match found.iter().find(|path| !terminal(path)) {
        None => Ok(()),
        Some(other) => Err(format!("{other} is there")),
    }
}

/// All five sets empty, no new privileges, a filter, nobody, and no supplementary group but nobody's own, which
/// containerd puts into the list and which gives nothing.
fn status(detail: &Value) -> Result<(), String> {
    let field = |name: &str| {
        detail
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let mut wrong = Vec::new();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        if field(set) != "0000000000000000" {
            wrong.push(format!("{set} is {:?}", field(set)));
        }
    }
    for (name, right) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
        if field(name) != right {
            wrong.push(format!("{name} is {:?}, not {right:?}", field(name)));
        }
    }
    if !["", "65534"].contains(&field("Groups").as_str()) {
        wrong.push(format!("Groups is {:?}", field("Groups")));
    }
    for name in ["Uid", "Gid"] {
        if field(name).split_whitespace().any(|id| id != "65534") || field(name).is_empty() {
            wrong.push(format!("{name} is {:?}", field(name)));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join(", "))
    }
}

/// Where the kernel lets a process choose (bit 0), the choice must be made and final (bit 3), or the processor safe.
fn speculation(detail: &Value) -> Result<(), String> {
    for name in ["store_bypass", "indirect_branch"] {
        let value = detail
            .get(name)
            .and_then(Value::as_i64)
            .ok_or_else(|| format!("no {name}"))?;
        let (per_process, enabled, final_off) = (value & 1 != 0, value & 2 != 0, value & 8 != 0);
        if value > 0 && per_process && enabled && !final_off {
            return Err(format!("{name} is {value:#x}: left to the script"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn good() -> Value {
        json!({"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
               "CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
               "Groups": "", "Uid": "65534\t65534\t65534\t65534", "Gid": "65534\t65534\t65534\t65534"})
    }

    #[test]
    fn one_wrong_field_of_the_status_is_a_failure() {
        assert_eq!(status(&good()), Ok(()));
        for (name, value) in [
            ("CapBnd", "0000000000000001"),
            ("NoNewPrivs", "0"),
            ("Seccomp", "0"),
            ("Seccomp", "1"),
            ("Groups", "27"),
            ("Groups", "65534 27"),
            ("Uid", "65534\t0\t65534\t65534"),
            ("Gid", "0\t0\t0\t0"),
        ] {
            let mut bad = good();
            bad[name] = json!(value);
            assert!(status(&bad).is_err(), "{name} {value}");
        }
        assert!(status(&json!({})).is_err());
    }

    #[test]
    fn a_device_that_is_no_terminal_is_found() {
        assert!(only_terminals(&json!(["/dev/tty", "/dev/pts/ptmx", "/dev/pts/0"])).is_ok());
        assert!(only_terminals(&json!(["/dev/tty", "/dev/tty0"])).is_err());
        assert!(only_terminals(&json!(["/work/null"])).is_err());
        assert!(only_terminals(&json!("x")).is_err());
    }

    #[test]
    fn speculation_that_is_left_to_the_script_is_a_failure() {
        assert!(speculation(&json!({"store_bypass": 3, "indirect_branch": 0})).is_err());
        assert!(speculation(&json!({"store_bypass": 9, "indirect_branch": 9})).is_ok());
        assert!(
            speculation(&json!({"store_bypass": 0, "indirect_branch": 2})).is_ok(),
            "no choice per process"
        );
        assert!(
            speculation(&json!({"store_bypass": -1, "indirect_branch": -1})).is_ok(),
            "the kernel has no such call"
        );
    }
}
