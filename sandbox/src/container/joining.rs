//! Joining a container that has a user namespace.
//!
//! The library's way in enters every namespace but that one: what it started would be the host's own root among the
//! container's files. So the worker goes there first and becomes the container's root, as everyone who joins does. From
//! then on the container's state is closed to it; it takes along copies of what the library reads, to where volumes
//! are put for a new container.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use nix::sched::CloneFlags;
use nix::unistd::{Gid, Uid};
use oci_spec::runtime::{LinuxNamespaceType, Spec};

use super::hierarchy::{self, PLACE};
use super::{Exec, Places, userns, volumes};
use crate::mounts::clone_tree;

/// The namespaces that a container may share with the host, or with others.
const SHARED: [(&str, LinuxNamespaceType); 4] = [
    ("net", LinuxNamespaceType::Network),
    ("ipc", LinuxNamespaceType::Ipc),
    ("uts", LinuxNamespaceType::Uts),
    ("cgroup", LinuxNamespaceType::Cgroup),
];

/// The copies, by their paths.
#[derive(Debug)]
pub(super) struct Luggage {
    /// The library's root.
    pub(super) library: PathBuf,
    /// The process to start.
    pub(super) process: PathBuf,
    /// The socket that gets its terminal.
    pub(super) console: Option<PathBuf>,
}

/// Goes into the user namespace of the container whose first process is `init`. The caller is in a mount namespace of
/// its own ([`hierarchy::hide`]) and does nothing on the host afterwards.
pub(super) fn enter(exec: &Exec, places: &Places, init: i32) -> Result<Luggage, String> {
    let failed = |doing: &'static str| {
        move |error: std::io::Error| format!("joining the container's user namespace: {doing}: {error}")
    };
    let open = |name: &'static str| {
        let file = std::fs::File::open(format!("/proc/{init}/ns/{name}"));
        file.map(OwnedFd::from).map_err(failed(name))
    };
    let user = open("user")?;
    let owner = userns::map_of(init)?
        .root_outside()
        .ok_or("joining the container's user namespace: it has no root: map id 0")?;
    let shared = SHARED.iter().map(|(name, kind)| Ok((*kind, open(name)?)));
    let shared: Vec<(LinuxNamespaceType, OwnedFd)> = shared.collect::<Result<_, String>>()?;
    let kinds = volumes::out_of_reach(&user, &shared)?;
    volumes::join(&kinds, &shared)?;
    let over = hierarchy::cover().map_err(|error| failed("making room")(error.into()))?;
    let luggage =
        pack(exec, places, &over, owner, &kinds).map_err(failed("copying the container's state"))?;
    let nix = |doing: &'static str| move |error: nix::Error| failed(doing)(error.into());
    nix::sched::setns(user, CloneFlags::CLONE_NEWUSER).map_err(nix("entering it"))?;
    nix::unistd::setgroups(&[]).map_err(nix("giving up groups"))?;
    let root = (Uid::from_raw(0), Gid::from_raw(0));
    nix::unistd::setresgid(root.1, root.1, root.1).map_err(nix("becoming its root"))?;
    nix::unistd::setresuid(root.0, root.0, root.0).map_err(nix("becoming its root"))?;
    Ok(luggage)
}

fn pack(
    exec: &Exec,
    places: &Places,
    over: &OwnedFd,
    owner: (u32, u32),
    joined: &[LinuxNamespaceType],
) -> std::io::Result<Luggage> {
    let place = Path::new(PLACE);
    let (library, bundle) = (place.join("library"), place.join("bundle"));
    let container = library.join(&exec.id);
    for dir in [&library, &bundle, &container] {
        std::fs::DirBuilder::new().mode(0o700).create(dir)?;
        give(dir, owner)?;
    }
    let read = |path: &Path| std::fs::read(path);
    let write = |path: &Path, body: &[u8]| {
        std::fs::write(path, body)?;
        give(path, owner)
    };
    let state = read(&places.library().join(&exec.id).join("state.json"))?;
    let mut state: serde_json::Value = serde_json::from_slice(&state)?;
    state["bundle"] = bundle.display().to_string().into();
    write(&container.join("state.json"), &serde_json::to_vec(&state)?)?;
    let mut spec: Spec = serde_json::from_slice(&read(&places.bundle().join("config.json"))?)?;
    volumes::take_namespaces(&mut spec, joined);
    if let Some(root) = spec.root_mut().as_mut() {
        // Nobody goes there by this path any more, and the real one may be out of reach.
        root.set_path("/".into());
    }
    write(&bundle.join("config.json"), &serde_json::to_vec(&spec)?)?;
    let process = place.join("process.json");
    write(&process, &read(&exec.process)?)?;
    let console = exec.console.as_deref().map(|socket| {
        give(socket, owner)?;
        let tree = clone_tree(socket, false)?;
        volumes::put(&tree, over, "console")?;
        Ok::<_, std::io::Error>(place.join("console"))
    });
    Ok(Luggage {
        library,
        process,
        console: console.transpose()?,
    })
}

fn give(path: &Path, (uid, gid): (u32, u32)) -> std::io::Result<()> {
    chown(path, Some(uid), Some(gid))
}
