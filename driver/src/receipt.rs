//! The isolation receipt: what was observed of the sandbox against what is required of it.
//!
//! A pure function over two observations, one made by the runner inside and one by the kernel's files read from
//! outside. It runs before the script may start; one missing control ends the run.

use sandglass_run::protocol::{Observed, ScratchMount};
use sandglass_run::{Isolation, Limits, Waiver};
use sandglass_sandbox::HostObserved;

use crate::refusal::Refusal;

/// The uid and gid inside.
const NOBODY: u32 = 65534;
/// Namespaces that a sandbox has of its own.
const NAMESPACES: [&str; 7] = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];
/// The scratch mounts, and which share of the scratch limit each may hold.
const SCRATCH: [(&str, u64); 4] = [("/work", 1), ("/out", 1), ("/tmp", 1), ("/dev/shm", 2)];
/// The kernel rounds sizes to pages; the largest page of a supported machine.
const PAGE: u64 = 64 * 1024;
/// The kernel holds a CPU quota in microseconds of a period of 100 ms.
const CPU_GRAIN: f64 = 0.001;

/// What is required of a sandbox.
#[derive(Debug, Clone)]
pub struct Required<'a> {
    /// Limits of the run.
    pub limits: &'a Limits,
    /// Layers that the person does without.
    pub waivers: &'a [Waiver],
    /// Whether the driver's process is root: then the script's ids outside must be other than root's. An ordinary
    /// user's sandbox can only ever have that user's own.
    pub privileged: bool,
    /// The driver, as the receipt names it.
    pub driver: &'a str,
    /// The image's digest, of the root that was handed to the sandbox.
    pub image: &'a str,
    /// Name of the seccomp profile, and of how many filters it is.
    pub profile: (&'a str, usize),
}

/// A control that is required and was not observed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("The control `{control}` was not observed: required is {required}, found was {found}.")]
pub struct MissingControl {
    /// Its name, as in the table of controls.
    pub control: &'static str,
    /// What it must be.
    pub required: String,
    /// What it was.
    pub found: String,
}

impl From<MissingControl> for Refusal {
    fn from(m: MissingControl) -> Self {
        Self::new(
            "control_missing",
            m.to_string(),
            "Nothing was run. Run `sandglass doctor`, and `sandglass image verify` if it finds nothing.",
        )
    }
}

/// Checks every control and makes the receipt out of what was observed.
///
/// # Errors
/// The first control that is missing, by name.
pub fn check(
    inside: &Observed,
    outside: &HostObserved,
    required: &Required<'_>,
) -> Result<Isolation, MissingControl> {
    namespaces(inside, outside)?;
    identity(inside, outside, required)?;
    privileges(inside, outside)?;
    system_calls(inside, outside, required.profile.1)?;
    network(inside)?;
    files(inside, required)?;
    let waived = waived(outside, required)?;
    landlock(outside, &waived)?;
    resources(outside, required, &waived)?;
    Ok(Isolation {
        driver: required.driver.to_owned(),
        runtime: "sandglass".to_owned(),
        image: required.image.to_owned(),
        uid: inside.uid().unwrap_or(u32::MAX),
        capabilities: "none".to_owned(),
        no_new_privileges: inside.no_new_privs && outside.no_new_privileges,
        seccomp_profile: required.profile.0.to_owned(),
        landlock_abi: outside.landlock_abi,
        user_namespace: outside.namespaces.iter().any(|n| n == "user"),
        network: "none".to_owned(),
        root_read_only: inside.root_read_only,
        waived: waived.iter().map(|w| w.as_str().to_owned()).collect(),
    })
}

/// One control: fine, or missing with what was found.
fn require(
    fine: bool,
    control: &'static str,
    required: impl Into<String>,
    found: impl FnOnce() -> String,
) -> Result<(), MissingControl> {
    if fine {
        Ok(())
    } else {
        Err(MissingControl {
            control,
            required: required.into(),
            found: found(),
        })
    }
}

fn namespaces(inside: &Observed, outside: &HostObserved) -> Result<(), MissingControl> {
    require(inside.pid == 1, "pid_namespace", "a runner that is PID 1", || {
        format!("PID {}", inside.pid)
    })?;
    for name in NAMESPACES {
        let own = outside.namespaces.iter().any(|n| n == name);
        let control = if name == "user" {
            "user_namespace"
        } else {
            "namespaces"
        };
        require(own, control, format!("a {name} namespace of its own"), || {
            format!("only {} of its own", outside.namespaces.join(", "))
        })?;
    }
    Ok(())
}

