//! Mount propagation, which the container library knows for the root only, and not in all its spellings.
//!
//! Each bind mount of a spec gets the propagation that it asks for, and a private one where it asks for none, as every
//! runtime has it. That is done from outside, in the container's mount namespace, while PID 1 waits for its start.

use std::path::PathBuf;

use oci_spec::runtime::Spec;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::pod::mount;

/// A bind mount and what it shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    destination: PathBuf,
    kind: Kind,
    recursive: bool,
}

/// The kernel's kinds of propagation (mount_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Private,
    Slave,
    Shared,
    Unbindable,
}

impl Kind {
    fn parse(option: &str) -> Option<(Self, bool)> {
        let recursive = matches!(option, "rprivate" | "rslave" | "rshared" | "runbindable");
        let kind = match option {
            "private" | "rprivate" => Self::Private,
            "slave" | "rslave" => Self::Slave,
            "shared" | "rshared" => Self::Shared,
            "unbindable" | "runbindable" => Self::Unbindable,
            _ => return None,
        };
        Some((kind, recursive))
    }

    fn flag(self) -> u64 {
        use nix::libc;
        match self {
            Self::Private => libc::MS_PRIVATE,
            Self::Slave => libc::MS_SLAVE,
            Self::Shared => libc::MS_SHARED,
            Self::Unbindable => libc::MS_UNBINDABLE,
        }
    }
}

/// Takes the propagation of the bind mounts from a spec, and spells that of the root as the library does.
pub(super) fn take(spec: &mut Spec) -> Vec<Wanted> {
    if let Some(linux) = spec.linux_mut().as_mut() {
        let plain = linux
            .rootfs_propagation()
            .as_deref()
            .map(|word| word.trim_start_matches('r').to_owned());
        if let Some(plain) = plain.filter(|word| Kind::parse(word).is_some()) {
            linux.set_rootfs_propagation(Some(plain));
        }
    }
    let mounts = spec.mounts().iter().flatten();
    let wanted = mounts.filter_map(|mount| {
        let options = mount.options().as_deref().unwrap_or_default();
        let bind = mount::kind(mount) == mount::Kind::Bind;
        // The last one said counts.
        let (kind, recursive) = options
            .iter()
            .rev()
            .find_map(|o| Kind::parse(o))
            .unwrap_or((Kind::Private, true));
        bind.then(|| Wanted {
            destination: mount.destination().clone(),
            kind,
            recursive,
        })
    });
    wanted.collect()
}

/// Gives the mounts their propagation, in the mount namespace that the caller is in: the container's.
pub(super) fn give(mounts: &[Wanted]) -> Result<(), String> {
    for mount in mounts {
        let failed = |error: &dyn std::fmt::Display| {
            format!("mount propagation of {}: {error}", mount.destination.display())
        };
        // The image decides what the path leads over: nothing but the mount itself is touched through it.
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let place = rustix::fs::openat2(
            CWD,
            &mount.destination,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
        .map_err(|error| failed(&error))?;
        crate::sys::set_mount_propagation(&place, mount.kind.flag(), mount.recursive)
            .map_err(|error| failed(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(root: &str, options: &str) -> Spec {
        let json = format!(
            r#"{{"ociVersion":"1.2.0","linux":{{"rootfsPropagation":"{root}"}},"mounts":[
                {{"destination":"/proc","type":"proc","source":"proc"}},
                {{"destination":"/data","type":"bind","source":"/data","options":[{options}]}}]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_bind_mount_is_private_unless_it_asks() {
        for (options, kind, recursive) in [
            (r#""rbind""#, Kind::Private, true),
            (r#""rbind","rslave""#, Kind::Slave, true),
            (r#""rbind","rshared","ro""#, Kind::Shared, true),
            (r#""bind","shared","private""#, Kind::Private, false),
        ] {
            let wanted = take(&mut spec("private", options));
            assert_eq!(
                wanted,
                [Wanted {
                    destination: "/data".into(),
                    kind,
                    recursive
                }],
                "{options}"
            );
        }
    }

    #[test]
    fn the_roots_propagation_is_spelled_as_the_library_knows_it() {
        for (said, told) in [
            ("rshared", "shared"),
            ("rslave", "slave"),
            ("private", "private"),
            ("odd", "odd"),
        ] {
            let mut spec = spec(said, r#""rbind""#);
            take(&mut spec);
            assert_eq!(
                spec.linux().as_ref().unwrap().rootfs_propagation().as_deref(),
                Some(told)
            );
        }
    }
}
