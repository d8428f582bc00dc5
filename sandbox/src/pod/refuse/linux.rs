//! The rest of the `linux` section: masks, sysctls, seccomp, and features that only an administrator gives.

use oci_spec::runtime::{Capability, Linux, LinuxSeccomp, LinuxSeccompAction, Process};

use super::process::held;
use crate::pod::Refusal;
use crate::pod::refusal::shown;

/// What every runtime masks unless it is told otherwise; kubelets and containerds of all ages send at least these.
const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];

/// What every runtime makes read-only unless it is told otherwise.
const READONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Sysctls that kubelet calls safe: they belong to the pod and reach nobody else. containerd's own two are among them.
const SAFE_SYSCTLS: [&str; 14] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// A privileged container, which no single field tells: the capabilities of an administrator, and nothing masked.
pub(super) fn privileged(process: &Process, linux: &Linux) -> Result<(), Refusal> {
    let unmasked = linux.masked_paths().as_ref().is_none_or(Vec::is_empty)
        && linux.readonly_paths().as_ref().is_none_or(Vec::is_empty);
    if unmasked && held(process).any(|capability| *capability == Capability::SysAdmin) {
        return Err(Refusal::new(
            "process.capabilities",
            "has every capability and linux.maskedPaths is empty, which is what privileged means",
            "remove privileged from the container's security context",
        ));
    }
    Ok(())
}

/// Refuses the rest, in the order of the spec.
pub(super) fn check(linux: &Linux) -> Result<(), Refusal> {
    masks(linux)?;
    sysctls(linux)?;
    propagation(linux)?;
    cgroups_path(linux)?;
    if let Some(seccomp) = linux.seccomp() {
        listener(seccomp)?;
    }
    let administered = [
        ("linux.intelRdt", linux.intel_rdt().is_some()),
        ("linux.personality", linux.personality().is_some()),
        ("linux.memoryPolicy", linux.memory_policy().is_some()),
        (
            "linux.netDevices",
            linux
                .net_devices()
                .as_ref()
                .is_some_and(|devices| !devices.is_empty()),
        ),
    ];
    match administered.iter().find(|(_, present)| *present) {
        Some((field, _)) => Err(Refusal::new(
            *field,
            "asks for hardware or a mode of the node that only its administrator gives",
            "remove the field",
        )),
        None => Ok(()),
    }
}

fn masks(linux: &Linux) -> Result<(), Refusal> {
    let empty = Vec::new();
    let masked = linux.masked_paths().as_ref().unwrap_or(&empty);
    let readonly = linux.readonly_paths().as_ref().unwrap_or(&empty);
    let has = |list: &[String], path: &str| list.iter().any(|listed| listed == path);
    let remedy = "remove procMount: Unmasked from the container, and let a CRI client that is not kubelet send the \
                  usual masked_paths and readonly_paths";
    if let Some(missing) = MASKED.iter().find(|path| !has(masked, path)) {
        return Err(Refusal::new(
            "linux.maskedPaths",
            &format!("lacks {missing}, so parts of the node's kernel would be open"),
            remedy,
        ));
    }
    match READONLY
        .iter()
        .find(|path| !has(readonly, path) && !has(masked, path))
    {
        Some(missing) => Err(Refusal::new(
            "linux.readonlyPaths",
            &format!("lacks {missing}, so settings of the node's kernel could be written"),
            remedy,
        )),
        None => Ok(()),
    }
}

fn sysctls(linux: &Linux) -> Result<(), Refusal> {
    let mut names: Vec<_> = linux
        .sysctl()
        .iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    names.sort_unstable();
    match names.iter().find(|name| !SAFE_SYSCTLS.contains(name)) {
        Some(name) => Err(Refusal::new(
            format!("linux.sysctl[{}]", shown(name)),
            "is not one of the sysctls that kubelet calls safe",
            "remove it from the pod's securityContext.sysctls",
        )),
        None => Ok(()),
    }
}

fn propagation(linux: &Linux) -> Result<(), Refusal> {
    match linux.rootfs_propagation().as_deref() {
        None | Some("" | "private" | "rprivate") => Ok(()),
        Some(other) => Err(Refusal::new(
            "linux.rootfsPropagation",
            &format!(
                "is {}, so mounts would pass between the node and the container",
                shown(other)
            ),
            "remove mountPropagation from the container's volume mounts",
        )),
    }
}

/// A path that climbs would put the container into a cgroup of somebody else.
fn cgroups_path(linux: &Linux) -> Result<(), Refusal> {
    let climbs = |path: &std::path::Path| {
        path.components()
            .any(|part| part == std::path::Component::ParentDir)
    };
    match linux.cgroups_path() {
        Some(path) if climbs(path) => Err(Refusal::new(
            "linux.cgroupsPath",
            &format!(
                "is {}, which climbs out of its parent",
                shown(&path.to_string_lossy())
            ),
            "name the cgroup without \"..\"",
        )),
        _ => Ok(()),
    }
}

