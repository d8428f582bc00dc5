//! The worker's own mount tree: a small tmpfs with `/proc`, `/dev`, the image and the container's bundle.
//!
//! The worker leaves the host's tree before it calls the container library. Nothing of a run is then a file on the
//! host, the image may lie in a directory that the container's ids cannot traverse, the library sees no cgroup
//! hierarchy (they are ours), and a supervisor that waits for hours can name no file of the host.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;
use rustix::mount::{MountAttrFlags, MoveMountFlags};

use crate::error::{Layer, SandboxError};
use crate::mounts::{clone_tree, tmpfs};
use crate::spec::{Identity, NOBODY};

/// The image, in the worker's tree.
pub(crate) const ROOTFS: &str = "/rootfs";
/// The OCI bundle, in the worker's tree.
pub(crate) const BUNDLE: &str = "/bundle";
/// The container library's state, in the worker's tree.
pub(crate) const STATE: &str = "/state";

/// Bytes of the tmpfs: the bundle's and the library's JSON files.
const SIZE: &str = "1048576";

/// Leaves the host's mount tree, and for an ordinary user its user namespace. `program` is what shall run in the image.
pub(crate) fn enter(rootfs: &Path, program: &str, identity: Identity) -> Result<(), SandboxError> {
    if identity == Identity::Own {
        own_user_namespace()?;
    }
    let step = |doing: &'static str| {
        move |error: rustix::io::Errno| {
            SandboxError::layer(Layer::Namespaces, format!("{doing}: {error}"), MOUNT_HINT)
        }
    };
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|error| SandboxError::layer(Layer::Namespaces, format!("unshare: {error}"), MOUNT_HINT))?;
    let proc = clone_tree("/proc", true).map_err(step("cloning /proc"))?;
    let dev = clone_tree("/dev", true).map_err(step("cloning /dev"))?;
    let image = clone_tree(rootfs, false).map_err(|error| {
        SandboxError::layer(
            Layer::Image,
            format!("{}: {error}", rootfs.display()),
            "Build the image anew with `sandglass image build`.",
        )
    })?;
    if identity != Identity::Own {
        leave_chroot();
    }
    // Only now: in a chroot `/` may be a directory like any other, and propagation is a matter of mounts.
    make_private().map_err(step("making the mount tree private"))?;
    let tmpfs = tmpfs(
        SIZE,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .map_err(step("making a tmpfs"))?;
    for dir in [
        "proc",
        "dev",
        "rootfs",
        "bundle",
        "state",
        "sys",
        "sys/fs",
        "sys/fs/cgroup",
    ] {
        rustix::fs::mkdirat(&tmpfs, dir, rustix::fs::Mode::from_raw_mode(0o755)).map_err(step("mkdir"))?;
    }
    attach(tmpfs.as_fd(), rustix::fs::CWD, "/").map_err(step("mounting a tmpfs"))?;
    for (tree, name) in [(proc, "proc"), (dev, "dev"), (image, "rootfs")] {
        attach(tree.as_fd(), tmpfs.as_fd(), name).map_err(step("mounting into the tmpfs"))?;
    }
    rustix::process::fchdir(&tmpfs).map_err(step("fchdir"))?;
    rustix::process::pivot_root(".", ".").map_err(step("pivot_root"))?;
    nix::mount::umount2(".", MntFlags::MNT_DETACH)
        .map_err(|error| SandboxError::layer(Layer::Namespaces, format!("umount: {error}"), MOUNT_HINT))?;
    rustix::process::chdir("/").map_err(step("chdir"))?;
    // The three trees were cloned before: a clone of a shared mount is a peer of the host's.
    make_private().map_err(step("making the own tree private"))?;
    seal().map_err(|error| {
        SandboxError::layer(
            Layer::Namespaces,
            format!("remounting the image and /dev: {error}"),
            MOUNT_HINT,
        )
    })?;
    looks_like_an_image(rootfs, program)
}

/// A root without these could not be entered; said here, it names the image and not a step of the container library.
fn looks_like_an_image(rootfs: &Path, program: &str) -> Result<(), SandboxError> {
    let inside = |path: &str| Path::new(ROOTFS).join(path.trim_start_matches('/'));
    let missing = MOUNT_POINTS
        .into_iter()
        .find(|path| !std::fs::symlink_metadata(inside(path)).is_ok_and(|found| found.is_dir()))
        .or_else(|| {
            std::fs::symlink_metadata(inside(program))
                .is_err()
                .then_some(program)
        });
    let Some(missing) = missing else { return Ok(()) };
    Err(SandboxError::layer(
        Layer::Image,
        format!("the image at {} has no {missing}", rootfs.display()),
        "Look at it with `sandglass image verify`, then build it anew with `sandglass image build`.",
    ))
}

/// Directories that an image must have, to mount on.
const MOUNT_POINTS: [&str; 5] = ["/proc", "/dev", "/work", "/out", "/tmp"];

const MOUNT_HINT: &str = "Sandglass needs to make mount namespaces: run it as root, or as a user who may make user namespaces, and not inside a container whose own seccomp or AppArmor profile forbids mount.";
const USERNS_HINT: &str = "Allow user namespaces: sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1 where it exists, and on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for sandglass; or run sandglass as root.";

fn own_user_namespace() -> Result<(), SandboxError> {
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let failed = |doing: &str, error: &dyn std::fmt::Display| {
        SandboxError::layer(Layer::UserNamespace, format!("{doing}: {error}"), USERNS_HINT)
    };
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| failed("unshare", &error))?;
    let map = || {
        // The kernel lets an ordinary user map a group only once setgroups is off (user_namespaces(7)).
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{NOBODY} {uid} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{NOBODY} {gid} 1"))
    };
    map().map_err(|error: std::io::Error| failed("mapping the caller's id", &error))
}

/// A process in a chroot may not make user namespaces. Entering its own mount namespace anew puts root at that
/// namespace's root; where the process was in no chroot this changes nothing, and where it fails, what follows says so.
fn leave_chroot() {
    if let Ok(own) = std::fs::File::open("/proc/self/ns/mnt") {
        let _ = nix::sched::setns(own, CloneFlags::CLONE_NEWNS);
    }
}

/// Nothing that is mounted below `/` from here on is seen anywhere else.
fn make_private() -> rustix::io::Result<()> {
    use rustix::mount::MountPropagationFlags;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

fn attach(tree: BorrowedFd<'_>, at: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    rustix::mount::move_mount(tree, "", at, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Before the container library sees them: the image is read-only, and neither devices nor setuid files count in it;
/// the device nodes, which are the host's own, can be read and written and not changed.
fn seal() -> nix::Result<()> {
    remount(ROOTFS, MsFlags::MS_NODEV)?;
    remount("/dev", MsFlags::MS_NOEXEC)
}

fn remount(path: &str, more: MsFlags) -> nix::Result<()> {
    let kept = nix::sys::statfs::statfs(path)?.flags();
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | more;
    // Flags that the host's mount carries are locked for an ordinary user: leaving one out is refused.
    use nix::sys::statvfs::FsFlags;
    for (held, flag) in [
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ] {
        if kept.contains(held) {
            flags |= flag;
        }
    }
    nix::mount::mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
}
