//! The real servers that the shim is measured under and tested with: a containerd of its own with CRI, CNI and test
//! images, in network, mount and cgroup namespaces of its own, up in seconds and gone without a trace.
//!
//! ```no_run
//! use sandglass_stack::{Config, Servers, Stack};
//!
//! # fn main() -> sandglass_stack::Result<()> {
//! let shim = std::path::Path::new("target/x86_64-unknown-linux-gnu/release/containerd-shim-sandglass-v1");
//! let config = Config::new(Servers::at("target/stack")?, Some(shim), &[]);
//! let mut stack = Stack::up(&config)?;
//! let output = stack.command("crictl").arg("info").output();
//! stack.restart_containerd()?;
//! stack.down()?;
//! # Ok(())
//! # }
//! ```
//!
//! Nothing inside is pulled from anywhere, and no packet leaves the network namespace.
#![forbid(unsafe_code)]

mod compare;
mod config;
pub mod critest;
mod error;
mod images;
mod outcomes;
mod place;
mod protocol;
mod reap;
mod seed;
mod settings;
mod stack;
mod supervise;

pub use compare::{Difference, Expected, compare};
pub use config::{Config, Handler, Servers};
pub use error::{Result, StackError};
pub use images::{Archive, BUSYBOX, Index, Ingredients, SANDBOX, make as make_images};
pub use outcomes::{Outcome, Outcomes};
pub use place::{Place, SOCKET};
pub use reap::reap;
pub use seed::{Seed, ensure as ensure_seed};
pub use settings::PAUSE;
pub use stack::Stack;
pub use supervise::run as supervise;
