//! The table of controls over a pod's spec: whatever it says, this is how the container starts.

mod mounts;
mod resources;

use oci_spec::OciSpecError;
use oci_spec::runtime::{Linux, PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process, Spec};

pub use resources::bounded;

use super::refuse::parts;
use super::{Host, Policy, Refusal, Role, check};
use crate::table;

/// Checks a spec and hardens it.
///
/// What becomes of it: no capabilities in any set, `no_new_privs`, the table's resource limits, a read-only root, tmpfs
/// on `/work`, `/out`, `/tmp` and `/dev/shm` unless the pod mounts its own there, `nosuid`, `nodev` and `noexec` on
/// everything that can be written, no `/sys` and no cgroups, the table's masks and the pod's, no swap and a limit of
/// processes. What stays: the user, arguments, environment, namespaces, cgroup, annotations, labels of security modules,
/// the terminal, and the seccomp section, which is translated elsewhere and stacked.
///
/// The pause container gets no scratch: it runs nothing that could write it.
///
/// Hardening a hardened spec changes nothing.
///
/// # Errors
/// As [`check`].
pub fn harden(mut spec: Spec, policy: &Policy, host: &dyn Host) -> Result<Spec, Refusal> {
    check(&spec, policy, host)?;
    let role = Role::of(&spec);
    let mounts = mounts::hardened(&spec, role, policy, host)?;
    let (process, linux) = parts(&spec)?;
    let process = confined(process.clone())?;
    let linux = linux_section(linux.clone(), policy)?;
    spec.set_mounts(Some(mounts));
    spec.set_process(Some(process));
    spec.set_linux(Some(linux));
    spec.set_hooks(None);
    if let Some(root) = spec.root_mut() {
        root.set_readonly(Some(true));
    }
    Ok(spec)
}

/// A process without privileges, within the table's resource limits.
pub(super) fn confined(mut process: Process) -> Result<Process, OciSpecError> {
    process.set_capabilities(Some(table::no_capabilities()?));
    process.set_no_new_privileges(Some(true));
    let given = process.rlimits().clone().unwrap_or_default();
    process.set_rlimits(Some(limits(&given)?));
    Ok(process)
}

/// The table's limits, or the pod's where those are lower; others that the pod has stay. The core limit is the table's
/// to the byte: lower would let a crash reach the node's core handler. The limit on processes of one uid is left out,
/// since all pods of a node that have the same uid would share it; the cgroup counts them for each container. The limit on
/// queued signals is shared in the same way and stays: it keeps a pod from using up those of the node's own services.
fn limits(given: &[PosixRlimit]) -> Result<Vec<PosixRlimit>, OciSpecError> {
    let mut limits = table::rlimits(None)?;
    for limit in &mut limits {
        if limit.typ() == PosixRlimitType::RlimitCore {
            continue;
        }
        let typ = limit.typ();
        for own in given.iter().filter(|own| own.typ() == typ) {
            let hard = limit.hard().min(own.hard());
            let soft = limit.soft().min(own.soft()).min(hard);
            *limit = PosixRlimitBuilder::default()
                .typ(typ)
                .soft(soft)
                .hard(hard)
                .build()?;
        }
    }
    for own in given {
        if limits.iter().all(|limit| limit.typ() != own.typ()) {
            limits.push(*own);
        }
    }
    Ok(limits)
}

fn linux_section(mut linux: Linux, policy: &Policy) -> Result<Linux, OciSpecError> {
    let mut masked: Vec<String> = table::MASKED_PATHS.map(String::from).into();
    add(&mut masked, linux.masked_paths().iter().flatten());
    let mut readonly: Vec<String> = table::READONLY_PATHS.map(String::from).into();
    add(&mut readonly, linux.readonly_paths().iter().flatten());
    // What is masked need not be mounted twice.
    readonly.retain(|path| !masked.contains(path));
    let resources = resources::bounded(linux.resources().clone().unwrap_or_default(), policy)?;
    linux
        .set_masked_paths(Some(masked))
        .set_readonly_paths(Some(readonly))
        .set_rootfs_propagation(Some("private".to_owned()))
        .set_resources(Some(resources));
    Ok(linux)
}

fn add<'a>(list: &mut Vec<String>, more: impl Iterator<Item = &'a String>) {
    for path in more {
        if !list.contains(path) {
            list.push(path.clone());
        }
    }
}

#[cfg(test)]
mod tests;
