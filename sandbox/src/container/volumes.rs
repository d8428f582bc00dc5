//! Bind mounts that the container library cannot make: with mapped ids, or from within a user namespace.
//!
//! The library maps no ids, and it looks for the source of a bind mount when it is in the container's user namespace
//! already, whose root may not walk there. So each such source is cloned by the worker, which may, and put into a
//! directory that everyone can reach, in the worker's own mount namespace: over `/sys/fs/cgroup`, where the worker has
//! nothing else mounted any more ([`super::hierarchy::hide`]). The library is told of a plain bind mount of the clone.
//! The namespaces that a container joins by path are opened here for the same reason.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sched::CloneFlags;
use oci_spec::runtime::{LinuxNamespaceType, Mount, Spec};
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountAttrFlags;

use super::hierarchy::{self, PLACE};
use super::idmap::IdMap;
use super::userns;
use crate::mounts::clone_tree;
use crate::pod::mount::{Kind, kind};

/// Whose ids a mount has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ids {
    /// Those of its file system.
    Plain,
    /// Mapped as in the container's user namespace.
    Containers,
    /// Mapped as the mount says.
    Own(IdMap),
}

/// A bind mount that the library shall find ready.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Volume {
    source: PathBuf,
    destination: PathBuf,
    /// With what is mounted below it.
    recursive: bool,
    ids: Ids,
    /// What is mounted below it gets mapped as well.
    all: bool,
}

/// What the spec asked for and the library is not told of.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    volumes: Vec<Volume>,
    /// The mappings of the spec's user namespace, which it may leave out where it names an existing one.
    pub(super) map: Option<IdMap>,
    /// The container's user namespace, where it is not the host's.
    user: Option<OwnedFd>,
    /// The other namespaces that it joins: the paths in the spec are those of these descriptors.
    others: Vec<(LinuxNamespaceType, OwnedFd)>,
}

/// True for a container with a user namespace of its own, or of its pod.
pub(super) fn has_user_namespace(spec: &Spec) -> bool {
    super::namespaces(spec).any(|namespace| namespace.typ() == LinuxNamespaceType::User)
}

fn map_of_spec(spec: &Spec) -> Result<Option<IdMap>, String> {
    let Some(linux) = spec.linux() else {
        return Ok(None);
    };
    IdMap::of_spec(linux.uid_mappings().as_deref(), linux.gid_mappings().as_deref())
        .map_err(|why| format!("linux.{why}"))
}

/// Takes the mounts that are for us from a spec, and opens the namespaces where there is one of users among them.
pub(super) fn take(spec: &mut Spec) -> Result<Volumes, String> {
    let in_user_namespace = has_user_namespace(spec);
    let map = map_of_spec(spec)?;
    let volumes = take_mounts(spec, in_user_namespace)?;
    let mut taken = Volumes {
        volumes,
        map,
        ..Volumes::default()
    };
    if in_user_namespace && let Some(linux) = spec.linux_mut().as_mut() {
        for namespace in linux.namespaces_mut().iter_mut().flatten() {
            let is_user = namespace.typ() == LinuxNamespaceType::User;
            let fd: OwnedFd = match (namespace.path(), &taken.map) {
                (Some(path), _) => std::fs::File::open(path)
                    .map_err(|error| format!("linux.namespaces: {}: {error}", path.display()))?
                    .into(),
                (None, Some(map)) if is_user => userns::make(map)?,
                (None, None) if is_user => {
                    return Err("linux.namespaces has a new user namespace, and nothing says which ids it maps: give linux.uidMappings and linux.gidMappings".into());
                }
                (None, _) => continue,
            };
            // The worker's children have it open as well, until they execute the container's program.
            namespace.set_path(Some(format!("/proc/self/fd/{}", fd.as_raw_fd()).into()));
            if is_user {
                taken.user = Some(fd);
            } else {
                taken.others.push((namespace.typ(), fd));
            }
        }
        // With a path there is nothing left to map, and the library asks for helpers when there is more than a range.
        linux.set_uid_mappings(None).set_gid_mappings(None);
    }
    Ok(taken)
}

