//! The driver's side of a sandbox: start the worker, wait until the sandbox stands, end it, account for it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use sandglass_run::Waiver;

use crate::cgroup::{Cgroup, Hierarchies, Wanted};
use crate::control::{self, Ended, HostObserved, Replies, Reply, Request};
use crate::error::SandboxError;
use crate::registry::{Record, Registry};
use crate::spec::Identity;
use crate::worker;

/// The runner's place in the image, and so the default PID 1.
pub const RUNNER: &str = "/usr/libexec/sandglass-runner";

/// The hidden word that makes a process of ours a worker.
const WORKER: &str = "sandbox-worker";
/// How long a sandbox may take to stand: far above the worst that a loaded host was seen to need.
const STANDS_WITHIN: Duration = Duration::from_secs(30);
/// How long its end may take, the removal of its cgroup included.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// What a sandbox is to be.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Names the run: the record, the cgroup. Unique among live runs.
    pub run_id: String,
    /// The unpacked image.
    pub rootfs: PathBuf,
    /// argv of PID 1.
    pub args: Vec<String>,
    /// Memory, CPUs, processes, scratch.
    pub limits: sandglass_run::Limits,
    /// Layers that the person goes without, each by name.
    pub waived: Vec<Waiver>,
    /// The state directory.
    pub state_root: PathBuf,
}

impl Launch {
    /// What the cgroup shall enforce. PID 1 is one process more than the script may have.
    fn cgroup(&self) -> Wanted {
        let unless = |layer| !self.waived.contains(&layer);
        Wanted {
            memory_bytes: unless(Waiver::Memory).then_some(self.limits.memory_bytes),
            cpus: unless(Waiver::Cpu).then_some(self.limits.cpus),
            pids: unless(Waiver::Pids).then_some(u64::from(self.limits.pids) + 1),
        }
    }
}

/// A sandbox that stands. Dropping it ends it.
#[derive(Debug)]
pub struct Sandbox {
    run_id: String,
    registry: Registry,
    /// Held for its lock, here only: a run whose driver is gone is over, whoever takes it away.
    _record: OwnedFd,
    cgroups: Vec<PathBuf>,
    worker: Child,
    replies: Replies,
    channel: Option<(OwnedFd, OwnedFd)>,
    stderr: Option<OwnedFd>,
    observed: HostObserved,
    ended: bool,
}

impl Sandbox {
    /// Makes a sandbox and starts its PID 1. Blocks for some milliseconds.
    ///
    /// # Errors
    /// A layer that cannot be had, a state directory that cannot be used, an id that is taken. Nothing is left then.
    pub fn launch(launch: &Launch) -> Result<Self, SandboxError> {
        let registry = Registry::open(&launch.state_root)?;
        let (identity, ids) = identity(&registry)?;
        let wanted = launch.cgroup();
        let hosts = Hierarchies::detect(identity != Identity::Own)
            .map_err(|error| SandboxError::worker("reading /proc", error))?;
        let cgroups = Cgroup::plan(&hosts, &launch.run_id, &wanted);
        let record = registry.enter(
            &launch.run_id,
            &Record {
                cgroups: cgroups.clone(),
            },
        )?;
        let request = Request {
            run_id: launch.run_id.clone(),
            state_root: launch.state_root.clone(),
            rootfs: launch.rootfs.clone(),
            args: launch.args.clone(),
            identity,
            scratch_bytes: launch.limits.scratch_bytes,
            pids: launch.limits.pids,
            cgroup: wanted,
            waived: launch.waived.clone(),
        };
        Self::start(&request, ids)
            .inspect_err(|_| {
                // A record that stays is one that a reaper looks at.
                if Cgroup::left_by(&cgroups).remove().is_ok() {
                    let _ = registry.strike(&launch.run_id);
                }
            })
            .map(|(worker, replies, channel, stderr, observed)| Self {
                run_id: launch.run_id.clone(),
                registry,
                _record: record,
                cgroups,
                worker,
                replies,
                channel: Some(channel),
                stderr: Some(stderr),
                observed,
                ended: false,
            })
    }

