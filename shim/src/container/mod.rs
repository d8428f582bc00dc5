//! One container: its first process, what was exec'ed in it, its control groups.

mod create;
mod delete;
mod exec;
mod exit;
mod kill;
mod spec;
mod start;
mod streams;
mod update;
mod work;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use containerd_shim::asynchronous::io::Stdio;
use containerd_shim::protos::events::task::TaskOOM;
use sandglass_sandbox::cgroup::PodCgroup;
use sandglass_sandbox::container::Worker;

use crate::error::{Result, not_found};
use crate::events::Publisher;
use crate::exits::Exits;
use crate::options::Options;
use crate::process::Process;
use crate::rootfs::Mount;

/// Longest answer of a worker, and longest line of a process that cannot begin, in bytes.
const LONGEST_ANSWER: u64 = 64 << 10;
/// How long the ends of exec'ed processes are awaited before the end of their container is told.
const EXECS_END_WITHIN: Duration = Duration::from_secs(10);

/// What all containers of a shim share.
#[derive(Debug)]
pub struct Shared {
    /// Tells containerd what happened.
    pub publisher: Publisher,
    /// Waits for children.
    pub exits: Exits,
    /// Our own program, for workers.
    pub program: Worker,
}

/// What containerd asks for.
#[derive(Debug)]
pub struct Asked {
    /// The container's id.
    pub id: String,
    /// Its bundle.
    pub bundle: PathBuf,
    /// How its root is mounted.
    pub rootfs: Vec<Mount>,
    /// Its streams.
    pub stdio: Stdio,
    /// The runtime's options.
    pub options: Options,
}

/// A container.
pub struct Container {
    /// Its id.
    pub id: String,
    /// Its bundle.
    pub bundle: PathBuf,
    /// Its first process.
    pub init: Arc<Process>,
    /// Whether it is paused.
    pub paused: AtomicBool,
    shared: Arc<Shared>,
    execs: Mutex<HashMap<String, Arc<Process>>>,
    /// The most processes that an update may allow, in a sandbox; none is no sandbox.
    most_pids: Option<u32>,
    /// Held by an update.
    updating: tokio::sync::Mutex<()>,
    own_pids: bool,
    cgroup: PodCgroup,
    /// PID 1 says here why it cannot begin.
    status: Mutex<Option<OwnedFd>>,
    oom_kills: AtomicU64,
    /// Held by each exec while its worker is at work.
    joining: tokio::sync::RwLock<()>,
}

impl Container {
    /// True for a sandbox.
    fn confined(&self) -> bool {
        self.most_pids.is_some()
    }

    /// Its control groups.
    pub fn cgroup(&self) -> &PodCgroup {
        &self.cgroup
    }

    /// Tells of kills for want of memory that were not told of yet.
    pub fn tell_oom(&self) {
        let Some(now) = self.cgroup.oom_kills() else {
            return;
        };
        if self.oom_kills.fetch_max(now, Ordering::SeqCst) < now {
            self.shared.publisher.publish(TaskOOM {
                container_id: self.id.clone(),
                ..TaskOOM::default()
            });
        }
    }

    /// The process of an exec's id; the first one for an empty id.
    ///
    /// # Errors
    /// NOT_FOUND.
    pub fn process(&self, exec: &str) -> Result<Arc<Process>> {
        if exec.is_empty() {
            return Ok(self.init.clone());
        }
        lock(&self.execs)
            .get(exec)
            .cloned()
            .ok_or_else(|| not_found("exec", exec))
    }

    /// The exec'ed processes that exist, by their ids outside.
    pub fn exec_pids(&self) -> HashMap<u32, String> {
        lock(&self.execs)
            .values()
            .map(|exec| (exec.pid(), exec.id.clone()))
            .collect()
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
