use super::*;
use crate::pod::samples::{CRI_STATE, PODS, SANDBOX, add_mount};

fn volume(options: &[&str]) -> Value {
    let source = format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch");
    json!({"destination": "/data", "type": "bind", "source": source, "options": options})
}

fn tmpfs(target: &str, options: &[&str]) -> Value {
    json!({"destination": target, "type": "tmpfs", "source": "tmpfs", "options": options})
}

#[test]
fn scratch_is_there_bounded_inert_and_the_users() {
    let policy = Policy {
        scratch_bytes: 4 << 20,
        ..Policy::default()
    };
    let spec = harden(plain(), &policy, &Sample).unwrap();
    for target in ["/work", "/out", "/tmp"] {
        let mount = mount_at(&spec, target);
        assert_eq!(mount.typ().as_deref(), Some("tmpfs"));
        let options = options(mount);
        for needed in [
            "nosuid",
            "nodev",
            "noexec",
            "size=4194304",
            "nr_inodes=32768",
            "uid=65534",
            "gid=65534",
        ] {
            assert!(options.contains(&needed), "{target} lacks {needed}: {options:?}");
        }
    }
    let spec = harden(container(), &policy, &Sample).unwrap();
    assert!(options(mount_at(&spec, "/work")).contains(&"uid=1000"));
}

#[test]
fn shared_memory_is_half_of_it_where_nobody_mounts_any() {
    let spec = hardened(plain(), |spec| {
        spec["mounts"]
            .as_array_mut()
            .unwrap()
            .retain(|mount| mount["destination"] != "/dev/shm");
    });
    assert!(options(mount_at(&spec, "/dev/shm")).contains(&"size=67108864"));
}

#[test]
fn a_pods_own_mount_takes_the_place_of_scratch() {
    let spec = hardened(container(), |spec| {
        let mut own = volume(&["rbind", "rw"]);
        own["destination"] = "/work/".into();
        add_mount(spec, own);
    });
    assert_eq!(mount_at(&spec, "/work").typ().as_deref(), Some("bind"));
    assert!(options(mount_at(&spec, "/work")).contains(&"noexec"));
    let shm = mount_at(&spec, "/dev/shm");
    assert_eq!(
        shm.source().as_deref(),
        Some(Path::new(&format!("{CRI_STATE}/sandboxes/{SANDBOX}/shm")))
    );
}

#[test]
fn scratch_does_not_hide_what_a_pod_mounts_below_it() {
    let spec = hardened(container(), |spec| {
        let mut below = volume(&["rbind"]);
        below["destination"] = "/tmp/cache".into();
        spec["mounts"].as_array_mut().unwrap().insert(0, below);
    });
    let order = targets(&spec);
    let at = |target: &str| order.iter().position(|other| *other == target).unwrap();
    assert!(at("/tmp") < at("/tmp/cache"), "{order:?}");
    assert!(
        at("/dev") < at("/dev/shm") && at("/dev") < at("/dev/termination-log"),
        "{order:?}"
    );
}

#[test]
fn the_pause_container_gets_no_scratch() {
    let spec = hardened(pause(), |_| {});
    assert_eq!(
        targets(&spec),
        [
            "/proc",
            "/dev",
            "/dev/pts",
            "/dev/mqueue",
            "/dev/shm",
            "/etc/resolv.conf"
        ]
    );
    assert!(mount::is_read_only(mount_at(&spec, "/dev/shm")));
}

#[test]
fn options_that_would_undo_the_flags_of_a_volume_have_no_effect() {
    for undoing in [
        &["rbind", "exec", "suid", "dev"][..],
        &["nosuid", "nodev", "noexec", "rbind", "exec", "suid", "dev"],
        &["rbind", "rexec", "rsuid", "rdev"],
        &["rbind", "rnoexec", "rexec"],
        &["bind", "defaults"],
        &["rbind"],
    ] {
        let spec = hardened(container(), |spec| add_mount(spec, volume(undoing)));
        let options = options(mount_at(&spec, "/data"));
        for needed in ["nosuid", "nodev", "noexec", "rnosuid", "rnodev", "rnoexec", "rw"] {
            assert!(options.contains(&needed), "{undoing:?} became {options:?}");
        }
        for undone in ["exec", "suid", "dev", "rexec", "rsuid", "rdev", "rrw"] {
            assert!(!options.contains(&undone), "{undoing:?} became {options:?}");
        }
    }
}

