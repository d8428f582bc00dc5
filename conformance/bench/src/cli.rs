//! The words of the command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// The table of workloads and ways
    Latency,
    /// Where each millisecond goes
    Phases,
    /// Runs per second at several at once
    Throughput,
    /// Memory of sandboxes that wait
    Memory,
    /// Latency beside sandboxes that wait
    Alive,
}

/// What a sandboxed run costs, beside bwrap, runc, crun and nothing at all.
///
/// Needs root. A measurement, never a test: the exit status is 0 when everything could be measured, whatever the
/// figures are.
#[derive(Debug, Parser)]
#[command(name = "sandglass-bench", version, about)]
pub struct Cli {
    /// The `sandglass` program
    #[arg(long, value_name = "PATH", default_value = "sandglass")]
    pub sandglass: PathBuf,
    /// The store of images
    #[arg(long, value_name = "DIR", env = "SANDGLASS_STORE")]
    pub store: PathBuf,
    /// bwrap
    #[arg(long, value_name = "PATH", default_value = "bwrap")]
    pub bwrap: PathBuf,
    /// A runc
    #[arg(long, value_name = "PATH")]
    pub runc: Option<PathBuf>,
    /// A crun that takes this host's cgroups
    #[arg(long, value_name = "PATH")]
    pub crun: Option<PathBuf>,
    /// Interleaved runs of each row
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// CPUs that a run may use, in every row [default: all, which is what the rows without a limit have]
    #[arg(long, value_name = "N")]
    pub cpus: Option<f64>,
    /// Measure this only; may be given several times
    #[arg(long, value_name = "SECTION")]
    pub only: Vec<Section>,
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
