//! Why a sandbox could not be had, as sentences with what to do next.

use serde::{Deserialize, Serialize};

/// A layer of the sandbox, as errors, `doctor` and waivers name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The user namespace in which the script is nobody.
    UserNamespace,
    /// The other namespaces and the mounts inside them.
    Namespaces,
    /// The memory limit.
    Memory,
    /// The CPU limit.
    Cpu,
    /// The limit of processes.
    Pids,
    /// Landlock: what files may be touched at all.
    Landlock,
    /// The system-call filters.
    Seccomp,
    /// No supplementary groups.
    Groups,
    /// The image's root file system.
    Image,
}

impl Layer {
    /// The name in messages, in `--waive` and in the receipt.
    pub fn name(self) -> &'static str {
        match self {
            Self::UserNamespace => "user_namespace",
            Self::Namespaces => "namespaces",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Groups => "groups",
            Self::Image => "image",
        }
    }
}

impl std::fmt::Display for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Everything that can keep a sandbox from being made, used or taken away.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
pub enum SandboxError {
    /// The kernel or the host does not give a layer. Nothing ran.
    #[error("The layer `{layer}` of the sandbox cannot be had here: {reason}.")]
    Layer {
        /// Which layer.
        layer: Layer,
        /// What was tried and what the kernel said.
        reason: String,
        /// How to mend it.
        hint: String,
    },
    /// The directory for the state of runs cannot be used.
    #[error("The state directory {path} cannot be used: {reason}.")]
    State {
        /// The directory or file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// A run of this id is alive.
    #[error("A run with the id `{run_id}` is alive already.")]
    Exists {
        /// The id.
        run_id: String,
    },
    /// Every range of host ids is in use.
    #[error("All {ranges} ranges of host ids are in use by live runs.")]
    NoIds {
        /// How many ranges there are.
        ranges: u32,
    },
    /// The spec of the container could not be written down: a mistake of ours.
    #[error("The container's spec is not valid: {reason}.")]
    Spec {
        /// What the spec crate said.
        reason: String,
    },
    /// The worker process did not do its part.
    #[error("The sandbox worker failed while {doing}: {reason}.")]
    Worker {
        /// The phase.
        doing: String,
        /// What it said.
        reason: String,
    },
    /// The container runtime failed.
    #[error("The container could not be {doing}: {reason}.")]
    Container {
        /// `created` or `started`.
        doing: String,
        /// The chain of causes.
        reason: String,
    },
    /// Something of the sandbox is still there.
    #[error("Something of the sandbox could not be taken away: {what}.")]
    Left {
        /// What is left, by name.
        what: String,
    },
}

impl SandboxError {
    /// The stable word that the report's `error.code` carries.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Layer { .. } => "layer_missing",
            Self::State { .. } => "state_dir",
            Self::Exists { .. } => "run_exists",
            Self::NoIds { .. } => "no_ids",
            Self::Spec { .. } | Self::Worker { .. } | Self::Container { .. } => "sandbox_failed",
            Self::Left { .. } => "not_cleaned",
        }
    }

    /// What the person can do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Layer { hint, .. } => hint.clone(),
            Self::State { .. } => {
                "Free some space or name a directory of your own with SANDGLASS_STATE.".to_owned()
            }
            Self::Exists { .. } => "Wait for it, or give this run another --run-id.".to_owned(),
            Self::NoIds { .. } => "Wait until some of the runs on this host have ended.".to_owned(),
            Self::Spec { .. } | Self::Worker { .. } | Self::Container { .. } => {
                "Run `sandglass doctor`; if it finds nothing, this is a defect worth reporting.".to_owned()
            }
            Self::Left { .. } => "The next run or `sandglass doctor` tries again to take it away.".to_owned(),
        }
    }

    /// An error of a layer, with the words for both its halves.
    pub(crate) fn layer(layer: Layer, reason: impl std::fmt::Display, hint: &str) -> Self {
        Self::Layer {
            layer,
            reason: reason.to_string(),
            hint: hint.to_owned(),
        }
    }

    /// An error of the worker in a named phase.
    pub(crate) fn worker(doing: &str, reason: impl std::fmt::Display) -> Self {
        Self::Worker {
            doing: doing.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// An error of the state directory.
    pub(crate) fn state(path: &std::path::Path, reason: impl std::fmt::Display) -> Self {
        Self::State {
            path: path.display().to_string(),
            reason: reason.to_string(),
        }
    }
}
