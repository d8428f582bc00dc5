//! `sandglass-bench-shim`: what the shim costs under a real containerd, beside runc's shim with runc, crun and youki, and
//! beside runsc's.
//!
//! All rows are measured in one stack of real servers ([`sandglass_stack`]), by a client of our own ([`wire`]):
//! [`containers`] by containerd's API, [`pods`] by the CRI, both tables of [`latency`]. [`memory`] looks at pods that
//! wait, [`phases`] at what ours logs; [`results`] holds the figures against what is promised.
#![forbid(unsafe_code)]

mod cli;
mod containers;
mod cpu;
mod error;
mod handlers;
mod latency;
mod memory;
mod phases;
mod pods;
mod render;
mod results;
mod spec;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use sandglass_figures::{Interrupt, host};
use sandglass_stack::{Config, Servers, Stack, StackError};

use cli::{Cli, Section};
use containers::{Containers, Row};
use error::{BenchError, Result};
use handlers::{OURS, Target};
use pods::Pods;
use results::{Host, Results};
use wire::Client;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut results = Results::default();
    let measured = run(&cli, &mut results);
    results.budgets = results::budgets(&results);
    // Sections that were finished before one that could not be are worth as much.
    let printed = if measured.is_ok() || results.has_any() {
        print(&results, cli.json)
    } else {
        Ok(())
    };
    match measured.and(printed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli, results: &mut Results) -> Result<()> {
    let interrupt = Interrupt::listen().map_err(BenchError::doing("Listening to signals"))?;
    let reactor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::doing("Starting the reactor"))?;
    let config = config(cli)?;
    results.host = Host {
        kernel: host::kernel(),
        load: host::load(),
        programs: programs(cli, &config),
    };
    if [Section::Containers, Section::Pods, Section::Memory]
        .iter()
        .any(|section| cli.wants(*section))
    {
        let left = in_stack(&config, |stack| {
            reactor.block_on(compare(cli, stack, &config, &interrupt, results))
        })?;
        results.left.extend(left);
    }
    if cli.wants(Section::Phases) {
        // In a stack of its own: what is logged at debug level takes time, and would take it from one row only.
        let mut config = config;
        config.debug = true;
        let left = in_stack(&config, |stack| {
            reactor.block_on(look(cli, stack, &config, &interrupt, results))
        })?;
        results.left.extend(left);
    }
    Ok(())
}

/// Brings a stack up, has something measured in it, and takes it down whatever comes of that. Answers with what the
/// runtimes left behind: crun, for one, keeps a cache where it keeps its state.
fn in_stack(config: &Config, measure: impl FnOnce(&Stack) -> Result<()>) -> Result<Vec<String>> {
    let stack = Stack::up(config)?;
    let measured = measure(&stack);
    let down = stack.down();
    measured?;
    match down {
        Ok(()) => Ok(Vec::new()),
        Err(StackError::Left(left)) => Ok(left),
        Err(other) => Err(other.into()),
    }
}

fn config(cli: &Cli) -> Result<Config> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(BenchError::doing("Finding a program"));
    let shim = absolute(&cli.shim)?;
    if !shim.exists() {
        return Err(BenchError::Setup(format!(
            "There is no shim at {}: build it with `cargo build --release -p containerd-shim-sandglass-v1`.",
            shim.display()
        )));
    }
    let mut others: Vec<(&str, PathBuf)> = Vec::new();
    for (name, path) in [("crun", &cli.crun), ("youki", &cli.youki)] {
        if let Some(path) = path {
            others.push((name, absolute(path)?));
        }
    }
    let others: Vec<(&str, &Path)> = others
        .iter()
        .map(|(name, path)| (*name, path.as_path()))
        .collect();
    let mut config = Config::new(Servers::at(&cli.servers)?, Some(&shim), &others);
    if !cli.handlers.is_empty() {
        config
            .handlers
            .retain(|handler| cli.handlers.contains(&handler.name));
    }
    if config.handlers.is_empty() {
        return Err(BenchError::Setup(format!(
            "There is no handler called {}.",
            cli.handlers.join(" or ")
        )));
    }
    Ok(config)
}

fn programs(cli: &Cli, config: &Config) -> Vec<(String, String)> {
    let servers = &config.servers;
    let known = |name: &str| (name.to_owned(), host::version(&servers.program(name)));
    let given = |name: &str, path: Option<&Path>| {
        let said = path.map_or_else(|| format!("not measured: name one with --{name}"), host::version);
        (name.to_owned(), said)
    };
    let mut programs = vec![
        known("containerd"),
        known("runc"),
        given("crun", cli.crun.as_deref()),
        given("youki", cli.youki.as_deref()),
    ];
    programs.push(if servers.program("runsc").exists() {
        known("runsc")
    } else {
        (
            "runsc".to_owned(),
            "not measured: build it with `make stack-runsc`".to_owned(),
        )
    });
    programs
}

async fn targets(stack: &Stack, config: &Config, client: &Client) -> Result<Vec<Target>> {
    let layers = handlers::layers(stack)?;
    let mut targets = Vec::new();
    for handler in &config.handlers {
        targets.push(Target::prepare(client, handler, &layers).await?);
    }
    Ok(targets)
}

async fn compare(
    cli: &Cli,
    stack: &Stack,
    config: &Config,
    interrupt: &Interrupt,
    results: &mut Results,
) -> Result<()> {
    let client = Client::connect(&stack.socket(), "default").await?;
    let runs = usize::try_from(cli.runs).unwrap_or(usize::MAX);
    let account = cpu::Account::of(stack)?;
    if cli.wants(Section::Containers) {
        let targets = targets(stack, config, &client).await?;
        let rows: Vec<Row> = targets
            .into_iter()
            .flat_map(|target| [Row(target.clone(), false), Row(target, true)])
            .collect();
        let containers = Containers {
            client: client.clone(),
            prefix: "bench",
        };
        let table =
            latency::measure(&containers, rows, runs, Some(&account), "containers", interrupt).await?;
        results.containers = Some(table);
    }
    let pods = Pods {
        client: client.of_namespace(pods::NAMESPACE),
    };
    let handlers = || {
        config
            .handlers
            .iter()
            .map(|handler| handler.name.clone())
            .collect()
    };
    if cli.wants(Section::Pods) {
        results.pods =
            Some(latency::measure(&pods, handlers(), runs, Some(&account), "pods", interrupt).await?);
    }
    if cli.wants(Section::Memory) {
        let many = usize::try_from(cli.pods).unwrap_or(1);
        let (working, _) = latency::try_each(&pods, handlers(), interrupt).await?;
        results.memory = Some(memory::measure(&pods, &working, many, interrupt).await?);
    }
    Ok(())
}

async fn look(
    cli: &Cli,
    stack: &Stack,
    config: &Config,
    interrupt: &Interrupt,
    results: &mut Results,
) -> Result<()> {
    let client = Client::connect(&stack.socket(), "default").await?;
    let targets = targets(stack, config, &client).await?;
    let Some(ours) = targets.into_iter().find(|target| target.name == OURS) else {
        return Ok(());
    };
    let containers = Containers {
        client,
        prefix: "phase",
    };
    let runs = usize::try_from(cli.runs).unwrap_or(usize::MAX);
    let rows = phases::measure(
        &containers,
        &Row(ours, true),
        &stack.place().log(),
        runs,
        interrupt,
    )
    .await?;
    results.phases = Some(rows);
    Ok(())
}

fn print(results: &Results, json: bool) -> Result<()> {
    sandglass_figures::print(results, json, render::render).map_err(BenchError::doing("Printing the results"))
}
