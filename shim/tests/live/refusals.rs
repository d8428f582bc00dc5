//! What contradicts a sandbox is refused at create by its field, and taken where the spec alone decides.

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::common::{Bench, Bundle, Code, Outcome, Shim, contains, equal, host, root};
use crate::requests::refusal;
use crate::trial;

/// A spec that contradicts a sandbox.
struct Case {
    name: &'static str,
    edit: fn(&mut Value),
    /// What the refusal says.
    says: &'static str,
    /// Where the spec alone decides it is refused as well, with this: there is no such thing on this host or in this
    /// runtime.
    also: Option<&'static str>,
}

const fn case(name: &'static str, edit: fn(&mut Value), says: &'static str) -> Case {
    Case {
        name,
        edit,
        says,
        also: None,
    }
}

const fn never(name: &'static str, edit: fn(&mut Value), says: &'static str, also: &'static str) -> Case {
    Case {
        name,
        edit,
        says,
        also: Some(also),
    }
}

fn without(spec: &mut Value, kind: &str) {
    if let Some(namespaces) = spec["linux"]["namespaces"].as_array_mut() {
        namespaces.retain(|namespace| namespace["type"] != kind);
    }
}

fn join(spec: &mut Value, kind: &str, path: &str) {
    without(spec, kind);
    add(
        &mut spec["linux"]["namespaces"],
        json!({"type": kind, "path": path}),
    );
}

fn add(list: &mut Value, item: Value) {
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}

/// With the node's host name the container must not set one.
fn unnamed(spec: &mut Value) {
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("hostname");
    }
}

fn bind(spec: &mut Value, source: &str, options: &[&str]) {
    add(
        &mut spec["mounts"],
        json!({"destination": "/home", "type": "bind", "source": source, "options": options}),
    );
}

const CASES: &[Case] = &[
    case(
        "host-network",
        |spec| without(spec, "network"),
        "linux.namespaces[network] is missing",
    ),
    case(
        "host-pid",
        |spec| without(spec, "pid"),
        "linux.namespaces[pid] is missing",
    ),
    // Without a namespace of its own it may mount no queues.
    case(
        "host-ipc",
        |spec| {
            without(spec, "ipc");
            if let Some(mounts) = spec["mounts"].as_array_mut() {
                mounts.retain(|mount| mount["type"] != "mqueue");
            }
        },
        "linux.namespaces[ipc] is missing",
    ),
    case(
        "host-uts",
        |spec| {
            without(spec, "uts");
            unnamed(spec);
        },
        "linux.namespaces[uts] is missing",
    ),
    case(
        "host-network-joined",
        |spec| join(spec, "network", "/proc/self/ns/net"),
        "linux.namespaces[network] joins the node's own",
    ),
    case(
        "host-ipc-joined",
        |spec| join(spec, "ipc", "/proc/self/ns/ipc"),
        "linux.namespaces[ipc] joins the node's own",
    ),
    case(
        "user-namespace",
        |spec| {
            add(&mut spec["linux"]["namespaces"], json!({"type": "user"}));
            let map = json!([{"containerID": 0, "hostID": 0, "size": 65536}]);
            spec["linux"]["uidMappings"] = map.clone();
            spec["linux"]["gidMappings"] = map;
        },
        "linux.namespaces[user] asks for a user namespace",
    ),
    case(
        "root",
        |spec| spec["process"]["user"] = json!({"uid": 0, "gid": 0}),
        "process.user.uid is 0",
    ),
    case(
        "capability",
        |spec| {
            for set in ["bounding", "effective", "permitted"] {
                spec["process"]["capabilities"][set] = json!(["CAP_SYS_ADMIN", "CAP_NET_ADMIN"]);
            }
        },
        "process.capabilities adds CAP_NET_ADMIN, CAP_SYS_ADMIN",
    ),
    case(
        "privileged",
        |spec| {
            for set in ["bounding", "effective", "permitted", "inheritable"] {
                spec["process"]["capabilities"][set] = json!(["CAP_SYS_ADMIN", "CAP_SYS_MODULE"]);
            }
            spec["linux"]["maskedPaths"] = json!([]);
            spec["linux"]["readonlyPaths"] = json!([]);
        },
        "which is what privileged means",
    ),
    case(
        "io-priority",
        |spec| spec["process"]["ioPriority"] = json!({"class": "IOPRIO_CLASS_BE", "priority": 2}),
        "process.ioPriority asks for a place",
    ),
    case(
        "device",
        |spec| {
            spec["linux"]["devices"] = json!([{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 438, "uid": 0, "gid": 0}]);
        },
        "linux.devices adds \"/dev/fuse\"",
    ),
    case(
        "device-rule",
        |spec| {
            add(
                &mut spec["linux"]["resources"]["devices"],
                json!({"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rwm"}),
            );
        },
        "linux.resources.devices allows \"c 10:229 rwm\"",
    ),
    case(
        "host-path",
        |spec| bind(spec, "/usr", &["rbind", "rprivate", "ro"]),
        "is \"/usr\", which is a path of the node",
    ),
    case(
        "host-socket",
        |spec| bind(spec, "/proc", &["bind", "ro"]),
        "is \"/proc\", which is a path of the node",
    ),
    case(
        "propagation",
        |spec| bind(spec, "/usr", &["rbind", "rslave", "ro"]),
        "has rslave, which lets mounts pass",
    ),
    case(
        "propagation-root",
        |spec| spec["linux"]["rootfsPropagation"] = json!("rslave"),
        "linux.rootfsPropagation is \"rslave\"",
    ),
    case(
        "mount-kind",
        |spec| {
            add(
                &mut spec["mounts"],
                json!({"destination": "/home", "type": "ramfs", "source": "ramfs", "options": ["nosuid"]}),
            );
        },
        "is of a kind that a sandbox does not mount",
    ),
    case(
        "mount-place",
        |spec| {
            add(
                &mut spec["mounts"],
                json!({"destination": "/sys/kernel", "type": "tmpfs", "source": "tmpfs"}),
            );
        },
        "takes a place that belongs to the sandbox",
    ),
    case(
        "unmasked",
        |spec| spec["linux"]["maskedPaths"] = json!([]),
        "linux.maskedPaths lacks /proc/acpi",
    ),
    case(
        "writable-proc",
        |spec| spec["linux"]["readonlyPaths"] = json!([]),
        "linux.readonlyPaths lacks /proc/bus",
    ),
    case(
        "sysctl",
        |spec| spec["linux"]["sysctl"] = json!({"kernel.msgmax": "8192"}),
        "linux.sysctl[\"kernel.msgmax\"] is not one of",
    ),
    case(
        "hook",
        |spec| spec["hooks"] = json!({"poststop": [{"path": "/bin/true"}]}),
        "hooks.poststop names a program",
    ),
    case(
        "cdi",
        |spec| spec["annotations"] = json!({"cdi.k8s.io/gpu": "vendor.com/gpu=0"}),
        "asks for devices of the node through CDI",
    ),
    case(
        "containerd-label",
        |spec| spec["annotations"] = json!({"io.containerd.x": "y"}),
        "is reserved to containerd",
    ),
    case(
        "runtime-label",
        |spec| spec["annotations"] = json!({"run.oci.x": "y"}),
        "instructs an OCI runtime",
    ),
    case(
        "systemd-property",
        |spec| spec["annotations"] = json!({"org.systemd.property.X": "y"}),
        "sets a property of a systemd unit",
    ),
    case(
        "windows",
        |spec| spec["windows"] = json!({"layerFolders": ["c"]}),
        "windows is a section for another kind",
    ),
    case(
        "root-elsewhere",
        |spec| {
            let root = root::shared().map(|root| root.display().to_string());
            spec["root"]["path"] = json!(root.unwrap_or_default());
        },
        "which is not the root that containerd mounts",
    ),
    case(
        "root-climbs",
        |spec| spec["root"]["path"] = json!("rootfs/../rootfs"),
        "root.path is \"rootfs/../rootfs\"",
    ),
    case(
        "personality",
        |spec| spec["linux"]["personality"] = json!({"domain": "LINUX"}),
        "linux.personality asks for hardware or a mode",
    ),
    never(
        "namespace-gone",
        |spec| join(spec, "network", "/proc/4194305/ns/net"),
        "which cannot be looked at",
        "/proc/4194305/ns/net",
    ),
    never(
        "cgroup-climbs",
        |spec| {
            let path = spec["linux"]["cgroupsPath"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            spec["linux"]["cgroupsPath"] = json!(format!("{path}/../../../up"));
        },
        "which climbs out of its parent",
        "linux.cgroupsPath",
    ),
    never(
        "listener",
        |spec| {
            spec["linux"]["seccomp"] = json!({"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/run/agent.sock",
            "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_NOTIFY"}]});
        },
        "hands system calls to a program of the node",
        "linux.seccomp",
    ),
];

