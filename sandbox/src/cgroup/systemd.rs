//! Scopes of systemd: it makes the cgroup, so that it does not take it for its own to reset.
//!
//! Done by libcgroups, which speaks to systemd over D-Bus without a C library.

use std::path::PathBuf;
use std::time::Duration;

use libcgroups::common::{CgroupManager, ControllerOpt, DEFAULT_CGROUP_ROOT};
use libcgroups::systemd::manager::Manager;
use oci_spec::runtime::LinuxResources;

/// How long the kernel may take to show a process in the scope that systemd has made.
const JOINS_WITHIN: Duration = Duration::from_secs(5);

fn manager(path: &str, id: &str) -> Result<Manager, String> {
    Manager::new(
        DEFAULT_CGROUP_ROOT.into(),
        PathBuf::from(path),
        id.to_owned(),
        true,
        JOINS_WITHIN,
    )
    .map_err(|error| error.to_string())
}

/// Has systemd make the scope `slice:prefix:name` around the calling process.
pub(super) fn start_scope(path: &str, id: &str) -> Result<(), String> {
    manager(path, id)?
        .add_task(nix::unistd::getpid())
        .map_err(|error| error.to_string())
}

/// Tells systemd the limits of a scope: without, it would lift them the next time it looks at the unit.
pub(super) fn set_properties(path: &str, id: &str, resources: &LinuxResources) -> Result<(), String> {
    let asked = ControllerOpt {
        resources,
        disable_oom_killer: false,
        oom_score_adj: None,
        freezer_state: None,
    };
    manager(path, id)?
        .apply(&asked)
        .map_err(|error| error.to_string())
}
