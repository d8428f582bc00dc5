//! Waiting for children.
//!
//! Every process that matters is waited for by its pidfd, so that no exit is taken for another's: a process id is not
//! given away while its zombie is there. What else becomes our child (the container library's helpers, orphans of
//! containers that share a PID namespace) is swept away, but never while a worker is about to name a child of ours.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus};
use sandglass_sandbox::container::{signal_process, some_zombie};
use time::OffsetDateTime;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Its code, or 128 and the number of the signal.
    pub status: u32,
    /// When we saw it.
    pub at: OffsetDateTime,
}

impl Exit {
    /// Killed, as far as anyone can tell.
    pub fn killed() -> Self {
        Self {
            status: 137,
            at: OffsetDateTime::now_utc(),
        }
    }

    fn of(status: &WaitIdStatus) -> Self {
        let code = status
            .exit_status()
            .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
        let status = code.and_then(|code| u32::try_from(code).ok()).unwrap_or(255);
        Self {
            status,
            at: OffsetDateTime::now_utc(),
        }
    }
}

/// A child that is waited for.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: Arc<AsyncFd<OwnedFd>>,
    exits: Exits,
}

impl Child {
    /// A handle to signal it.
    pub fn handle(&self) -> Handle {
        Handle {
            pidfd: self.pidfd.clone(),
        }
    }

    /// Waits for its end, and takes its zombie away.
    pub async fn wait(self) -> Exit {
        let exit = loop {
            let ready = self.pidfd.readable().await;
            match rustix::process::waitid(
                WaitId::PidFd(borrow(&self.pidfd)),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            ) {
                Ok(Some(status)) => break Exit::of(&status),
                // Somebody else took it away: then nothing is known but that it is gone.
                Err(rustix::io::Errno::CHILD) => break Exit::killed(),
                _ => {
                    if let Ok(mut guard) = ready {
                        guard.clear_ready();
                    }
                }
            }
        };
        self.exits.forget(self.pid);
        exit
    }
}

/// A process that may be gone already.
#[derive(Debug, Clone)]
pub struct Handle {
    pidfd: Arc<AsyncFd<OwnedFd>>,
}

impl Handle {
    /// Sends a signal. `false` where the process is gone.
    ///
    /// # Errors
    /// The kernel's refusal, such as a number that is no signal.
    pub fn signal(&self, number: u32) -> std::io::Result<bool> {
        let number = i32::try_from(number).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        signal_process(borrow(&self.pidfd), number)
    }
}

fn borrow(pidfd: &AsyncFd<OwnedFd>) -> std::os::fd::BorrowedFd<'_> {
    use std::os::fd::AsFd;
    pidfd.get_ref().as_fd()
}

#[derive(Debug, Default)]
struct Known {
    awaited: HashSet<i32>,
    in_flight: usize,
}

/// Which children are waited for.
#[derive(Debug, Clone, Default)]
pub struct Exits(Arc<Mutex<Known>>);

/// While one lives, no unknown child is swept away: a worker is about to name it.
#[derive(Debug)]
pub struct InFlight(Exits);

impl Exits {
    /// Starts sweeping when the kernel says that a child ended.
    ///
    /// # Errors
    /// The signal cannot be listened to.
    pub fn sweep_on_sigchld(&self) -> std::io::Result<()> {
        let mut sigchld = signal(SignalKind::child())?;
        let exits = self.clone();
        tokio::spawn(async move {
            while sigchld.recv().await.is_some() {
                exits.sweep();
            }
        });
        Ok(())
    }

    /// Holds off the sweeping.
    pub fn in_flight(&self) -> InFlight {
        self.lock().in_flight += 1;
        InFlight(self.clone())
    }

    /// Takes a child of ours under watch. Only while an [`InFlight`] lives, or its id may be another's by now.
    ///
    /// The id is what a worker says; whatever is watched is signalled some day, so it must be a child that is not
    /// watched yet.
    ///
    /// # Errors
    /// There is no such child, or no descriptor.
    pub fn watch(&self, pid: i32, _: &InFlight) -> std::io::Result<Child> {
        let id = Pid::from_raw(pid).ok_or(std::io::ErrorKind::NotFound)?;
        let pidfd = rustix::process::pidfd_open(id, PidfdFlags::NONBLOCK)?;
        if !self.is_stray(pid) {
            return Err(std::io::Error::other(format!(
                "process {pid}, which the worker named, is not one that it made for this shim: it is left alone"
            )));
        }
        self.watch_fd(pid, pidfd)
    }

    /// As [`Exits::watch`], for a child that has a descriptor already.
    ///
    /// # Errors
    /// The reactor takes no more.
    pub fn watch_fd(&self, pid: i32, pidfd: OwnedFd) -> std::io::Result<Child> {
        let pidfd = Arc::new(crate::watched::readable(pidfd)?);
        self.lock().awaited.insert(pid);
        Ok(Child {
            pid,
            pidfd,
            exits: self.clone(),
        })
    }

    /// True for a child of ours that nobody waits for.
    pub fn is_stray(&self, pid: i32) -> bool {
        !self.lock().awaited.contains(&pid) && parent(pid) == Some(std::process::id())
    }

    fn forget(&self, pid: i32) {
        self.lock().awaited.remove(&pid);
        // It may have stood before others that nobody waits for.
        self.sweep();
    }

    /// Takes away zombies that nobody waits for, until the first that somebody does.
    fn sweep(&self) {
        let known = self.lock();
        if known.in_flight > 0 {
            return;
        }
        while let Some(pid) = some_zombie()
            .filter(|pid| !known.awaited.contains(pid))
            .and_then(Pid::from_raw)
        {
            let take = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            if rustix::process::waitid(WaitId::Pid(pid), take).is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        // What it guards is whole after every statement, so a panic elsewhere spoils nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parent of a process.
fn parent(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
        self.0.sweep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> std::process::Child {
        std::process::Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[tokio::test]
    async fn only_a_child_that_nobody_watches_is_taken_under_watch() {
        let exits = Exits::default();
        let in_flight = exits.in_flight();
        let mut child = sleeper();
        let pid = i32::try_from(child.id()).unwrap();
        // The process that started us, this one, and what a child of ours started.
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        let own = i32::try_from(std::process::id()).unwrap();
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(shell.stdout.take().unwrap()),
            &mut line,
        )
        .unwrap();
        let grandchild: i32 = line.trim().parse().unwrap();
        for foreign in [parent, own, grandchild] {
            let error = exits.watch(foreign, &in_flight).unwrap_err().to_string();
            assert!(error.contains("is left alone"), "{foreign}: {error}");
        }
        let watched = exits.watch(pid, &in_flight);
        let again = exits.watch(pid, &in_flight);
        let _ =
            rustix::process::kill_process(Pid::from_raw(grandchild).unwrap(), rustix::process::Signal::KILL);
        shell.wait().unwrap();
        child.kill().unwrap();
        assert!(again.unwrap_err().to_string().contains("is left alone"));
        assert_eq!(watched.unwrap().wait().await.status, 137);
        assert!(child.wait().is_err(), "the zombie is left");
        // Its end would sweep away the children of other tests.
        std::mem::forget(in_flight);
    }
}
