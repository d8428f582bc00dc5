//! Sandboxes that wait: what they hold in memory, and whether they slow others down.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};
use sandglass_figures::memory::Memory as Held;
use sandglass_figures::{Interrupt, Summary, median, ms, summary};
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::timed::timed;
use crate::ways::bwrap::Bwrap;
use crate::ways::sandglass::Ours;
use crate::workload::Workload;

/// A script that says that it is there, and waits.
pub const WAITER: (&str, &str) = (
    "wait.py",
    "import signal\nprint('here', flush=True)\nsignal.pause()\n",
);

/// Sandboxes whose memory is measured.
const MEASURED: [usize; 2] = [1, 20];
/// How long they wait before: after a second ours give back what they do not need to wait.
const SETTLED: std::time::Duration = std::time::Duration::from_millis(1_500);
/// Sandboxes beside which a run is measured, up and down again and again, so that drift hits all alike.
const BESIDE: [usize; 9] = [0, 50, 200, 50, 0, 50, 200, 50, 0];

/// A sandbox that waits. Dropping it ends it and waits until it is gone.
#[derive(Debug)]
struct Waiting {
    child: Child,
}

impl Waiting {
    fn start(ours: &Ours) -> Result<Self> {
        let mut command: Command = ours.command();
        command
            .args(["--timeout", "1h"])
            .arg(ours.scripts.join(WAITER.0))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(BenchError::doing("Starting a sandbox that waits"))?;
        let stdout = child.stdout.take();
        let waiting = Self { child };
        let mut line = String::new();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        if matches!(read, Some(Ok(_))) && line == "here\n" {
            return Ok(waiting);
        }
        Err(BenchError::Setup(
            "A sandbox that shall wait did not begin.".into(),
        ))
    }

    /// Begins to end it.
    fn cancel(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.cancel();
        let _ = self.child.wait();
    }
}

/// Ends many at once.
fn end(waiting: Vec<Waiting>) {
    waiting.iter().for_each(Waiting::cancel);
    drop(waiting);
}

/// What one waiting sandbox holds, by process of ours, in KiB of proportional set size; means over those alive.
#[derive(Debug, Clone, Serialize)]
pub struct Memory {
    /// Sandboxes that waited.
    pub alive: usize,
    /// The command line.
    pub command_line_kib: f64,
    /// The worker.
    pub worker_kib: f64,
    /// PID 1 of the sandbox.
    pub runner_kib: f64,
    /// All of ours.
    pub total_kib: f64,
}

/// Measures the memory of waiting sandboxes.
///
/// # Errors
/// A sandbox that does not begin, or a process tree that is not as expected.
pub fn memory(ours: &Ours, interrupt: &Interrupt) -> Result<Vec<Memory>> {
    let mut rows = Vec::new();
    for alive in MEASURED {
        let waiting = (0..alive)
            .map(|_| {
                interrupt.check()?;
                Waiting::start(ours)
            })
            .collect::<Result<Vec<_>>>()?;
        std::thread::sleep(SETTLED);
        let mut sums = [0.0; 3];
        for sandbox in &waiting {
            let command_line = sandbox.child.id();
            let worker = only_child(command_line)?;
            let runner = only_child(worker)?;
            for (sum, pid) in sums.iter_mut().zip([command_line, worker, runner]) {
                *sum += Held::of(pid)
                    .map_err(BenchError::doing("Measuring the memory"))?
                    .pss_kib;
            }
        }
        end(waiting);
        // At most twenty.
        #[allow(clippy::cast_precision_loss)]
        let [command_line_kib, worker_kib, runner_kib] = sums.map(|sum| sum / alive as f64);
        rows.push(Memory {
            alive,
            command_line_kib,
            worker_kib,
            runner_kib,
            total_kib: command_line_kib + worker_kib + runner_kib,
        });
    }
    Ok(rows)
}

fn only_child(pid: u32) -> Result<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(&path).map_err(BenchError::doing(format!("Reading {path}")))?;
    let children: Vec<u32> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    match children[..] {
        [only] => Ok(only),
        _ => Err(BenchError::Setup(format!(
            "Process {pid} has the children {children:?}, and one was expected."
        ))),
    }
}

/// How long a run takes beside waiting sandboxes of ours.
#[derive(Debug, Clone, Serialize)]
pub struct Beside {
    /// Sandboxes that wait.
    pub alive: usize,
    /// `sandglass run`.
    pub sandglass: Summary,
    /// bwrap, which tells what the kernel itself makes of it.
    pub bwrap: Summary,
    /// Ours by ours with none alive.
    pub to_none: f64,
}

/// Measures `python3 -c pass` beside waiting sandboxes, a part of the runs at each visit of a number.
///
/// # Errors
/// A run that did not succeed.
pub fn latency(ours: &Ours, bwrap: &Bwrap, runs: usize, interrupt: &Interrupt) -> Result<Vec<Beside>> {
    let mut waiting: Vec<Waiting> = Vec::new();
    let mut times: std::collections::BTreeMap<usize, (Vec<f64>, Vec<f64>)> = Default::default();
    for alive in BESIDE {
        while waiting.len() < alive {
            interrupt.check()?;
            waiting.push(Waiting::start(ours)?);
        }
        end(waiting.split_off(alive));
        let (own, other) = times.entry(alive).or_default();
        let visits = BESIDE.iter().filter(|other| **other == alive).count();
        let share = runs.div_ceil(visits);
        for round in 0..=share {
            interrupt.check()?;
            let (a, b) = (
                timed(&mut ours.run(Workload::Python)?)?,
                timed(&mut bwrap.command(Workload::Python))?,
            );
            if round > 0 {
                own.push(ms(a));
                other.push(ms(b));
            }
        }
        eprint!("\ralive: {alive} beside ");
    }
    eprintln!();
    let none = times.get(&0).and_then(|(own, _)| median(own));
    let rows = times.into_iter().filter_map(|(alive, (own, other))| {
        let sandglass = summary(&own)?;
        Some(Beside {
            alive,
            sandglass,
            bwrap: summary(&other)?,
            to_none: sandglass.median_ms / none?,
        })
    });
    Ok(rows.collect())
}
