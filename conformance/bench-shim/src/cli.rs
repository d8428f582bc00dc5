//! The words of the command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// A container, by containerd's own API
    Containers,
    /// A pod with a container, by the CRI
    Pods,
    /// Memory of pods that wait
    Memory,
    /// Where each millisecond of ours goes
    Phases,
}

/// What the shim costs under containerd, beside runc's shim with runc, crun and youki, and beside runsc's.
///
/// Needs root. A measurement, never a test: the exit status is 0 when everything could be measured, whatever the
/// figures are.
#[derive(Debug, Parser)]
#[command(name = "sandglass-bench-shim", version, about)]
pub struct Cli {
    /// What `make stack` made
    #[arg(
        long,
        value_name = "DIR",
        env = "SANDGLASS_STACK",
        default_value = "target/stack"
    )]
    pub servers: PathBuf,
    /// The shim
    #[arg(long, value_name = "PATH")]
    pub shim: PathBuf,
    /// A crun
    #[arg(long, value_name = "PATH")]
    pub crun: Option<PathBuf>,
    /// A youki
    #[arg(long, value_name = "PATH")]
    pub youki: Option<PathBuf>,
    /// Interleaved runs of each row
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Pods that wait, in the section on memory
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=250))]
    pub pods: u32,
    /// Measure this only; may be given several times
    #[arg(long, value_name = "SECTION")]
    pub only: Vec<Section>,
    /// Measure this handler only; may be given several times
    #[arg(long = "handler", value_name = "NAME")]
    pub handlers: Vec<String>,
    /// Print one JSON document on stdout in place of the tables
    #[arg(long)]
    pub json: bool,
}

impl Cli {
    /// Whether a section is wanted.
    pub fn wants(&self, section: Section) -> bool {
        self.only.is_empty() || self.only.contains(&section)
    }
}
