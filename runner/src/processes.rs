//! Every process but the runner: reaping them, and seeing to it that none is left.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, wait};

use crate::error::{During, RunnerError};

/// How long killed processes may take to die before the runner gives up on them.
const DEATH_TIME: Duration = Duration::from_secs(5);
/// How long to sleep between looks at processes that are dying.
const DEATH_PAUSE: Duration = Duration::from_micros(500);
/// Most processes reaped in one go, so that a storm of them cannot hold up the wall clock.
const REAP_BATCH: usize = 1_024;

/// What reaping has found so far.
#[derive(Debug, Default)]
pub struct Reaped {
    /// How the script's own process ended, once it has.
    pub main: Option<Ending>,
    /// How many others were reaped that SIGKILL had ended.
    pub killed: u32,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with a status.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl Ending {
    fn of(status: WaitStatus) -> Option<Self> {
        status
            .exit_status()
            .map(Self::Code)
            .or_else(|| status.terminating_signal().map(Self::Signal))
    }
}

impl Reaped {
    /// Reaps what has died. True when there is no child at all any more.
    pub fn reap(&mut self, main: u32) -> Result<bool, RunnerError> {
        for _ in 0..REAP_BATCH {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if u32::try_from(pid.as_raw_nonzero().get()) == Ok(main) => {
                    self.main = Ending::of(status);
                }
                Ok(Some((_, status))) => {
                    let killed = status.terminating_signal() == Some(Signal::SIGKILL as i32);
                    self.killed = self.killed.saturating_add(killed.into());
                }
                Ok(None) => return Ok(false),
                Err(Errno::CHILD) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(RunnerError::Kernel {
                        what: "Reaping",
                        errno,
                    });
                }
            }
        }
        Ok(false)
    }

    /// Kills every process but the runner and waits until all are gone. The kernel itself is the witness: it
    /// finds nobody to signal, counting the dead who are not reaped, and no child to wait for.
    pub fn kill_and_reap_all(&mut self, main: u32) -> Result<(), RunnerError> {
        let give_up = Instant::now() + DEATH_TIME;
        loop {
            let nobody = !kill_all();
            if self.reap(main)? && nobody {
                return Ok(());
            }
            if Instant::now() > give_up {
                return Err(RunnerError::ProcessesLeft);
            }
            if !nobody {
                std::thread::sleep(DEATH_PAUSE);
            }
        }
    }
}

/// Kills every process but the runner. False when there was none. One call reaches all of them, since no process
/// that has the signal pending can fork.
pub fn kill_all() -> bool {
    // Anywhere else this would be every process of the user's, or of the host.
    if std::process::id() != 1 {
        return false;
    }
    kill(Pid::from_raw(-1), Signal::SIGKILL) != Err(nix::Error::ESRCH)
}

/// CPU time in milliseconds and the largest resident set in bytes, of all processes that were reaped.
pub fn usage() -> Result<(u64, u64), RunnerError> {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).during("getrusage")?;
    let micros = |time: nix::sys::time::TimeVal| {
        u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec()).unwrap_or(0)
    };
    let cpu_ms = (micros(usage.user_time()) + micros(usage.system_time())) / 1_000;
    // Linux counts in kibibytes.
    Ok((cpu_ms, u64::try_from(usage.max_rss()).unwrap_or(0) * 1_024))
}