fn identity(
    inside: &Observed,
    outside: &HostObserved,
    required: &Required<'_>,
) -> Result<(), MissingControl> {
    require(inside.uid() == Some(NOBODY), "uid", NOBODY.to_string(), || {
        format!("{:?}", inside.uids)
    })?;
    require(inside.gid() == Some(NOBODY), "gid", NOBODY.to_string(), || {
        format!("{:?}", inside.gids)
    })?;
    let may_have_groups = required.waivers.contains(&Waiver::Groups);
    // An ordinary user's own group stays in the list where setgroups is refused; it says nothing new.
    let others = |groups: &[u32], own: &[u32]| groups.iter().any(|g| !own.contains(g));
    require(
        may_have_groups || !(others(&inside.groups, &inside.gids) || others(&outside.groups, &outside.gids)),
        "groups",
        "no supplementary groups",
        || format!("{:?} inside and {:?} outside", inside.groups, outside.groups),
    )?;
    let all_ids = inside
        .uid_map
        .iter()
        .map(|range| u64::from(range.count))
        .sum::<u64>();
    require(
        (1..=65_536).contains(&all_ids),
        "user_namespace",
        "a map of some ids",
        || format!("{all_ids} ids mapped"),
    )?;
    let none_is_root = |ids: &[u32]| ids.len() == 4 && !ids.contains(&0);
    require(
        !required.privileged || (none_is_root(&outside.uids) && none_is_root(&outside.gids)),
        "user_namespace",
        "ids that are not root's outside",
        || format!("uids {:?} and gids {:?} outside", outside.uids, outside.gids),
    )
}

fn privileges(inside: &Observed, outside: &HostObserved) -> Result<(), MissingControl> {
    require(
        inside.has_no_capabilities() && outside.capabilities == [0; 5],
        "capabilities",
        "five empty sets",
        || {
            format!(
                "inh {:x}, prm {:x}, eff {:x}, bnd {:x}, amb {:x} inside and {:x?} outside",
                inside.cap_inh,
                inside.cap_prm,
                inside.cap_eff,
                inside.cap_bnd,
                inside.cap_amb,
                outside.capabilities
            )
        },
    )?;
    require(
        inside.no_new_privs && outside.no_new_privileges,
        "no_new_privileges",
        "set",
        || {
            format!(
                "{} inside and {} outside",
                inside.no_new_privs, outside.no_new_privileges
            )
        },
    )?;
    require(
        !inside.dumpable,
        "runner_not_dumpable",
        "a runner that nobody inside can trace",
        || "dumpable".to_owned(),
    )
}

fn system_calls(inside: &Observed, outside: &HostObserved, filters: usize) -> Result<(), MissingControl> {
    require(
        inside.seccomp_mode == 2 && outside.seccomp_mode == 2,
        "seccomp",
        "filter mode (2)",
        || {
            format!(
                "mode {} inside and {} outside",
                inside.seccomp_mode, outside.seccomp_mode
            )
        },
    )?;
    // A kernel without the count (before 5.9) says nothing inside and 0 outside; the mode is all there is then.
    let counted = outside.seccomp_filters > 0 || inside.seccomp_filters.is_some();
    let ours = outside
        .seccomp_filters
        .saturating_sub(outside.seccomp_filters_inherited) as usize;
    let agree = inside.seccomp_filters == Some(outside.seccomp_filters);
    require(
        !counted || (ours >= filters && agree),
        "seccomp",
        format!("{filters} filters of the sandbox's own"),
        || {
            format!(
                "{:?} filters inside and {} outside, {} of them inherited",
                inside.seccomp_filters, outside.seccomp_filters, outside.seccomp_filters_inherited
            )
        },
    )
}

fn network(inside: &Observed) -> Result<(), MissingControl> {
    require(
        inside.interfaces.iter().all(|i| i == "lo"),
        "network",
        "no interface but lo",
        || inside.interfaces.join(", "),
    )
}

