//! The ends of a container's processes, in the order in which they are told.

use std::sync::Arc;

use containerd_shim::protos::events::task::TaskExit;

use super::{Container, EXECS_END_WITHIN, lock};
use crate::exits::{Child, Exit};
use crate::process::{Phase, Process};

impl Container {
    pub(super) async fn await_exec(self: Arc<Self>, process: Arc<Process>, child: Child) {
        let exit = child.wait().await;
        let _turn = process.turn.lock().await;
        self.tell_oom();
        process.stopped(exit);
        self.tell_exit(&process, exit);
    }

    pub(super) async fn await_init(self: Arc<Self>, child: Child) {
        let exit = child.wait().await;
        let _turn = self.init.turn.lock().await;
        if !self.own_pids {
            // Nothing else ends what it left in a PID namespace that is not its own.
            let cgroup = self.cgroup.clone();
            let _ = tokio::task::spawn_blocking(move || cgroup.kill()).await;
        }
        let execs: Vec<Arc<Process>> = lock(&self.execs).values().cloned().collect();
        let ends = async {
            for exec in execs.iter().filter(|exec| exec.phase() == Phase::Running) {
                exec.wait().await;
            }
        };
        if tokio::time::timeout(EXECS_END_WITHIN, ends).await.is_err() {
            tracing::warn!(container = self.id, "an exec'ed process outlives its container");
        }
        self.tell_oom();
        self.init.stopped(exit);
        self.tell_exit(&self.init, exit);
    }

    fn tell_exit(&self, process: &Process, exit: Exit) {
        // The API has the container's id for the first process, unlike in requests.
        let id = if process.id.is_empty() {
            self.id.clone()
        } else {
            process.id.clone()
        };
        tracing::debug!(
            container = self.id,
            exec = process.id,
            status = exit.status,
            "exited"
        );
        self.shared.publisher.publish(TaskExit {
            container_id: self.id.clone(),
            id,
            pid: process.pid(),
            exit_status: exit.status,
            exited_at: Some(containerd_shim::util::convert_to_timestamp(Some(exit.at))).into(),
            ..TaskExit::default()
        });
    }
}
