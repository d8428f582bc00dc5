//! The worker: a re-executed, single-threaded process that makes one sandbox, waits for its end and takes it away.
//!
//! The container library forks with a raw `clone3` and then runs ordinary code in the child, which is sound only in a
//! process with one thread; it also changes the caller's working directory, its dumpable flag and its OOM score. So
//! no other process of ours calls it. The worker stays as the parent of PID 1: when its driver dies, it ends the
//! sandbox and cleans up; when it dies itself, the kernel kills PID 1 and with it everything inside.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};
use sandglass_run::Waiver;

use crate::cgroup::{Cgroup, CgroupError, Controller, CpuLimit, Hierarchies, View};
use crate::confine::Policy;
use crate::control::{self, Descriptors, Ended, HostObserved, Reply, Request};
use crate::error::{Layer, SandboxError};
use crate::executor::{Confinement, ERROR, LANDLOCK, Program};
use crate::filters::Filters;
use crate::observe;
use crate::registry::Registry;
use crate::spec::{self, Identity};
use crate::world;

/// Bytes of status that a container can write: two short lines.
const LONGEST_STATUS: u64 = 4096;

/// Milliseconds by phase, in the order of the phases.
pub(crate) struct Phases {
    last: Instant,
    pub(crate) done: Vec<(String, f64)>,
}

impl Phases {
    pub(crate) fn new() -> Self {
        Self {
            last: Instant::now(),
            done: Vec::with_capacity(8),
        }
    }

    pub(crate) fn end(&mut self, name: &str) {
        let now = Instant::now();
        self.done
            .push((name.to_owned(), (now - self.last).as_secs_f64() * 1e3));
        self.last = now;
    }
}

/// Serves one request on a socket, until the sandbox is gone.
pub(crate) fn serve(socket: &UnixStream) -> std::io::Result<()> {
    let mut phases = Phases::new();
    let (request, descriptors) = control::receive_request::<Request>(socket)?;
    phases.end("receive");
    let reply = match Live::make(&request, descriptors.into(), phases) {
        Ok(live) => {
            // A driver that is gone by now is noticed by the wait.
            let _ = control::send_reply(socket, &Reply::Ready(Box::new(live.observed.clone())));
            Reply::Ended(live.wait(socket))
        }
        Err(error) => Reply::Failed(error),
    };
    control::send_reply(socket, &reply)
}

/// A sandbox whose PID 1 runs its own program.
struct Live {
    pid: Pid,
    pidfd: OwnedFd,
    cgroup: Cgroup,
    registry: Registry,
    run_id: String,
    record: Option<(u64, u64)>,
    observed: HostObserved,
    /// Held for its lock.
    _ids: OwnedFd,
}

impl Live {
    fn make(request: &Request, descriptors: Descriptors, mut phases: Phases) -> Result<Self, SandboxError> {
        drop_groups(request)?;
        let host = observe::HostFacts::read()?;
        // Opened here: after the host's mount tree is left, no path leads there.
        let registry = Registry::open(&request.state_root)?;
        let cgroup = make_cgroup(request)?;
        phases.end("cgroup");
        let record = registry.identity(&request.run_id);
        let view = cgroup
            .view()
            .map_err(|error| SandboxError::worker("opening the cgroup", error))?;
        let made = cgroup
            .cpu_limit(&request.cgroup)
            .map_err(|error| cgroup_layer(&error, request))
            .and_then(|cpu| {
                Self::make_container(request, descriptors, (&cgroup, &view, &cpu), &host, &mut phases)
            });
        match made {
            Ok((pid, pidfd, mut observed, ids)) => {
                observed.phases = phases.done;
                let run_id = request.run_id.clone();
                Ok(Self {
                    pid,
                    pidfd,
                    cgroup,
                    registry,
                    run_id,
                    record,
                    observed,
                    _ids: ids,
                })
            }
            Err(error) => {
                // Out of it first: whatever sits in the cgroup is killed. What stays is the driver's to take away.
                if view.go_home().is_ok() {
                    let _ = cgroup.remove();
                }
                Err(error)
            }
        }
    }

