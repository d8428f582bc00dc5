//! Taking a container away, and what was exec'ed in it.

use std::path::PathBuf;
use std::sync::Arc;

use sandglass_sandbox::container;

use super::{Container, EXECS_END_WITHIN, lock};
use crate::error::{Result, failed, precondition};
use crate::exits::Exit;
use crate::process::{Phase, Process};

impl Container {
    /// Takes an exec away, when it is over or never began.
    ///
    /// # Errors
    /// NOT_FOUND; FAILED_PRECONDITION while it runs.
    pub async fn delete_exec(&self, id: &str) -> Result<(u32, Exit)> {
        let process = self.process(id)?;
        let _turn = process.turn.lock().await;
        let exit = match process.phase() {
            Phase::Running => return Err(precondition(format!("exec {id} is still running"))),
            Phase::Created => Exit::killed(),
            Phase::Stopped => process.exit().unwrap_or_else(Exit::killed),
        };
        process.drain().await;
        lock(&self.execs).remove(id);
        let _ = std::fs::remove_file(self.exec_file(id));
        process.never_again(exit);
        Ok((process.pid(), exit))
    }

    /// Takes the container away, when its first process is over.
    ///
    /// # Errors
    /// FAILED_PRECONDITION while it lives; what could not be taken away.
    pub async fn delete(&self) -> Result<(u32, Exit)> {
        let _turn = self.init.turn.lock().await;
        let Some(exit) = self.init.exit() else {
            return Err(precondition(format!(
                "container {} is not stopped: kill it first",
                self.id
            )));
        };
        let execs: Vec<Arc<Process>> = lock(&self.execs).values().cloned().collect();
        for exec in execs {
            // One that is being started comes to its end, since its container is over.
            let turn = tokio::time::timeout(EXECS_END_WITHIN, exec.turn.lock()).await;
            exec.drain().await;
            exec.never_again(Exit::killed());
            drop(turn);
        }
        self.init.drain().await;
        let bundle = self.bundle.clone();
        tokio::task::spawn_blocking(move || container::remove(&bundle))
            .await
            .map_err(|error| failed("deleting the container", error))?
            .map_err(|left| failed("something of the container is left", left))?;
        Ok((self.init.pid(), exit))
    }
}

/// Takes away what an attempt left; what cannot be taken away goes to the log.
pub(super) async fn remove(bundle: PathBuf) {
    if let Ok(Err(left)) = tokio::task::spawn_blocking(move || container::remove(&bundle)).await {
        tracing::error!(left, "something of a container that was not made is left");
    }
}