/// Those of `others` that the worker has to join itself, while it may join any: the library joins a user namespace
/// first, and cannot join from within what does not belong to that.
pub(super) fn out_of_reach(
    user: &OwnedFd,
    others: &[(LinuxNamespaceType, OwnedFd)],
) -> Result<Vec<LinuxNamespaceType>, String> {
    let mut found = Vec::new();
    for (kind, namespace) in others.iter().filter(|(kind, _)| flag(*kind).is_some()) {
        let owned = userns::owns(user, namespace)
            .map_err(|error| format!("looking at the {kind} namespace to join: {error}"))?;
        if !owned {
            found.push(*kind);
        }
    }
    Ok(found)
}

/// Joins them.
pub(super) fn join(
    kinds: &[LinuxNamespaceType],
    all: &[(LinuxNamespaceType, OwnedFd)],
) -> Result<(), String> {
    for (kind, namespace) in all.iter().filter(|(kind, _)| kinds.contains(kind)) {
        if let Some(flag) = flag(*kind) {
            nix::sched::setns(namespace, flag)
                .map_err(|error| format!("joining the {kind} namespace: {error}"))?;
        }
    }
    Ok(())
}

/// Leaves the library the others.
pub(super) fn take_namespaces(spec: &mut Spec, kinds: &[LinuxNamespaceType]) {
    let listed = spec
        .linux_mut()
        .as_mut()
        .and_then(|linux| linux.namespaces_mut().as_mut());
    if let Some(listed) = listed {
        listed.retain(|namespace| !kinds.contains(&namespace.typ()));
    }
}

/// Namespaces that a process can join without being another one afterwards, or somewhere else.
fn flag(kind: LinuxNamespaceType) -> Option<CloneFlags> {
    match kind {
        LinuxNamespaceType::Network => Some(CloneFlags::CLONE_NEWNET),
        LinuxNamespaceType::Ipc => Some(CloneFlags::CLONE_NEWIPC),
        LinuxNamespaceType::Uts => Some(CloneFlags::CLONE_NEWUTS),
        LinuxNamespaceType::Cgroup => Some(CloneFlags::CLONE_NEWCGROUP),
        _ => None,
    }
}

fn take_mounts(spec: &mut Spec, in_user_namespace: bool) -> Result<Vec<Volume>, String> {
    let mut volumes = Vec::new();
    for mount in spec.mounts_mut().iter_mut().flatten() {
        let failed = |why: &str| format!("mounts[{}]: {why}", mount.destination().display());
        let options = mount.options().as_deref().unwrap_or_default();
        let has = |name: &str| options.iter().any(|option| option == name);
        let bind = kind(mount) == Kind::Bind;
        let own = IdMap::of_spec(mount.uid_mappings().as_deref(), mount.gid_mappings().as_deref())
            .map_err(|why| failed(&why))?;
        let ids = match own {
            Some(map) => Ids::Own(map),
            None if has("idmap") || has("ridmap") => Ids::Containers,
            None => Ids::Plain,
        };
        match &ids {
            Ids::Plain if !(bind && in_user_namespace) => continue,
            Ids::Plain => {}
            _ if !bind => return Err(failed("ids can be mapped on bind mounts only")),
            Ids::Containers if !in_user_namespace => {
                return Err(failed(
                    "its ids are to be mapped as in the container's user namespace, and it has none: give the mount mappings of its own",
                ));
            }
            _ => {}
        }
        let source = mount
            .source()
            .clone()
            .ok_or_else(|| failed("a bind mount without a source"))?;
        let volume = Volume {
            source,
            destination: mount.destination().clone(),
            recursive: has("rbind"),
            all: has("ridmap"),
            ids,
        };
        tell_library(mount, volumes.len());
        volumes.push(volume);
    }
    Ok(volumes)
}

