//! What the benchmarks share: medians and percentiles, budgets, tables, the order of turns, the memory of a process, what the host is, and
//! a way to stop between two runs.
#![forbid(unsafe_code)]

pub mod budget;
pub mod clock;
pub mod host;
pub mod interrupt;
pub mod memory;
pub mod output;
pub mod sample;
pub mod table;
pub mod turns;

pub use budget::Budget;
pub use interrupt::{Interrupt, Interrupted};
pub use output::print;
pub use sample::{Summary, median, ms, summary};
pub use turns::turns;