pub fn trials() -> Vec<Trial> {
    vec![
        trial("what_contradicts_a_sandbox_is_refused_by_its_field", refused),
        trial("where_the_spec_alone_decides_the_same_is_taken", taken),
        trial(
            "the_root_in_the_bundle_may_be_named_by_its_whole_path",
            whole_path,
        ),
    ]
}

fn bundle(bench: &Bench, case: &Case) -> Outcome<Bundle> {
    bench.bundle(case.name, &["sleep", "60"])
}

async fn idle(bench: &Bench) -> Outcome<Shim> {
    let first = bench.bundle("first", &["true"])?;
    bench.shim(&first).await
}

async fn refused(bench: &mut Bench) -> Outcome {
    let shim = idle(bench).await?;
    for case in CASES {
        let bundle = bundle(bench, case)?.edited(case.edit);
        refusal(shim.create(&bundle).await, Code::INVALID_ARGUMENT, case.says)
            .map_err(|failed| format!("{}: {}", case.name, failed.message().unwrap_or_default()))?;
        bench.nothing_of(&bundle)?;
        refusal(shim.state(&bundle.id, "").await, Code::NOT_FOUND, "not found")?;
    }
    equal(
        host::children(shim.pid),
        Vec::new(),
        "children: a refused spec needs no worker",
    )
}

async fn whole_path(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["true"])?;
    let path = bundle.dir.join("rootfs").display().to_string();
    let bundle = bundle.edited(|spec| spec["root"]["path"] = json!(path));
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")
}

async fn taken(bench: &mut Bench) -> Outcome {
    let shim = idle(bench).await?;
    let mut failed = Vec::new();
    for case in CASES {
        let mut bundle = bundle(bench, case)?;
        // Only the case's own edit contradicts a sandbox.
        bundle.options = "hardening = \"spec\"".into();
        let bundle = bundle.edited(case.edit);
        let answer = shim.run(&bundle).await;
        match (answer, case.also) {
            (Ok(_), None) => {
                equal(shim.state(&bundle.id, "").await?.exit_status, 0, case.name)?;
                shim.kill_and_delete(&bundle.id).await?;
            }
            (Err(refused), Some(says)) => contains(&refused.sentence, says)?,
            (answer, _) => failed.push(format!("{}: {answer:?}", case.name)),
        }
        bench.nothing_of(&bundle)?;
    }
    equal(
        failed,
        Vec::<String>::new(),
        "specs that were not answered as written",
    )
}
