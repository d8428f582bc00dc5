//! Namespaces: each container has its pod's own, and none of the node's.

use oci_spec::runtime::{Linux, LinuxNamespace, LinuxNamespaceType as T};

use crate::pod::refusal::shown;
use crate::pod::{Host, Refusal, Whose};

/// Kinds that a sandbox has to have, what would be seen without, and how a pod came to be without.
const NEEDED: [(T, &str, &str); 5] = [
    (
        T::Network,
        "the node's network",
        "remove hostNetwork from the pod",
    ),
    (T::Pid, "the node's processes", "remove hostPID from the pod"),
    (
        T::Ipc,
        "the node's shared memory and queues",
        "remove hostIPC from the pod",
    ),
    (T::Uts, "the node's host name", "remove hostNetwork from the pod"),
    (
        T::Mount,
        "the node's mounts",
        "let the container have a mount namespace",
    ),
];

/// Refuses namespaces of the node, kinds that this runtime does not make, and an ambiguous list.
pub(super) fn check(linux: &Linux, host: &dyn Host) -> Result<(), Refusal> {
    let empty = Vec::new();
    let listed = linux.namespaces().as_ref().unwrap_or(&empty);
    for (kind, seen, remedy) in NEEDED {
        let mut of_kind = listed.iter().filter(|namespace| namespace.typ() == kind);
        let Some(namespace) = of_kind.next() else {
            return Err(Refusal::new(
                field(kind),
                &format!("is missing, so the container would have {seen}"),
                remedy,
            ));
        };
        if of_kind.next().is_some() {
            return Err(twice(kind));
        }
        joined(namespace, seen, remedy, host)?;
    }
    cgroup(listed, host)?;
    user(linux, listed)?;
    if listed.iter().any(|namespace| namespace.typ() == T::Time)
        || linux
            .time_offsets()
            .as_ref()
            .is_some_and(|offsets| !offsets.is_empty())
    {
        return Err(Refusal::new(
            "linux.timeOffsets",
            "sets the clocks of a time namespace, which a sandbox does not have",
            "remove the offsets and the namespace",
        ));
    }
    Ok(())
}

/// A namespace that is joined must not be the node's, and must be known not to be.
fn joined(namespace: &LinuxNamespace, seen: &str, remedy: &str, host: &dyn Host) -> Result<(), Refusal> {
    let Some(path) = namespace.path() else {
        return Ok(());
    };
    let kind = namespace.typ();
    if kind == T::Mount {
        return Err(Refusal::new(
            field(kind),
            &format!(
                "joins {}, and a sandbox has mounts of its own",
                shown(&path.to_string_lossy())
            ),
            "remove the path",
        ));
    }
    match host.whose(kind, path) {
        Whose::Other => Ok(()),
        Whose::Node => Err(Refusal::new(
            field(kind),
            &format!("joins the node's own, so the container would have {seen}"),
            remedy,
        )),
        Whose::Unknown => Err(Refusal::new(
            field(kind),
            &format!(
                "joins {}, which cannot be looked at",
                shown(&path.to_string_lossy())
            ),
            "see whether the pod's sandbox is still running",
        )),
    }
}

/// A cgroup namespace is made where the runtime makes the cgroup; it may be listed, but not be another's.
fn cgroup(listed: &[LinuxNamespace], host: &dyn Host) -> Result<(), Refusal> {
    let mut of_kind = listed.iter().filter(|namespace| namespace.typ() == T::Cgroup);
    let Some(namespace) = of_kind.next() else {
        return Ok(());
    };
    if of_kind.next().is_some() {
        return Err(twice(T::Cgroup));
    }
    joined(
        namespace,
        "the node's view of its cgroups",
        "remove the path",
        host,
    )
}

/// The runtime advertises no user namespaces: whoever asks for one must not believe to have it.
fn user(linux: &Linux, listed: &[LinuxNamespace]) -> Result<(), Refusal> {
    let mapped = [linux.uid_mappings(), linux.gid_mappings()]
        .iter()
        .any(|mappings| mappings.as_ref().is_some_and(|mappings| !mappings.is_empty()));
    if mapped || listed.iter().any(|namespace| namespace.typ() == T::User) {
        return Err(Refusal::new(
            field(T::User),
            "asks for a user namespace, which this runtime does not make for pods",
            "remove hostUsers: false from the pod",
        ));
    }
    Ok(())
}

fn twice(kind: T) -> Refusal {
    Refusal::new(
        field(kind),
        "is listed twice, so that it is open which one counts",
        "list each namespace once",
    )
}

