use proptest::prelude::*;

use super::*;
use crate::pod::mount::Kind;
use crate::pod::samples::{CRI_STATE, PODS, SANDBOX};

const OPTIONS: [&str; 30] = [
    "rbind",
    "bind",
    "rprivate",
    "ro",
    "rw",
    "rro",
    "rrw",
    "suid",
    "nosuid",
    "rsuid",
    "rnosuid",
    "dev",
    "nodev",
    "rdev",
    "rnodev",
    "exec",
    "noexec",
    "rexec",
    "rnoexec",
    "defaults",
    "noatime",
    "rnoatime",
    "relatime",
    "sync",
    "mand",
    "mode=777",
    "size=0",
    "size=1m",
    "nr_inodes=0",
    "uid=0",
];

fn any_options() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(&OPTIONS[..]), 0..8)
}

fn any_mount() -> impl Strategy<Value = Value> {
    let targets = [
        "/work",
        "/out/",
        "/tmp",
        "/tmp/x",
        "/dev/shm",
        "/dev/log",
        "//data",
        "/data/./in",
        "/usr/lib",
        "/run",
    ];
    let sources = [
        format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch"),
        format!("{PODS}/volumes/kubernetes.io~csi/pvc/mount"),
        format!("{PODS}/volume-subpaths/scratch/main/3"),
        format!("{CRI_STATE}/image-volumes/{SANDBOX}/0a1b"),
        format!("{PODS}/etc-hosts"),
    ];
    let types = ["bind", "tmpfs", "none", "", "proc", "sysfs", "devpts"];
    (prop::sample::select(targets.to_vec()), prop::sample::select(sources.to_vec()), prop::sample::select(types.to_vec()), any_options())
        .prop_map(|(target, source, typ, options)| {
            json!({"destination": target, "source": source, "type": typ, "options": options})
        })
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let limits = prop::collection::vec(
        (
            prop::sample::select(vec![
                "RLIMIT_CORE",
                "RLIMIT_NOFILE",
                "RLIMIT_NPROC",
                "RLIMIT_STACK",
            ]),
            any::<u32>(),
            any::<u32>(),
        ),
        0..4,
    );
    (
        prop::sample::select(vec![container(), pause(), plain()]),
        prop::collection::vec(any_mount(), 0..6),
        limits,
        any::<Option<bool>>(),
        (0_u32..3, 0_u32..3),
        any::<Option<i32>>(),
        prop::sample::select(vec![
            json!(null),
            json!([]),
            json!([{"allow": true, "type": "c", "major": 1, "minor": 3}]),
        ]),
    )
        .prop_map(
            |(from, mounts, limits, privileges, (uid, gid), memory, devices)| {
                edited(from, |spec| {
                    spec["mounts"].as_array_mut().unwrap().extend(mounts);
                    spec["process"]["rlimits"] = limits
                        .iter()
                        .map(|(typ, soft, hard)| json!({"type": typ, "soft": soft, "hard": hard}))
                        .collect();
                    spec["process"]["noNewPrivileges"] = json!(privileges);
                    spec["process"]["user"]["uid"] = uid.into();
                    spec["process"]["user"]["gid"] = gid.into();
                    spec["linux"]["resources"]["memory"] = json!({"limit": memory, "swap": -1});
                    spec["linux"]["resources"]["devices"] = devices;
                })
            },
        )
}

/// The flags that the container library will set on a mount itself and on all below it.
fn flags(mount: &Mount, flag: &str, undo: &str) -> (bool, bool) {
    let below = format!("r{flag}");
    let undone = format!("r{undo}");
    let itself = mount::last_of(mount, flag, undo);
    let recursive = options(mount).contains(&below.as_str()) && !options(mount).contains(&undone.as_str());
    (itself, recursive)
}

fn assert_inert(mount: &Mount) {
    let target = mount.destination();
    let kind = mount::kind(mount);
    let writable = !mount::is_read_only(mount);
    let mut needed = vec![("nosuid", "suid")];
    // A device's node, or a terminal, is nothing without its device.
    if target != Path::new("/dev") && kind != Kind::Devpts {
        needed.push(("nodev", "dev"));
    }
    if writable {
        needed.push(("noexec", "exec"));
    }
    for (flag, undo) in needed {
        let (itself, below) = flags(mount, flag, undo);
        assert!(itself, "{flag} on {mount:?}");
        assert!(below || kind != Kind::Bind, "r{flag} on {mount:?}");
    }
    if kind == Kind::Tmpfs {
        for bound in ["size=", "nr_inodes="] {
            let said: Vec<_> = options(mount)
                .into_iter()
                .filter_map(|option| option.strip_prefix(bound))
                .collect();
            assert!(said.len() == 1 && said != ["0"], "{bound} on {mount:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, max_global_rejects: 200_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_accepted_comes_out_with_every_control_and_stays_so(spec in any_spec()) {
        let policy = Policy::default();
        let asked = spec.process().clone().unwrap();
        let Ok(once) = harden(spec, &policy, &Sample) else {
            return Err(TestCaseError::reject("refused"));
        };
        assert_unprivileged(&once);
        prop_assert_eq!(once.root().as_ref().unwrap().readonly(), Some(true));
        let mut targets = targets(&once);
        for mount in once.mounts().iter().flatten() {
            assert_inert(mount);
            prop_assert!(!matches!(mount::kind(mount), Kind::Sysfs | Kind::Cgroup | Kind::Other));
        }
        prop_assert_eq!(&targets[..2], &["/proc", "/dev"]);
        if Role::of(&once) == Role::Pause {
            targets.extend(["/work", "/out", "/tmp", "/dev/shm"]);
        } else {
            prop_assert_ne!(asked.user().uid(), 0);
        }
        for needed in ["/work", "/out", "/tmp", "/dev/shm"] {
            prop_assert!(targets.contains(&needed), "{} in {:?}", needed, targets);
        }
        prop_assert_eq!(asked.user(), once.process().as_ref().unwrap().user());
        let twice = harden(once.clone(), &policy, &Sample);
        prop_assert_eq!(twice, Ok(once));
    }

    #[test]
    fn whatever_is_written_lies_in_a_mount_that_is_inert_and_not_read_only(spec in any_spec()) {
        let Ok(spec) = harden(spec, &Policy::default(), &Sample) else {
            return Err(TestCaseError::reject("refused"));
        };
        for path in crate::pod::writable(&spec) {
            if ["/dev/pts", "/dev/ptmx", "/dev/tty"].iter().any(|terminal| path == Path::new(terminal)) {
                continue;
            }
            let last = spec.mounts().iter().flatten().rfind(|mount| path == *mount.destination());
            prop_assert!(last.is_some_and(|mount| !mount::is_read_only(mount)), "{:?}", path);
        }
    }
}
