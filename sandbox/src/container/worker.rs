//! The worker's side: one step of one container, in a process with one thread that ends with it.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::container::{Container, ContainerStatus};
use libcontainer::syscall::syscall::SyscallType;
use oci_spec::runtime::{LinuxNamespaceType, Process, Spec};
use rustix::event::{PollFd, PollFlags};

use super::idmap::IdMap;
use super::launch::{WORKER, null};
use super::{
    Create, Done, Exec, Places, Record, Request, cwd, hierarchy, joining, prepare, propagation, read_spec,
    userns, volumes,
};
use crate::cgroup::PodCgroup;
use crate::confine::Policy;
use crate::control::{self, DESCRIPTORS};
use crate::executor::Confinement;
use crate::worker::{Phases, chain};

/// What a caller does on the host before a container is made, such as mounting its root.
pub type Prepare = fn(&Create) -> Result<(), String>;

/// True in a process that [`super::spawn`] or a worker started: its `main` must call [`worker_main`] before anything
/// else, while it has one thread.
pub fn is_worker() -> bool {
    is_told(WORKER) || is_told(userns::HOLDER)
}

fn is_told(word: &str) -> bool {
    std::env::args_os().nth(1).is_some_and(|told| told == word)
}

/// The worker's whole life.
pub fn worker_main(prepare: Prepare) -> ExitCode {
    if is_told(userns::HOLDER) {
        return userns::hold();
    }
    let Ok(stdin) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    // The container's processes are copies of this one: a socket at descriptor 0 would be theirs.
    let nowhere = null().and_then(|null| Ok(rustix::stdio::dup2_stdin(&null)?));
    let mut socket = UnixStream::from(stdin);
    let answer = nowhere
        .and_then(|()| end_with_the_shim(&socket))
        .and_then(|()| control::receive_request::<Request>(&socket))
        .map_err(|error| format!("receiving the request: {error}"))
        .and_then(|(request, fds)| serve(request, fds, prepare, &socket));
    let failed = answer.is_err();
    let told = serde_json::to_vec(&answer)
        .map_err(std::io::Error::other)
        .and_then(|mut body| {
            body.push(b'\n');
            socket.write_all(&body)
        });
    if failed || told.is_err() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// When the shim dies so does this process: nobody would take away what it made after that, since whoever comes to tidy
/// up looks once. The signal comes at the end of the shim's thread that started us, which is its only one.
fn end_with_the_shim(socket: &UnixStream) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // It may be dead already; then both directions of the socket are closed, and not its own alone.
    let mut watched = [PollFd::new(socket, PollFlags::empty())];
    let now = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut watched, Some(&now))?;
    if watched[0].revents().contains(PollFlags::HUP) {
        return Err(std::io::Error::other("the shim is gone"));
    }
    Ok(())
}

fn serve(
    request: Request,
    fds: [OwnedFd; DESCRIPTORS],
    prepare: Prepare,
    shim: &UnixStream,
) -> Result<Done, String> {
    // The shim's keeps others out of its files; a container has the usual one, unless its spec says another.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    // The shim goes without huge pages, which double its memory; what runs in a container shall have them.
    let _ = prctl_thp(true);
    // The library leaves a process whose spec names no groups those of whoever started containerd.
    nix::unistd::setgroups(&[]).map_err(|error| format!("giving up groups: {error}"))?;
    match request {
        Request::Create(create) => make(&create, fds, prepare),
        Request::Exec(exec) => join(&exec, fds, shim),
    }
}

/// Lets the calling process and its children have transparent huge pages, or not (`PR_SET_THP_DISABLE`).
///
/// # Errors
/// The kernel's refusal.
pub fn prctl_thp(enabled: bool) -> std::io::Result<()> {
    Ok(nix::sys::prctl::set_thp_disable(!enabled)?)
}

