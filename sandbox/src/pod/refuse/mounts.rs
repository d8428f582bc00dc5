//! Mounts: volumes that kubelet made, the file systems of the kernel at their own places, and memory.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};

use super::source_of;
use crate::pod::mount::{self, Kind};
use crate::pod::refusal::{plain, shown};
use crate::pod::{Host, Policy, Refusal, Role};

/// Names in `/dev` that the runtime fills itself; a mount there would take a device's place.
const DEVICES: [&str; 15] = [
    "console", "core", "fd", "full", "kcore", "mqueue", "null", "ptmx", "pts", "random", "stderr", "stdin",
    "stdout", "tty", "urandom",
];

/// Options that let mounts pass between the node and the container, or change a mount that is already there.
const REACHING: [(&str, &str, &str); 8] = [
    ("shared", PASSES, PROPAGATION),
    ("rshared", PASSES, PROPAGATION),
    ("slave", PASSES, PROPAGATION),
    ("rslave", PASSES, PROPAGATION),
    ("unbindable", PASSES, PROPAGATION),
    ("runbindable", PASSES, PROPAGATION),
    ("idmap", MAPPED, USERS),
    ("ridmap", MAPPED, USERS),
];
const PASSES: &str = "lets mounts pass between the node and the container";
const PROPAGATION: &str = "remove mountPropagation from the volume mount";
const MAPPED: &str = "maps ids of a user namespace, which this runtime does not make for pods";
const USERS: &str = "remove hostUsers: false from the pod";

/// Refuses mounts in the wrong place, from the wrong place, or with options that reach out of the container.
pub(super) fn check(spec: &Spec, role: Role, policy: &Policy, host: &dyn Host) -> Result<(), Refusal> {
    for mount in spec.mounts().iter().flatten() {
        let kind = mount::kind(mount);
        let target = place(mount)?;
        options(mount, &target)?;
        if kind == Kind::Bind {
            bind(mount, &target, spec, role, policy, host)?;
        }
    }
    Ok(())
}

/// Where a mount goes, in the one form of its path.
///
/// # Errors
/// A relative path, one that climbs, and a place that is another file system's.
pub(in crate::pod) fn place(mount: &Mount) -> Result<PathBuf, Refusal> {
    let given = mount.destination();
    let field = field(given);
    let target = mount::target(given).ok_or_else(|| {
        Refusal::new(
            format!("{field}.destination"),
            "is not an absolute path without \"..\"",
            "name the place with an absolute path",
        )
    })?;
    let own = |place: &str| target == Path::new(place);
    let (right, says) = match mount::kind(mount) {
        Kind::Proc => (
            own("/proc"),
            "puts the process file system in another place than /proc",
        ),
        Kind::Sysfs => (
            own("/sys"),
            "puts the kernel's device model in another place than /sys",
        ),
        Kind::Cgroup => (
            target.starts_with("/sys/fs/cgroup"),
            "puts cgroups in another place than /sys/fs/cgroup",
        ),
        Kind::Devpts => (
            own("/dev/pts"),
            "puts pseudo terminals in another place than /dev/pts",
        ),
        Kind::Mqueue => (
            own("/dev/mqueue"),
            "puts message queues in another place than /dev/mqueue",
        ),
        Kind::Tmpfs => (own("/dev") || is_free(&target), TAKEN),
        Kind::Bind => (is_free(&target), TAKEN),
        Kind::Other => (false, "is of a kind that a sandbox does not mount"),
    };
    if right {
        return Ok(target);
    }
    Err(Refusal::new(
        field,
        says,
        "remove the mount or choose another mountPath",
    ))
}

/// A mount as a refusal names it: by its place, since mounts have no names.
fn field(target: &Path) -> String {
    format!("mounts[{}]", plain(&target.to_string_lossy()))
}

const TAKEN: &str = "takes a place that belongs to the sandbox";

/// Whether a volume may go there: not over the root, the kernel's file systems or a device.
fn is_free(target: &Path) -> bool {
    let below = |tree: &str| target.strip_prefix(tree).ok();
    if target == Path::new("/") || below("/proc").is_some() || below("/sys").is_some() {
        return false;
    }
    match below("/dev").map(|name| name.iter().next()) {
        None => true,
        // `/dev` itself.
        Some(None) => false,
        Some(Some(name)) => !DEVICES.iter().any(|device| name == *device) && name != "zero",
    }
}

fn options(mount: &Mount, target: &Path) -> Result<(), Refusal> {
    let field = format!("{}.options", field(target));
    if mount::options(mount).any(|option| option == "remount") {
        return Err(Refusal::new(
            field,
            "changes a mount that is already there (remount)",
            "say in the mount itself how it shall be",
        ));
    }
    let reaching = |option: &str| REACHING.iter().find(|(name, ..)| *name == option);
    if let Some((option, says, remedy)) = mount::options(mount).find_map(reaching) {
        return Err(Refusal::new(
            field,
            &format!("has {option}, which {says}"),
            remedy,
        ));
    }
    let mapped = [mount.uid_mappings(), mount.gid_mappings()]
        .iter()
        .any(|mappings| mappings.as_ref().is_some_and(|mappings| !mappings.is_empty()));
    if mapped {
        return Err(Refusal::new(
            field,
            &format!("has idMappings, which {MAPPED}"),
            USERS,
        ));
    }
    Ok(())
}

fn bind(
    mount: &Mount,
    target: &Path,
    spec: &Spec,
    role: Role,
    policy: &Policy,
    host: &dyn Host,
) -> Result<(), Refusal> {
    if !matches!(mount.typ().as_deref(), None | Some("" | "bind" | "none")) {
        return Err(Refusal::new(
            format!("{}.type", field(target)),
            "is that of a file system, and the options are those of a bind",
            "choose one of the two",
        ));
    }
    let field = format!("{}.source", field(target));
    let given = mount.source().as_deref().unwrap_or(Path::new(""));
    let quoted = shown(&given.to_string_lossy());
    let Some(source) = mount::source(given) else {
        return Err(Refusal::new(
            field,
            &format!("is {quoted}, which is not a plain absolute path"),
            "name the source without \".\", \"..\" and doubled slashes",
        ));
    };
    let remedy = "use a volume that kubelet makes (emptyDir, configMap, secret, projected, downwardAPI, csi), name the directories of a containerd or kubelet that has others in the handler's containerd_dirs and kubelet_dir";
    if role == Role::Plain {
        return Err(Refusal::new(
            field,
            &format!("is {quoted}, which is a path of the node"),
            remedy,
        ));
    }
    match source_of(source, spec, policy, host) {
        Ok(_) => Ok(()),
        Err(reason) => Err(Refusal::new(
            field,
            &format!("is {quoted}, which {reason}"),
            remedy,
        )),
    }
}

#[cfg(test)]
mod tests;
