//! The beginning of a container's program, and the look at every process that began.

use std::os::fd::OwnedFd;

use containerd_shim::protos::events::task::TaskStart;
use sandglass_sandbox::container::{self, Observed};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::{Container, LONGEST_ANSWER, lock};
use crate::error::{Result, failed, precondition};
use crate::process::{Phase, Process};
use crate::receipt;

impl Container {
    /// Lets the first process begin.
    ///
    /// # Errors
    /// FAILED_PRECONDITION unless it was just created; the sentence of a process that could not begin.
    pub async fn start(&self) -> Result<u32> {
        let _turn = self.init.turn.lock().await;
        let id = &self.id;
        match self.init.phase() {
            Phase::Created => {}
            Phase::Running => return Err(precondition(format!("container {id} has been started already"))),
            Phase::Stopped => return Err(precondition(format!("container {id} is stopped"))),
        }
        let status = lock(&self.status)
            .take()
            .ok_or_else(|| precondition("the container could not begin before"))?;
        container::start(&self.bundle, &self.id).map_err(|error| match error.kind() {
            // Killed a moment ago; its end is on its way to us.
            std::io::ErrorKind::ConnectionRefused => precondition(format!("container {id} is stopped")),
            _ => failed("starting the container", error),
        })?;
        let said = read_all(status)
            .await
            .map_err(|error| failed("reading what the container said", error))?;
        let landlock_abi =
            container::parse_status(&said).map_err(|sentence| failed("starting the container", sentence))?;
        self.look_at(&self.init, landlock_abi)?;
        self.init.running();
        let pid = self.init.pid();
        self.shared.publisher.publish(TaskStart {
            container_id: self.id.clone(),
            pid,
            ..TaskStart::default()
        });
        Ok(pid)
    }

    /// Reads the receipt back and logs it; ends a process that is not confined as it must be.
    pub(super) fn look_at(&self, process: &Process, landlock_abi: Option<u32>) -> Result<()> {
        let pid = i32::try_from(process.pid()).unwrap_or(0);
        // One that has ended already can do no harm.
        let Some(observed) = Observed::read(pid, landlock_abi) else {
            tracing::info!(
                container = self.id,
                exec = process.id,
                "no isolation receipt: the process ended before it could be looked at"
            );
            return Ok(());
        };
        receipt::log(&self.id, &process.id, &observed);
        match receipt::lacks(&observed).filter(|_| self.confined()) {
            None => Ok(()),
            Some(sentence) => {
                let _ = process.signal(9);
                Err(failed("looking at the process", sentence))
            }
        }
    }
}

async fn read_all(fd: OwnedFd) -> std::io::Result<String> {
    let mut text = String::new();
    pipe::Receiver::from_owned_fd(fd)?
        .take(LONGEST_ANSWER)
        .read_to_string(&mut text)
        .await?;
    Ok(text)
}
