//! The files of the base layer that no package brings: the merged `/usr`, mount points, and the few tables of `/etc`.

use crate::tree::{Node, Tree, TreeError};

/// User and group in the sandbox.
pub(crate) const NOBODY: u32 = 65_534;

/// Directories over which a sandbox mounts something.
const MOUNT_POINTS: [&str; 6] = ["dev", "out", "proc", "run", "sys", "work"];

/// Text files of `/etc`.
const TABLES: [(&str, &str); 8] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/:/usr/bin/sh\nnobody:x:65534:65534:nobody:/work:/usr/bin/sh\n",
    ),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    // Docker and Kubernetes mount their own over these two.
    ("etc/hostname", "sandbox\n"),
    ("etc/resolv.conf", ""),
    ("etc/shells", "/usr/bin/sh\n"),
    (
        "etc/os-release",
        "PRETTY_NAME=\"Sandglass sandbox (Debian 13 packages)\"\nNAME=\"Sandglass sandbox\"\nID=sandglass\nID_LIKE=debian\nVERSION_ID=\"13\"\n",
    ),
];

/// Adds them.
pub(crate) fn add(tree: &mut Tree) -> Result<(), TreeError> {
    for name in ["bin", "lib", "lib64", "sbin"] {
        tree.directory(&format!("usr/{name}"))?;
        tree.link(name, &format!("usr/{name}"))?;
    }
    for name in MOUNT_POINTS {
        tree.directory(name)?;
    }
    tree.insert("tmp", Node::Directory { scratch: true })?;
    for (path, text) in TABLES {
        tree.file(path, text)?;
    }
    // glibc looks for the name as the environment spells it first.
    tree.link("usr/lib/locale/C.UTF-8", "C.utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_has_every_mount_point_and_the_user_of_a_sandbox() {
        let mut tree = Tree::default();
        add(&mut tree).unwrap();
        for path in ["work", "out", "proc", "sys", "dev", "run"] {
            assert_eq!(
                tree.get(path),
                Some(&Node::Directory { scratch: false }),
                "{path}"
            );
        }
        assert_eq!(tree.get("tmp"), Some(&Node::Directory { scratch: true }));
        let Some(Node::File { data, .. }) = tree.get("etc/passwd") else {
            panic!("no passwd")
        };
        assert!(String::from_utf8_lossy(data).contains(&format!("nobody:x:{NOBODY}:{NOBODY}:")));
        assert_eq!(
            tree.get("bin"),
            Some(&Node::Link {
                target: "usr/bin".into()
            })
        );
    }
}
