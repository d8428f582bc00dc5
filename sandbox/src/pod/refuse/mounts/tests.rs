use crate::pod::samples::{
    CRI_ROOT, CRI_STATE, PODS, SANDBOX, accepts, add_bind, add_mount, container, pause, plain, rejects,
};
use serde_json::json;

#[test]
fn a_path_of_the_node_is_refused() {
    for source in [
        "/",
        "/etc",
        "/etc/passwd",
        "/var/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/var/lib/kubelet",
        "/var/lib/kubelet/pki",
        "/var/lib/kubelet-pods/x",
        "/dev/shm",
    ] {
        let sentence = rejects(
            container(),
            |spec| add_bind(spec, source, "/data"),
            "mounts[/data].source is ",
        );
        assert!(
            sentence.contains("path of the node") || source == "/",
            "{sentence}"
        );
    }
}

#[test]
fn kubelets_own_kinds_of_volumes_are_accepted() {
    for source in [
        format!("{PODS}/volumes/kubernetes.io~configmap/settings"),
        format!("{PODS}/volumes/kubernetes.io~secret/key"),
        format!("{PODS}/volumes/kubernetes.io~projected/kube-api-access-x"),
        format!("{PODS}/volumes/kubernetes.io~downward-api/info"),
        format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch"),
        format!("{PODS}/volumes/kubernetes.io~csi/pvc-1/mount"),
        format!("{PODS}/volume-subpaths/scratch/main/0"),
        format!("{PODS}/containers/main/4f1c7b2a"),
        format!("{PODS}/etc-hosts"),
    ] {
        accepts(container(), |spec| add_bind(spec, &source, "/data"));
    }
}

#[test]
fn other_kinds_of_volumes_are_refused() {
    for (source, reason) in [
        (
            "volumes/kubernetes.io~local-volume/disk",
            "is a local volume, which is a path of the node",
        ),
        (
            "volumes/kubernetes.io~nfs/share",
            "is a kind of volume that a sandbox does not have",
        ),
        (
            "volumes/kubernetes.io~host-path/etc",
            "is a kind of volume that a sandbox does not have",
        ),
        (
            "volumes/kubernetes.io~csi/pvc-1/vol_data.json",
            "is a kind of volume",
        ),
        ("volumes/kubernetes.io~csi/pvc-1", "is a kind of volume"),
        ("volumes/kubernetes.io~secret", "is a file of kubelet's own"),
        ("volumes/kubernetes.io~secret/key/..data", "is a kind of volume"),
        ("volumes", "is a file of kubelet's own"),
        (
            "plugins/kubernetes.io~empty-dir/wrapped",
            "is a file of kubelet's own",
        ),
        ("containers/main", "is a file of kubelet's own"),
    ] {
        rejects(
            container(),
            |spec| add_bind(spec, &format!("{PODS}/{source}"), "/data"),
            &format!("mounts[/data].source is \"{PODS}/{source}\", which {reason}"),
        );
    }
}

#[test]
fn a_sub_path_is_as_good_as_its_volume() {
    // A host path with a subPath is bound by kubelet to a directory of the same form.
    rejects(
        container(),
        |spec| add_bind(spec, &format!("{PODS}/volume-subpaths/hostpath/main/0"), "/data"),
        &format!(
            "mounts[/data].source is \"{PODS}/volume-subpaths/hostpath/main/0\", which is a subPath of a volume"
        ),
    );
    rejects(
        container(),
        |spec| add_bind(spec, &format!("{PODS}/volume-subpaths/disk/main/0"), "/data"),
        &format!(
            "mounts[/data].source is \"{PODS}/volume-subpaths/disk/main/0\", which is a subPath of a local volume"
        ),
    );
}