fn files(inside: &Observed, required: &Required<'_>) -> Result<(), MissingControl> {
    require(
        inside.root_read_only,
        "root_read_only",
        "a read-only root",
        || "a writable root".to_owned(),
    )?;
    for (path, share) in SCRATCH {
        let Some(mount) = inside.scratch.iter().find(|m| m.path == path) else {
            return require(false, "scratch", format!("a tmpfs at {path}"), || {
                "nothing mounted there".to_owned()
            });
        };
        let most = (required.limits.scratch_bytes / share).next_multiple_of(PAGE);
        require(
            scratch_is_fine(mount, most),
            "scratch",
            format!("{path}: tmpfs, nosuid, nodev, noexec, at most {most} bytes, inodes capped"),
            || format!("{mount:?}"),
        )?;
    }
    Ok(())
}

fn scratch_is_fine(mount: &ScratchMount, most: u64) -> bool {
    mount.kind == "tmpfs"
        && !mount.read_only
        && mount.nosuid
        && mount.nodev
        && mount.noexec
        && mount.size_bytes.is_some_and(|size| (1..=most).contains(&size))
        && mount.inodes.is_some_and(|inodes| inodes > 0)
}

/// What the sandbox went without; nothing that the person did not name.
fn waived(outside: &HostObserved, required: &Required<'_>) -> Result<Vec<Waiver>, MissingControl> {
    let mut waived = outside.waived.clone();
    for waiver in &waived {
        require(
            required.waivers.contains(waiver),
            "waived",
            "nothing waived but what was named",
            || waiver.to_string(),
        )?;
    }
    waived.sort_unstable();
    waived.dedup();
    Ok(waived)
}

fn landlock(outside: &HostObserved, waived: &[Waiver]) -> Result<(), MissingControl> {
    let fine = outside.landlock_abi.is_some_and(|abi| abi > 0) || waived.contains(&Waiver::Landlock);
    require(fine, "landlock", "a ruleset in force", || "none".to_owned())
}

