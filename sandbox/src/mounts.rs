//! Mounts that are in no tree yet: clones of what is mounted, and fresh memory.

use std::os::fd::OwnedFd;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags};

/// Clones the mount at a path, with what is mounted below it where `recursive`.
pub(crate) fn clone_tree(path: impl rustix::path::Arg, recursive: bool) -> rustix::io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(rustix::fs::CWD, path, flags)
}

/// Makes a tmpfs of `size` bytes whose root everyone may enter.
pub(crate) fn tmpfs(size: &str, attributes: MountAttrFlags) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "size", size)?;
    rustix::mount::fsconfig_set_string(&context, "mode", "755")?;
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
