//! Mounting a container's root, in the worker: there is one thread, and the shim waits for nothing meanwhile.

use std::path::PathBuf;

use containerd_shim::mount::mount_rootfs;
use sandglass_sandbox::container::{Create, Places};
use serde::{Deserialize, Serialize};

/// A mount as containerd's snapshotter wants it made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    kind: String,
    source: String,
    options: Vec<String>,
}

impl From<&containerd_shim::protos::api::Mount> for Mount {
    fn from(mount: &containerd_shim::protos::api::Mount) -> Self {
        Self {
            kind: mount.type_.clone(),
            source: mount.source.clone(),
            options: mount.options.clone(),
        }
    }
}

impl Mount {
    /// For a root that nothing is written to but mount points: has an overlay forget at its end what a crash of the
    /// machine would have lost. Without, taking it away waits until the whole file system below is on its disk.
    /// Answers with the overlay's working directory, in which the kernel notes it.
    pub fn volatile(&mut self) -> Option<PathBuf> {
        let workdir = self.options.iter().find_map(|option| option.strip_prefix("workdir="))?;
        let workdir = (self.kind == "overlay").then(|| PathBuf::from(workdir))?;
        self.options.push("volatile".into());
        Some(workdir)
    }
}

/// Makes the mounts that a request brought along, on the bundle's `rootfs`, in the host's mount tree: there containerd
/// looks for them.
pub fn mount(create: &Create) -> Result<(), String> {
    let mounts: Vec<Mount> = serde_json::from_value(create.prepare.clone())
        .map_err(|error| format!("the mounts of the root: {error}"))?;
    let target = Places::of(&create.bundle).rootfs;
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    for mount in &mounts {
        if mount
            .options
            .iter()
            .any(|option| option.starts_with("uidmap=") || option.starts_with("gidmap="))
        {
            return Err("the root is to be mounted with mapped ids, which this runtime does not offer: leave `hostUsers` out".into());
        }
        mount_rootfs(
            some(&mount.kind).as_deref(),
            some(&mount.source).as_deref(),
            &mount.options,
            &target,
        )
        .map_err(|error| format!("mounting the root: {error}"))?;
    }
    // A long list of layers is mounted from within their directory.
    std::env::set_current_dir("/").map_err(|error| format!("leaving the layers' directory: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(kind: &str, options: &[&str]) -> Mount {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Mount {
            kind: kind.into(),
            source: kind.into(),
            options,
        }
    }

    #[test]
    fn only_an_overlay_that_can_be_written_to_is_made_volatile() {
        let mut overlay = mount("overlay", &["workdir=/w", "upperdir=/u", "lowerdir=/l"]);
        assert_eq!(overlay.volatile(), Some("/w".into()));
        assert!(overlay.options.contains(&"volatile".to_owned()));
        assert_eq!(mount("overlay", &["lowerdir=/l:/m"]).volatile(), None);
        assert_eq!(mount("bind", &["workdir=/w"]).volatile(), None);
    }
}
