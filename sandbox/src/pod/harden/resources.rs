//! What a container may use: its own limits, and those that a sandbox has where it names none.

use oci_spec::OciSpecError;
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxPids, LinuxPidsBuilder, LinuxResources};

use crate::pod::Policy;

/// Raw settings of cgroup v2 that would undo what is set here.
const UNDOING: [&str; 2] = ["memory.swap.max", "pids.max"];

/// The resources with a limit of processes, no swap, no sleeping instead of dying, and every device denied first.
///
/// # Errors
/// The library's, of a value that it cannot build.
pub fn bounded(mut resources: LinuxResources, policy: &Policy) -> Result<LinuxResources, OciSpecError> {
    let pids = match resources.pids() {
        Some(pids) if pids.limit() > 0 => *pids,
        _ => pids(policy)?,
    };
    resources.set_pids(Some(pids));
    if let Some(memory) = resources.memory_mut() {
        // The limit of both together: as much as memory alone, so that nothing is swapped.
        if let Some(limit) = memory.limit().filter(|limit| *limit > 0) {
            memory.set_swap(Some(limit));
        }
        memory.set_disable_oom_killer(None);
    }
    if let Some(unified) = resources.unified_mut() {
        unified.retain(|key, _| !UNDOING.contains(&key.as_str()));
    }
    let rules = resources.devices_mut().get_or_insert_with(Vec::new);
    if !rules.first().is_some_and(denies_all) {
        let mut all = LinuxDeviceCgroup::default();
        all.set_allow(false).set_access(Some("rwm".to_owned()));
        rules.insert(0, all);
    }
    Ok(resources)
}

fn pids(policy: &Policy) -> Result<LinuxPids, OciSpecError> {
    LinuxPidsBuilder::default()
        .limit(i64::from(policy.pids.max(1)))
        .build()
}

fn denies_all(rule: &LinuxDeviceCgroup) -> bool {
    let every_kind = rule.typ().unwrap_or_default() == oci_spec::runtime::LinuxDeviceType::A;
    !rule.allow() && every_kind && rule.major().is_none() && rule.minor().is_none()
}