    #[allow(clippy::type_complexity)]
    fn start(
        request: &Request,
        ids: OwnedFd,
    ) -> Result<(Child, Replies, (OwnedFd, OwnedFd), OwnedFd, HostObserved), SandboxError> {
        let failed = |doing: &'static str| move |error: std::io::Error| SandboxError::worker(doing, error);
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed("making pipes")(error.into()));
        let (ours, theirs) = UnixStream::pair().map_err(failed("making a socket"))?;
        ours.set_read_timeout(Some(STANDS_WITHIN))
            .map_err(failed("making a socket"))?;
        let (stdin, to_runner) = pipe()?;
        let (from_runner, stdout) = pipe()?;
        let (diagnostics, stderr) = pipe()?;
        let mut worker = spawn(theirs, &stderr).map_err(failed("starting"))?;
        let fds = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), ids.as_fd()];
        let mut replies = Replies::new(ours);
        let answer = control::send_request(replies.socket(), request, &fds).and_then(|()| replies.next());
        // The container holds its own copies; with ours open, its end would never be seen.
        drop((stdin, stdout, stderr));
        match answer {
            Ok(Reply::Ready(observed)) => {
                Ok((worker, replies, (to_runner, from_runner), diagnostics, *observed))
            }
            Ok(Reply::Failed(error)) => {
                let _ = worker.wait();
                Err(error)
            }
            Ok(Reply::Ended(_)) => Err(end_worker(worker, diagnostics, "it spoke out of turn".into())),
            Err(error) => Err(end_worker(worker, diagnostics, error.to_string())),
        }
    }

    /// The channel to PID 1: what is written to the first arrives at its stdin, what it writes is read from the
    /// second. `None` once taken.
    pub fn channel(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        self.channel.take()
    }

    /// What PID 1 and the worker write to stderr: diagnostics, to be read within bounds. `None` once taken.
    pub fn stderr(&mut self) -> Option<OwnedFd> {
        self.stderr.take()
    }

    /// Becomes readable when the sandbox has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.replies.fd()
    }

    /// What was read back from the kernel when PID 1 had started.
    pub fn observed(&self) -> &HostObserved {
        &self.observed
    }

    /// Begins to end the sandbox: everything inside is killed. [`Sandbox::finish`] waits for it.
    ///
    /// # Errors
    /// None that matter to a caller: a sandbox that has ended already is not an error.
    pub fn kill(&self) {
        let _ = self.replies.hang_up();
    }

    /// Ends the sandbox if it has not ended, waits until everything of it is gone, and accounts for it.
    ///
    /// # Errors
    /// The record of the run could not be struck off. What else could not be taken away is named in [`Ended::left`].
    pub fn finish(mut self) -> Result<Ended, SandboxError> {
        self.end()
    }

    fn end(&mut self) -> Result<Ended, SandboxError> {
        self.ended = true;
        self.channel = None;
        self.kill();
        let answer = self
            .replies
            .socket()
            .set_read_timeout(Some(ENDS_WITHIN))
            .and_then(|()| self.replies.next());
        if answer.is_err() {
            // The worker is stuck or was killed. Its death is the death of PID 1, and so of everything inside.
            let _ = self.worker.kill();
        }
        let _ = self.worker.wait();
        match answer {
            Ok(Reply::Ended(ended)) => Ok(ended),
            Ok(Reply::Ready(_) | Reply::Failed(_)) | Err(_) => self.end_without_worker(),
        }
    }

    /// The worker was killed: account for what can be known, and clean up in its stead.
    fn end_without_worker(&self) -> Result<Ended, SandboxError> {
        let left = Cgroup::left_by(&self.cgroups).remove().err();
        if left.is_none() {
            self.registry.strike(&self.run_id)?;
        }
        Ok(Ended {
            signal: Some(rustix::process::Signal::KILL.as_raw()),
            left,
            ..Ended::default()
        })
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end();
        }
    }
}

/// Root's runs get a range of ids each; an ordinary user has its own id only.
fn identity(registry: &Registry) -> Result<(Identity, OwnedFd), SandboxError> {
    if rustix::process::geteuid().is_root() {
        return registry.take_ids();
    }
    let null = File::open("/dev/null").map_err(|error| SandboxError::worker("opening /dev/null", error))?;
    Ok((Identity::Own, null.into()))
}

fn spawn(control: UnixStream, stderr: &OwnedFd) -> std::io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg(WORKER)
        .env_clear()
        // The container library looks for helpers in PATH and fails where there is none.
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(OwnedFd::from(control))
        .stdout(Stdio::null())
        .stderr(stderr.try_clone()?)
        // A Ctrl-C for the driver's group is the driver's to act on: it cancels the run and still accounts for it.
        .process_group(0)
        .spawn()
}

fn end_worker(mut worker: Child, diagnostics: OwnedFd, reason: String) -> SandboxError {
    use std::io::Read;
    let _ = worker.kill();
    let status = worker.wait();
    let mut said = String::new();
    let _ = File::from(diagnostics).take(1024).read_to_string(&mut said);
    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    SandboxError::worker(
        "making the sandbox",
        format!("{reason} ({status}) {}", said.trim()).trim().to_owned(),
    )
}

/// True in a process that [`Sandbox::launch`] started as a worker: its `main` must call [`worker_main`] before
/// anything else, while it has one thread.
pub fn is_worker() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == WORKER)
}

/// The worker's whole life.
pub fn worker_main() -> ExitCode {
    let Ok(stdin) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let socket = UnixStream::from(stdin);
    // A hand-started worker has no socket there, and nobody to talk to.
    match worker::serve(&socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandglass {WORKER}: {error}. This word is for sandglass itself: use `sandglass run`.");
            ExitCode::FAILURE
        }
    }
}

/// Takes away what runs left whose processes were all killed. Costs one directory listing where there is nothing.
///
/// # Errors
/// The state directory cannot be used, or something cannot be taken away.
pub fn reap(state_root: &std::path::Path) -> Result<Vec<String>, SandboxError> {
    Registry::open(state_root)?.reap()
}
