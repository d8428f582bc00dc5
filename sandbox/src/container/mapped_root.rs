//! A container's root with mapped ids: what is root's on disk is the container's root's.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::MntFlags;
use nix::sched::CloneFlags;
use rustix::mount::{MountAttrFlags, MountPropagationFlags};

use super::hierarchy::{self, Host};
use super::idmap::IdMap;
use super::userns;
use crate::mounts::clone_tree;

/// Mounts an overlay on `target` whose lower directories have mapped ids; its upper one has those of the container
/// already. `mount` is given the lower directories as they are to be used and the place to mount the overlay on. It is
/// called in a mount namespace of our own, so that the host never sees a layer with mapped ids.
///
/// # Errors
/// A sentence that says which step failed. The caller may be in that other namespace then, and can only end.
pub fn mount_mapped_overlay(
    target: &Path,
    lower: &[&Path],
    map: &IdMap,
    mount: impl FnOnce(&[PathBuf], &Path) -> Result<(), String>,
) -> Result<(), String> {
    let step = |doing: &'static str| {
        move |error: rustix::io::Errno| format!("mounting a root with mapped ids: {doing}: {error}")
    };
    let user = userns::make(map)?;
    let layers = lower.iter().map(|dir| {
        let tree = clone_tree(*dir, false)
            .map_err(|error| format!("a layer of the root: {}: {error}", dir.display()))?;
        map_ids(&tree, &user, MountAttrFlags::MOUNT_ATTR_RDONLY, false, dir)?;
        Ok(tree)
    });
    let layers: Vec<OwnedFd> = layers.collect::<Result<_, String>>()?;

    let host = Host::current()?;
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|error| format!("mounting a root with mapped ids: making a mount namespace: {error}"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(step("making it private"))?;
    let over = hierarchy::tmpfs().map_err(step("making a tmpfs"))?;
    hierarchy::attach_at(&over, target).map_err(step("attaching it"))?;
    for (number, layer) in layers.iter().enumerate() {
        let at = hierarchy::directory(&over, &number.to_string()).map_err(step("making a directory"))?;
        hierarchy::attach(layer, &at).map_err(step("attaching a layer"))?;
    }
    hierarchy::directory(&over, "root").map_err(step("making a directory"))?;
    let place = target.join("root");
    let lower: Vec<PathBuf> = (0..layers.len())
        .map(|number| target.join(number.to_string()))
        .collect();
    mount(&lower, &place)?;
    let root = clone_tree(&place, false).map_err(step("taking it"))?;
    host.reenter()?;
    hierarchy::attach_at(&root, target).map_err(step("putting it in place"))
}

/// Maps the ids of what is mounted on `target`, and below it.
///
/// # Errors
/// A sentence: mostly that the file system has no mapped ids.
pub fn map_mounted(target: &Path, map: &IdMap) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("mapping the ids of the root: {error}");
    let user = userns::make(map)?;
    let tree = clone_tree(target, true).map_err(|error| failed(&error))?;
    map_ids(&tree, &user, MountAttrFlags::empty(), true, target)?;
    nix::mount::umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
        .map_err(|error| failed(&error))?;
    hierarchy::attach_at(&tree, target).map_err(|error| failed(&error))
}

fn map_ids(
    tree: &OwnedFd,
    user: &OwnedFd,
    attributes: MountAttrFlags,
    all: bool,
    path: &Path,
) -> Result<(), String> {
    crate::sys::map_mount_ids(tree, user.as_fd(), attributes, all).map_err(|error| {
        format!(
            "mapping the ids of {}, which its file system and the kernel must be able to: {error}",
            path.display()
        )
    })
}