fn tell_library(mount: &mut Mount, number: usize) {
    let options = mount.options().iter().flatten();
    let plain: Vec<String> = options
        .filter(|option| !matches!(option.as_str(), "idmap" | "ridmap"))
        .cloned()
        .collect();
    mount
        .set_options(Some(plain))
        .set_uid_mappings(None)
        .set_gid_mappings(None)
        .set_source(Some(Path::new(PLACE).join(number.to_string())));
}

impl Volumes {
    /// True for a container that is not in the host's user namespace.
    pub(super) fn has_user_namespace(&self) -> bool {
        self.user.is_some()
    }

    /// Joins what the library will not be able to, and takes it from the spec.
    pub(super) fn join_first(&self, spec: &mut Spec) -> Result<(), String> {
        let Some(user) = &self.user else { return Ok(()) };
        let kinds = out_of_reach(user, &self.others)?;
        take_namespaces(spec, &kinds);
        join(&kinds, &self.others)
    }

    /// Puts the clones where the library looks for them, in the mount namespace that the caller is in: its own.
    pub(super) fn attach(&self) -> Result<(), String> {
        if self.volumes.is_empty() {
            return Ok(());
        }
        let mut made: Vec<(&IdMap, OwnedFd)> = Vec::new();
        // All before the first is put in place: one of them may be what is covered by that.
        let trees = self.volumes.iter().map(|volume| {
            let user = match &volume.ids {
                Ids::Plain => None,
                Ids::Containers => self.user.as_ref(),
                Ids::Own(map) => {
                    if !made.iter().any(|(known, _)| *known == map) {
                        made.push((map, userns::make(map)?));
                    }
                    made.iter().find(|(known, _)| *known == map).map(|(_, user)| user)
                }
            };
            Ok((volume, clone(volume, user)?))
        });
        let trees: Vec<(&Volume, OwnedFd)> = trees.collect::<Result<_, String>>()?;
        let over = hierarchy::cover().map_err(|error| format!("making room for volumes: {error}"))?;
        for (number, (volume, tree)) in trees.iter().enumerate() {
            put(tree, &over, &number.to_string())
                .map_err(|error| format!("mounting {}: {error}", volume.destination.display()))?;
        }
        Ok(())
    }
}

fn clone(volume: &Volume, user: Option<&OwnedFd>) -> Result<OwnedFd, String> {
    let source = volume.source.display();
    let tree = clone_tree(&volume.source, volume.recursive)
        .map_err(|error| format!("mounts[{}]: {source}: {error}", volume.destination.display()))?;
    if let Some(user) = user {
        crate::sys::map_mount_ids(&tree, user.as_fd(), MountAttrFlags::empty(), volume.all).map_err(|error| {
            format!(
                "mounts[{}]: mapping the ids of {source}, which its file system and the kernel must be able to: {error}",
                volume.destination.display()
            )
        })?;
    }
    Ok(tree)
}