fn make(create: &Create, fds: [OwnedFd; DESCRIPTORS], prepare: Prepare) -> Result<Done, String> {
    let mut phases = Phases::new();
    let places = Places::of(&create.bundle);
    let mut spec = read_spec(&create.bundle).map_err(|error| format!("reading the spec: {error}"))?;
    let cgroup = make_cgroup(create, &places, &spec)?;
    phases.end("cgroup");
    prepare(create)?;
    if create.confined {
        hierarchy::defuse_root(&places.rootfs)?;
    }
    phases.end("mount");

    let (resources, seccomp, score) = prepare::take_around(&mut spec);
    let wanted = hierarchy::take_mount(&mut spec);
    let mounted = cwd::lies_in_a_mount(&spec);
    let propagations = propagation::take(&mut spec);
    let volumes = volumes::take(&mut spec)?;
    volumes.join_first(&mut spec)?;
    set_root(&mut spec, &places);
    prepare::root_is_there(&spec)?;
    prepare::devices_have_places(&spec)?;
    prepare::joins_what_is_there(&spec)?;
    let process = spec.process_mut().as_mut().ok_or("the spec has no process")?;
    let directory = process.cwd().clone();
    let uid = process.user().uid();
    let mut steps = prepare::steps(process, seccomp.as_ref(), create.confined)?;
    if mounted {
        // The mounts are made by the library, which makes no directory in them.
        process.set_cwd("/".into());
        steps.program.directory = Some(directory.clone());
    } else {
        let owner = volumes.map.as_ref().and_then(IdMap::root_outside);
        cwd::make(&places.rootfs, &directory, owner);
    }
    let mut warnings = prepare::clamp_rlimits(process);
    warnings.extend(score.map(prepare::set_oom_score).transpose()?.flatten());
    write_bundle(&places, &spec)?;

    let trees = wanted
        .map(|wanted| hierarchy::open(&cgroup, wanted))
        .transpose()?;
    // First, for the way back to be that to the host's cgroup namespace too.
    let host = hierarchy::hide()?;
    if create.confined {
        hierarchy::own_view()?;
    }
    volumes.attach()?;
    phases.end("prepare");
    let streams = volumes.has_user_namespace().then(|| copies(&fds)).transpose()?;
    let [stdin, stdout, stderr, status] = fds;
    let confinement = confinement(steps, create.confined.then_some(&spec), Arc::new(status));
    let builder = builder(
        &create.id,
        places.library(),
        confinement,
        [stdin, stdout, stderr],
        create.console.as_deref(),
    )?;
    let container = builder
        .as_init(places.bundle())
        .with_systemd(false)
        .with_detach(true)
        .as_sibling(true)
        .build()
        .map_err(|error| cwd::explain(plain(&error), &places.rootfs, &directory))?;
    let pid = container.pid().ok_or("the container has no process")?.as_raw();
    phases.end("create");
    let finish = || {
        host.reenter()?;
        if let Some(streams) = &streams {
            userns::settle(pid, volumes.map.as_ref(), streams, uid)?;
        }
        if let Some(resources) = &resources {
            cgroup.apply(resources).map_err(|error| error.to_string())?;
        }
        hierarchy::enter(pid)?;
        if let (Some(trees), Some(wanted)) = (trees, wanted) {
            hierarchy::show(trees, wanted)?;
        }
        propagation::give(&propagations)?;
        Ok::<_, String>(())
    };
    // Whoever asked takes away what is there when we fail; the process must not begin in between.
    finish().inspect_err(|_| kill(pid))?;
    phases.end("limit");
    Ok(Done {
        pid,
        landlock_abi: None,
        warnings,
        phases: phases.done,
    })
}

fn make_cgroup(create: &Create, places: &Places, spec: &Spec) -> Result<PodCgroup, String> {
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("reading the mount table: {error}"))?;
    let path = spec
        .linux()
        .as_ref()
        .and_then(|linux| linux.cgroups_path().clone());
    let mut cgroup = PodCgroup::plan(&mountinfo, path.as_deref(), &create.id, create.systemd_cgroup)
        .map_err(|error| error.to_string())?;
    let record = |cgroup: &PodCgroup| {
        let record = Record {
            cgroup: cgroup.clone(),
            volatile: create.volatile.clone(),
        };
        super::write_record(places, &record).map_err(|error| format!("writing the record: {error}"))
    };
    // Written before anything is made, so that whoever comes after a kill finds it all; and again with what was made.
    cgroup.foresee();
    record(&cgroup)?;
    cgroup.create().map_err(|error| error.to_string())?;
    record(&cgroup)?;
    cgroup.enter().map_err(|error| error.to_string())?;
    Ok(cgroup)
}

fn join(exec: &Exec, fds: [OwnedFd; DESCRIPTORS], shim: &UnixStream) -> Result<Done, String> {
    let mut phases = Phases::new();
    let places = Places::of(&exec.bundle);
    let failed = |doing: &'static str| move |error: &dyn std::fmt::Display| format!("{doing}: {error}");
    let record = super::read_record(&exec.bundle)
        .map_err(|error| failed("reading the record")(&error))?
        .ok_or("the container was not made")?;
    let spec = read_spec(&exec.bundle).map_err(|error| failed("reading the spec")(&error))?;
    let mut process: Process = std::fs::read(&exec.process)
        .and_then(|body| Ok(serde_json::from_slice(&body)?))
        .map_err(|error| failed("reading the process")(&error))?;
    let seccomp = spec.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
    let steps = prepare::steps(&mut process, seccomp, exec.confined)?;
    let mut warnings = prepare::clamp_rlimits(&mut process);
    let score = process
        .oom_score_adj()
        .or(spec.process().as_ref().and_then(Process::oom_score_adj));
    warnings.extend(score.map(prepare::set_oom_score).transpose()?.flatten());
    process.set_oom_score_adj(None);
    let body = serde_json::to_vec(&process).map_err(|error| failed("writing the process")(&error))?;
    std::fs::write(&exec.process, body).map_err(|error| failed("writing the process")(&error))?;
    record.cgroup.enter().map_err(|error| error.to_string())?;
    phases.end("cgroup");
    if exec.confined {
        hierarchy::own_view()?;
    }
    hierarchy::hide()?;
    let init = mark_running(&places, &exec.id)?;
    let mut library = places.library();
    let (mut process_file, mut console) = (exec.process.clone(), exec.console.clone());
    if volumes::has_user_namespace(&spec) {
        userns::settle(init, None, &fds[..3], process.user().uid())?;
        let luggage = joining::enter(exec, &places, init)?;
        // The kernel forgot it with the change of identity.
        end_with_the_shim(shim).map_err(|error| failed("watching the shim")(&error))?;
        (library, process_file, console) = (luggage.library, luggage.process, luggage.console);
    }
    phases.end("prepare");

    let [stdin, stdout, stderr, _] = fds;
    // The program runs when the library returns, so what it says can be read here.
    let (said, status) = super::status_pipe().map_err(|error| failed("making a pipe")(&error))?;
    let status = Arc::new(status);
    let confinement = confinement(steps, exec.confined.then_some(&spec), status.clone());
    let builder = builder(
        &exec.id,
        library,
        confinement,
        [stdin, stdout, stderr],
        console.as_deref(),
    )?;
    let built = builder
        .as_tenant()
        .with_process(Some(&process_file))
        .with_detach(true)
        .as_sibling(true)
        .build();
    drop(status);
    let mut text = String::new();
    let _ = std::fs::File::from(said).take(4096).read_to_string(&mut text);
    let landlock_abi = super::parse_status(&text)?;
    let root = PathBuf::from(format!("/proc/{init}/root"));
    let pid = built
        .map_err(|error| cwd::explain(plain(&error), &root, process.cwd()))?
        .as_raw();
    phases.end("exec");
    Ok(Done {
        pid,
        landlock_abi,
        warnings,
        phases: phases.done,
    })
}

