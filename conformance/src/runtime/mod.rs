//! A container runtime in place of the command line under test: the same cases, through a real containerd.
//!
//! The suite plays `sandglass run` itself and makes each run a container by `ctr`, in one of three roles:
//!
//! - [`Role::Runner`]: the first process is the image's runner, and the outer side of the runner protocol is the driver's
//!   own. Inputs, artifacts and every way to end are as in any other driver.
//! - [`Role::First`]: the script itself is the first process. What it needs comes on its standard input.
//! - [`Role::Exec`]: the first process sleeps, and the script is started beside it by `exec`.
//!
//! [`plan`] is what is to be run, [`ctr`] the client of containerd, [`attach`] the streams, [`group`] the container's control groups and [`events`]
//! what containerd tells of it; [`framed`] and [`direct`] carry a run out.

mod attach;
mod ctr;
mod direct;
pub mod events;
mod framed;
mod group;
mod plan;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use sandglass_driver::Cancel;
use sandglass_run::{Report, RunError};
use serde::{Deserialize, Serialize};

use ctr::Container;
use plan::Plan;

/// Set when this program is to play `sandglass run` through a runtime: a [`Runtime`] as JSON.
pub const PLAYED: &str = "CONFORMANCE_RUNTIME";

/// Which runtime containers get, by the name of its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Handler {
    /// Ours, which hardens whatever it gets.
    Sandglass,
    /// Ours, which keeps to the spec.
    SandglassSpec,
    /// The real one, to validate the suite against.
    Runc,
}

impl Handler {
    /// Its name in containerd's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandglass => "sandglass",
            Self::SandglassSpec => "sandglass-spec",
            Self::Runc => "runc",
        }
    }
}

/// What the script is in its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Started by the image's runner, which is the first process.
    Runner,
    /// The first process.
    First,
    /// A process that is started beside the first by exec.
    Exec,
}

/// The runtime under test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Runtime {
    /// Its handler.
    pub handler: Handler,
    /// What scripts are.
    pub role: Role,
    /// The image, by a name that containerd has.
    pub image: String,
    /// The file into which `ctr events` writes.
    pub events: PathBuf,
}

/// Plays `run`.
pub fn main(settings: &str) -> ExitCode {
    let played = serde_json::from_str(settings)
        .map_err(|e| e.to_string())
        .and_then(|runtime: Runtime| play(&runtime));
    match played {
        Ok(code) => code,
        Err(error) => {
            eprintln!("a run through containerd: {error}");
            ExitCode::from(sandglass_run::report::EXIT_REFUSED)
        }
    }
}

fn play(runtime: &Runtime) -> Result<ExitCode, String> {
    let cancel = Cancel::new();
    cancel_on_signals(&cancel)?;
    let plan = Plan::read(std::env::args_os().skip(2), runtime.role)?;
    let json = plan.json;
    let report = match Container::new(runtime, plan.id.as_str(), &plan.limits) {
        Ok(container) => match runtime.role {
            Role::Runner => framed::run(plan, &container, &cancel)?,
            Role::First | Role::Exec => direct::run(&plan, &container, &cancel)?,
        },
        Err(error) => return Err(error.to_string()),
    };
    if json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    } else if let Some(error) = &report.error {
        eprintln!("{error}");
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// SIGINT and SIGTERM cancel the run, and are not passed on.
fn cancel_on_signals(cancel: &Cancel) -> Result<(), String> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(|e| e.to_string())?;
    let cancel = cancel.clone();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            cancel.cancel();
        }
    });
    Ok(())
}

/// A report of a run whose container was not made.
fn refused(plan: &Plan, said: &str) -> Report {
    let error = RunError {
        code: "runtime_refused".to_owned(),
        message: format!(
            "The runtime made no container: {}.",
            said.trim().trim_end_matches('.')
        ),
        hint: "See containerd's log.".to_owned(),
    };
    Report::refused(plan.id.clone(), error)
}
