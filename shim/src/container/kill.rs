//! Signals, and the freezer.

use std::sync::atomic::Ordering;

use super::Container;
use crate::error::{Result, failed};
use crate::process::Phase;

impl Container {
    /// Signals one process, or everything in the container.
    ///
    /// # Errors
    /// As [`crate::process::Process::signal`].
    pub async fn kill(&self, exec: &str, signal: u32, all: bool) -> Result<()> {
        let process = self.process(exec)?;
        if !all {
            process.signal(signal)?;
        } else if process.phase() == Phase::Stopped {
            return Err(crate::process::finished());
        } else if signal == 9 {
            let cgroup = self.cgroup.clone();
            tokio::task::spawn_blocking(move || cgroup.kill())
                .await
                .map_err(|error| failed("killing", error))?;
        } else {
            self.cgroup
                .signal(signal)
                .map_err(|error| crate::process::not_sent(signal, error))?;
        }
        // On v1 a frozen process does not even die. An exec that is killed is not the end of the pause, though: it goes
        // with the others.
        let ends_all = all || exec.is_empty();
        if signal == 9 && ends_all && self.paused.load(Ordering::SeqCst) {
            self.freeze(false).await?;
        }
        Ok(())
    }

    /// Freezes or thaws the container.
    ///
    /// # Errors
    /// No freezer, or it did not get there within a second.
    pub async fn freeze(&self, frozen: bool) -> Result<()> {
        let cgroup = self.cgroup.clone();
        tokio::task::spawn_blocking(move || cgroup.freeze(frozen))
            .await
            .map_err(|error| failed("freezing", error))?
            .map_err(|error| failed(if frozen { "pausing" } else { "resuming" }, error))?;
        self.paused.store(frozen, Ordering::SeqCst);
        Ok(())
    }
}
