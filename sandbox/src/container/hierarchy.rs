//! Keeping the host's cgroup hierarchies from the container library, and showing a container its own.
//!
//! The library would join every hierarchy by itself, slowly, and knows no other place for them than `/sys/fs/cgroup`.
//! So the worker, in a mount namespace of its own, puts an empty directory there before it calls the library. What a
//! spec asks to be mounted there is put in place afterwards, from outside, while PID 1 still waits for its start.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;
use oci_spec::runtime::Spec;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, MoveMountFlags};

use crate::cgroup::PodCgroup;
use crate::mounts::clone_tree;

/// Where hierarchies are.
pub(super) const PLACE: &str = "/sys/fs/cgroup";

/// The way back to the namespaces that were left: of mounts, and of cgroups.
pub(super) struct Host(std::fs::File, std::fs::File);

impl Host {
    /// Where the caller is.
    pub(super) fn current() -> Result<Self, String> {
        let open = |kind: &str| {
            std::fs::File::open(format!("/proc/self/ns/{kind}"))
                .map_err(|error| format!("opening the {kind} namespace: {error}"))
        };
        Ok(Self(open("mnt")?, open("cgroup")?))
    }

    /// Goes back, so that the hierarchies can be reached again, and written to: where namespaces are delegation boundaries
    /// (`nsdelegate`, as systemd mounts), a limit cannot be set from inside the namespace whose root it is for.
    pub(super) fn reenter(self) -> Result<(), String> {
        nix::sched::setns(self.1, CloneFlags::CLONE_NEWCGROUP)
            .map_err(|error| format!("going back to the host's view of cgroups: {error}"))?;
        nix::sched::setns(self.0, CloneFlags::CLONE_NEWNS)
            .map_err(|error| format!("going back to the host's mounts: {error}"))
    }
}

/// Enters a mount namespace of our own, in which no hierarchy is mounted. Nothing of it reaches the host's.
pub(super) fn hide() -> Result<Host, String> {
    let failed = |doing: &'static str| move |error: &dyn std::fmt::Display| format!("{doing}: {error}");
    let host = Host::current()?;
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|error| failed("making a mount namespace")(&error))?;
    // /sys alone: mounts that a pod shares with the host elsewhere must go on being shared.
    rustix::mount::mount_change(
        "/sys",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(|error| failed("making /sys private (is it mounted?)")(&error))?;
    match nix::mount::umount2(PLACE, MntFlags::MNT_DETACH) {
        Ok(()) | Err(nix::errno::Errno::EINVAL) => {}
        Err(error) => return Err(failed("leaving the cgroup hierarchies")(&error)),
    }
    nix::mount::mount(
        Some("tmpfs"),
        PLACE,
        Some("tmpfs"),
        MsFlags::MS_RDONLY,
        Some("size=0,nr_inodes=1"),
    )
    .map_err(|error| failed("covering /sys/fs/cgroup")(&error))?;
    Ok(host)
}

/// Makes a cgroup namespace rooted where this process is: in the container's cgroups. On v1 containerd asks for none,
/// and `/proc/self/cgroup` would show a container its place on the node.
pub(super) fn own_view() -> Result<(), String> {
    nix::sched::unshare(CloneFlags::CLONE_NEWCGROUP)
        .map_err(|error| format!("making a cgroup namespace: {error}"))
}

/// What a spec wants mounted at `/sys/fs/cgroup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    read_only: bool,
}

/// Takes the mount of type `cgroup` out of a spec.
pub(super) fn take_mount(spec: &mut Spec) -> Option<Wanted> {
    let mut wanted = None;
    if let Some(mounts) = spec.mounts_mut() {
        mounts.retain(|mount| {
            let ours = mount
                .typ()
                .as_deref()
                .is_some_and(|kind| kind == "cgroup" || kind == "cgroup2");
            if ours && mount.destination() == Path::new(PLACE) {
                let options = mount.options().iter().flatten();
                wanted = Some(Wanted {
                    read_only: options.clone().any(|option| option == "ro"),
                });
            }
            !ours
        });
    }
    wanted
}

/// The container's own directories, each as a mount that is nowhere yet.
pub(super) struct Trees(Vec<(Option<String>, OwnedFd)>);

/// Opens them, while the hierarchies can still be seen.
pub(super) fn open(cgroup: &PodCgroup, wanted: Wanted) -> Result<Trees, String> {
    let trees = cgroup.visible().into_iter().map(|(name, path)| {
        let tree = clone_tree(&path, false)?;
        crate::sys::set_mount_attributes(&tree, attributes(wanted))?;
        Ok((name, tree))
    });
    let trees: std::io::Result<_> = trees.collect();
    Ok(Trees(trees.map_err(|error| {
        format!("cloning the cgroup's mounts: {error}")
    })?))
}

