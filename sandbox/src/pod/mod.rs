//! What the runtime does to a container of a pod: refuse what contradicts a sandbox, harden the rest.
//!
//! containerd hands the shim an OCI spec that says what the pod asked for. In three steps, all of them functions on
//! values, that becomes what is run:
//!
//! - [`check`] refuses a spec that asks for what a sandbox cannot be, with one sentence that names the field;
//! - [`harden()`] checks and then gives the rest the [table of controls](crate::spec), whatever the spec says;
//! - [`exec_process`] does the same to a process that is started in the container later;
//! - [`writable()`] lists the paths that Landlock shall let it write.
//!
//! The three things that no spec tells (which namespaces are the node's, which volumes a pod has, where containerd
//! mounts the root) are asked of a [`Host`]; [`Node`] is the one that looks.
//!
//! ```text
//! spec ─ check ─ harden ──────────── worker ─ container
//!           │       └ writable ────── Landlock ┘  │
//!         Refusal            exec_process ─ exec ─┘
//! ```

mod exec;
mod harden;
mod host;
pub(crate) mod mount;
mod refusal;
pub mod refuse;
#[cfg(test)]
mod samples;
mod writable;

use std::path::PathBuf;

use oci_spec::runtime::Spec;

pub use exec::exec_process;
pub use harden::{bounded, harden};
pub use host::{Host, Node, Whose};
pub use refusal::Refusal;
pub use refuse::check;
pub use writable::writable;

/// CRI's annotation that tells a pod's pause container from the others.
const CONTAINER_TYPE: &str = "io.kubernetes.cri.container-type";
/// CRI's annotation with the id of the pod's sandbox, which names its directory below containerd's.
const SANDBOX_ID: &str = "io.kubernetes.cri.sandbox-id";
/// CRI's annotation with the pod's uid, which names its directory below kubelet's.
const SANDBOX_UID: &str = "io.kubernetes.cri.sandbox-uid";

/// What a container is to its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Holds the pod's namespaces and runs nothing of the pod: the only one that may have uid 0.
    Pause,
    /// Runs something of a pod.
    Container,
    /// Belongs to no pod: made by `ctr` or another client of containerd.
    Plain,
}

impl Role {
    /// The role that CRI's annotations give a container. containerd writes them after what it passes on of the pod's
    /// own annotations, so a pod cannot choose. A type that is unknown counts as an ordinary container, the strictest.
    #[must_use]
    pub fn of(spec: &Spec) -> Self {
        match annotation(spec, CONTAINER_TYPE) {
            Some("sandbox") => Self::Pause,
            Some(_) => Self::Container,
            None => Self::Plain,
        }
    }
}

/// What a node decides for all its sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// kubelet's root directory, with links resolved as containerd resolves them.
    pub kubelet_dir: PathBuf,
    /// containerd's root and state directories, links resolved.
    pub containerd_dirs: Vec<PathBuf>,
    /// Bytes of each of `/work`, `/out` and `/tmp`; `/dev/shm` gets half of it.
    pub scratch_bytes: u64,
    /// Processes and threads of a container whose spec sets no limit.
    pub pids: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            kubelet_dir: "/var/lib/kubelet".into(),
            containerd_dirs: vec!["/var/lib/containerd".into(), "/run/containerd".into()],
            scratch_bytes: crate::table::SCRATCH_BYTES,
            pids: crate::table::PIDS,
        }
    }
}

fn annotation<'a>(spec: &'a Spec, key: &str) -> Option<&'a str> {
    spec.annotations().as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::samples;

    #[test]
    fn the_role_comes_from_the_annotation_of_cri() {
        assert_eq!(Role::of(&samples::pause()), Role::Pause);
        assert_eq!(Role::of(&samples::container()), Role::Container);
        assert_eq!(Role::of(&samples::plain()), Role::Plain);
    }

    #[test]
    fn an_unknown_container_type_is_not_taken_for_the_pause_container() {
        let spec = samples::edited(samples::pause(), |spec| {
            spec["annotations"][CONTAINER_TYPE] = "podsandbox".into();
        });
        assert_eq!(Role::of(&spec), Role::Container);
    }
}
