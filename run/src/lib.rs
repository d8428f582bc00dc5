//! The vocabulary of a run: request, limits, report, and the frames of the runner protocol.
//!
//! A run goes *request -> admit -> driver -> sandbox -> runner -> script* and comes back as a
//! [`Report`]. Every part speaks in the types of this crate. It is pure: no runtime, no system calls
//! beyond the [`std::io::Read`] and [`std::io::Write`] that a caller hands in.
//!
//! - [`request`], [`limits`], [`waiver`], [`name`]: what a person asks for, and what is allowed;
//! - [`report`], [`capture`]: what comes back;
//! - [`frame`], [`protocol`], [`session`]: the only channel between the outside and PID 1 of a sandbox;
//! - [`keeper`]: how much of an output stream is kept, and which part.
#![forbid(unsafe_code)]

pub mod capture;
pub mod frame;
pub mod id;
pub mod keeper;
pub mod language;
pub mod limits;
pub mod name;
pub mod parse;
pub mod protocol;
pub mod report;
pub mod request;
pub mod session;
pub mod waiver;

pub use capture::Capture;
pub use frame::{Decoder, FrameError, Message, read_frame, write_frame};
pub use id::{Person, RunId};
pub use keeper::Keeper;
pub use language::Language;
pub use limits::{HostCapacity, LimitError, Limits};
pub use parse::{parse_bytes, parse_cpus, parse_duration};
pub use protocol::{FromRunner, Stream, ToRunner};
pub use report::{
    Artifact, Isolation, Output, OutputContent, Report, RunError, SkipReason, Skipped, Status, Timings, Usage,
};
pub use request::{Input, InputSource, Request, RequestError};
pub use waiver::Waiver;
