//! Specs as containerd's CRI plugin and `ctr` write them, and the two questions that tests ask of an edited one.

use std::path::Path;

use oci_spec::runtime::{LinuxNamespaceType, Spec};
use serde_json::{Value, json};

use super::{Host, Node, Policy, Refusal, Whose, check};

pub(super) const SANDBOX: &str = "5e4d3c2b1a";
pub(super) const PODS: &str = "/var/lib/kubelet/pods/pod-uid-1";
pub(super) const CRI_ROOT: &str = "/var/lib/containerd/io.containerd.grpc.v1.cri";
pub(super) const CRI_STATE: &str = "/run/containerd/io.containerd.grpc.v1.cri";
pub(super) const BUNDLE: &str = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/c1";

/// A node whose namespaces are those of process 1, and whose pod has the volumes `scratch` and `disk`.
pub(super) struct Sample;

impl Host for Sample {
    fn whose(&self, _: LinuxNamespaceType, path: &Path) -> Whose {
        match path {
            path if path.starts_with("/proc/1") => Whose::Node,
            path if path.starts_with("/proc/99999") => Whose::Unknown,
            _ => Whose::Other,
        }
    }

    fn is_directory(&self, path: &Path) -> bool {
        let volumes = Path::new(PODS).join("volumes");
        [
            "kubernetes.io~empty-dir/scratch",
            "kubernetes.io~local-volume/disk",
        ]
        .iter()
        .any(|volume| path == volumes.join(volume))
    }

    fn is_root(&self, path: &Path) -> bool {
        let node = Node {
            bundle: BUNDLE.into(),
        };
        node.is_root(path)
    }
}

fn spec(value: Value) -> Spec {
    serde_json::from_value(value).expect("the sample is a spec")
}

fn capabilities() -> Value {
    let default = json!([
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FSETID",
        "CAP_FOWNER",
        "CAP_MKNOD",
        "CAP_NET_RAW",
        "CAP_SETGID",
        "CAP_SETUID",
        "CAP_SETFCAP",
        "CAP_SETPCAP",
        "CAP_NET_BIND_SERVICE",
        "CAP_SYS_CHROOT",
        "CAP_KILL",
        "CAP_AUDIT_WRITE"
    ]);
    json!({"bounding": default, "effective": default, "permitted": default})
}

