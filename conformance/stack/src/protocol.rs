//! What the process that asked for a stack and the process that holds it say to each other: a line of JSON each.

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::place::Place;

/// What the supervisor gets as its one argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// What shall come up.
    pub config: Config,
    /// Where.
    pub place: Place,
    /// containerd's root is kept when the stack ends.
    pub keep_root: bool,
}

/// What the supervisor is asked for. The end of its input asks for [`Request::Stop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// End containerd as a service manager does, and wait for it. Shims live on.
    Terminate,
    /// End containerd with a signal that it cannot see. Shims live on.
    Kill,
    /// Start containerd again.
    Start,
    /// Look at what is there.
    Look,
    /// End everything.
    Stop,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Everything is up.
    Ready {
        /// containerd.
        containerd: u32,
        /// The stack's control groups on the host, one for each hierarchy, into which commands go.
        cgroups: Vec<String>,
    },
    /// Done.
    Done {
        /// containerd, where it runs.
        containerd: Option<u32>,
    },
    /// What there is beside the servers, as phrases.
    Seen {
        /// Processes, mounts, control groups and files, in order.
        what: Vec<String>,
    },
    /// Not done.
    Failed {
        /// Why.
        message: String,
    },
    /// The stack is gone; nothing follows.
    Down {
        /// What was left, as phrases: by the runtimes after their containers were removed, or by the stack itself.
        left: Vec<String>,
    },
}
