//! Processes that join a container.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use containerd_shim::asynchronous::io::Stdio;
use containerd_shim::protos::events::task::TaskExecStarted;
use oci_spec::runtime::Process as OciProcess;
use sandglass_sandbox::container::{self, Exec, Observed, Places, Request};
use sandglass_sandbox::pod;

use super::spec::runs_something;
use super::streams::Streams;
use super::work::{say, work};
use super::{Container, lock};
use crate::error::{Result, failed, invalid, precondition};
use crate::io;
use crate::process::{Phase, Process};

impl Container {
    /// Notes an exec that is to be started later.
    ///
    /// # Errors
    /// ALREADY_EXISTS, a container that does not run, a process that is refused.
    pub fn add_exec(&self, id: &str, stdio: Stdio, process: &[u8]) -> Result<()> {
        io::check(&stdio)?;
        if !container::is_id(id) {
            return Err(invalid(format!(
                "exec id {id:?} is not a plain name of at most 76 characters"
            )));
        }
        self.takes_execs()?;
        let mut asked: OciProcess = serde_json::from_slice(process)
            .map_err(|error| invalid(format!("the exec's process: {error}")))?;
        asked.set_terminal(Some(stdio.terminal));
        runs_something(&asked)?;
        if self.confined() {
            let spec =
                container::read_spec(&self.bundle).map_err(|error| failed("reading the spec", error))?;
            asked = pod::exec_process(&spec, asked).map_err(|refusal| invalid(refusal.to_string()))?;
        }
        let body = serde_json::to_vec(&asked).map_err(|error| failed("writing the process", error))?;
        let mut execs = lock(&self.execs);
        if execs.contains_key(id) {
            return Err(crate::error::status(
                crate::error::Code::ALREADY_EXISTS,
                format!("exec {id} exists already"),
            ));
        }
        std::fs::write(self.exec_file(id), body).map_err(|error| failed("writing the process", error))?;
        let process = Process::new(id, stdio).of_user(asked.user().uid());
        execs.insert(id.to_owned(), Arc::new(process));
        Ok(())
    }

    /// A paused container would freeze the worker that joins it.
    fn takes_execs(&self) -> Result<()> {
        if self.init.phase() != Phase::Running {
            return Err(precondition(format!("container {} is not running", self.id)));
        }
        if self.paused.load(Ordering::SeqCst) {
            return Err(precondition(format!(
                "container {} is paused: resume it first",
                self.id
            )));
        }
        Ok(())
    }

    pub(super) fn exec_file(&self, id: &str) -> PathBuf {
        Places::of(&self.bundle).state.join(format!("exec-{id}.json"))
    }

    /// Starts an exec that was noted.
    ///
    /// # Errors
    /// FAILED_PRECONDITION unless the container runs and the exec was not started; the sentence of what went wrong.
    pub async fn start_exec(self: &Arc<Self>, id: &str) -> Result<u32> {
        let process = self.process(id)?;
        let turn = process.turn.lock().await;
        self.takes_execs()?;
        if process.phase() != Phase::Created || process.pid() != 0 {
            return Err(precondition(format!("exec {id} has been started already")));
        }
        let streams = Streams::open(
            &process.stdio,
            &self.bundle,
            &format!("console-{id}.sock"),
            process.uid,
        )?;
        let request = Request::Exec(Exec {
            id: self.id.clone(),
            bundle: self.bundle.clone(),
            confined: self.confined(),
            process: self.exec_file(id),
            console: streams.console_path(),
        });
        let joining = self.joining.read().await;
        // No pipe of ours goes along: the program runs when the worker answers.
        let joined = work(&self.shared, &request, &streams.theirs, None).await;
        let joined = joined.and_then(|(done, in_flight)| {
            let child = self.shared.exits.watch(done.pid, &in_flight);
            Ok((done, child.map_err(|error| failed("watching the exec", error))?))
        });
        drop(joining);
        let (done, child) = match joined {
            Ok(joined) => joined,
            Err(error) => {
                self.end_strays().await;
                // It failed since the container ended, which we hear of in a moment.
                let pid = i32::try_from(self.init.pid()).unwrap_or(0);
                if self.init.phase() != Phase::Running || Observed::read(pid, None).is_none() {
                    return Err(precondition(format!("container {} is not running", self.id)));
                }
                return Err(error);
            }
        };
        say(&self.id, id, &done);
        process.born(done.pid, child.handle());
        if let Err(error) = streams.connect(&process).await {
            let _ = process.signal(9);
            process.stopped(child.wait().await);
            return Err(error);
        }
        let looked = self.look_at(&process, done.landlock_abi);
        process.running();
        let pid = process.pid();
        let started = TaskExecStarted {
            container_id: self.id.clone(),
            exec_id: id.to_owned(),
            pid,
            ..TaskExecStarted::default()
        };
        self.shared.publisher.publish(started);
        drop(turn);
        tokio::spawn(self.clone().await_exec(process, child));
        looked.map(|()| pid)
    }

    /// Ends what a worker that was killed left in the container: a process on its way to a program, or in it, of which
    /// nobody ever learns the id.
    async fn end_strays(&self) {
        // None is on its way while it is held.
        let _alone = self.joining.write().await;
        for pid in self.cgroup.processes() {
            // Without a PID namespace of its own an orphan of the container becomes our child, too; it has a right to be.
            if self.shared.exits.is_stray(pid) && (self.own_pids || container::is_unborn(pid)) {
                tracing::warn!(
                    container = self.id,
                    pid,
                    "a worker left a process behind, which is ended"
                );
                container::kill(pid);
            }
        }
    }
}
