//! Making a container.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use sandglass_sandbox::container::{self, Create, Request};

use super::spec::{harden, most_pids, read_spec, runs_something};
use super::streams::Streams;
use super::work::{say, work};
use super::{Asked, Container, Shared};
use crate::error::{Result, failed, invalid};
use crate::io;
use crate::options::Hardening;
use crate::process::Process;
use crate::rootfs::Mount;

impl Container {
    /// Makes a container, up to the point where its program is missing.
    ///
    /// # Errors
    /// A spec that cannot be read or is refused, or a step that failed. Nothing is left then.
    pub async fn create(shared: Arc<Shared>, asked: Asked) -> Result<Arc<Self>> {
        io::check(&asked.stdio)?;
        let spec = read_spec(&asked.bundle)?;
        let confined = asked.options.hardening == Hardening::Sandbox;
        let spec = if confined {
            harden(spec, &asked.options, &asked.bundle)?
        } else {
            spec
        };
        let process = spec
            .process()
            .as_ref()
            .ok_or_else(|| invalid("config.json has no process"))?;
        runs_something(process)?;
        let uid = process.user().uid();
        let own_pids = container::has_own_pid_namespace(&spec);
        let most_pids = confined.then(|| most_pids(&spec, &asked.options)).transpose()?;
        if asked.stdio.terminal != process.terminal().unwrap_or(false) {
            return Err(invalid(
                "the request and config.json do not agree on whether the process has a terminal",
            ));
        }
        container::write_spec(&asked.bundle, &spec).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => crate::error::status(
                crate::error::Code::ALREADY_EXISTS,
                format!("bundle {:?} holds a container already", asked.bundle),
            ),
            _ => failed("writing the spec", error),
        })?;
        drop(spec);
        let made = Self::make(shared, &asked, most_pids, own_pids, uid).await;
        if made.is_err() {
            super::delete::remove(asked.bundle).await;
        }
        made
    }

    async fn make(
        shared: Arc<Shared>,
        asked: &Asked,
        most_pids: Option<u32>,
        own_pids: bool,
        uid: u32,
    ) -> Result<Arc<Self>> {
        let confined = most_pids.is_some();
        let streams = Streams::open(&asked.stdio, &asked.bundle, "console.sock", uid)?;
        let (status, theirs) = container::status_pipe().map_err(|error| failed("making a pipe", error))?;
        let mut rootfs = asked.rootfs.clone();
        // The root of a sandbox is read-only.
        let volatile = rootfs.iter_mut().filter(|_| confined).find_map(Mount::volatile);
        let prepare =
            serde_json::to_value(&rootfs).map_err(|error| failed("the mounts of the root", error))?;
        let request = Request::Create(Create {
            id: asked.id.clone(),
            bundle: asked.bundle.clone(),
            confined,
            systemd_cgroup: asked.options.systemd_cgroup,
            console: streams.console_path(),
            volatile,
            prepare,
        });
        let (done, in_flight) = work(&shared, &request, &streams.theirs, Some(&theirs)).await?;
        drop(theirs);
        let child = shared
            .exits
            .watch(done.pid, &in_flight)
            .map_err(|error| failed("watching the container", error))?;
        drop(in_flight);
        say(&asked.id, "", &done);
        let init = Arc::new(Process::new("", asked.stdio.clone()));
        init.born(done.pid, child.handle());
        if let Err(error) = streams.connect(&init).await {
            let _ = init.signal(9);
            child.wait().await;
            return Err(error);
        }
        let record = container::read_record(&asked.bundle)
            .ok()
            .flatten()
            .ok_or_else(|| failed("reading the record", "it is not there"))?;
        let made = Arc::new(Self {
            id: asked.id.clone(),
            bundle: asked.bundle.clone(),
            init,
            paused: AtomicBool::new(false),
            execs: Mutex::default(),
            most_pids,
            updating: tokio::sync::Mutex::default(),
            own_pids,
            oom_kills: AtomicU64::new(record.cgroup.oom_kills().unwrap_or(0)),
            cgroup: record.cgroup,
            status: Mutex::new(Some(status)),
            joining: tokio::sync::RwLock::default(),
            shared,
        });
        tokio::spawn(made.clone().await_init(child));
        crate::oom::watch(&made);
        Ok(made)
    }
}
