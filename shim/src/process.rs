//! One process of a container: its first, or one that was exec'ed. A small state machine and its streams.

use std::sync::{Mutex, MutexGuard, PoisonError};

use containerd_shim::asynchronous::io::{IoTasks, Pty, Stdio};
use containerd_shim::protos::api::Status;
use tokio::sync::watch;

use crate::error::{Code, Result, failed, precondition, status};
use crate::exits::{Exit, Handle};

/// Where a process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is made, or for an exec asked for; its program has not begun.
    Created,
    /// Its program runs.
    Running,
    /// It is over.
    Stopped,
}

impl Phase {
    /// As the Task API spells it.
    pub fn status(self, paused: bool) -> Status {
        match self {
            Self::Created => Status::CREATED,
            Self::Running if paused => Status::PAUSED,
            Self::Running => Status::RUNNING,
            Self::Stopped => Status::STOPPED,
        }
    }
}

#[derive(Debug)]
struct State {
    phase: Phase,
    pid: i32,
    handle: Option<Handle>,
}

/// A process.
pub struct Process {
    /// The exec's id; empty for a container's first process.
    pub id: String,
    /// What containerd wants for streams.
    pub stdio: Stdio,
    /// Whose its streams are, so that it can open them by name.
    pub uid: u32,
    /// Held while the process is started, deleted, or its end is told: an end is never told before the start.
    pub turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    exit: watch::Sender<Option<Exit>>,
    io: Mutex<IoTasks>,
    pty: Mutex<Option<Pty>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // What they guard is whole after every statement, so a panic elsewhere spoils nothing.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a signal to a process that is over is answered with, as runc answers.
pub fn finished() -> containerd_shim::protos::ttrpc::Error {
    status(Code::NOT_FOUND, "process already finished")
}

/// Why a signal was not sent.
pub fn not_sent(number: u32, error: std::io::Error) -> containerd_shim::protos::ttrpc::Error {
    match error.kind() {
        std::io::ErrorKind::InvalidInput => status(
            Code::INVALID_ARGUMENT,
            format!("signal {number}: there is none of that number"),
        ),
        _ => failed("sending a signal", error),
    }
}

impl Process {
    /// One that does not exist yet.
    pub fn new(id: &str, stdio: Stdio) -> Self {
        Self {
            id: id.to_owned(),
            stdio,
            uid: 0,
            turn: tokio::sync::Mutex::default(),
            state: Mutex::new(State {
                phase: Phase::Created,
                pid: 0,
                handle: None,
            }),
            exit: watch::Sender::new(None),
            io: Mutex::default(),
            pty: Mutex::default(),
        }
    }

    /// The same, with streams that belong to a user.
    pub fn of_user(self, uid: u32) -> Self {
        Self { uid, ..self }
    }

    /// It exists now.
    pub fn born(&self, pid: i32, handle: Handle) {
        let mut state = lock(&self.state);
        state.pid = pid;
        state.handle = Some(handle);
    }

    /// Its program begins.
    pub fn running(&self) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Created {
            state.phase = Phase::Running;
        }
    }

    /// It is over: whoever waits is told.
    pub fn stopped(&self, exit: Exit) {
        lock(&self.state).phase = Phase::Stopped;
        self.exit.send_replace(Some(exit));
    }

    /// It is taken away: whoever still waits for the end of one that never began is told that there is none to come.
    /// A call that waits for ever would keep the shim alive.
    pub fn never_again(&self, exit: Exit) {
        if self.exit().is_none() {
            self.stopped(exit);
        }
    }

    /// Where it is in its life.
    pub fn phase(&self) -> Phase {
        lock(&self.state).phase
    }

    /// Its id outside; 0 before it exists.
    pub fn pid(&self) -> u32 {
        u32::try_from(lock(&self.state).pid).unwrap_or(0)
    }

    /// How it ended, if it did.
    pub fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Waits for its end.
    pub async fn wait(&self) -> Exit {
        let mut exits = self.exit.subscribe();
        // The sender is ours, so it cannot be gone.
        match exits.wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or_else(Exit::killed),
            Err(_) => Exit::killed(),
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// NOT_FOUND where it is over already, as runc answers; FAILED_PRECONDITION before it exists.
    pub fn signal(&self, number: u32) -> Result<()> {
        let handle = {
            let state = lock(&self.state);
            match (state.phase, &state.handle) {
                (Phase::Stopped, _) => return Err(finished()),
                (_, None) => return Err(precondition("the process has not been started")),
                (_, Some(handle)) => handle.clone(),
            }
        };
        match handle.signal(number) {
            Ok(true) => Ok(()),
            Ok(false) => Err(finished()),
            Err(error) => Err(not_sent(number, error)),
        }
    }

    /// The tasks that copy its streams.
    pub fn io(&self) -> IoTasks {
        lock(&self.io).clone()
    }

    /// Its terminal is there.
    pub fn has_terminal(&self, pty: Pty) {
        *lock(&self.pty) = Some(pty);
    }

    /// Lets the copying of its output come to an end, and lets go of its terminal.
    pub async fn drain(&self) {
        self.io().shutdown().await;
        *lock(&self.pty) = None;
    }

    /// Tells its terminal its size, in columns and rows.
    ///
    /// # Errors
    /// It has none.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        let pty = lock(&self.pty)
            .clone()
            .ok_or_else(|| precondition("the process has no terminal"))?;
        let cells = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let size = rustix::termios::Winsize {
            ws_row: cells(height),
            ws_col: cells(width),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&pty, size).map_err(|error| failed("resizing the terminal", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_over_takes_no_signal_and_stays_over() {
        let process = Process::new("", Stdio::default());
        assert!(
            process
                .signal(9)
                .unwrap_err()
                .to_string()
                .contains("not been started")
        );
        process.stopped(Exit::killed());
        process.running();
        assert_eq!(process.phase(), Phase::Stopped);
        assert!(
            process
                .signal(9)
                .unwrap_err()
                .to_string()
                .contains("already finished")
        );
    }

    #[tokio::test]
    async fn everyone_who_waits_is_told_also_after_the_end() {
        let process = std::sync::Arc::new(Process::new("", Stdio::default()));
        let before = tokio::spawn({
            let process = process.clone();
            async move { process.wait().await }
        });
        tokio::task::yield_now().await;
        let exit = Exit {
            status: 3,
            ..Exit::killed()
        };
        process.stopped(exit);
        assert_eq!(before.await.unwrap(), exit);
        assert_eq!(process.wait().await, exit);
    }

    #[test]
    fn a_pause_shows_only_on_what_runs() {
        assert_eq!(Phase::Running.status(true), Status::PAUSED);
        assert_eq!(Phase::Stopped.status(true), Status::STOPPED);
        assert_eq!(Phase::Created.status(true), Status::CREATED);
    }

    #[tokio::test]
    async fn nobody_waits_for_ever_for_an_exec_that_was_deleted_before_its_start() {
        let process = Process::new("x", Stdio::default());
        process.never_again(Exit::killed());
        assert_eq!(process.wait().await.status, 137);
        let over = Exit {
            status: 3,
            ..Exit::killed()
        };
        let process = Process::new("y", Stdio::default());
        process.stopped(over);
        process.never_again(Exit::killed());
        assert_eq!(process.wait().await.status, 3);
    }
}
