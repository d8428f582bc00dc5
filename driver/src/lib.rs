//! The ways to carry out a run: `local` and `disabled`.
//!
//! A run goes *admission, a place in the cap, sandbox, conversation with the runner, report*; the modules stand
//! in that order.
//!
//! - [`admission`], [`state`], [`slots`], [`images`]: what can be refused before anything is made;
//! - [`channel`], [`client`], [`receipt`]: the outer side of the runner protocol;
//! - [`collect`], [`outdir`], [`media`], [`events`]: what comes back, and where it goes;
//! - [`outcome`], [`phase`]: how it ended, and where the time went;
//! - [`local`], [`disabled`]: the drivers.
#![forbid(unsafe_code)]

pub mod admission;
pub mod channel;
pub mod client;
pub mod collect;
pub mod disabled;
pub mod driver;
pub mod events;
pub mod images;
pub mod local;
pub mod media;
pub mod outcome;
pub mod outdir;
pub mod phase;
pub mod receipt;
pub mod refusal;
pub mod slots;
pub mod state;

pub use disabled::Disabled;
pub use driver::Driver;
pub use events::{Events, Store};
pub use local::Local;
pub use outdir::OutDir;
pub use refusal::Refusal;
pub use sandglass_sandbox::Finding;
/// Cancels a run; see [`Driver::run`].
pub use tokio_util::sync::CancellationToken as Cancel;
