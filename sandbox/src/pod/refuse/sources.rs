//! Paths of the node that a container may have: volumes that kubelet made for its pod, and files that containerd
//! made for its sandbox.
//!
//! Paths are compared as text, in their one form. containerd has resolved links in a source before it wrote the spec,
//! and kubelet resolves a subPath within its volume and binds the result to a directory of its own; so text that lies
//! below these directories was put there by one of them. The directories themselves have to be named in [`Policy`]
//! with their links resolved.

use std::path::Path;

use oci_spec::runtime::Spec;

use crate::pod::{Host, Policy, SANDBOX_ID, SANDBOX_UID, annotation};

/// Kinds of volumes that kubelet fills, or a storage driver that the cluster's administrator installed.
///
/// `csi` is among them: what a driver presents is storage of its own, mounted by it for this pod, and pods may only name
/// drivers that an administrator registered. `local-volume` is not: it is a directory or disk of the node under another
/// name. Nor are the network file systems inside kubelet (nfs, iscsi, fc) and flexvolume, which csi has replaced.
const PLUGINS: [&str; 6] = [
    "kubernetes.io~configmap",
    "kubernetes.io~csi",
    "kubernetes.io~downward-api",
    "kubernetes.io~empty-dir",
    "kubernetes.io~projected",
    "kubernetes.io~secret",
];

/// A kind of volume that is a path of the node in disguise.
const LOCAL: &str = "kubernetes.io~local-volume";

/// containerd's CRI plugin keeps its files in a directory of this name, below both of containerd's directories.
const CRI: &str = "io.containerd.grpc.v1.cri";

/// What a permitted source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pod) enum Source {
    /// Storage of the pod, which it may write if its spec says so.
    Volume,
    /// Something that the pod is only told: its hosts file, an image. Read-only whatever the spec says, as containerd
    /// itself does it where the root is read-only.
    Given,
}

/// What a source is to this container, or in half a sentence why it may not have it.
pub(in crate::pod) fn source_of(
    path: &str,
    spec: &Spec,
    policy: &Policy,
    host: &dyn Host,
) -> Result<Source, &'static str> {
    let path = Path::new(path);
    if let Ok(below) = path.strip_prefix(policy.kubelet_dir.join("pods")) {
        return kubelet(&parts(below), annotation(spec, SANDBOX_UID), policy, host);
    }
    let below = policy
        .containerd_dirs
        .iter()
        .find_map(|dir| path.strip_prefix(dir.join(CRI)).ok());
    match below {
        Some(below) => containerd(&parts(below), annotation(spec, SANDBOX_ID)),
        None => Err("is a path of the node"),
    }
}

fn parts(path: &Path) -> Vec<&str> {
    path.iter().filter_map(|part| part.to_str()).collect()
}

fn kubelet(
    parts: &[&str],
    uid: Option<&str>,
    policy: &Policy,
    host: &dyn Host,
) -> Result<Source, &'static str> {
    match parts {
        [pod, ..] if uid != Some(*pod) => Err("belongs to another pod"),
        [_, "etc-hosts"] => Ok(Source::Given),
        // The file for the termination message, which the container writes.
        [_, "containers", _, _] => Ok(Source::Volume),
        [_, "volumes", "kubernetes.io~csi", _, "mount"] => Ok(Source::Volume),
        [_, "volumes", LOCAL, ..] => Err("is a local volume, which is a path of the node"),
        [_, "volumes", plugin, _] if *plugin != "kubernetes.io~csi" && PLUGINS.contains(plugin) => {
            Ok(Source::Volume)
        }
        [_, "volumes", _, _, ..] => Err("is a kind of volume that a sandbox does not have"),
        // The path does not tell the kind of the volume: a host path with a subPath looks the same. It is one of the
        // permitted kinds if kubelet has a directory for that volume among those.
        [pod, "volume-subpaths", volume, _, _] => {
            let volumes = policy.kubelet_dir.join("pods").join(pod).join("volumes");
            let known = |plugin: &&str| host.is_directory(&volumes.join(plugin).join(volume));
            if known(&LOCAL) {
                return Err("is a subPath of a local volume, which is a path of the node");
            }
            match PLUGINS.iter().any(known) {
                true => Ok(Source::Volume),
                false => Err("is a subPath of a volume that is none of the kinds that a sandbox may have"),
            }
        }
        _ => Err("is a file of kubelet's own"),
    }
}

fn containerd(parts: &[&str], sandbox: Option<&str>) -> Result<Source, &'static str> {
    match parts {
        ["sandboxes" | "image-volumes", id, ..] if sandbox != Some(*id) => Err("belongs to another pod"),
        ["sandboxes", _, "hosts" | "hostname" | "resolv.conf"] => Ok(Source::Given),
        ["sandboxes", _, "shm"] => Ok(Source::Volume),
        // An image mounted as a volume, or a directory of it.
        ["image-volumes", _, _, ..] => Ok(Source::Given),
        // What the image's own VOLUME lines name: empty directories that containerd makes for this container.
        ["containers", _, "volumes", _] => Ok(Source::Volume),
        _ => Err("is a file of containerd's own"),
    }
}
