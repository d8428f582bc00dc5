//! Namespaces of the stack's own: network, mounts, control groups.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::cgroup::Hierarchy;
use crate::error::{Result, StackError};
use crate::place::{Place, ROOT, SETTINGS, STATE};

const NONE: Option<&str> = None;

/// Enters the namespaces; from here on nothing that is mounted is seen outside.
pub fn enter(place: &Place) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWCGROUP)
        .map_err(StackError::doing("Making namespaces (this wants root)"))?;
    propagation(MsFlags::MS_SLAVE)?;
    remount_cgroups()?;
    private(Path::new("/run"))?;
    private(Path::new("/var/lib"))?;
    bind(&place.state(), Path::new(STATE))?;
    bind(&place.settings(), Path::new(SETTINGS))?;
    bind(&place.root(), Path::new(ROOT))?;
    // As on a node: a pod may ask for a mount that is seen on the host, which here is this namespace.
    propagation(MsFlags::MS_SHARED)?;
    let output = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .output()
        .map_err(StackError::doing("Starting ip (Debian: iproute2)"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(StackError::Program {
        command: "ip link set lo up".to_owned(),
        status: output.status.to_string(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn propagation(kind: MsFlags) -> Result<()> {
    mount(NONE, "/", NONE, kind | MsFlags::MS_REC, NONE)
        .map_err(StackError::doing("Changing the propagation of mounts"))
}

/// Mounts every hierarchy anew, so that its root is the stack's own group.
fn remount_cgroups() -> Result<()> {
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(StackError::doing("Reading mountinfo"))?;
    for hierarchy in Hierarchy::all(&text) {
        let at = &hierarchy.mount;
        umount2(at, MntFlags::MNT_DETACH).map_err(StackError::at("Unmounting", at))?;
        let kind = if hierarchy.v1_options.is_some() {
            "cgroup"
        } else {
            "cgroup2"
        };
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some(kind), at, Some(kind), flags, hierarchy.v1_options.as_deref())
            .map_err(StackError::at("Mounting control groups at", at))?;
    }
    Ok(())
}

/// Makes `folder` private: what is in it stays in its place, what is added is seen inside only.
fn private(folder: &Path) -> Result<()> {
    // Through this descriptor the old folder is still reached when the new one covers it.
    let held = File::open(folder).map_err(StackError::at("Opening", folder))?;
    let old = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let entries = fs::read_dir(folder).map_err(StackError::at("Listing", folder))?;
    let entries: Vec<_> = entries
        .flatten()
        .map(|entry| (entry.file_name(), entry.file_type()))
        .collect();
    mount(
        Some("tmpfs"),
        folder,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some("mode=755"),
    )
    .map_err(StackError::at("Mounting a tmpfs at", folder))?;
    for (name, kind) in entries {
        let (from, to) = (old.join(&name), folder.join(&name));
        // What went away meanwhile is not missed.
        let Ok(kind) = kind else { continue };
        if kind.is_symlink() {
            let Ok(target) = fs::read_link(&from) else {
                continue;
            };
            symlink(target, &to).map_err(StackError::at("Linking", &to))?;
        } else if kind.is_dir() {
            if from.exists() {
                bind(&from, &to)?;
            }
        } else if kind.is_file() || kind.is_socket() || kind.is_fifo() {
            File::create(&to).map_err(StackError::at("Making", &to))?;
            if mount(Some(&from), &to, NONE, MsFlags::MS_BIND, NONE).is_err() {
                fs::remove_file(&to).map_err(StackError::at("Removing", &to))?;
            }
        }
    }
    Ok(())
}

/// Makes the folder `to` show what `from` holds.
fn bind(from: &Path, to: &Path) -> Result<()> {
    match fs::create_dir(to) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(StackError::at("Making", to)(error));
        }
        _ => {}
    }
    mount(Some(from), to, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)
        .map_err(StackError::at("Binding", to))
}

/// The mounts that servers and runtimes made: those below containerd's folders and the network namespaces.
pub fn mounts_of_servers() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .filter(|at| {
            let bases = [STATE, ROOT, "/run/netns", "/var/lib/kubelet"];
            bases
                .iter()
                .any(|base| at.starts_with(base) && at != Path::new(base))
        })
        .collect()
}

/// Takes away what is mounted on the stack's folders, so that they can be removed.
pub fn unmount_all() {
    let mut mounts = mounts_of_servers();
    mounts.extend([STATE, SETTINGS, ROOT].map(PathBuf::from));
    // Later ones lie upon earlier ones. One that does not go is found when its folder does not.
    for at in mounts.iter().rev() {
        let _ = umount2(at, MntFlags::MNT_DETACH);
    }
}