    #[allow(clippy::type_complexity)]
    fn make_container(
        request: &Request,
        descriptors: Descriptors,
        (cgroup, view, cpu): (&Cgroup, &View, &CpuLimit),
        host: &observe::HostFacts,
        phases: &mut Phases,
    ) -> Result<(Pid, OwnedFd, HostObserved, OwnedFd), SandboxError> {
        let Descriptors {
            stdin,
            stdout,
            stderr,
            ids,
        } = descriptors;
        let program = request.args.first().map_or("", String::as_str);
        world::enter(&request.rootfs, program, request.identity)?;
        view.unshare()
            .map_err(|error| SandboxError::worker("making the cgroup namespace", error))?;
        phases.end("world");
        write_bundle(request)?;
        let (status, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| SandboxError::worker("making a pipe", error))?;
        let report = Arc::new(report);
        let worker = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
            .map_err(|error| SandboxError::worker("opening itself", error))?;
        let entrances = cgroup
            .entrances()
            .map_err(|error| SandboxError::worker("opening the cgroup", error))?;
        let confinement = Confinement {
            lifeline: Some(Arc::new(worker)),
            entrances: Arc::new(entrances),
            program: Program::of_a_run(request.args.clone()),
            landlock: (!request.waives(Waiver::Landlock)).then(|| Arc::new(Policy::of_a_run())),
            filters: Arc::new(Filters::strict()),
            capabilities: None,
            status: report.clone(),
        };
        let failed = |doing: &'static str| {
            move |error: libcontainer::error::LibcontainerError| SandboxError::Container {
                doing: doing.to_owned(),
                reason: chain(&error),
            }
        };
        let mut container = ContainerBuilder::new(request.run_id.clone(), SyscallType::Linux)
            .with_root_path(world::STATE)
            .map_err(failed("created"))?
            .with_executor(confinement)
            .with_stdin(stdin)
            .with_stdout(stdout)
            .with_stderr(stderr)
            .as_init(world::BUNDLE)
            .with_systemd(false)
            .with_detach(true)
            .build()
            .map_err(failed("created"))?;
        drop(report);
        view.go_home()
            .map_err(|error| SandboxError::worker("leaving the cgroup", error))?;
        phases.end("create");
        let pid = container
            .pid()
            .and_then(|pid| Pid::from_raw(pid.as_raw()))
            .ok_or_else(|| SandboxError::worker("creating the container", "it has no process"))?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(|error| SandboxError::worker("opening PID 1", error))?;
        let kill = |error: SandboxError| {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            error
        };
        cgroup
            .attach(pid.as_raw_nonzero().get())
            .map_err(|error| kill(SandboxError::worker("joining the cgroup", error)))?;
        cpu.set().map_err(|error| kill(cgroup_layer(&error, request)))?;
        container.start().map_err(failed("started")).map_err(kill)?;
        let landlock_abi = read_status(status).map_err(kill)?;
        phases.end("start");
        let mut observed = host.observe(pid.as_raw_nonzero().get()).map_err(kill)?;
        observed.landlock_abi = landlock_abi;
        if !cgroup.holds(observed.pid) {
            return Err(kill(SandboxError::worker(
                "joining the cgroup",
                "PID 1 is not in it",
            )));
        }
        observed.limits = cgroup.in_force();
        observed.waived = request.waived.clone();
        phases.end("observe");
        Ok((pid, pidfd, observed, ids))
    }

    /// Waits for PID 1, or ends it when the driver hangs up, and takes everything away.
    fn wait(self, socket: &UnixStream) -> Ended {
        let mut watched = [
            PollFd::new(&self.pidfd, PollFlags::IN),
            PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN | PollFlags::RDHUP),
        ];
        // The driver never says anything more: whatever happens on either, the run is over.
        if poll(&mut watched, Some(&SETTLED)) == Ok(0) {
            let _ = crate::resident::give_back_clean_pages();
            let _ = poll(&mut watched, None);
        }
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        let status = reap(self.pid);
        let counted = self.cgroup.counted();
        // Struck off by the one that cleaned up: a record that stays is one that a reaper shall look at.
        let left = match self.cgroup.remove() {
            Ok(()) if self.record == self.registry.identity(&self.run_id) => self
                .registry
                .strike(&self.run_id)
                .err()
                .map(|error| error.to_string()),
            Ok(()) => None,
            left => left.err(),
        };
        Ended {
            code: status.and_then(WaitStatus::exit_status),
            signal: status.and_then(WaitStatus::terminating_signal),
            cpu_ms: children_cpu_ms(),
            counted,
            left,
        }
    }
}

