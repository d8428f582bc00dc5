//! What a probe saw, judged.

use serde_json::Value;

pub fn scratch_flags(detail: &Value) -> Result<(), String> {
    let mut wrong = Vec::new();
    for path in ["/work", "/out", "/tmp", "/dev/shm"] {
        let mount = detail.get(path).ok_or_else(|| format!("{path} is not there"))?;
        for flag in ["nosuid", "nodev", "noexec", "mount_point"] {
            if mount.get(flag) != Some(&Value::Bool(true)) {
                wrong.push(format!("{path} is not {flag}"));
            }
        }
        let number = |name: &str| mount.get(name).and_then(Value::as_u64).unwrap_or(u64::MAX);
        if number("bytes") == 0 || number("bytes") > 129 << 20 {
            wrong.push(format!("{path} has {} bytes", number("bytes")));
        }
        if number("inodes") == 0 || number("inodes") > 1 << 20 {
            wrong.push(format!("{path} has {} inodes", number("inodes")));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join(", "))
    }
}

/// The root read-only, and nothing mounted but what a sandbox is made of.
pub fn mounts(detail: &Value) -> Result<(), String> {
    let mounts = detail.as_array().ok_or("no list of mounts")?;
    let text = |mount: &Value, name: &str| {
        mount
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let root = mounts
        .iter()
        .rfind(|m| text(m, "path") == "/")
        .ok_or("no root in the list")?;
    let mut wrong = Vec::new();
    if !text(root, "options").split(',').any(|option| option == "ro") {
        wrong.push("the root is mounted writable".to_owned());
    }
    for mount in mounts {
        let path = text(mount, "path");
        let writable = text(mount, "options").split(',').any(|option| option == "rw");
        let expected = path == "/"
            || path == "/dev"
            || path.starts_with("/dev/")
            || path == "/proc"
            || path.starts_with("/proc/")
            || path == "/sys"
            || path.starts_with("/sys/")
            || ["/work", "/out", "/tmp"].contains(&path.as_str())
            || path == "/run" && is_inert_memory(&text(mount, "type"), &text(mount, "options"));
        if !expected {
            wrong.push(format!("{path} ({}) is mounted", text(mount, "type")));
        }
        let disk =
            ["ext4", "xfs", "btrfs", "overlay", "virtiofs", "9p"].contains(&text(mount, "type").as_str());
        if disk && writable {
            wrong.push(format!("{path} is a writable {}", text(mount, "type")));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join(", "))
    }
}

/// Memory from which nothing is executed: containerd's client puts some at `/run`.
fn is_inert_memory(kind: &str, options: &str) -> bool {
    let has = |flag: &str| options.split(',').any(|option| option == flag);
    kind == "tmpfs" && ["nosuid", "nodev", "noexec"].into_iter().all(has)
}

/// The runner and what the script itself started.
pub fn few_processes(detail: &Value) -> Result<(), String> {
    let pids = detail.get("pids").and_then(Value::as_array).ok_or("no list")?;
    let own = detail.get("own").and_then(Value::as_u64).ok_or("no own pid")?;
    let strangers: Vec<_> = pids
        .iter()
        .filter_map(Value::as_u64)
        .filter(|pid| *pid != 1 && *pid != own)
        .collect();
    if strangers.is_empty() {
        Ok(())
    } else {
        Err(format!("{strangers:?} of {}", detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_scratch_mount_that_executes_or_is_not_capped_is_found() {
        let mount = json!({"nosuid": true, "nodev": true, "noexec": true, "mount_point": true, "bytes": 1 << 27, "inodes": 32768});
        let all = json!({"/work": mount, "/out": mount, "/tmp": mount, "/dev/shm": mount});
        assert_eq!(scratch_flags(&all), Ok(()));
        for (name, value) in [
            ("noexec", json!(false)),
            ("bytes", json!(1_u64 << 40)),
            ("inodes", json!(0)),
            ("mount_point", json!(false)),
        ] {
            let mut bad = all.clone();
            bad["/tmp"][name] = value;
            assert!(scratch_flags(&bad).is_err(), "{name}");
        }
    }

    #[test]
    fn a_writable_root_and_a_mount_of_the_host_are_found() {
        let mount =
            |path: &str, options: &str, kind: &str| json!({"path": path, "options": options, "type": kind});
        let good = json!([
            mount("/", "ro,relatime", "ext4"),
            mount("/work", "rw,noexec", "tmpfs"),
            mount("/proc", "rw", "proc")
        ]);
        assert_eq!(mounts(&good), Ok(()));
        let run = |options: &str, kind: &str| json!([mount("/", "ro", "ext4"), mount("/run", options, kind)]);
        assert_eq!(mounts(&run("rw,nosuid,nodev,noexec,relatime", "tmpfs")), Ok(()));
        assert!(mounts(&run("rw,nosuid,nodev", "tmpfs")).is_err());
        assert!(mounts(&run("ro,nosuid,nodev,noexec", "ext4")).is_err());
        assert!(mounts(&json!([mount("/", "rw,relatime", "ext4")])).is_err());
        assert!(mounts(&json!([mount("/", "ro", "ext4"), mount("/srv", "ro", "ext4")])).is_err());
        assert!(
            mounts(&json!([
                mount("/", "ro", "ext4"),
                mount("/dev/vda", "rw", "ext4")
            ]))
            .is_err()
        );
    }

    #[test]
    fn a_stranger_in_proc_is_found() {
        assert!(few_processes(&json!({"pids": [1, 7], "own": 7})).is_ok());
        assert!(few_processes(&json!({"pids": [1, 7, 9], "own": 7})).is_err());
    }
}