fn kernel_mounts() -> Vec<Value> {
    vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
               "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
        json!({"destination": "/dev/pts", "type": "devpts", "source": "devpts",
               "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]}),
        json!({"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue",
               "options": ["nosuid", "noexec", "nodev"]}),
        json!({"destination": "/sys", "type": "sysfs", "source": "sysfs",
               "options": ["nosuid", "noexec", "nodev", "ro"]}),
    ]
}

fn linux(namespaces: &[Value]) -> Value {
    let allow = |major: u64, minor: u64| json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"});
    json!({
        "namespaces": namespaces,
        "resources": {
            "devices": [json!({"allow": false, "access": "rwm"}), allow(1, 3), allow(5, 0),
                        json!({"allow": true, "type": "c", "major": 136, "access": "rwm"})],
            "memory": {}, "cpu": {"shares": 2},
        },
        "cgroupsPath": "/kubepods/besteffort/podpod-uid-1/c1",
        "maskedPaths": [
            "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
            "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
            "/sys/devices/virtual/powercap",
        ],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        "sysctl": {},
    })
}

/// A container as kubelet and containerd 2.4 ask for it, with the volumes that every pod gets.
pub(super) fn container() -> Spec {
    let mut mounts = kernel_mounts();
    mounts.push(
        json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
                       "options": ["nosuid", "noexec", "nodev", "relatime", "ro"]}),
    );
    let bind = |destination: &str, source: String, mode: &str| json!({"destination": destination, "type": "bind", "source": source, "options": ["rbind", "rprivate", mode]});
    mounts.extend([
        bind("/etc/hosts", format!("{PODS}/etc-hosts"), "rw"),
        bind(
            "/dev/termination-log",
            format!("{PODS}/containers/main/0a1b2c3d"),
            "rw",
        ),
        bind(
            "/etc/hostname",
            format!("{CRI_ROOT}/sandboxes/{SANDBOX}/hostname"),
            "rw",
        ),
        bind(
            "/etc/resolv.conf",
            format!("{CRI_ROOT}/sandboxes/{SANDBOX}/resolv.conf"),
            "rw",
        ),
        bind("/dev/shm", format!("{CRI_STATE}/sandboxes/{SANDBOX}/shm"), "rw"),
        bind(
            "/var/cache/app",
            format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch"),
            "rw",
        ),
        bind(
            "/etc/app",
            format!("{PODS}/volumes/kubernetes.io~configmap/settings"),
            "ro",
        ),
    ]);
    let joined = |kind: &str, file: &str| json!({"type": kind, "path": format!("/proc/4711/ns/{file}")});
    spec(json!({
        "ociVersion": "1.3.0",
        "process": {
            "user": {"uid": 1000, "gid": 1000, "additionalGids": [1000, 2000]},
            "args": ["python3", "-c", "pass"], "env": ["PATH=/usr/bin:/bin", "HOSTNAME=pod"], "cwd": "/work",
            "capabilities": capabilities(), "oomScoreAdj": 1000,
        },
        "root": {"path": "rootfs"},
        "mounts": mounts,
        "annotations": {
            "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": "main",
            "io.kubernetes.cri.image-name": "example.org/app:1", "io.kubernetes.cri.sandbox-id": SANDBOX,
            "io.kubernetes.cri.sandbox-name": "pod", "io.kubernetes.cri.sandbox-namespace": "default",
            "io.kubernetes.cri.sandbox-uid": "pod-uid-1",
        },
        "linux": linux(&[json!({"type": "pid"}), joined("ipc", "ipc"), joined("uts", "uts"), json!({"type": "mount"}),
                         joined("network", "net"), json!({"type": "cgroup"})]),
    }))
}

/// The pause container of the same pod, from an image that runs as root.
pub(super) fn pause() -> Spec {
    let mut mounts = kernel_mounts();
    let bind = |destination: &str, source: String| {
        json!({"destination": destination, "type": "bind", "source": source,
               "options": ["rbind", "ro", "nosuid", "nodev", "noexec"]})
    };
    mounts.extend([
        bind("/dev/shm", format!("{CRI_STATE}/sandboxes/{SANDBOX}/shm")),
        bind(
            "/etc/resolv.conf",
            format!("{CRI_ROOT}/sandboxes/{SANDBOX}/resolv.conf"),
        ),
    ]);
    let mut linux = linux(&[
        json!({"type": "pid"}),
        json!({"type": "ipc"}),
        json!({"type": "uts"}),
        json!({"type": "mount"}),
        json!({"type": "network", "path": "/run/netns/cni-1"}),
    ]);
    linux["sysctl"] =
        json!({"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647"});
    spec(json!({
        "ociVersion": "1.3.0",
        "process": {"user": {"uid": 0, "gid": 0, "additionalGids": [0]}, "args": ["/pause"], "cwd": "/",
                    "capabilities": capabilities(), "noNewPrivileges": true, "oomScoreAdj": -998},
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "pod",
        "mounts": mounts,
        "annotations": {
            "io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": SANDBOX,
            "io.kubernetes.cri.sandbox-log-directory": "/var/log/pods/x", "io.kubernetes.cri.sandbox-uid": "pod-uid-1",
        },
        "linux": linux,
    }))
}