/// Attaches a tree on a new directory or file.
pub(super) fn put(tree: &OwnedFd, parent: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    let found = rustix::fs::fstat(tree)?;
    let at = if rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() {
        hierarchy::directory(parent, name)?
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(parent.as_fd(), name, flags, Mode::from_raw_mode(0o444))?
    };
    hierarchy::attach(tree, &at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(user: bool, mounts: &str) -> Spec {
        let user = if user {
            r#"{"type":"user","path":"/proc/self/ns/user"},"#
        } else {
            ""
        };
        let json = format!(
            r#"{{"ociVersion":"1.2.0","linux":{{"namespaces":[{user}{{"type":"mount"}},
                {{"type":"network","path":"/proc/self/ns/net"}}]}},"mounts":[{mounts}]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    const PROC: &str = r#"{"destination":"/proc","type":"proc","source":"proc"}"#;
    const BIND: &str = r#"{"destination":"/a","type":"bind","source":"/etc","options":["rbind","ro"]}"#;
    const MAPPED: &str = r#"{"destination":"/b","source":"/tmp","options":["bind","ridmap"],
        "uidMappings":[{"containerID":0,"hostID":5,"size":1}],"gidMappings":[{"containerID":0,"hostID":5,"size":1}]}"#;

    #[test]
    fn without_a_user_namespace_only_mapped_mounts_are_for_us() {
        let mut asked = spec(false, &[PROC, BIND, MAPPED].join(","));
        let before = asked.clone();
        let taken = take(&mut asked).unwrap();
        assert_eq!(taken.volumes.len(), 1);
        assert_eq!(taken.volumes[0].source, Path::new("/tmp"));
        assert_eq!(
            taken.volumes[0].ids,
            Ids::Own(IdMap::parse("0:5:1", "0:5:1").unwrap())
        );
        assert!(taken.volumes[0].all && !taken.volumes[0].recursive);
        let (after, before) = (asked.mounts().clone().unwrap(), before.mounts().clone().unwrap());
        assert_eq!(after[..2], before[..2]);
        assert_eq!(after[2].source().as_deref(), Some(Path::new("/sys/fs/cgroup/0")));
        assert_eq!(
            after[2].options().as_deref(),
            Some(["bind".to_owned()].as_slice())
        );
        assert!(after[2].uid_mappings().is_none() && after[2].gid_mappings().is_none());
    }

    #[test]
    fn in_a_user_namespace_every_bind_mount_is_and_the_namespaces_are_open() {
        let idmap = r#"{"destination":"/c","type":"bind","source":"/tmp","options":["bind","idmap"]}"#;
        let mut asked = spec(true, &[PROC, BIND, idmap].join(","));
        let taken = take(&mut asked).unwrap();
        let ids: Vec<&Ids> = taken.volumes.iter().map(|volume| &volume.ids).collect();
        assert_eq!(ids, [&Ids::Plain, &Ids::Containers]);
        let namespaces = asked.linux().as_ref().unwrap().namespaces().clone().unwrap();
        let user = taken.user.as_ref().unwrap().as_raw_fd();
        assert_eq!(
            namespaces[0].path().clone().unwrap(),
            Path::new(&format!("/proc/self/fd/{user}"))
        );
        assert_eq!(namespaces[1].path(), &None, "a new one stays new");
        assert!(matches!(
            taken.others.as_slice(),
            [(LinuxNamespaceType::Network, _)]
        ));
        let network = namespaces[2].path().clone().unwrap();
        assert!(network.starts_with("/proc/self/fd"));
        assert_eq!(
            std::fs::read_link(network).unwrap(),
            std::fs::read_link("/proc/self/ns/net").unwrap()
        );
        take_namespaces(&mut asked, &[LinuxNamespaceType::Network]);
        assert_eq!(
            asked.linux().as_ref().unwrap().namespaces().as_ref().unwrap(),
            &namespaces[..2]
        );
    }

    #[test]
    fn what_cannot_be_mapped_is_refused_by_the_name_of_its_mount() {
        let options = r#""options":["idmap"]"#;
        for (user, mount, sentence) in [
            (true, format!(r#"{{"destination":"/x","type":"tmpfs","source":"t",{options}}}"#), "bind mounts only"),
            (false, format!(r#"{{"destination":"/x","type":"bind","source":"/tmp",{options}}}"#), "it has none"),
            (
                false,
                r#"{"destination":"/x","type":"bind","source":"/tmp","uidMappings":[{"containerID":0,"hostID":5,"size":1}]}"#.into(),
                "give both",
            ),
        ] {
            let error = take(&mut spec(user, &mount)).unwrap_err();
            assert!(error.starts_with("mounts[/x]: ") && error.contains(sentence), "{error}");
        }
    }

    #[test]
    fn a_new_user_namespace_says_which_ids_it_maps() {
        let json = r#"{"ociVersion":"1.2.0","linux":{"namespaces":[{"type":"user"}]}}"#;
        let error = take(&mut serde_json::from_str(json).unwrap()).unwrap_err();
        assert!(error.contains("linux.uidMappings"), "{error}");
    }
}