/// A program of the node that answers system calls in the kernel's place could be made to answer wrongly.
fn listener(seccomp: &LinuxSeccomp) -> Result<(), Refusal> {
    let notifies = |action: LinuxSeccompAction| action == LinuxSeccompAction::ScmpActNotify;
    let asked = seccomp.listener_path().is_some()
        || notifies(seccomp.default_action())
        || seccomp
            .syscalls()
            .iter()
            .flatten()
            .any(|rule| notifies(rule.action()));
    if asked {
        return Err(Refusal::new(
            "linux.seccomp.listenerPath",
            "hands system calls to a program of the node (SCMP_ACT_NOTIFY)",
            "use a profile that answers in the kernel",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::pod::samples::{accepts, container, pause, plain, rejects, retain};
    use serde_json::json;

    #[test]
    fn a_privileged_container_is_refused_by_that_name() {
        let sentence = rejects(
            container(),
            |spec| {
                let all = json!(["CAP_SYS_ADMIN", "CAP_SYS_MODULE", "CAP_CHOWN"]);
                for set in ["bounding", "effective", "permitted", "inheritable"] {
                    spec["process"]["capabilities"][set] = all.clone();
                }
                spec["linux"]["maskedPaths"] = json!(null);
                spec["linux"]["readonlyPaths"] = json!(null);
                spec["linux"]["devices"] = json!([{"path": "/dev/sda", "type": "b", "major": 8, "minor": 0}]);
            },
            "process.capabilities has every capability",
        );
        assert!(sentence.contains("remove privileged from"), "{sentence}");
    }

    #[test]
    fn an_unmasked_proc_is_refused_whole_or_in_part() {
        for spec in [container(), pause(), plain()] {
            rejects(
                spec,
                |spec| spec["linux"]["maskedPaths"] = json!([]),
                "linux.maskedPaths lacks /proc/acpi",
            );
        }
        for path in super::MASKED {
            let sentence = rejects(
                container(),
                |spec| retain(&mut spec["linux"]["maskedPaths"], |listed| listed != path),
                &format!("linux.maskedPaths lacks {path},"),
            );
            assert!(sentence.contains("procMount: Unmasked"), "{sentence}");
        }
        for path in super::READONLY {
            rejects(
                container(),
                |spec| retain(&mut spec["linux"]["readonlyPaths"], |listed| listed != path),
                &format!("linux.readonlyPaths lacks {path},"),
            );
        }
    }

    #[test]
    fn a_path_that_is_masked_need_not_be_read_only() {
        accepts(container(), |spec| {
            retain(&mut spec["linux"]["readonlyPaths"], |listed| {
                listed != "/proc/bus"
            });
            spec["linux"]["maskedPaths"]
                .as_array_mut()
                .unwrap()
                .push("/proc/bus".into());
        });
    }

    #[test]
    fn only_the_safe_sysctls_are_accepted() {
        for unsafe_one in [
            "kernel.msgmax",
            "net.core.somaxconn",
            "net/ipv4/tcp_syncookies",
            "kernel.core_pattern",
        ] {
            rejects(
                pause(),
                |spec| spec["linux"]["sysctl"][unsafe_one] = "1".into(),
                &format!("linux.sysctl[\"{unsafe_one}\"] is not one of the sysctls that kubelet calls safe"),
            );
        }
        for safe in super::SAFE_SYSCTLS {
            accepts(pause(), |spec| spec["linux"]["sysctl"][safe] = "1".into());
        }
    }

    #[test]
    fn propagation_between_node_and_container_is_refused() {
        for mode in ["shared", "rshared", "slave", "rslave", "unbindable"] {
            rejects(
                container(),
                |spec| spec["linux"]["rootfsPropagation"] = mode.into(),
                &format!("linux.rootfsPropagation is \"{mode}\""),
            );
        }
        accepts(container(), |spec| {
            spec["linux"]["rootfsPropagation"] = "rprivate".into()
        });
    }

    #[test]
    fn a_cgroup_path_does_not_climb() {
        rejects(
            container(),
            |spec| spec["linux"]["cgroupsPath"] = "/kubepods/../system.slice".into(),
            "linux.cgroupsPath is \"/kubepods/../system.slice\", which climbs",
        );
        accepts(container(), |spec| {
            spec["linux"]["cgroupsPath"] = "kubepods-pod1.slice:cri-containerd:a..b".into()
        });
    }

    #[test]
    fn system_calls_are_not_handed_to_a_program_of_the_node() {
        let says = "linux.seccomp.listenerPath hands system calls to a program of the node";
        let allow = json!({"defaultAction": "SCMP_ACT_ALLOW"});
        for (key, value) in [
            ("listenerPath", json!("/run/agent.sock")),
            ("defaultAction", json!("SCMP_ACT_NOTIFY")),
            (
                "syscalls",
                json!([{"names": ["mount"], "action": "SCMP_ACT_NOTIFY"}]),
            ),
        ] {
            rejects(
                container(),
                |spec| {
                    spec["linux"]["seccomp"] = allow.clone();
                    spec["linux"]["seccomp"][key] = value.clone();
                },
                says,
            );
        }
        accepts(container(), |spec| {
            spec["linux"]["seccomp"] = json!({
                "defaultAction": "SCMP_ACT_ERRNO",
                "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ALLOW"}],
            });
        });
    }

    #[test]
    fn what_only_an_administrator_gives_is_refused() {
        for (field, value) in [
            ("intelRdt", json!({"closID": "guaranteed"})),
            ("personality", json!({"domain": "LINUX32"})),
            ("memoryPolicy", json!({"mode": "MPOL_BIND", "nodes": "0"})),
            ("netDevices", json!({"eth1": {}})),
        ] {
            rejects(
                container(),
                |spec| spec["linux"][field] = value.clone(),
                &format!("linux.{field} asks for hardware or a mode of the node"),
            );
        }
    }

    #[test]
    fn labels_of_the_security_modules_are_accepted() {
        accepts(container(), |spec| {
            spec["process"]["apparmorProfile"] = "cri-containerd.apparmor.d".into();
            spec["process"]["selinuxLabel"] = "system_u:system_r:container_t:s0:c1,c2".into();
            spec["linux"]["mountLabel"] = "system_u:object_r:container_file_t:s0:c1,c2".into();
        });
    }
}
