//! A mount of a spec as the container library will read it.

use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::Mount;

/// What a mount puts into the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A path of the node.
    Bind,
    /// The process file system.
    Proc,
    /// The device model of the kernel.
    Sysfs,
    /// The hierarchies of cgroups, of either version.
    Cgroup,
    /// Memory.
    Tmpfs,
    /// Pseudo terminals.
    Devpts,
    /// POSIX message queues.
    Mqueue,
    /// Any other file system.
    Other,
}

/// The kind of a mount. An option `bind` or `rbind` makes it a bind whatever its type says, as for the container library.
pub(crate) fn kind(mount: &Mount) -> Kind {
    let typ = mount.typ().as_deref();
    if typ == Some("bind") || options(mount).any(|option| matches!(option, "bind" | "rbind")) {
        return Kind::Bind;
    }
    match typ {
        Some("proc") => Kind::Proc,
        Some("sysfs") => Kind::Sysfs,
        Some("cgroup" | "cgroup2") => Kind::Cgroup,
        Some("tmpfs") => Kind::Tmpfs,
        Some("devpts") => Kind::Devpts,
        Some("mqueue") => Kind::Mqueue,
        _ => Kind::Other,
    }
}

/// The options of a mount, in order.
pub(super) fn options(mount: &Mount) -> impl Iterator<Item = &str> {
    mount.options().iter().flatten().map(String::as_str)
}

/// Whether a mount is read-only: the last of `ro` and `rw` decides, and the recursive form is above both.
pub(super) fn is_read_only(mount: &Mount) -> bool {
    last_of(mount, "ro", "rw") || options(mount).any(|option| option == "rro")
}

/// Whether the last of two options that undo each other is `set`.
pub(super) fn last_of(mount: &Mount, set: &str, clear: &str) -> bool {
    options(mount)
        .filter(|option| *option == set || *option == clear)
        .last()
        == Some(set)
}

/// A path of the container in its one form: absolute, no doubled slash, no `.`. None where it is relative or climbs.
pub(super) fn target(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::from("/");
    let mut components = path.components();
    if components.next() != Some(Component::RootDir) {
        return None;
    }
    for component in components {
        match component {
            Component::Normal(name) => normal.push(name),
            _ => return None,
        }
    }
    Some(normal)
}

/// A path of the node, which is compared by its text: it has to be the one form already, as containerd writes it.
pub(super) fn source(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let parts = text.strip_prefix('/')?;
    let plain = parts.split('/').all(|part| !matches!(part, "" | "." | ".."));
    (plain && !text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::MountBuilder;

    fn with(typ: &str, options: &[&str]) -> Mount {
        MountBuilder::default()
            .destination("/x")
            .typ(typ)
            .options(options.iter().map(ToString::to_string).collect::<Vec<_>>())
            .build()
            .unwrap()
    }

    #[test]
    fn an_option_bind_makes_a_bind_of_any_type() {
        assert_eq!(kind(&with("tmpfs", &["rbind"])), Kind::Bind);
        assert_eq!(kind(&with("none", &["bind"])), Kind::Bind);
        assert_eq!(kind(&with("bind", &[])), Kind::Bind);
        assert_eq!(kind(&with("tmpfs", &["ro"])), Kind::Tmpfs);
    }

    #[test]
    fn the_last_of_ro_and_rw_decides_and_the_recursive_form_is_above_both() {
        assert!(is_read_only(&with("bind", &["rw", "ro"])));
        assert!(!is_read_only(&with("bind", &["ro", "rw"])));
        assert!(is_read_only(&with("bind", &["rro", "rw"])));
        assert!(!is_read_only(&with("bind", &[])));
    }

    #[test]
    fn a_target_has_one_form_and_never_climbs() {
        assert_eq!(target(Path::new("//work/./a/")), Some("/work/a".into()));
        assert_eq!(target(Path::new("/")), Some("/".into()));
        assert_eq!(target(Path::new("/work/../etc")), None);
        assert_eq!(target(Path::new("work")), None);
        assert_eq!(target(Path::new("")), None);
    }

    #[test]
    fn a_source_with_any_trick_in_it_is_none() {
        assert_eq!(source(Path::new("/a/b")), Some("/a/b"));
        for trick in ["/a/../b", "/a/./b", "/a//b", "/a/", "a", "", "/", "//a", "/a/.."] {
            assert_eq!(source(Path::new(trick)), None, "{trick}");
        }
    }
}
