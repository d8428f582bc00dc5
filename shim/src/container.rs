//! One container: its first process, what was exec'ed in it, its control groups.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use containerd_shim::asynchronous::io::Stdio;
use containerd_shim::protos::events::task::{TaskExecStarted, TaskExit, TaskOOM, TaskStart};
use oci_spec::runtime::{Process as OciProcess, Spec};
use sandglass_sandbox::cgroup::PodCgroup;
use sandglass_sandbox::container::{self, Create, Done, Exec, Observed, Places, Request};
use sandglass_sandbox::pod;
use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::net::unix::pipe;

use crate::error::{Result, failed, invalid, not_found, precondition};
use crate::events::Publisher;
use crate::exits::{Child, Exit, Exits, InFlight};
use crate::io::{self, Ours, Theirs};
use crate::options::{Hardening, Options};
use crate::process::{Phase, Process};
use crate::receipt;
use crate::rootfs::Mount;
use crate::terminal::Console;

/// Longest answer of a worker, and longest line of a process that cannot begin, in bytes.
const LONGEST_ANSWER: u64 = 64 << 10;
/// How long the answer of a worker that is gone may still be on its way.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Longest `config.json`, in bytes: containerd's own messages are bounded by this.
const LONGEST_SPEC: u64 = 16 << 20;
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
    pub program: container::Worker,
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
    confined: bool,
    own_pids: bool,
    cgroup: PodCgroup,
    /// PID 1 says here why it cannot begin.
    status: Mutex<Option<OwnedFd>>,
    oom_kills: AtomicU64,
    /// Held by each exec while its worker is at work.
    joining: tokio::sync::RwLock<()>,
}

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
            harden(spec, &asked.options)?
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
        let made = Self::make(shared, &asked, confined, own_pids, uid).await;
        if made.is_err() {
            remove(asked.bundle).await;
        }
        made
    }

    async fn make(
        shared: Arc<Shared>,
        asked: &Asked,
        confined: bool,
        own_pids: bool,
        uid: u32,
    ) -> Result<Arc<Self>> {
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
            confined,
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

    /// Its control groups.
    pub fn cgroup(&self) -> &PodCgroup {
        &self.cgroup
    }

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
    fn look_at(&self, process: &Process, landlock_abi: Option<u32>) -> Result<()> {
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
        match receipt::lacks(&observed).filter(|_| self.confined) {
            None => Ok(()),
            Some(sentence) => {
                let _ = process.signal(9);
                Err(failed("looking at the process", sentence))
            }
        }
    }

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
        if self.confined {
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

    fn exec_file(&self, id: &str) -> PathBuf {
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
            confined: self.confined,
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

    async fn await_exec(self: Arc<Self>, process: Arc<Process>, child: Child) {
        let exit = child.wait().await;
        let _turn = process.turn.lock().await;
        self.tell_oom();
        process.stopped(exit);
        self.tell_exit(&process, exit);
    }

    async fn await_init(self: Arc<Self>, child: Child) {
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

    /// Signals one process, or everything in the container.
    ///
    /// # Errors
    /// As [`Process::signal`].
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
        if signal == 9 && self.paused.load(Ordering::SeqCst) {
            // On v1 a frozen process does not even die.
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

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes away what an attempt left; what cannot be taken away goes to the log.
async fn remove(bundle: PathBuf) {
    if let Ok(Err(left)) = tokio::task::spawn_blocking(move || container::remove(&bundle)).await {
        tracing::error!(left, "something of a container that was not made is left");
    }
}

fn runs_something(process: &OciProcess) -> Result<()> {
    match process.args().as_deref() {
        Some([program, ..]) if !program.is_empty() => Ok(()),
        _ => Err(invalid("process.args names no program")),
    }
}

fn read_spec(bundle: &Path) -> Result<Spec> {
    use std::io::Read;
    let path = bundle.join("config.json");
    let mut body = Vec::new();
    std::fs::File::open(&path)
        .and_then(|file| file.take(LONGEST_SPEC + 1).read_to_end(&mut body))
        .map_err(|error| invalid(format!("{}: {error}", path.display())))?;
    if body.len() as u64 > LONGEST_SPEC {
        return Err(invalid(format!("{}: longer than 16 MiB", path.display())));
    }
    let spec: Spec = serde_json::from_slice(&body)
        .map_err(|error| invalid(format!("config.json is not an OCI spec: {error}")))?;
    if !spec.version().starts_with("1.") {
        return Err(invalid(format!(
            "ociVersion is {:?}, and this runtime reads specs of the versions 1.x",
            spec.version()
        )));
    }
    Ok(spec)
}

fn harden(spec: Spec, options: &Options) -> Result<Spec> {
    let mut policy = options.policy().map_err(|error| invalid(error.to_string()))?;
    // containerd resolves links in the paths that it hands on; so what they are compared with is resolved, too.
    let resolved = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    policy.kubelet_dir = resolved(&policy.kubelet_dir);
    policy.containerd_dirs = policy.containerd_dirs.iter().map(|dir| resolved(dir)).collect();
    pod::harden(spec, &policy, &pod::Node).map_err(|refusal| invalid(refusal.to_string()))
}

/// Has a worker do something, and waits until it has ended.
async fn work(
    shared: &Shared,
    request: &Request,
    streams: &Theirs,
    status: Option<&OwnedFd>,
) -> Result<(Done, InFlight)> {
    use std::os::fd::AsFd;
    let io = |error: std::io::Error| failed("starting a worker", error);
    let in_flight = shared.exits.in_flight();
    let status = status.map(AsFd::as_fd);
    let spawned = container::spawn(&shared.program, request, streams.fds(), status).map_err(io)?;
    let child = shared.exits.watch_fd(spawned.pid, spawned.pidfd).map_err(io)?;
    spawned.answer.set_nonblocking(true).map_err(io)?;
    let answer = tokio::net::UnixStream::from_std(spawned.answer).map_err(io)?;
    let mut body = Vec::new();
    // A line: the end of the stream would not come, since a created container is a copy of the worker, socket and all.
    let mut answer = tokio::io::BufReader::new(answer.take(LONGEST_ANSWER));
    let mut end = std::pin::pin!(child.wait());
    let (read, exit) = tokio::select! {
        biased;
        read = answer.read_until(b'\n', &mut body) => (read, end.await),
        // It was killed, for all that is known; and such a copy may hold the stream open for ever.
        exit = &mut end => {
            let rest = answer.read_until(b'\n', &mut body);
            (tokio::time::timeout(LAST_WORDS, rest).await.unwrap_or(Ok(0)), exit)
        }
    };
    read.map_err(io)?;
    let done = container::parse_reply(&body).map_err(|error| match exit.status {
        0 | 1 => failed("making the sandbox", error),
        status => failed("making the sandbox", format!("{error} (status {status})")),
    })?;
    Ok((done, in_flight))
}

fn say(container: &str, exec: &str, done: &Done) {
    for warning in &done.warnings {
        tracing::warn!(container, exec, "{warning}");
    }
    let phases: Vec<String> = done
        .phases
        .iter()
        .map(|(name, ms)| format!("{name}={ms:.2}"))
        .collect();
    tracing::debug!(
        container,
        exec,
        pid = done.pid,
        phases_ms = phases.join(" "),
        "a worker is done"
    );
}

async fn read_all(fd: OwnedFd) -> std::io::Result<String> {
    let mut text = String::new();
    pipe::Receiver::from_owned_fd(fd)?
        .take(LONGEST_ANSWER)
        .read_to_string(&mut text)
        .await?;
    Ok(text)
}

/// The streams of a process that is being made.
struct Streams {
    theirs: Theirs,
    ours: Ours,
    console: Option<Console>,
}

impl Streams {
    fn open(stdio: &Stdio, bundle: &Path, socket: &str, uid: u32) -> Result<Self> {
        if stdio.terminal {
            let console = Console::listen(&Places::of(bundle).state, socket)?;
            return Ok(Self {
                theirs: io::nowhere()?,
                ours: Ours::default(),
                console: Some(console),
            });
        }
        let (theirs, ours) = io::pipes(stdio, uid)?;
        Ok(Self {
            theirs,
            ours,
            console: None,
        })
    }

    fn console_path(&self) -> Option<PathBuf> {
        self.console.as_ref().map(|console| console.path().to_owned())
    }

    /// Once the process stands: its streams begin to flow.
    async fn connect(self, process: &Process) -> Result<()> {
        // With a copy of ours open, the end of a stream would never be seen.
        drop(self.theirs);
        let tasks = process.io();
        match self.console {
            Some(console) => {
                let pty = io::copy_terminal(&tasks, &process.stdio, console.receive().await?)?;
                process.has_terminal(pty);
            }
            None => io::copy(&tasks, &process.stdio, self.ours)?,
        }
        Ok(())
    }
}
