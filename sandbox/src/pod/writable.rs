//! The paths that a container may write, for Landlock: whatever else goes wrong, no others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};

use super::mount::{self, Kind};

/// The paths of the container where a hardened spec lets it write, sorted: mounted volumes (a file or a directory),
/// scratch, and its terminals (`/dev/pts`, `/dev/tty`, `/dev/ptmx`, and `/dev/console` if its first process has a
/// terminal). A mount that a later one hides is not among them. The device nodes that every container has (null, zero,
/// full, random, urandom) are not either: they allow less than a directory does, and are known without a spec.
#[must_use]
pub fn writable(spec: &Spec) -> Vec<PathBuf> {
    let mounts: Vec<&Mount> = spec.mounts().iter().flatten().collect();
    let mut paths = BTreeSet::new();
    for (index, mount) in mounts.iter().enumerate() {
        let Some(target) = mount::target(mount.destination()) else {
            continue;
        };
        let later = &mounts[index + 1..];
        let hidden = later
            .iter()
            .filter_map(|over| mount::target(over.destination()))
            .any(|over| target.starts_with(over));
        if hidden {
            continue;
        }
        match mount::kind(mount) {
            Kind::Devpts => paths.extend(["/dev/pts", "/dev/ptmx", "/dev/tty"].map(PathBuf::from)),
            Kind::Bind | Kind::Tmpfs if target != Path::new("/dev") && !mount::is_read_only(mount) => {
                paths.insert(target);
            }
            _ => {}
        }
    }
    if spec.process().as_ref().and_then(|process| process.terminal()) == Some(true) {
        paths.insert("/dev/console".into());
    }
    paths.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::samples::{PODS, Sample, add_bind, add_mount, container, edited, pause};
    use crate::pod::{Policy, harden};
    use serde_json::{Value, json};

    fn of(from: Spec, edit: impl FnOnce(&mut Value)) -> Vec<String> {
        let spec = harden(edited(from, edit), &Policy::default(), &Sample).unwrap();
        writable(&spec)
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn scratch_volumes_and_terminals_are_writable_and_nothing_else() {
        assert_eq!(
            of(container(), |_| {}),
            [
                "/dev/ptmx",
                "/dev/pts",
                "/dev/shm",
                "/dev/termination-log",
                "/dev/tty",
                "/out",
                "/tmp",
                "/var/cache/app",
                "/work"
            ]
        );
    }

    #[test]
    fn a_terminal_of_the_first_process_brings_the_console() {
        let paths = of(container(), |spec| spec["process"]["terminal"] = true.into());
        assert!(paths.contains(&"/dev/console".to_owned()));
    }

    #[test]
    fn the_pause_container_writes_nothing() {
        assert_eq!(of(pause(), |_| {}), ["/dev/ptmx", "/dev/pts", "/dev/tty"]);
    }

    #[test]
    fn a_volume_that_is_read_only_is_not_writable() {
        let paths = of(container(), |spec| {
            let source = format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch");
            add_mount(
                spec,
                json!({"destination": "/work", "type": "bind", "source": source, "options": ["rbind", "ro"]}),
            );
        });
        assert!(!paths.contains(&"/work".to_owned()), "{paths:?}");
    }

    #[test]
    fn a_volume_that_a_later_mount_hides_is_not_writable() {
        let source = format!("{PODS}/volumes/kubernetes.io~empty-dir/scratch");
        let secret = format!("{PODS}/volumes/kubernetes.io~secret/key");
        let over = |target: &str| json!({"destination": target, "type": "bind", "source": secret, "options": ["rbind", "ro"]});
        for target in ["/data", "/data/inner"] {
            let paths = of(container(), |spec| {
                add_bind(spec, &source, "/data/inner");
                add_mount(spec, over(target));
            });
            assert!(!paths.contains(&"/data/inner".to_owned()), "{paths:?}");
        }
        let paths = of(container(), |spec| {
            add_mount(spec, over("/data"));
            add_bind(spec, &source, "/data/inner");
        });
        assert!(paths.contains(&"/data/inner".to_owned()), "{paths:?}");
    }
}