/// A run that lasts as long as this is one that the worker waits for: short ones are not slowed down.
const SETTLED: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Polls, whatever signals come.
fn poll(watched: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> rustix::io::Result<usize> {
    loop {
        match rustix::event::poll(watched, timeout) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
}

fn reap(pid: Pid) -> Option<WaitStatus> {
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(found) => return found.map(|(_, status)| status),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// CPU time of PID 1 and all that it and the kernel reaped for it: user and system, in milliseconds.
fn children_cpu_ms() -> u64 {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| {
        let total = usage.user_time().num_milliseconds() + usage.system_time().num_milliseconds();
        u64::try_from(total).unwrap_or(0)
    })
}

fn drop_groups(request: &Request) -> Result<(), SandboxError> {
    const HINT: &str =
        "Run as a user with no other group than its own, as root, or accept it with --waive groups.";
    let failed = |error: nix::Error| SandboxError::layer(Layer::Groups, error, HINT);
    if request.identity != Identity::Own {
        return nix::unistd::setgroups(&[]).map_err(failed);
    }
    let own = nix::unistd::getegid();
    let others = nix::unistd::getgroups()
        .map_err(failed)?
        .into_iter()
        .filter(|gid| *gid != own)
        .count();
    if others > 0 && !request.waives(Waiver::Groups) {
        let reason = format!(
            "this user has {others} supplementary groups, and an ordinary user cannot leave them (setgroups is refused)"
        );
        return Err(SandboxError::layer(Layer::Groups, reason, HINT));
    }
    Ok(())
}

fn make_cgroup(request: &Request) -> Result<Cgroup, SandboxError> {
    let privileged = request.identity != Identity::Own;
    let hosts =
        Hierarchies::detect(privileged).map_err(|error| SandboxError::worker("reading /proc", error))?;
    Cgroup::create(&hosts, &request.run_id, &request.cgroup).map_err(|error| cgroup_layer(&error, request))
}

fn cgroup_layer(error: &CgroupError, request: &Request) -> SandboxError {
    let wanted = &request.cgroup;
    let layer = match error.controller {
        Controller::Memory => Layer::Memory,
        Controller::Cpu => Layer::Cpu,
        Controller::Pids => Layer::Pids,
    };
    let wanted: Vec<&str> = [
        wanted.memory_bytes.map(|_| "memory"),
        wanted.cpus.map(|_| "cpu"),
        wanted.pids.map(|_| "pids"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let way = match request.identity {
        Identity::Own => {
            "Run as root; or, with systemd and cgroup v2, in a scope of your own: `systemd-run --user --scope -p Delegate=yes sandglass run …`"
        }
        Identity::Range { .. } => "Mount the cgroup hierarchy writable, with this controller",
    };
    // All of them, so that it can be copied as it is.
    let waived = request.waived.iter().map(|waiver| waiver.as_str());
    let names: Vec<&str> = waived.chain(wanted).collect();
    let hint = format!("{way}; or go without by `--waive {}`.", names.join(","));
    SandboxError::layer(layer, error, &hint)
}

fn write_bundle(request: &Request) -> Result<(), SandboxError> {
    let spec = spec::hardened(&spec::Shape {
        rootfs: world::ROOTFS.into(),
        args: request.args.clone(),
        identity: request.identity,
        scratch_bytes: request.scratch_bytes,
        // PID 1 counts too, and for an ordinary user the worker, which is in the same user namespace; the limit is the
        // script's.
        pids: request.pids + 1 + u32::from(request.identity == Identity::Own),
    })?;
    let path = std::path::Path::new(world::BUNDLE).join("config.json");
    let failed = |error: std::io::Error| SandboxError::worker("writing the bundle", error);
    let body = serde_json::to_vec(&spec).map_err(|error| failed(error.into()))?;
    std::fs::write(path, body).map_err(failed)
}

/// Reads what the executor reported, to the end of file that `execve` makes.
pub(crate) fn read_status(status: OwnedFd) -> Result<Option<u32>, SandboxError> {
    let mut text = String::new();
    std::fs::File::from(status)
        .take(LONGEST_STATUS)
        .read_to_string(&mut text)
        .map_err(|error| SandboxError::worker("reading the container's status", error))?;
    parse_status(&text)
}

pub(crate) fn parse_status(text: &str) -> Result<Option<u32>, SandboxError> {
    if let Some(reason) = text.lines().find_map(|line| line.strip_prefix(ERROR)) {
        return Err(SandboxError::Container {
            doing: "started".into(),
            reason: reason.to_owned(),
        });
    }
    Ok(text
        .lines()
        .find_map(|line| line.strip_prefix(LANDLOCK)?.parse().ok()))
}

/// An error with its causes: the library's outermost message alone says little.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let line = error.to_string();
        if !text.ends_with(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_without_an_error_gives_the_abi() {
        assert_eq!(parse_status("landlock 7\n").unwrap(), Some(7));
        assert_eq!(parse_status("").unwrap(), None);
    }

    #[test]
    fn an_error_of_the_executor_is_the_answer_even_after_a_fact() {
        let error = parse_status("landlock 7\nerror seccomp: EINVAL\n").unwrap_err();
        assert!(error.to_string().contains("seccomp: EINVAL"), "{error}");
    }

    #[test]
    fn a_cgroup_error_names_the_waivers_that_would_do() {
        let hosts = Hierarchies::default();
        let wanted = crate::cgroup::Wanted {
            memory_bytes: Some(1),
            cpus: None,
            pids: Some(1),
        };
        let error = Cgroup::create(&hosts, "x", &wanted).unwrap_err();
        let request = Request {
            run_id: String::new(),
            state_root: Default::default(),
            rootfs: Default::default(),
            args: Vec::new(),
            identity: Identity::Own,
            scratch_bytes: 0,
            pids: 1,
            cgroup: wanted,
            waived: Vec::new(),
        };
        let error = cgroup_layer(&error, &request);
        assert!(error.to_string().contains("`memory`"), "{error}");
        assert!(error.hint().contains("--waive memory,pids`"), "{}", error.hint());
    }
}