/// The field of one kind, named as a spec names it.
fn field(kind: T) -> String {
    let name = match kind {
        T::Mount => "mount",
        T::Cgroup => "cgroup",
        T::Uts => "uts",
        T::Ipc => "ipc",
        T::User => "user",
        T::Pid => "pid",
        T::Network => "network",
        T::Time => "time",
    };
    format!("linux.namespaces[{name}]")
}

#[cfg(test)]
mod tests {
    use crate::pod::samples::{
        accepts, container, pause, plain, rejects, rejects_on, with_namespace, without_namespace,
    };
    use serde_json::json;

    #[test]
    fn the_nodes_namespaces_are_refused_when_a_kind_is_not_listed() {
        for (kind, seen, remedy) in [
            ("network", "the node's network", "hostNetwork"),
            ("pid", "the node's processes", "hostPID"),
            ("ipc", "the node's shared memory and queues", "hostIPC"),
            ("uts", "the node's host name", "hostNetwork"),
            ("mount", "the node's mounts", "mount namespace"),
        ] {
            for spec in [pause(), container(), plain()] {
                let sentence = rejects(
                    spec,
                    |spec| without_namespace(spec, kind),
                    &format!("linux.namespaces[{kind}] is missing, so the container would have {seen}"),
                );
                assert!(sentence.contains(remedy), "{sentence}");
            }
        }
    }

    #[test]
    fn the_nodes_namespaces_are_refused_when_they_are_joined_by_path() {
        for kind in ["network", "pid", "ipc", "uts"] {
            rejects(
                container(),
                |spec| with_namespace(spec, kind, Some("/proc/1/ns/x")),
                &format!("linux.namespaces[{kind}] joins the node's own"),
            );
            accepts(container(), |spec| {
                with_namespace(spec, kind, Some("/proc/4711/ns/x"))
            });
        }
    }

    #[test]
    fn a_namespace_that_cannot_be_looked_at_is_refused() {
        rejects(
            container(),
            |spec| with_namespace(spec, "network", Some("/proc/99999/ns/net")),
            "linux.namespaces[network] joins \"/proc/99999/ns/net\", which cannot be looked at",
        );
    }

    #[test]
    fn a_process_namespace_of_ones_own_or_of_the_pod_is_accepted() {
        accepts(container(), |spec| with_namespace(spec, "pid", None));
        accepts(container(), |spec| {
            with_namespace(spec, "pid", Some("/proc/4711/ns/pid"))
        });
    }

    #[test]
    fn a_mount_namespace_is_never_joined() {
        rejects(
            container(),
            |spec| with_namespace(spec, "mount", Some("/proc/4711/ns/mnt")),
            "linux.namespaces[mount] joins \"/proc/4711/ns/mnt\"",
        );
    }

    #[test]
    fn user_namespaces_are_not_advertised_and_refused() {
        rejects(
            pause(),
            |spec| with_namespace(spec, "user", None),
            "linux.namespaces[user] asks for a user namespace",
        );
        let mapping = json!([{"containerID": 0, "hostID": 65536, "size": 65536}]);
        for mappings in ["uidMappings", "gidMappings"] {
            rejects(
                container(),
                |spec| spec["linux"][mappings] = mapping.clone(),
                "linux.namespaces[user] asks for a user namespace",
            );
            accepts(container(), |spec| spec["linux"][mappings] = json!([]));
        }
    }

    #[test]
    fn a_kind_that_is_listed_twice_is_refused() {
        for kind in ["network", "cgroup"] {
            rejects(
                container(),
                |spec| {
                    let list = spec["linux"]["namespaces"].as_array_mut().unwrap();
                    list.extend([json!({"type": kind}), json!({"type": kind})]);
                },
                &format!("linux.namespaces[{kind}] is listed twice"),
            );
        }
    }

    #[test]
    fn a_cgroup_namespace_may_be_listed_but_not_be_the_nodes() {
        accepts(container(), |spec| with_namespace(spec, "cgroup", None));
        rejects(
            container(),
            |spec| with_namespace(spec, "cgroup", Some("/proc/1/ns/x")),
            "linux.namespaces[cgroup] joins the node's own",
        );
    }

    #[test]
    fn the_clocks_cannot_be_set() {
        let says = "linux.timeOffsets sets the clocks";
        rejects(container(), |spec| with_namespace(spec, "time", None), says);
        rejects(
            container(),
            |spec| spec["linux"]["timeOffsets"] = json!({"monotonic": {"secs": 60}}),
            says,
        );
    }

    #[test]
    fn the_real_nodes_namespaces_are_refused() {
        rejects_on(
            &crate::pod::Node::default(),
            container(),
            |spec| with_namespace(spec, "network", Some("/proc/self/ns/net")),
            "linux.namespaces[network] joins the node's own",
        );
    }
}