/// The cgroup's limits as read back: there, and not looser than asked for.
fn resources(
    outside: &HostObserved,
    required: &Required<'_>,
    waived: &[Waiver],
) -> Result<(), MissingControl> {
    let limits = required.limits;
    let found = &outside.limits;
    let show = |value: Option<String>| value.unwrap_or_else(|| "no limit".to_owned());
    let memory = found
        .memory_bytes
        .is_some_and(|n| n > 0 && n <= limits.memory_bytes);
    require(
        memory || waived.contains(&Waiver::Memory),
        "memory",
        format!("at most {} bytes", limits.memory_bytes),
        || show(found.memory_bytes.map(|n| format!("{n} bytes"))),
    )?;
    // The runner is one process more than the script may have.
    let pids = found
        .pids
        .is_some_and(|n| n > 0 && n <= u64::from(limits.pids) + 1);
    require(
        pids || waived.contains(&Waiver::Pids),
        "pids",
        format!("at most {}", limits.pids),
        || show(found.pids.map(|n| n.to_string())),
    )?;
    let cpus = found
        .cpus
        .is_some_and(|n| n > 0.0 && n <= limits.cpus + CPU_GRAIN);
    require(
        cpus || waived.contains(&Waiver::Cpu),
        "cpu",
        format!("at most {}", limits.cpus),
        || show(found.cpus.map(|n| n.to_string())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandglass_run::protocol::IdRange;

    fn mount(path: &str, size: u64) -> ScratchMount {
        ScratchMount {
            path: path.into(),
            kind: "tmpfs".into(),
            read_only: false,
            nosuid: true,
            nodev: true,
            noexec: true,
            size_bytes: Some(size),
            inodes: Some(32_768),
        }
    }

    fn inside() -> Observed {
        let scratch = Limits::default().scratch_bytes;
        Observed {
            pid: 1,
            uids: [NOBODY; 4],
            gids: [NOBODY; 4],
            groups: vec![],
            cap_inh: 0,
            cap_prm: 0,
            cap_eff: 0,
            cap_bnd: 0,
            cap_amb: 0,
            no_new_privs: true,
            seccomp_mode: 2,
            seccomp_filters: Some(3),
            root_read_only: true,
            interfaces: vec!["lo".into()],
            scratch: vec![
                mount("/work", scratch),
                mount("/out", scratch),
                mount("/tmp", scratch),
                mount("/dev/shm", scratch / 2),
            ],
            uid_map: vec![IdRange {
                inside: NOBODY,
                outside: 1_879_048_193,
                count: 1,
            }],
            dumpable: false,
        }
    }

    fn outside() -> HostObserved {
        let limits = Limits::default();
        let mut outside = HostObserved {
            pid: 4711,
            uids: vec![1_879_048_193; 4],
            gids: vec![1_879_048_193; 4],
            no_new_privileges: true,
            seccomp_mode: 2,
            seccomp_filters: 3,
            seccomp_filters_inherited: 1,
            namespaces: NAMESPACES.map(str::to_owned).to_vec(),
            landlock_abi: Some(7),
            ..HostObserved::default()
        };
        outside.limits.memory_bytes = Some(limits.memory_bytes);
        outside.limits.cpus = Some(limits.cpus);
        outside.limits.pids = Some(u64::from(limits.pids) + 1);
        outside
    }

    fn checked(
        inside: &Observed,
        outside: &HostObserved,
        waivers: &[Waiver],
    ) -> Result<Isolation, MissingControl> {
        let limits = Limits::default();
        let required = Required {
            limits: &limits,
            waivers,
            privileged: true,
            driver: "local",
            image: "sha256:0",
            profile: ("strict", 2),
        };
        check(inside, outside, &required)
    }

    #[test]
    fn a_sealed_sandbox_gets_a_receipt_of_what_was_observed() {
        let receipt = checked(&inside(), &outside(), &[]).unwrap();
        assert_eq!(receipt.uid, NOBODY);
        assert_eq!(receipt.landlock_abi, Some(7));
        assert!(receipt.user_namespace && receipt.root_read_only && receipt.no_new_privileges);
        assert!(receipt.waived.is_empty());
    }

    /// Spoils one observation and says which control must be named as missing.
    fn missing(control: &str, spoil: impl FnOnce(&mut Observed, &mut HostObserved)) {
        let (mut i, mut o) = (inside(), outside());
        spoil(&mut i, &mut o);
        let error = checked(&i, &o, &[]).expect_err("a missing control is an error");
        assert_eq!(error.control, control, "{error}");
        let refusal = Refusal::from(error);
        assert_eq!(refusal.code, "control_missing");
        assert!(refusal.message.contains(control), "{refusal}");
    }

    #[test]
    fn without_a_pid_namespace_nothing_starts() {
        missing("pid_namespace", |i, _| i.pid = 2);
        missing("namespaces", |_, o| o.namespaces.retain(|n| n != "pid"));
    }

    #[test]
    fn without_each_other_namespace_nothing_starts() {
        for name in ["mnt", "net", "ipc", "uts", "cgroup"] {
            missing("namespaces", |_, o| o.namespaces.retain(|n| n != name));
        }
    }

    #[test]
    fn without_a_user_namespace_nothing_starts() {
        missing("user_namespace", |_, o| o.namespaces.retain(|n| n != "user"));
        missing("user_namespace", |i, _| i.uid_map.clear());
        missing("user_namespace", |i, _| {
            i.uid_map = vec![IdRange {
                inside: 0,
                outside: 0,
                count: u32::MAX,
            }];
        });
        missing("user_namespace", |_, o| o.uids = vec![0; 4]);
        missing("user_namespace", |_, o| o.gids[3] = 0);
        missing("user_namespace", |_, o| o.uids.clear());
    }

    #[test]
    fn with_another_uid_or_gid_nothing_starts() {
        missing("uid", |i, _| i.uids = [0; 4]);
        missing("uid", |i, _| i.uids[2] = 0);
        missing("gid", |i, _| i.gids = [1000; 4]);
    }

    #[test]
    fn with_groups_nothing_starts_unless_that_was_waived() {
        missing("groups", |i, _| i.groups = vec![0]);
        missing("groups", |_, o| o.groups = vec![27]);
        let mut o = outside();
        o.groups = vec![27];
        o.waived = vec![Waiver::Groups];
        assert_eq!(
            checked(&inside(), &o, &[Waiver::Groups]).unwrap().waived,
            ["groups"]
        );
    }

    #[test]
    fn with_any_capability_in_any_set_nothing_starts() {
        missing("capabilities", |i, _| i.cap_inh = 1);
        missing("capabilities", |i, _| i.cap_prm = 1);
        missing("capabilities", |i, _| i.cap_eff = 1);
        missing("capabilities", |i, _| i.cap_bnd = 1 << 40);
        missing("capabilities", |i, _| i.cap_amb = 1);
        for set in 0..5 {
            missing("capabilities", |_, o| o.capabilities[set] = 1);
        }
    }

    #[test]
    fn without_no_new_privileges_nothing_starts() {
        missing("no_new_privileges", |i, _| i.no_new_privs = false);
        missing("no_new_privileges", |_, o| o.no_new_privileges = false);
    }

    #[test]
    fn with_a_dumpable_runner_nothing_starts() {
        missing("runner_not_dumpable", |i, _| i.dumpable = true);
    }

    #[test]
    fn without_filters_of_the_sandboxs_own_nothing_starts() {
        missing("seccomp", |i, _| i.seccomp_mode = 0);
        missing("seccomp", |_, o| o.seccomp_mode = 0);
        missing("seccomp", |_, o| o.seccomp_filters_inherited = 3);
        missing("seccomp", |i, _| i.seccomp_filters = Some(1));
        missing("seccomp", |i, _| i.seccomp_filters = None);
    }

    #[test]
    fn a_kernel_that_does_not_count_filters_is_taken_by_the_mode() {
        let (mut i, mut o) = (inside(), outside());
        i.seccomp_filters = None;
        (o.seccomp_filters, o.seccomp_filters_inherited) = (0, 0);
        checked(&i, &o, &[]).unwrap();
    }

    #[test]
    fn with_a_network_interface_nothing_starts() {
        missing("network", |i, _| i.interfaces.push("eth0".into()));
    }

    #[test]
    fn with_a_writable_root_nothing_starts() {
        missing("root_read_only", |i, _| i.root_read_only = false);
    }

    #[test]
    fn with_scratch_that_is_missing_or_loose_nothing_starts() {
        for at in 0..4 {
            missing("scratch", |i, _| drop(i.scratch.remove(at)));
            missing("scratch", |i, _| i.scratch[at].kind = "ext4".into());
            missing("scratch", |i, _| i.scratch[at].nosuid = false);
            missing("scratch", |i, _| i.scratch[at].nodev = false);
            missing("scratch", |i, _| i.scratch[at].noexec = false);
            missing("scratch", |i, _| i.scratch[at].read_only = true);
            missing("scratch", |i, _| i.scratch[at].size_bytes = None);
            missing("scratch", |i, _| i.scratch[at].size_bytes = Some(1 << 40));
            missing("scratch", |i, _| i.scratch[at].inodes = None);
        }
    }

    #[test]
    fn without_landlock_nothing_starts_unless_that_was_waived() {
        missing("landlock", |_, o| o.landlock_abi = None);
        let mut o = outside();
        (o.landlock_abi, o.waived) = (None, vec![Waiver::Landlock]);
        let receipt = checked(&inside(), &o, &[Waiver::Landlock]).unwrap();
        assert_eq!(
            (receipt.landlock_abi, receipt.waived),
            (None, vec!["landlock".to_owned()])
        );
    }

    #[test]
    fn without_each_resource_limit_nothing_starts_unless_that_was_waived() {
        missing("memory", |_, o| o.limits.memory_bytes = None);
        missing("memory", |_, o| o.limits.memory_bytes = Some(1 << 40));
        missing("pids", |_, o| o.limits.pids = None);
        missing("pids", |_, o| o.limits.pids = Some(1000));
        missing("cpu", |_, o| o.limits.cpus = None);
        missing("cpu", |_, o| o.limits.cpus = Some(2.0));
        let mut o = outside();
        o.limits = Default::default();
        o.waived = vec![Waiver::Memory, Waiver::Cpu, Waiver::Pids];
        let receipt = checked(&inside(), &o, &[Waiver::Pids, Waiver::Memory, Waiver::Cpu]).unwrap();
        assert_eq!(receipt.waived, ["memory", "pids", "cpu"]);
    }

    #[test]
    fn what_was_not_named_cannot_be_waived() {
        for waiver in Waiver::ALL {
            missing("waived", |_, o| o.waived = vec![waiver]);
        }
    }

    #[test]
    fn an_ordinary_users_own_id_is_fine_for_that_user() {
        let limits = Limits::default();
        let mut o = outside();
        (o.uids, o.gids) = (vec![0; 4], vec![0; 4]);
        let required = Required {
            limits: &limits,
            waivers: &[],
            privileged: false,
            driver: "local",
            image: "sha256:0",
            profile: ("strict", 2),
        };
        check(&inside(), &o, &required).unwrap();
    }
}
