//! Mounting a container's root, in the worker: there is one thread, and the shim waits for nothing meanwhile.

use std::path::{Path, PathBuf};

use containerd_shim::mount::mount_rootfs;
use sandglass_sandbox::container::{Create, IdMap, Places, map_mounted, mount_mapped_overlay};
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
        let workdir = self
            .options
            .iter()
            .find_map(|option| option.strip_prefix("workdir="))?;
        let workdir = (self.kind == "overlay").then(|| PathBuf::from(workdir))?;
        self.options.push("volatile".into());
        Some(workdir)
    }

    /// What is left to mount where it comes with mapped ids, and how they are mapped. `None` where it does not.
    fn mapped(&self) -> Result<Option<(Self, IdMap)>, String> {
        let value = |name: &str| self.options.iter().find_map(|option| option.strip_prefix(name));
        let map = match (value("uidmap="), value("gidmap=")) {
            (None, None) => return Ok(None),
            (Some(uids), Some(gids)) => IdMap::parse(uids, gids)?,
            _ => return Err("uidmap and gidmap go together: give both, or neither".into()),
        };
        let mut rest = self.clone();
        rest.options
            .retain(|option| !(option.starts_with("uidmap=") || option.starts_with("gidmap=")));
        Ok(Some((rest, map)))
    }

    /// Takes the lower directories out of an overlay. `None` for any other mount.
    fn take_lower(&mut self) -> Option<Vec<PathBuf>> {
        let at = self
            .options
            .iter()
            .position(|option| option.starts_with("lowerdir="))?;
        if self.kind != "overlay" {
            return None;
        }
        let option = self.options.remove(at);
        let list = option.trim_start_matches("lowerdir=");
        Some(list.split(':').map(PathBuf::from).collect())
    }

    fn make(&self, target: &Path) -> Result<(), String> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (kind, source) = (some(&self.kind), some(&self.source));
        mount_rootfs(kind.as_deref(), source.as_deref(), &self.options, target)
            .map_err(|error| format!("mounting the root: {error}"))
    }

    /// An overlay shows the ids of its layers, so these are mapped; the ids of anything else are mapped when it is there.
    fn make_mapped(mut self, map: &IdMap, target: &Path) -> Result<(), String> {
        let Some(lower) = self.take_lower() else {
            self.make(target)?;
            return map_mounted(target, map);
        };
        let lower: Vec<&Path> = lower.iter().map(PathBuf::as_path).collect();
        mount_mapped_overlay(target, &lower, map, |mapped, place| {
            let list: Vec<String> = mapped.iter().map(|dir| dir.display().to_string()).collect();
            self.options.push(format!("lowerdir={}", list.join(":")));
            self.make(place)
        })
    }
}

/// Makes the mounts that a request brought along, on the bundle's `rootfs`, in the host's mount tree: there containerd
/// looks for them.
pub fn mount(create: &Create) -> Result<(), String> {
    let mounts: Vec<Mount> = serde_json::from_value(create.prepare.clone())
        .map_err(|error| format!("the mounts of the root: {error}"))?;
    let target = Places::of(&create.bundle).rootfs;
    for mount in &mounts {
        match mount
            .mapped()
            .map_err(|error| format!("the mounts of the root: {error}"))?
        {
            None => mount.make(&target)?,
            // What the spec says of users was refused; so is what the mounts alone say.
            Some(_) if create.confined => {
                return Err("the root is to be mounted with mapped ids, and a sandbox has the node's: leave `hostUsers` out".into());
            }
            Some((rest, map)) => rest.make_mapped(&map, &target)?,
        }
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

    #[test]
    fn the_ids_of_a_root_are_mapped_where_both_kinds_are_given() {
        let plain = mount("overlay", &["lowerdir=/l"]);
        assert_eq!(plain.mapped(), Ok(None));
        let asked = mount(
            "overlay",
            &["uidmap=0:1:2", "gidmap=0:3:4", "workdir=/w", "lowerdir=/l:/m"],
        );
        let (mut rest, map) = asked.mapped().unwrap().unwrap();
        assert_eq!(map, IdMap::parse("0:1:2", "0:3:4").unwrap());
        assert_eq!(rest.take_lower(), Some(vec!["/l".into(), "/m".into()]));
        assert_eq!(rest, mount("overlay", &["workdir=/w"]));
        for half in ["uidmap=0:1:2", "gidmap=0:1:2"] {
            assert!(mount("bind", &[half]).mapped().unwrap_err().contains("give both"));
        }
        assert!(mount("bind", &["uidmap=0:1", "gidmap=0:1:2"]).mapped().is_err());
    }

    #[test]
    fn only_an_overlay_has_lower_directories() {
        assert_eq!(mount("bind", &["lowerdir=/l"]).take_lower(), None);
    }
}