#[test]
fn another_pods_volumes_are_refused() {
    let other = PODS.replace("pod-uid-1", "pod-uid-2");
    rejects(
        container(),
        |spec| {
            add_bind(
                spec,
                &format!("{other}/volumes/kubernetes.io~secret/key"),
                "/data",
            )
        },
        &format!(
            "mounts[/data].source is \"{other}/volumes/kubernetes.io~secret/key\", which belongs to another pod"
        ),
    );
    rejects(
        container(),
        |spec| add_bind(spec, &format!("{CRI_STATE}/sandboxes/other/shm"), "/data"),
        &format!("mounts[/data].source is \"{CRI_STATE}/sandboxes/other/shm\", which belongs to another pod"),
    );
    let source = format!("{PODS}/volumes/kubernetes.io~secret/key");
    rejects(
        container(),
        |spec| {
            spec["annotations"]
                .as_object_mut()
                .unwrap()
                .remove("io.kubernetes.cri.sandbox-uid");
            spec["mounts"] = json!([]);
            add_bind(spec, &source, "/data");
        },
        &format!("mounts[/data].source is \"{source}\", which belongs to another pod"),
    );
}

#[test]
fn files_that_containerd_makes_for_the_sandbox_are_accepted_and_its_others_refused() {
    for source in [
        format!("{CRI_ROOT}/sandboxes/{SANDBOX}/hosts"),
        format!("{CRI_ROOT}/sandboxes/{SANDBOX}/resolv.conf"),
        format!("{CRI_STATE}/sandboxes/{SANDBOX}/shm"),
        format!("{CRI_STATE}/image-volumes/{SANDBOX}/0a1b/sub/dir"),
        format!("{CRI_ROOT}/containers/c1/volumes/9f8e"),
    ] {
        accepts(container(), |spec| add_bind(spec, &source, "/data"));
    }
    for source in [
        format!("{CRI_ROOT}/containers/c1/status"),
        format!("{CRI_ROOT}/sandboxes/{SANDBOX}"),
        format!("{CRI_ROOT}/sandboxes/{SANDBOX}/config.json"),
        CRI_ROOT.to_owned(),
    ] {
        rejects(
            container(),
            |spec| add_bind(spec, &source, "/data"),
            &format!("mounts[/data].source is \"{source}\", which is a file of containerd's own"),
        );
    }
    rejects(
        container(),
        |spec| add_bind(spec, "/run/containerd/io.containerd.runtime.v2.task", "/data"),
        "mounts[/data].source is \"/run/containerd/io.containerd.runtime.v2.task\", which is a path of the node",
    );
}

#[test]
fn a_source_with_a_trick_in_it_is_refused_before_it_is_compared() {
    for source in [
        format!("{PODS}/volumes/kubernetes.io~empty-dir/../../../../../../../etc"),
        format!("{PODS}/volumes/./kubernetes.io~empty-dir/scratch"),
        format!("{PODS}//volumes/kubernetes.io~empty-dir/scratch"),
        format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch/"),
        format!("/{PODS}/volumes/kubernetes.io~empty-dir/scratch"),
        "relative".to_owned(),
        String::new(),
    ] {
        let sentence = rejects(
            container(),
            |spec| add_bind(spec, &source, "/data"),
            "mounts[/data].source is ",
        );
        assert!(sentence.contains("not a plain absolute path"), "{sentence}");
    }
}

#[test]
fn a_container_of_no_pod_has_no_volumes() {
    for source in [
        "/etc".to_owned(),
        format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch"),
    ] {
        rejects(
            plain(),
            |spec| add_bind(spec, &source, "/data"),
            &format!("mounts[/data].source is \"{source}\", which is a path of the node"),
        );
    }
}

#[test]
fn a_bind_is_one_whatever_its_type_says() {
    rejects(
        container(),
        |spec| {
            add_mount(
                spec,
                json!({"destination": "/data", "type": "tmpfs", "source": "/etc", "options": ["rbind"]}),
            )
        },
        "mounts[/data].type is that of a file system, and the options are those of a bind",
    );
    rejects(
        container(),
        |spec| {
            add_mount(
                spec,
                json!({"destination": "/data", "type": "none", "source": "/etc", "options": ["bind"]}),
            )
        },
        "mounts[/data].source is \"/etc\"",
    );
    rejects(
        container(),
        |spec| {
            add_mount(
                spec,
                json!({"destination": "/data", "source": "/etc", "options": ["rbind"]}),
            )
        },
        "mounts[/data].source is \"/etc\"",
    );
}

