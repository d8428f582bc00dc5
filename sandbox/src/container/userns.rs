//! User namespaces: making one, and what a process in one means for the host's side of its streams.
//!
//! The kernel makes one only for a process that goes into it, and that process must have one thread. So it is made by
//! a process of its own, our program again under a hidden word, that ends as soon as we hold the namespace.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sched::CloneFlags;
use rustix::fs::FileType;

use super::idmap::IdMap;

/// The hidden word that makes a process of ours one that goes into a new user namespace and waits there.
pub(super) const HOLDER: &str = "sandbox-user-namespace";

/// A child that is ended and waited for, whatever happens.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The holder's whole life: it says a byte when it is in its namespace, and ends when it is told to, or when nobody is
/// left who could.
pub(super) fn hold() -> ExitCode {
    let held = nix::sched::unshare(CloneFlags::CLONE_NEWUSER).is_ok()
        && std::io::stdout().write_all(b".").is_ok()
        && std::io::stdout().flush().is_ok();
    let _ = std::io::stdin().read(&mut [0]);
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Makes a user namespace with that map.
pub(super) fn make(map: &IdMap) -> Result<OwnedFd, String> {
    let failed = |doing: &'static str| {
        move |error: std::io::Error| format!("making a user namespace: {doing}: {error}")
    };
    let child = Command::new("/proc/self/exe")
        .arg(HOLDER)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed("starting a process"))?;
    let mut holder = Holder(child);
    let mut said = Vec::new();
    if let Some(stdout) = holder.0.stdout.as_mut() {
        stdout
            .take(1)
            .read_to_end(&mut said)
            .map_err(failed("waiting for it"))?;
    }
    if said.is_empty() {
        return Err(
            "making a user namespace: the kernel refuses one; look at user.max_user_namespaces (sysctl)"
                .into(),
        );
    }
    let proc = format!("/proc/{}", holder.0.id());
    for (file, lines) in [("uid_map", &map.uids), ("gid_map", &map.gids)] {
        std::fs::write(format!("{proc}/{file}"), lines.to_kernel()).map_err(failed(file))?;
    }
    let namespace = std::fs::File::open(format!("{proc}/ns/user")).map_err(failed("opening it"))?;
    Ok(namespace.into())
}

/// Once a container's first process stands: looks whether it is in the user namespace that the spec describes, and gives
/// the pipes among `streams` to user `uid` there, so that its process may open them by name, as `/dev/stdout`.
pub(super) fn settle(pid: i32, asked: Option<&IdMap>, streams: &[OwnedFd], uid: u32) -> Result<(), String> {
    let map = map_of(pid)?;
    if asked.is_some_and(|asked| *asked != map) {
        return Err("linux.uidMappings and linux.gidMappings are not those of the user namespace that linux.namespaces names: leave them or its path out".into());
    }
    give_streams(streams, &map, uid)
}

/// Whether a namespace can be joined from within that user namespace: it belongs to it. Not so the host's network.
pub(super) fn owns(user: &OwnedFd, namespace: &OwnedFd) -> std::io::Result<bool> {
    let owner = crate::sys::owner_of_namespace(namespace.as_fd())?;
    let (owner, user) = (rustix::fs::fstat(&owner)?, rustix::fs::fstat(user)?);
    Ok((owner.st_dev, owner.st_ino) == (user.st_dev, user.st_ino))
}

/// Reads the map of the user namespace that a process is in.
pub(super) fn map_of(pid: i32) -> Result<IdMap, String> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
    };
    IdMap::of_kernel(&read("uid_map")?, &read("gid_map")?)
}

fn give_streams(streams: &[OwnedFd], map: &IdMap, uid: u32) -> Result<(), String> {
    let owner = map.uid_outside(uid).ok_or_else(|| {
        format!("process.user.uid {uid} has no uid on the host: linux.uidMappings leave it out")
    })?;
    for stream in streams {
        let given = rustix::fs::fstat(stream).and_then(|found| {
            // `/dev/null` stays the host's, and a terminal is the container's already.
            if FileType::from_raw_mode(found.st_mode) != FileType::Fifo {
                return Ok(());
            }
            rustix::fs::fchown(stream.as_fd(), Some(rustix::fs::Uid::from_raw(owner)), None)
        });
        given.map_err(|error| format!("giving a stream to its process: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_the_map_leaves_out_gets_no_stream() {
        let (_, stream) = super::super::status_pipe().unwrap();
        let map = IdMap::parse("0:100000:10", "0:100000:10").unwrap();
        let error = give_streams(&[stream], &map, 10).unwrap_err();
        assert!(error.contains("process.user.uid 10"), "{error}");
    }

    #[test]
    fn what_is_no_pipe_keeps_its_owner() {
        let file = tempfile::tempfile().unwrap();
        let before = rustix::fs::fstat(&file).unwrap().st_uid;
        let map = IdMap::parse("0:100000:10", "0:100000:10").unwrap();
        let file = OwnedFd::from(file);
        give_streams(std::slice::from_ref(&file), &map, 1).unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_uid, before);
    }

    #[test]
    fn a_namespace_belongs_to_one_user_namespace() {
        let own = |name: &str| OwnedFd::from(std::fs::File::open(format!("/proc/self/ns/{name}")).unwrap());
        // The kernel names an owner only to those who are at least as privileged.
        match owns(&own("user"), &own("uts")) {
            Ok(owned) => assert!(owned),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
        }
        assert!(owns(&own("user"), &super::super::status_pipe().unwrap().0).is_err());
    }

    #[test]
    fn our_own_map_can_be_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(map_of(own).unwrap().uid_outside(0).is_some());
    }
}