/// What the executor does in a process, the first one or one that joins. A spec comes along where it is to be confined.
fn confinement(steps: prepare::Steps, confined: Option<&Spec>, status: Arc<OwnedFd>) -> Confinement {
    let policy = |spec: &Spec| Arc::new(Policy::of_a_container(&crate::pod::writable(spec)));
    Confinement {
        program: steps.program,
        lifeline: None,
        entrances: Arc::default(),
        landlock: confined.map(policy),
        filters: Arc::new(steps.filters),
        capabilities: steps.capabilities,
        status,
    }
}

/// What the library is told of every process.
fn builder(
    id: &str,
    library: PathBuf,
    confinement: Confinement,
    [stdin, stdout, stderr]: [OwnedFd; 3],
    console: Option<&Path>,
) -> Result<ContainerBuilder, String> {
    let builder = ContainerBuilder::new(id.to_owned(), SyscallType::Linux)
        .with_root_path(library)
        .map_err(|error| chain(&error))?
        .with_executor(confinement)
        .with_stdin(stdin)
        .with_stdout(stdout)
        .with_stderr(stderr);
    Ok(match console {
        Some(console) => builder.with_console_socket(Some(console)),
        None => builder,
    })
}

/// The streams once more: the library keeps those that it is given.
fn copies(fds: &[OwnedFd; DESCRIPTORS]) -> Result<Vec<OwnedFd>, String> {
    let copies = fds[..3].iter().map(OwnedFd::try_clone);
    copies
        .collect::<std::io::Result<_>>()
        .map_err(|error| format!("duplicating the streams: {error}"))
}

/// The library lets nothing join a container that it did not start itself. Answers with the pid of the first process.
fn mark_running(places: &Places, id: &str) -> Result<i32, String> {
    let mut container = Container::load(places.library().join(id)).map_err(|error| chain(&error))?;
    if container.status() == ContainerStatus::Created {
        container
            .set_status(ContainerStatus::Running)
            .save()
            .map_err(|error| chain(&error))?;
    }
    Ok(container.pid().ok_or("the container has no process")?.as_raw())
}

fn set_root(spec: &mut Spec, places: &Places) {
    if let Some(root) = spec.root_mut().as_mut()
        && root.path().is_relative()
    {
        let path = places.state.parent().unwrap_or(Path::new("/")).join(root.path());
        root.set_path(path);
    }
}

fn write_bundle(places: &Places, spec: &Spec) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("writing the bundle: {error}");
    std::fs::create_dir(places.bundle()).map_err(failed)?;
    let body = serde_json::to_vec(spec).map_err(|error| failed(error.into()))?;
    std::fs::write(places.bundle().join("config.json"), body).map_err(failed)
}

/// True for a process that still is the copy of a worker as which it was born.
pub fn is_unborn(pid: i32) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |process: &str| {
        std::fs::metadata(format!("/proc/{process}/exe")).map(|found| (found.dev(), found.ino()))
    };
    matches!((of(&pid.to_string()), of("self")), (Ok(its), Ok(own)) if its == own)
}

/// Kills a process, by an id that is known to be its own still.
pub fn kill(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// The innermost cause alone where it is the executor's sentence, else the whole chain.
fn plain(error: &dyn std::error::Error) -> String {
    let text = chain(error);
    match text.find("exec: \"") {
        Some(at) => text[at..].to_owned(),
        None => text,
    }
}

/// True where a container has a PID namespace of its own, so that its end is the end of everything in it.
pub fn has_own_pid_namespace(spec: &Spec) -> bool {
    super::namespaces(spec).any(|ns| ns.typ() == LinuxNamespaceType::Pid && ns.path().is_none())
}
