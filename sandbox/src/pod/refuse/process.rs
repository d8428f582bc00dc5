//! Who a process is and what it may: its capabilities, its ids, its place in the scheduler.

use oci_spec::runtime::{Capabilities, Capability as C, Process};

use crate::pod::{Refusal, Role};

/// What containerd gives every container that asks for nothing. A sandbox has none of them; they are dropped without a
/// word, since nobody asked.
const DEFAULT: [C; 14] = [
    C::AuditWrite,
    C::Chown,
    C::DacOverride,
    C::Fowner,
    C::Fsetid,
    C::Kill,
    C::Mknod,
    C::NetBindService,
    C::NetRaw,
    C::Setfcap,
    C::Setgid,
    C::Setpcap,
    C::Setuid,
    C::SysChroot,
];

/// Refuses what a process of a sandbox cannot be, the first one or one that is started later.
pub(in crate::pod) fn process(process: &Process, role: Role) -> Result<(), Refusal> {
    capabilities(process)?;
    identity(process, role)?;
    let placed = [
        ("process.scheduler", process.scheduler().is_some()),
        ("process.ioPriority", process.io_priority().is_some()),
        ("process.execCPUAffinity", process.exec_cpu_affinity().is_some()),
    ];
    match placed.iter().find(|(_, present)| *present) {
        Some((field, _)) => Err(Refusal::new(
            *field,
            "asks for a place in the node's queues that only its administrator gives",
            "remove the field",
        )),
        None => Ok(()),
    }
}

/// Every capability in any of the five sets.
pub(super) fn held(process: &Process) -> impl Iterator<Item = &C> {
    process.capabilities().iter().flat_map(|sets| {
        [
            sets.bounding(),
            sets.effective(),
            sets.inheritable(),
            sets.permitted(),
            sets.ambient(),
        ]
        .into_iter()
        .flat_map(|set: &Option<Capabilities>| set.iter().flatten())
    })
}

fn capabilities(process: &Process) -> Result<(), Refusal> {
    let mut added: Vec<_> = held(process)
        .filter(|capability| !DEFAULT.contains(capability))
        .map(name)
        .collect();
    added.sort();
    added.dedup();
    if added.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(
        "process.capabilities",
        &format!("adds {}, and a sandbox has no capabilities", added.join(", ")),
        "remove capabilities.add from the container",
    ))
}

/// The name as a spec has it.
fn name(capability: &C) -> String {
    format!("CAP_{capability}")
}

/// An id that the kernel takes for "leave it as it is", which would leave it root.
const UNCHANGED: u32 = u32::MAX;

/// Uid 0 is refused and so is the id that would keep it. Gid 0 is not: containerd gives it to every pod whose uid the
/// image does not know, and without capabilities it opens nothing that the container's mounts do not.
fn identity(process: &Process, role: Role) -> Result<(), Refusal> {
    let user = process.user();
    if user.uid() == 0 && role != Role::Pause {
        return Err(Refusal::new(
            "process.user.uid",
            "is 0, and nothing of a pod runs as root in a sandbox",
            "set runAsUser (of an exec, its user) to another uid, 65534 for one",
        ));
    }
    let ids = [
        ("process.user.uid", user.uid() == UNCHANGED),
        ("process.user.gid", user.gid() == UNCHANGED),
        (
            "process.user.additionalGids",
            user.additional_gids()
                .iter()
                .flatten()
                .any(|gid| *gid == UNCHANGED),
        ),
    ];
    match ids.iter().find(|(_, unchanged)| *unchanged) {
        Some((field, _)) => Err(Refusal::new(
            *field,
            "is 4294967295, which the kernel takes for no change and would leave root's",
            "name a real id",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::pod::samples::{accepts, container, pause, plain, rejects};
    use serde_json::json;

    #[test]
    fn a_capability_that_was_added_is_refused_in_each_of_the_five_sets() {
        for set in ["bounding", "effective", "inheritable", "permitted", "ambient"] {
            rejects(
                container(),
                |spec| {
                    spec["process"]["capabilities"][set] =
                        json!(["CAP_CHOWN", "CAP_SYS_PTRACE", "CAP_NET_ADMIN"])
                },
                "process.capabilities adds CAP_NET_ADMIN, CAP_SYS_PTRACE, and a sandbox has no capabilities",
            );
            accepts(container(), |spec| {
                spec["process"]["capabilities"][set] = json!(["CAP_CHOWN", "CAP_NET_RAW"])
            });
        }
    }

    #[test]
    fn a_process_without_capabilities_is_accepted() {
        accepts(container(), |spec| spec["process"]["capabilities"] = json!({}));
        accepts(container(), |spec| {
            spec["process"].as_object_mut().unwrap().remove("capabilities");
        });
    }

    #[test]
    fn uid_0_is_for_the_pause_container_only() {
        for spec in [container(), plain()] {
            rejects(
                spec,
                |spec| spec["process"]["user"]["uid"] = 0.into(),
                "process.user.uid is 0, and nothing of a pod runs as root in a sandbox",
            );
        }
        accepts(pause(), |spec| spec["process"]["user"]["uid"] = 0.into());
        accepts(container(), |spec| spec["process"]["user"]["uid"] = 1.into());
    }

    #[test]
    fn gid_0_is_what_containerd_gives_to_an_unknown_uid() {
        accepts(container(), |spec| {
            spec["process"]["user"] = json!({"uid": 1000, "gid": 0, "additionalGids": [0, 2000]});
        });
    }

    #[test]
    fn the_id_that_means_no_change_is_refused() {
        for (field, user) in [
            ("uid", json!({"uid": u32::MAX, "gid": 1})),
            ("gid", json!({"uid": 1, "gid": u32::MAX})),
            (
                "additionalGids",
                json!({"uid": 1, "gid": 1, "additionalGids": [1, u32::MAX]}),
            ),
        ] {
            rejects(
                container(),
                |spec| spec["process"]["user"] = user.clone(),
                &format!("process.user.{field} is 4294967295"),
            );
        }
    }

    #[test]
    fn a_place_in_the_nodes_queues_is_refused() {
        for (field, value) in [
            ("scheduler", json!({"policy": "SCHED_FIFO", "priority": 10})),
            ("ioPriority", json!({"class": "IOPRIO_CLASS_RT", "priority": 0})),
            ("execCPUAffinity", json!({"initial": "0", "final": "0"})),
        ] {
            rejects(
                container(),
                |spec| spec["process"][field] = value.clone(),
                &format!("process.{field} asks for a place in the node's queues"),
            );
        }
    }
}
