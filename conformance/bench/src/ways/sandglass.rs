//! Ours: through the command line, a process for each run, and through the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sandglass_driver::events::Quiet;
use sandglass_driver::images::Images;
use sandglass_driver::{Cancel, Driver, Local};
use sandglass_run::{Language, Limits, Request, Status};

use super::{Name, Way};
use crate::error::{BenchError, Result};
use crate::timed::timed;
use crate::workload::Workload;

/// The hidden word that makes a process of ours carry out one run and end.
pub const ONE_RUN: &str = "one-run";
/// More runs at once than any section starts.
const RUNS_AT_ONCE: u32 = 1_000;

/// What every run of ours gets.
#[derive(Debug, Clone)]
pub struct Ours {
    /// The `sandglass` program.
    pub program: PathBuf,
    /// The store of images.
    pub store: PathBuf,
    /// The directory for live runs, one of the benchmark's own.
    pub state: PathBuf,
    /// The directory of scripts.
    pub scripts: PathBuf,
    /// CPUs that a run may use.
    pub cpus: f64,
}

impl Ours {
    /// `sandglass run …`, up to the script.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"SANDGLASS_") {
                command.env_remove(name);
            }
        }
        command
            .env("SANDGLASS_STORE", &self.store)
            .env("SANDGLASS_STATE", &self.state)
            .env("SANDGLASS_RUNS_PER_PERSON", RUNS_AT_ONCE.to_string())
            .arg("run")
            .args(["--cpus", &self.cpus.to_string()]);
        command
    }

    /// The whole command line for a workload.
    ///
    /// `sandglass run` takes scripts only, so a program without one is run by a small process of ours that does what
    /// the command line does: open the state directory, find the image, make a request, call the driver.
    ///
    /// # Errors
    /// This program cannot be found.
    pub fn run(&self, workload: Workload) -> Result<Command> {
        if let Some((name, _)) = workload.script() {
            let mut command = self.command();
            command.arg(self.scripts.join(name));
            return Ok(command);
        }
        let own = std::env::current_exe().map_err(BenchError::doing("Finding this program"))?;
        let mut command = Command::new(own);
        command
            .arg(ONE_RUN)
            .arg(&self.store)
            .arg(&self.state)
            .arg(self.cpus.to_string())
            .args(workload.argv());
        Ok(command)
    }

    /// The driver, as the command line sets it up.
    fn driver(&self) -> Local {
        Local {
            state_root: self.state.clone(),
            images: Images {
                store: Some(self.store.clone()),
                image: None,
            },
            runs_per_person: RUNS_AT_ONCE,
        }
    }
}

/// `sandglass run`.
#[derive(Debug, Clone)]
pub struct CommandLine(pub Ours);

impl Way for CommandLine {
    fn name(&self) -> Name {
        Name::Sandglass
    }

    fn run(&mut self, workload: Workload) -> Result<Duration> {
        timed(&mut self.0.run(workload)?)
    }
}

/// The driver, called by this process.
#[derive(Debug)]
pub struct Library {
    ours: Ours,
    driver: Local,
    runtime: tokio::runtime::Runtime,
    count: u64,
}

impl Library {
    /// Sets the driver up.
    ///
    /// # Errors
    /// No event loop.
    pub fn new(ours: &Ours) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(BenchError::doing("Making an event loop"))?;
        Ok(Self {
            ours: ours.clone(),
            driver: ours.driver(),
            runtime,
            count: 0,
        })
    }

    /// Carries out one run of a program and answers with the time from the request to the report.
    fn exec(&mut self, argv: &[String]) -> Result<Duration> {
        self.count += 1;
        let bad = |e: &dyn std::fmt::Display| BenchError::Setup(e.to_string());
        let id = format!("bench-{}-{}", std::process::id(), self.count);
        let begin = Instant::now();
        let request = Request {
            run_id: id.parse().map_err(|e| bad(&e))?,
            person: "bench".parse().map_err(|e| bad(&e))?,
            language: Language::Exec,
            script: Vec::new(),
            script_name: String::new(),
            args: argv.to_vec(),
            inputs: Vec::new(),
            limits: Limits {
                cpus: self.ours.cpus,
                ..Limits::default()
            },
            waivers: Vec::new(),
        };
        let (driver, mut events, cancel) = (&self.driver, Quiet(None), Cancel::new());
        let report = self.runtime.block_on(driver.run(request, &mut events, &cancel));
        let took = begin.elapsed();
        // A run without its receipt would be a cheaper one than is promised.
        if report.status == Status::Succeeded && report.isolation.is_some() {
            return Ok(took);
        }
        Err(BenchError::Setup(format!(
            "{:?}: {:?}",
            report.status, report.error
        )))
    }
}

impl Way for Library {
    fn name(&self) -> Name {
        Name::Library
    }

    fn takes(&self, workload: Workload) -> bool {
        workload == Workload::True
    }

    fn run(&mut self, workload: Workload) -> Result<Duration> {
        let argv: Vec<String> = workload.argv().iter().map(|word| (*word).to_owned()).collect();
        self.exec(&argv)
    }
}

/// The life of a process that carries out one run: store, state directory, CPUs, then the argument vector.
///
/// # Errors
/// The run did not succeed.
pub fn one_run(words: &[String]) -> Result<()> {
    let [store, state, cpus, argv @ ..] = words else {
        return Err(BenchError::Setup("This word is for the benchmark itself.".into()));
    };
    let ours = Ours {
        program: PathBuf::new(),
        store: Path::new(store).to_owned(),
        state: Path::new(state).to_owned(),
        scripts: PathBuf::new(),
        cpus: cpus
            .parse()
            .map_err(|_| BenchError::Setup("CPUs are a number.".into()))?,
    };
    Library::new(&ours)?.exec(argv).map(drop)
}