#[test]
fn propagation_is_refused_and_private_is_accepted() {
    let source = format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch");
    for option in [
        "shared",
        "rshared",
        "slave",
        "rslave",
        "unbindable",
        "runbindable",
    ] {
        rejects(
            container(),
            |spec| {
                add_mount(
                    spec,
                    json!({"destination": "/data", "type": "bind", "source": source, "options": ["rbind", option]}),
                );
            },
            &format!("mounts[/data].options has {option}, which lets mounts pass"),
        );
    }
    for option in ["private", "rprivate"] {
        accepts(container(), |spec| {
            add_mount(
                spec,
                json!({"destination": "/data", "type": "bind", "source": source, "options": ["rbind", option]}),
            );
        });
    }
}

#[test]
fn a_remount_is_refused() {
    rejects(
        container(),
        |spec| {
            add_mount(
                spec,
                json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["remount", "exec"]}),
            )
        },
        "mounts[/tmp].options changes a mount that is already there",
    );
}

#[test]
fn a_mapped_mount_is_refused() {
    let source = format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch");
    let mapping = json!([{"containerID": 0, "hostID": 65536, "size": 65536}]);
    rejects(
        container(),
        |spec| {
            add_mount(
                spec,
                json!({"destination": "/data", "type": "bind", "source": source, "options": ["rbind"],
                       "uidMappings": mapping, "gidMappings": mapping}),
            );
        },
        "mounts[/data].options has idMappings",
    );
    rejects(
        container(),
        |spec| {
            add_mount(
                spec,
                json!({"destination": "/data", "type": "bind", "source": source, "options": ["rbind", "ridmap"]}),
            )
        },
        "mounts[/data].options has ridmap",
    );
}

#[test]
fn the_root_the_kernels_file_systems_and_the_devices_keep_their_places() {
    let source = format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch");
    for target in [
        "/",
        "/proc",
        "/proc/sys",
        "/sys/fs/cgroup",
        "/dev",
        "/dev/null",
        "/dev/zero",
        "/dev/pts/x",
        "/dev/fd",
    ] {
        rejects(
            container(),
            |spec| add_bind(spec, &source, target),
            &format!("mounts[{target}] takes a place that belongs to the sandbox"),
        );
    }
    for target in [
        "/dev/termination-log",
        "/dev/shm/x",
        "/process",
        "/devices",
        "/system",
        "/usr/lib/",
        "//data",
    ] {
        accepts(container(), |spec| add_bind(spec, &source, target));
    }
}

#[test]
fn a_destination_is_absolute_and_does_not_climb() {
    for target in ["data", "", "/data/../proc", ".."] {
        rejects(
            container(),
            |spec| add_bind(spec, "/x", target),
            &format!("mounts[{target}].destination is not an absolute path"),
        );
    }
}

#[test]
fn file_systems_of_the_kernel_have_their_own_places_and_others_are_refused() {
    for (typ, right, wrong) in [
        ("proc", "/proc", "/data/proc"),
        ("sysfs", "/sys", "/data"),
        ("devpts", "/dev/pts", "/pts"),
        ("mqueue", "/dev/mqueue", "/mqueue"),
        ("cgroup", "/sys/fs/cgroup", "/cgroup"),
        ("cgroup2", "/sys/fs/cgroup", "/cgroup"),
        ("tmpfs", "/run", "/proc/x"),
    ] {
        let at = |target: &str| json!({"destination": target, "type": typ, "source": typ});
        accepts(container(), |spec| add_mount(spec, at(right)));
        rejects(
            container(),
            |spec| add_mount(spec, at(wrong)),
            &format!("mounts[{wrong}] "),
        );
    }
    for typ in [
        "overlay",
        "ext4",
        "nfs",
        "fuse",
        "debugfs",
        "bpf",
        "securityfs",
        "tracefs",
        "9p",
    ] {
        rejects(
            container(),
            |spec| add_mount(spec, json!({"destination": "/data", "type": typ, "source": "x"})),
            "mounts[/data] is of a kind that a sandbox does not mount",
        );
    }
}

#[test]
fn the_pause_container_has_files_of_its_sandbox_only() {
    accepts(pause(), |_| {});
    rejects(
        pause(),
        |spec| add_bind(spec, "/etc/resolv.conf", "/etc/resolv.conf"),
        "mounts[/etc/resolv.conf].source is",
    );
}