#[test]
fn a_read_only_volume_is_so_to_the_bottom_and_may_be_executed_from() {
    for said in [
        &["rbind", "ro"][..],
        &["rbind", "rro"],
        &["rbind", "rw", "ro"],
        &["rbind", "ro", "rrw"],
    ] {
        let spec = hardened(container(), |spec| add_mount(spec, volume(said)));
        let options = options(mount_at(&spec, "/data"));
        for needed in ["ro", "rro", "nosuid", "rnosuid", "nodev", "rnodev"] {
            assert!(options.contains(&needed), "{said:?} became {options:?}");
        }
        assert!(
            !options
                .iter()
                .any(|option| matches!(*option, "rw" | "rrw" | "noexec")),
            "{options:?}"
        );
    }
    let spec = hardened(container(), |spec| {
        add_mount(spec, volume(&["rbind", "ro", "noexec"]))
    });
    assert!(options(mount_at(&spec, "/data")).contains(&"noexec"));
    let spec = hardened(container(), |spec| {
        add_mount(spec, volume(&["rbind", "ro", "rw"]))
    });
    assert!(
        options(mount_at(&spec, "/data")).contains(&"noexec"),
        "the last word is rw"
    );
}

#[test]
fn what_a_pod_is_only_told_is_read_only() {
    let spec = hardened(container(), |spec| {
        let image = format!("{CRI_STATE}/image-volumes/{SANDBOX}/0a1b");
        add_mount(
            spec,
            json!({"destination": "/model", "type": "bind", "source": image, "options": ["rbind", "rw"]}),
        );
    });
    for target in ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/model"] {
        assert!(mount::is_read_only(mount_at(&spec, target)), "{target}");
    }
    assert!(!mount::is_read_only(mount_at(&spec, "/dev/termination-log")));
}

#[test]
fn a_tmpfs_of_the_pods_own_has_an_end() {
    for (said, size, inodes) in [
        (
            &["exec", "mode=755", "size=65536k"][..],
            "size=65536k",
            "nr_inodes=32768",
        ),
        (&["size=0"], "size=134217728", "nr_inodes=32768"),
        (&["size=1m", "size=0"], "size=134217728", "nr_inodes=32768"),
        (&["size=10%", "nr_inodes=100"], "size=10%", "nr_inodes=100"),
        (
            &["size=nonsense", "nr_inodes=1g"],
            "size=134217728",
            "nr_inodes=32768",
        ),
        (
            &["nr_inodes=0", "nr_blocks=0"],
            "size=134217728",
            "nr_inodes=32768",
        ),
        (&["size=", "size=-1"], "size=134217728", "nr_inodes=32768"),
    ] {
        let spec = hardened(container(), |spec| add_mount(spec, tmpfs("/run", said)));
        let options = options(mount_at(&spec, "/run"));
        for needed in [size, inodes, "nosuid", "nodev", "noexec"] {
            assert!(options.contains(&needed), "{said:?} became {options:?}");
        }
        let bounds = options
            .iter()
            .filter(|option| option.starts_with("size=") || option.starts_with("nr_"));
        assert_eq!(bounds.count(), 2, "{options:?}");
    }
    let spec = hardened(container(), |spec| {
        add_mount(spec, tmpfs("/run", &["ro", "mode=755"]))
    });
    assert!(mount::is_read_only(mount_at(&spec, "/run")));
    assert!(options(mount_at(&spec, "/run")).contains(&"mode=755"));
    let spec = hardened(container(), |spec| {
        add_mount(
            spec,
            tmpfs("/run", &["mode=755,exec", "uid=0,dev", "huge=always"]),
        )
    });
    assert_eq!(
        options(mount_at(&spec, "/run")),
        ["nosuid", "nodev", "noexec", "size=134217728", "nr_inodes=32768"],
        "no option brings another along"
    );
}

#[test]
fn proc_and_dev_are_the_tables_and_sys_and_cgroups_are_left_out() {
    let spec = hardened(container(), |_| {});
    assert_eq!(mount_at(&spec, "/proc"), &table::proc_mount().unwrap());
    assert_eq!(mount_at(&spec, "/dev"), &table::dev_mount().unwrap());
    assert!(!targets(&spec).iter().any(|target| target.starts_with("/sys")));
    let without = hardened(plain(), |spec| spec["mounts"] = json!([]));
    assert_eq!(
        targets(&without),
        ["/proc", "/dev", "/dev/shm", "/work", "/out", "/tmp"]
    );
}

#[test]
fn terminals_stay_and_are_the_containers_own() {
    let spec = hardened(container(), |spec| {
        let pts = spec["mounts"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .find(|mount| mount["destination"] == "/dev/pts");
        pts.unwrap()["options"] = json!(["suid", "exec", "ptmxmode=0777", "gid=5"]);
    });
    assert_eq!(
        options(mount_at(&spec, "/dev/pts")),
        [
            "nosuid",
            "noexec",
            "newinstance",
            "ptmxmode=0666",
            "mode=0620",
            "gid=5"
        ]
    );
}
