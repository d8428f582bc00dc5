//! The sandbox of one run: its hardened OCI spec, and the processes that make, enter and end it.
//!
//! A driver calls [`Sandbox::launch`]. That re-executes the program as a single-threaded [worker](worker_main), which
//! makes the cgroup, leaves the host's mount tree and calls libcontainer with the [hardened spec](spec::hardened). In
//! the container's process our executor adds Landlock and the `strict` filters and becomes PID 1 of the image. What
//! the kernel then says about that process is the host's half of the receipt ([`HostObserved`]).
//!
//! ```text
//! driver ── worker ── PID 1 (runner) ── script
//!    └ socket ┘└ pidfd ┘
//! ```

pub mod cgroup;
mod confine;
pub mod container;
mod control;
mod error;
mod executor;
mod filters;
mod launch;
mod mounts;
mod observe;
mod passwd;
pub mod pod;
mod probe;
mod registry;
mod resident;
pub mod spec;
mod sys;
mod table;
mod worker;
mod world;

pub use control::{Ended, HostObserved};
pub use error::{Layer, SandboxError};
pub use filters::{PROFILE_NAME, count as filter_count};
pub use launch::{Launch, RUNNER, Sandbox, is_worker, reap, worker_main};
pub use probe::{Finding, probe_host};
pub use resident::give_back_clean_pages;
