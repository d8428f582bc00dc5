//! `sandglass-bench`: what a sandboxed run costs, beside bwrap, runc, crun and nothing at all.
//!
//! [`ways`] are the columns, [`workload`] the rows, [`latency`] the table of both. [`throughput`], [`alive`] and
//! [`phases`] look at ours more closely; [`budgets`] holds the figures against what is promised.
#![forbid(unsafe_code)]

mod alive;
mod budgets;
mod cli;
mod error;
mod latency;
mod phases;
mod render;
mod results;
mod setup;
mod throughput;
mod timed;
mod view;
mod ways;
mod workload;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Section};
use error::{BenchError, Result};
use results::Results;
use sandglass_figures::Interrupt;
use setup::Ground;
use ways::{bare, sandglass};
use workload::Workload;

fn main() -> ExitCode {
    // Before anything else: the sandbox's worker must be a process with one thread and nothing open.
    if sandglass_sandbox::is_worker() {
        return sandglass_sandbox::worker_main();
    }
    let words: Vec<String> = std::env::args().collect();
    let done = match words.get(1).map(String::as_str) {
        Some(bare::HELPER) => bare::helper(),
        Some(sandglass::ONE_RUN) => sandglass::one_run(words.get(2..).unwrap_or_default()),
        _ => {
            let cli = Cli::parse();
            measure(&cli).and_then(|results| print(&results, cli.json))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(cli: &Cli) -> Result<Results> {
    let interrupt = Interrupt::listen().map_err(BenchError::doing("Listening to signals"))?;
    let ground = Ground::new(cli)?;
    let runs = usize::try_from(cli.runs).unwrap_or(usize::MAX);
    let mut results = Results {
        host: Some(ground.host.clone()),
        ..Results::default()
    };
    if cli.wants(Section::Latency) {
        let mut ways = ground.ways()?;
        results.latency = Some(latency::measure(&mut ways, &Workload::ALL, runs, &interrupt)?);
    }
    if cli.wants(Section::Phases) {
        results.phases = Some(phases::measure(&ground.ours, runs, &interrupt)?);
    }
    if cli.wants(Section::Throughput) {
        results.throughput = Some(throughput::measure(
            &ground.ours,
            &ground.bwrap,
            runs,
            &interrupt,
        )?);
    }
    if cli.wants(Section::Memory) {
        results.memory = Some(alive::memory(&ground.ours, &interrupt)?);
    }
    if cli.wants(Section::Alive) {
        results.alive = Some(alive::latency(&ground.ours, &ground.bwrap, runs, &interrupt)?);
    }
    results.budgets = budgets::budgets(&results);
    Ok(results)
}

fn print(results: &Results, json: bool) -> Result<()> {
    sandglass_figures::print(results, json, render::render).map_err(BenchError::doing("Printing the results"))
}
