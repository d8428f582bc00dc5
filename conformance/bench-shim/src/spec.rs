//! The container of every row that goes by containerd's own API: as hardened as an OCI spec can ask for.

use serde_json::{Value, json};

/// What Docker's default profile comes to for a container without capabilities; containerd's is the same list.
const DEFAULT_PROFILE: &str = include_str!("../../../seccomp-profiles/tests/fixtures/docker-default.json");
/// The uid and gid: nobody's.
pub const NOBODY: i64 = 65534;
/// Bytes of memory that a container gets.
pub const MEMORY: i64 = 512 << 20;
/// Microseconds of CPU in each account of [`CPU_PERIOD`]: two processors.
pub const CPU_QUOTA: i64 = 200_000;
/// Microseconds of each account of CPU time.
pub const CPU_PERIOD: i64 = 100_000;
/// Paths that kubelet has covered in every container.
pub const MASKED: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// Paths that nobody may write.
pub const READONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// An OCI spec for `args`.
///
/// # Errors
/// The profile is not JSON.
pub fn hardened(id: &str, args: &[&str], seccomp: bool) -> serde_json::Result<Value> {
    let allow = |major: u32, minor: u32| json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"});
    let namespaces = ["pid", "ipc", "uts", "mount", "network", "cgroup"].map(|kind| json!({"type": kind}));
    let mut spec = json!({
        // Nothing here is newer, and a crun of some years refuses to hear of a later one.
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": NOBODY, "gid": NOBODY},
            "args": args,
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "cwd": "/",
            "capabilities": {"bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": []},
            "noNewPrivileges": true,
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "bench",
        "mounts": [
            mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
            mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", "devpts",
                &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
            mount("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
            mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
            mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        ],
        "linux": {
            "namespaces": namespaces,
            // Below the root, so that no runtime leaves a parent behind.
            "cgroupsPath": format!("/{id}"),
            "resources": {
                "devices": [json!({"allow": false, "access": "rwm"}), allow(1, 3), allow(1, 5), allow(1, 7),
                            allow(1, 8), allow(1, 9), allow(5, 0)],
                "memory": {"limit": MEMORY},
                "cpu": {"quota": CPU_QUOTA, "period": CPU_PERIOD},
                "pids": {"limit": 128},
            },
            "maskedPaths": MASKED,
            "readonlyPaths": READONLY,
        },
    });
    if seccomp {
        spec["linux"]["seccomp"] = serde_json::from_str(DEFAULT_PROFILE)?;
    }
    Ok(spec)
}

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Value {
    json!({"destination": destination, "type": kind, "source": source, "options": options})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_that_an_oci_spec_has_is_on() {
        let spec = hardened("c1", &["true"], true).unwrap();
        assert_eq!(spec["process"]["noNewPrivileges"], json!(true));
        for set in ["bounding", "effective", "permitted", "inheritable", "ambient"] {
            assert_eq!(spec["process"]["capabilities"][set], json!([]), "{set}");
        }
        assert_eq!(spec["root"]["readonly"], json!(true));
        assert_eq!(spec["linux"]["seccomp"]["defaultAction"], json!("SCMP_ACT_ERRNO"));
        assert_eq!(spec["linux"]["namespaces"].as_array().unwrap().len(), 6);
    }

    #[test]
    fn seccomp_is_what_the_bracket_says() {
        let spec = hardened("c1", &["true"], false).unwrap();
        assert_eq!(spec["linux"].get("seccomp"), None);
    }
}
