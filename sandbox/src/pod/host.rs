//! What a spec does not tell and the decision needs: facts about the node.

use std::path::{Path, PathBuf};

use oci_spec::runtime::LinuxNamespaceType;

/// The root's place in a bundle.
const ROOT: &str = "rootfs";

/// Whose a namespace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The node's own: what runs there is not isolated.
    Node,
    /// Somebody else's.
    Other,
    /// It could not be looked at.
    Unknown,
}

/// The node and what containerd made there, as far as a spec refers to it.
pub trait Host {
    /// Whose namespace of that kind the path leads to.
    fn whose(&self, kind: LinuxNamespaceType, path: &Path) -> Whose;

    /// Whether the path is a directory, not a link to one.
    fn is_directory(&self, path: &Path) -> bool;

    /// Whether the path is the root that containerd mounts for the container.
    fn is_root(&self, path: &Path) -> bool;
}

/// This machine, and the bundle of the container there.
///
/// Its namespaces are those of the calling process and those of process 1: a node may itself run in namespaces of
/// its own. So ask in a process that has entered no others.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// The bundle, by the path that containerd gave.
    pub bundle: PathBuf,
}

impl Host for Node {
    fn whose(&self, kind: LinuxNamespaceType, path: &Path) -> Whose {
        let of = |process: &str| identity(&PathBuf::from(format!("/proc/{process}/ns/{kind}")));
        compare(identity(path), of("self"), of("1"))
    }

    fn is_directory(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
    }

    fn is_root(&self, path: &Path) -> bool {
        path == Path::new(ROOT) || path == self.bundle.join(ROOT)
    }
}

/// Process 1 may be out of sight; then only our own namespace is known, and it is the node's.
fn compare(found: Option<Identity>, own: Option<Identity>, first: Option<Identity>) -> Whose {
    match (found, own) {
        (Some(found), Some(own)) if found == own || first == Some(found) => Whose::Node,
        (Some(_), Some(_)) => Whose::Other,
        _ => Whose::Unknown,
    }
}

type Identity = (u64, u64);

/// Device and inode: what makes two paths the same namespace.
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path)
        .ok()
        .map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_namespaces_are_known_by_inode_whatever_the_path() {
        use LinuxNamespaceType as T;
        for kind in [T::Pid, T::Ipc, T::Uts, T::Network, T::Mount, T::User, T::Cgroup] {
            let path = PathBuf::from(format!("/proc/{}/ns/{kind}", std::process::id()));
            assert_eq!(Node::default().whose(kind, &path), Whose::Node, "{kind}");
        }
    }

    #[test]
    fn what_is_no_namespace_of_the_node_is_somebody_elses() {
        // Any other file stands for a namespace of another pod: only the identity is compared.
        assert_eq!(
            Node::default().whose(LinuxNamespaceType::Network, Path::new("/proc/self/status")),
            Whose::Other
        );
    }

    #[test]
    fn the_namespaces_of_process_1_are_the_nodes_as_well() {
        let (own, first, other) = (Some((4, 1)), Some((4, 2)), Some((4, 3)));
        assert_eq!(compare(first, own, first), Whose::Node);
        assert_eq!(compare(other, own, first), Whose::Other);
        assert_eq!(compare(other, own, None), Whose::Other);
        assert_eq!(compare(other, None, first), Whose::Unknown);
        assert_eq!(compare(None, own, None), Whose::Unknown);
    }

    #[test]
    fn a_namespace_that_cannot_be_looked_at_is_unknown() {
        let gone = Path::new("/proc/4194305/ns/net");
        assert_eq!(
            Node::default().whose(LinuxNamespaceType::Network, gone),
            Whose::Unknown
        );
    }

    #[test]
    fn the_root_is_the_one_in_the_bundle_and_no_other() {
        let node = Node {
            bundle: "/run/containerd/tasks/c1".into(),
        };
        for path in ["rootfs", "rootfs/", "/run/containerd/tasks/c1/rootfs"] {
            assert!(node.is_root(Path::new(path)), "{path}");
        }
        for path in [
            "",
            ".",
            "root",
            "rootfs/etc",
            "../c1/rootfs",
            "rootfs/../rootfs",
            "/",
            "/rootfs",
            "/run/containerd/tasks/c1",
            "/run/containerd/tasks/c2/rootfs",
            "/run/containerd/tasks/c1/rootfs/etc",
            "/run/containerd/tasks/c1/../c1/rootfs",
        ] {
            assert!(!node.is_root(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_link_to_a_directory_is_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(Node::default().is_directory(dir.path()));
        assert!(!Node::default().is_directory(&link));
    }
}