/// A container of `ctr`, which gives a user.
pub(super) fn plain() -> Spec {
    let mut mounts = kernel_mounts();
    mounts.extend([
        json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
               "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]}),
        json!({"destination": "/run", "type": "tmpfs", "source": "tmpfs",
               "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
    ]);
    spec(json!({
        "ociVersion": "1.3.0",
        "process": {
            "user": {"uid": 65534, "gid": 65534}, "args": ["true"], "env": ["PATH=/bin"], "cwd": "/",
            "capabilities": capabilities(), "noNewPrivileges": true,
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
        },
        "root": {"path": "rootfs"},
        "mounts": mounts,
        "linux": linux(&[json!({"type": "pid"}), json!({"type": "ipc"}), json!({"type": "uts"}),
                         json!({"type": "mount"}), json!({"type": "network"})]),
    }))
}

/// The spec with an edit of its JSON.
pub(super) fn edited(from: Spec, edit: impl FnOnce(&mut Value)) -> Spec {
    let mut value = serde_json::to_value(from).expect("a spec is JSON");
    edit(&mut value);
    spec(value)
}

/// The edited spec is accepted.
pub(super) fn accepts(from: Spec, edit: impl FnOnce(&mut Value)) {
    let spec = edited(from, edit);
    assert_eq!(check(&spec, &Policy::default(), &Sample), Ok(()));
}

/// The edited spec is refused with a sentence that begins with the field and what it says; returns the sentence.
pub(super) fn rejects(from: Spec, edit: impl FnOnce(&mut Value), begins: &str) -> String {
    rejects_on(&Sample, from, edit, begins)
}

/// The same on another node.
pub(super) fn rejects_on(host: &dyn Host, from: Spec, edit: impl FnOnce(&mut Value), begins: &str) -> String {
    let spec = edited(from, edit);
    let refusal = check(&spec, &Policy::default(), host).expect_err("the spec is to be refused");
    let Refusal { field, sentence } = refusal;
    assert!(sentence.contains(begins), "expected {begins:?} in {sentence:?}");
    assert!(
        sentence.starts_with(&field),
        "{sentence:?} does not begin with its field {field:?}"
    );
    assert!(
        sentence.contains(": ") && !sentence.contains('\n'),
        "{sentence:?} says not what to do"
    );
    sentence
}

/// A spec without the part is refused by the name of the part.
pub(super) fn lacking(from: Spec, part: &str) {
    let spec = edited(from, |spec| {
        spec.as_object_mut().unwrap().remove(part);
    });
    let refusal = check(&spec, &Policy::default(), &Node::default()).expect_err("the spec is to be refused");
    assert_eq!(refusal.field, part);
    assert!(
        refusal.sentence.starts_with(&format!("{part} is missing")),
        "{refusal}"
    );
}

pub(super) fn without_namespace(spec: &mut Value, kind: &str) {
    let list = spec["linux"]["namespaces"].as_array_mut().unwrap();
    let before = list.len();
    list.retain(|namespace| namespace["type"] != kind);
    assert_eq!(list.len() + 1, before, "the sample lists {kind}");
}

pub(super) fn with_namespace(spec: &mut Value, kind: &str, path: Option<&str>) {
    let list = spec["linux"]["namespaces"].as_array_mut().unwrap();
    list.retain(|namespace| namespace["type"] != kind);
    list.push(match path {
        Some(path) => json!({"type": kind, "path": path}),
        None => json!({"type": kind}),
    });
}

pub(super) fn retain(list: &mut Value, keep: impl Fn(&str) -> bool) {
    let list = list.as_array_mut().unwrap();
    let before = list.len();
    list.retain(|item| keep(item.as_str().unwrap()));
    assert_eq!(list.len() + 1, before, "the sample lists the path");
}

pub(super) fn add_mount(spec: &mut Value, mount: Value) {
    spec["mounts"].as_array_mut().unwrap().push(mount);
}

pub(super) fn add_bind(spec: &mut Value, source: &str, target: &str) {
    add_mount(
        spec,
        json!({"destination": target, "type": "bind", "source": source, "options": ["rbind", "rprivate", "rw"]}),
    );
}