fn attributes(wanted: Wanted) -> MountAttrFlags {
    let always = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    if wanted.read_only {
        always | MountAttrFlags::MOUNT_ATTR_RDONLY
    } else {
        always
    }
}

/// Enters the mount namespace of a container, by its first process, which has not begun.
pub(super) fn enter(pid: i32) -> Result<(), String> {
    std::fs::File::open(format!("/proc/{pid}/ns/mnt"))
        .and_then(|namespace| Ok(nix::sched::setns(namespace, CloneFlags::CLONE_NEWNS)?))
        .map_err(|error| format!("entering the container's mount namespace: {error}"))
}

/// Puts them in place in the mount namespace that the caller is in: the container's.
pub(super) fn show(trees: Trees, wanted: Wanted) -> Result<(), String> {
    let step = |doing: &'static str| {
        move |error: &dyn std::fmt::Display| format!("mounting {PLACE}: {doing}: {error}")
    };
    // The image decides what is at its root, but not what is below the kernel's own sysfs.
    // What is mounted on it already may be anything: with the host's /sys in the container that is our own cover.
    let parent = rustix::fs::openat2(
        rustix::fs::CWD,
        PLACE.trim_end_matches("/cgroup"),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
    .map_err(|error| step("finding it")(&error))?;
    let found = nix::sys::statfs::fstatfs(&parent).map_err(|error| step("looking at it")(&error))?;
    if found.filesystem_type() != nix::sys::statfs::SYSFS_MAGIC {
        return Err(step("looking at it")(&"it is not on sysfs"));
    }
    let place = rustix::fs::openat(
        &parent,
        "cgroup",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| step("finding it")(&error))?;
    if let [(None, unified)] = trees.0.as_slice() {
        return attach(unified, &place).map_err(|error| step("attaching it")(&error));
    }
    let over = tmpfs().map_err(|error| step("making a tmpfs")(&error))?;
    attach(&over, &place).map_err(|error| step("attaching a tmpfs")(&error))?;
    for (name, tree) in &trees.0 {
        let name = name.as_deref().unwrap_or("unified");
        let at = directory(&over, name).map_err(|error| step("making a directory")(&error))?;
        attach(tree, &at).map_err(|error| step("attaching a hierarchy")(&error))?;
    }
    crate::sys::set_mount_attributes(&over, attributes(wanted))
        .map_err(|error| step("closing the tmpfs")(&error))
}

/// Attaches a mount that is nowhere yet on what a descriptor is of.
pub(super) fn attach(tree: &OwnedFd, at: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", at, "", flags)
}

/// Attaches a mount that is nowhere yet on a path that is ours.
pub(super) fn attach_at(tree: &OwnedFd, at: &Path) -> rustix::io::Result<()> {
    rustix::mount::move_mount(
        tree,
        "",
        rustix::fs::CWD,
        at,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
}

/// Puts a tmpfs where the hierarchies were, in the mount namespace of [`hide`], for what everyone must be able to reach.
pub(super) fn cover() -> rustix::io::Result<OwnedFd> {
    let over = tmpfs()?;
    attach_at(&over, Path::new(PLACE))?;
    Ok(over)
}

pub(super) fn directory(parent: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o555))?;
    rustix::fs::openat(
        parent.as_fd(),
        name,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// A small tmpfs, for mount points.
pub(super) fn tmpfs() -> rustix::io::Result<OwnedFd> {
    crate::mounts::tmpfs("65536", MountAttrFlags::empty())
}

/// Mounts on a container's root count no setuid file and no device, whatever its image holds.
pub(super) fn defuse_root(rootfs: &PathBuf) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!(
            "taking devices and setuid files from {}: {error}",
            rootfs.display()
        )
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::open(rootfs, flags, Mode::empty()).map_err(|error| failed(&error));
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    match crate::sys::set_mount_attributes(&open()?, attributes) {
        // A root that lies in the bundle itself is no mount yet. Like those that are, it is unmounted at the end.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            nix::mount::mount(Some(rootfs), rootfs, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .map_err(|error| failed(&error))?;
            crate::sys::set_mount_attributes(&open()?, attributes).map_err(|error| failed(&error))
        }
        done => done.map_err(|error| failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_mount_is_taken_out_and_remembered() {
        let json = r#"{"ociVersion":"1.2.0","mounts":[
            {"destination":"/proc","type":"proc","source":"proc"},
            {"destination":"/sys/fs/cgroup","type":"cgroup","source":"cgroup","options":["ro","nosuid"]}]}"#;
        let mut spec: Spec = serde_json::from_str(json).unwrap();
        assert_eq!(take_mount(&mut spec), Some(Wanted { read_only: true }));
        assert_eq!(spec.mounts().as_ref().unwrap().len(), 1);
        assert_eq!(take_mount(&mut spec), None);
    }
}
