//! Real sandboxes, made and ended: nothing of one is left, whichever of its processes dies first.
//!
//! This binary is static, so it is its own image: the tests copy it into a root of their own and run it there as
//! PID 1. It needs a harness of its own since the sandbox worker is a re-execution of this very program.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use sandglass_run::{Limits, Waiver};
use sandglass_sandbox::{Ended, Launch, Sandbox, SandboxError};

const PROBE: &str = "/usr/probe";
const IN_CHILD: &str = "launch-and-wait";

type Outcome = Result<(), Failed>;

fn main() -> ExitCode {
    if sandglass_sandbox::is_worker() {
        return sandglass_sandbox::worker_main();
    }
    let args: Vec<String> = std::env::args().collect();
    if args.first().is_some_and(|name| name == PROBE) {
        return probe(&args[1..]);
    }
    if args.get(1).is_some_and(|word| word == IN_CHILD) {
        return launch_and_wait(Path::new(&args[2]), &args[3]);
    }
    let root = rustix::process::geteuid().is_root();
    let trials = vec![
        Trial::test("what_pid_1_writes_arrives_and_its_exit_is_told", exit_is_told),
        Trial::test("pid_1_sees_three_descriptors_and_itself_only", sees_itself_only),
        Trial::test("the_receipt_is_read_back_from_the_kernel", receipt),
        Trial::test("ending_a_sandbox_kills_everything_in_it", ending_kills),
        Trial::test("dropping_a_sandbox_ends_it", dropping_ends),
        Trial::test("a_killed_worker_takes_its_sandbox_with_it", killed_worker),
        Trial::test("a_killed_driver_leaves_nothing", killed_driver),
        Trial::test(
            "a_killed_driver_and_a_stuck_worker_leave_only_what_reap_takes",
            stuck_worker,
        ),
        Trial::test(
            "a_driver_and_worker_killed_at_any_moment_leave_only_what_reap_takes",
            killed_at_any_moment,
        ),
        Trial::test("a_missing_image_is_an_error_that_names_it", missing_image),
        Trial::test("a_program_that_is_not_there_is_an_error", missing_program),
        Trial::test("a_live_run_keeps_its_id", live_id),
        Trial::test("memory_is_bounded_and_the_kill_is_counted", memory_bounded).with_ignored_flag(!root),
        Trial::test("processes_are_bounded", processes_bounded),
        Trial::test("two_runs_have_different_ids_on_the_host", different_ids).with_ignored_flag(!root),
        Trial::test("fifty_runs_leave_nothing", fifty_runs),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// What PID 1 does, by its first argument.
fn probe(args: &[String]) -> ExitCode {
    let out = |text: &str| {
        let mut stdout = std::io::stdout();
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    };
    // Nothing begins before the test closes its end: a process that is gone cannot be looked at from outside.
    let mut text = String::new();
    let _ = std::io::stdin().read_to_string(&mut text);
    match args.first().map(String::as_str) {
        Some("echo") => {
            out(&text);
            return ExitCode::from(7);
        }
        Some("look") => {
            let names = |dir| {
                let mut names: Vec<_> = std::fs::read_dir(dir)
                    .map(|entries| {
                        entries
                            .flatten()
                            .map(|e| e.file_name().into_string().unwrap_or_default())
                            .collect()
                    })
                    .unwrap_or_default();
                names.sort();
                names
            };
            // Reading the directory takes a descriptor of its own, number 3.
            let pids: Vec<_> = names("/proc")
                .into_iter()
                .filter(|name| name.parse::<u32>().is_ok())
                .collect();
            let canary =
                std::fs::metadata("/etc/shadow").is_ok() || std::fs::metadata("/proc/1/root/home").is_ok();
            let written: Vec<_> = ["/", "/usr", "/dev", "/proc", "/work", "/out", "/tmp", "/dev/shm"]
                .into_iter()
                .filter(|dir| File::create(Path::new(dir).join("x")).is_ok())
                .collect();
            out(&format!(
                "fds {:?}\npids {pids:?}\ncanary {canary}\nwritten {written:?}\n",
                names("/proc/self/fd")
            ));
        }
        Some("eat") => {
            let mut eaten: Vec<Vec<u8>> = Vec::new();
            while eaten.len() < 1024 {
                eaten.push(vec![1; 1 << 20]);
            }
        }
        Some("threads") => {
            let mut held = Vec::new();
            while let Ok(thread) = std::thread::Builder::new()
                .stack_size(16 << 10)
                .spawn(|| std::thread::sleep(Duration::from_secs(30)))
            {
                held.push(thread);
                if held.len() > 500 {
                    break;
                }
            }
            out(&held.len().to_string());
        }
        _ => std::thread::sleep(Duration::from_secs(60)),
    }
    ExitCode::SUCCESS
}

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Result<Self, Failed> {
        let dir = tempfile::tempdir()?;
        let rootfs = dir.path().join("rootfs");
        for name in ["usr", "proc", "dev", "work", "out", "tmp", "etc"] {
            std::fs::create_dir_all(rootfs.join(name))?;
        }
        std::fs::copy("/proc/self/exe", rootfs.join("usr/probe"))?;
        Ok(Self { dir })
    }

    /// Begins the id of every run of this bench, and of no other.
    fn tag(&self) -> String {
        let name = self
            .dir
            .path()
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        format!("live-{}-", name.trim_start_matches('.').to_lowercase())
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn launch(&self, run_id: &str, what: &str) -> Launch {
        let root = rustix::process::geteuid().is_root();
        Launch {
            run_id: self.tag() + run_id,
            rootfs: self.dir.path().join("rootfs"),
            args: vec![PROBE.into(), what.into()],
            limits: Limits {
                memory_bytes: 64 << 20,
                pids: 16,
                ..Limits::default()
            },
            waived: if root {
                Vec::new()
            } else {
                vec![Waiver::Memory, Waiver::Pids, Waiver::Cpu, Waiver::Groups]
            },
            state_root: self.state(),
        }
    }

    fn start(&self, run_id: &str, what: &str) -> Result<Sandbox, Failed> {
        Sandbox::launch(&self.launch(run_id, what))
            .map_err(|error| format!("{error} {}", error.hint()).into())
    }

    /// Fails if a run is on record, a cgroup is there or a probe of this bench is alive.
    fn nothing_left(&self) -> Outcome {
        let records: Vec<_> = std::fs::read_dir(self.state().join("runs"))?.flatten().collect();
        equal(records.len(), 0, "records")?;
        equal(cgroups_of(&self.tag()), Vec::<PathBuf>::new(), "cgroups")?;
        equal(
            alive(&self.dir.path().join("rootfs")),
            Vec::<u32>::new(),
            "processes",
        )
    }
}

/// Processes whose program lies in a directory, by their link.
fn alive(dir: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let cmdline = std::fs::read(entry.path().join("cmdline")).ok()?;
            let ours = cmdline.starts_with(PROBE.as_bytes())
                && std::fs::metadata(entry.path().join("exe")).ok().map(inode)
                    == std::fs::metadata(dir.join("usr/probe")).ok().map(inode);
            ours.then_some(pid)
        })
        .collect();
    pids.sort_unstable();
    pids
}

fn inode(metadata: std::fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

fn cgroups_of(prefix: &str) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .filter_map(|line| line.split(' ').nth(4))
        .filter_map(|mount| std::fs::read_dir(Path::new(mount).join("sandglass")).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name()
                .and_then(|n| n.to_str())
                .is_some_and(|n| n.starts_with(prefix))
        })
        .collect()
}

fn equal<T: PartialEq + std::fmt::Debug>(found: T, expected: T, what: &str) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}").into())
}

fn until(what: &str, mut done: impl FnMut() -> bool) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        if Instant::now() > deadline {
            return Err(format!("{what} did not happen within ten seconds").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn channel(sandbox: &mut Sandbox) -> Result<(OwnedFd, OwnedFd), Failed> {
    sandbox.channel().ok_or_else(|| "the channel was taken".into())
}

fn said(sandbox: &mut Sandbox) -> Result<String, Failed> {
    let (to, from) = channel(sandbox)?;
    drop(to);
    let mut text = String::new();
    File::from(from).read_to_string(&mut text)?;
    Ok(text)
}

fn exit_is_told() -> Outcome {
    let bench = Bench::new()?;
    let mut sandbox = bench.start("echo", "echo")?;
    let (to, from) = channel(&mut sandbox)?;
    File::from(to).write_all(b"hello")?;
    let mut text = String::new();
    File::from(from).read_to_string(&mut text)?;
    equal(text.as_str(), "hello", "output")?;
    let ended = sandbox.finish()?;
    equal((ended.code, ended.signal), (Some(7), None), "exit")?;
    bench.nothing_left()
}

fn sees_itself_only() -> Outcome {
    let bench = Bench::new()?;
    let mut sandbox = bench.start("look", "look")?;
    let text = said(&mut sandbox)?;
    let expected = "fds [\"0\", \"1\", \"2\", \"3\"]\npids [\"1\"]\ncanary false\nwritten [\"/work\", \"/out\", \"/tmp\", \"/dev/shm\"]\n";
    equal(text.as_str(), expected, "view from inside")?;
    sandbox.finish()?;
    bench.nothing_left()
}

fn receipt() -> Outcome {
    let bench = Bench::new()?;
    let sandbox = bench.start("receipt", "sleep")?;
    let observed = sandbox.observed();
    equal(observed.capabilities, [0; 5], "capabilities")?;
    equal(observed.no_new_privileges, true, "no_new_privs")?;
    equal(observed.seccomp_mode, 2, "seccomp mode")?;
    let added = observed.seccomp_filters - observed.seccomp_filters_inherited;
    equal(added as usize, sandglass_sandbox::filter_count(), "filters")?;
    equal(
        observed.landlock_abi.is_some_and(|abi| abi >= 6),
        true,
        "landlock ABI of 6 or newer",
    )?;
    equal(observed.namespaces.len(), 7, "namespaces of its own")?;
    equal(observed.groups.len(), 0, "groups").or_else(|error| {
        // An ordinary user's groups stay; the test waives them and the receipt shows them.
        if observed.waived.contains(&Waiver::Groups) {
            Ok(())
        } else {
            Err(error)
        }
    })?;
    if rustix::process::geteuid().is_root() {
        equal(observed.limits.memory_bytes, Some(64 << 20), "memory limit")?;
        equal(
            observed.limits.pids,
            Some(17),
            "process limit, PID 1 beside the script's 16",
        )?;
        equal(observed.limits.cpus, Some(0.5), "CPU limit")?;
        equal(
            observed.uids.iter().all(|uid| *uid >= 0x7000_0000),
            true,
            "a host id of no account",
        )?;
    }
    sandbox.finish()?;
    bench.nothing_left()
}

fn ending_kills() -> Outcome {
    let bench = Bench::new()?;
    let sandbox = bench.start("kill", "sleep")?;
    equal(
        alive(&bench.dir.path().join("rootfs")).len(),
        1,
        "live processes before",
    )?;
    let ended = sandbox.finish()?;
    equal(ended.signal, Some(9), "signal")?;
    bench.nothing_left()
}

fn dropping_ends() -> Outcome {
    let bench = Bench::new()?;
    drop(bench.start("drop", "sleep")?);
    bench.nothing_left()
}

fn parent_of(pid: u32) -> Result<u32, Failed> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
        .ok_or_else(|| "no parent".into())
}

fn kill(pid: u32) -> Outcome {
    let pid = rustix::process::Pid::from_raw(pid.try_into()?).ok_or("no pid")?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
}

fn killed_worker() -> Outcome {
    let bench = Bench::new()?;
    let rootfs = bench.dir.path().join("rootfs");
    let sandbox = bench.start("worker", "sleep")?;
    kill(parent_of(sandbox.observed().pid.try_into()?)?)?;
    until("the end of PID 1", || alive(&rootfs).is_empty())?;
    let ended: Ended = sandbox.finish()?;
    equal(ended.signal, Some(9), "signal")?;
    bench.nothing_left()
}

fn launch_and_wait(dir: &Path, name: &str) -> ExitCode {
    let bench = Launch {
        run_id: name.into(),
        rootfs: dir.join("rootfs"),
        args: vec![PROBE.into(), "sleep".into()],
        limits: Limits::default(),
        waived: if rustix::process::geteuid().is_root() {
            Vec::new()
        } else {
            vec![Waiver::Memory, Waiver::Pids, Waiver::Cpu, Waiver::Groups]
        },
        state_root: dir.join("state"),
    };
    match Sandbox::launch(&bench) {
        Ok(sandbox) => {
            println!("{}", sandbox.observed().pid);
            std::thread::sleep(Duration::from_secs(60));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A driver in a process of its own, and the id of its sandbox's PID 1.
fn other_driver(bench: &Bench, name: &str) -> Result<(std::process::Child, u32), Failed> {
    use std::io::BufRead;
    let mut child = std::process::Command::new("/proc/self/exe")
        .args([
            IN_CHILD.as_ref(),
            bench.dir.path().as_os_str(),
            bench.launch(name, "").run_id.as_ref(),
        ])
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no stdout")?;
    let mut line = String::new();
    std::io::BufReader::new(stdout).read_line(&mut line)?;
    Ok((child, line.trim().parse()?))
}

fn killed_driver() -> Outcome {
    let bench = Bench::new()?;
    let (mut child, _) = other_driver(&bench, "driver")?;
    child.kill()?;
    child.wait()?;
    // Nobody reaps here: the worker sees its driver's end and cleans up alone.
    until("the clean-up by the worker", || bench.nothing_left().is_ok())
}

fn stuck_worker() -> Outcome {
    let bench = Bench::new()?;
    let (mut child, pid_1) = other_driver(&bench, "stuck")?;
    let worker = parent_of(pid_1)?;
    let stopped = rustix::process::Pid::from_raw(worker.try_into()?).ok_or("no pid")?;
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP)?;
    equal(
        sandglass_sandbox::reap(&bench.state())?,
        Vec::<String>::new(),
        "reaped while the driver lives",
    )?;
    child.kill()?;
    child.wait()?;
    // The worker cannot clean up: the run is over all the same, and whoever comes next takes it away.
    let name = bench.launch("stuck", "").run_id;
    equal(sandglass_sandbox::reap(&bench.state())?, vec![name], "reaped")?;
    // The kernel may have ended it: a stopped process whose group has no parent left is sent SIGHUP.
    let _ = kill(worker);
    until("the end of everything", || bench.nothing_left().is_ok())
}

/// Kills both in the middle of making a sandbox, at a moment that moves through all of it.
fn killed_at_any_moment() -> Outcome {
    let bench = Bench::new()?;
    // Twice as long as making one takes here, in eighty steps.
    let started = Instant::now();
    let (mut child, _) = other_driver(&bench, "measured")?;
    let step_time = started.elapsed() / 40;
    child.kill()?;
    child.wait()?;
    let mut killed_a_worker = 0;
    for step in 0..80_u32 {
        let mut child = std::process::Command::new("/proc/self/exe")
            .arg(IN_CHILD)
            .arg(bench.dir.path())
            .arg(bench.tag() + &format!("step-{step}"))
            .stdout(std::process::Stdio::null())
            .spawn()?;
        std::thread::sleep(step_time * step);
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let workers = std::fs::read_to_string(children)?;
        child.kill()?;
        for worker in workers.split_whitespace() {
            killed_a_worker += usize::from(kill(worker.parse()?).is_ok());
        }
        child.wait()?;
    }
    equal(
        killed_a_worker > 10,
        true,
        &format!("{killed_a_worker} workers were killed"),
    )?;
    // A process that outlived both would hold its record's lock, and no reaper would ever take it.
    until("the reaping of all", || {
        let _ = sandglass_sandbox::reap(&bench.state());
        bench.nothing_left().is_ok()
    })
}

fn refused(launch: &Launch) -> Result<SandboxError, Failed> {
    match Sandbox::launch(launch) {
        Ok(_) => Err("it was launched".into()),
        Err(error) => Ok(error),
    }
}

fn missing_image() -> Outcome {
    let bench = Bench::new()?;
    let mut launch = bench.launch("image", "sleep");
    launch.rootfs = bench.dir.path().join("nowhere");
    let error = refused(&launch)?;
    equal(error.to_string().contains("nowhere"), true, &error.to_string())?;
    bench.nothing_left()
}

fn missing_program() -> Outcome {
    let bench = Bench::new()?;
    let mut launch = bench.launch("program", "sleep");
    launch.args = vec!["/usr/absent".into()];
    let error = refused(&launch)?;
    equal(
        error.to_string().contains("/usr/absent"),
        true,
        &error.to_string(),
    )?;
    bench.nothing_left()
}

fn live_id() -> Outcome {
    let bench = Bench::new()?;
    let sandbox = bench.start("same", "sleep")?;
    let error = refused(&bench.launch("same", "sleep"))?;
    equal(error.code(), "run_exists", "code")?;
    equal(
        alive(&bench.dir.path().join("rootfs")).len(),
        1,
        "the first one lives on",
    )?;
    sandbox.finish()?;
    bench.nothing_left()
}

fn memory_bounded() -> Outcome {
    let bench = Bench::new()?;
    let mut sandbox = bench.start("memory", "eat")?;
    said(&mut sandbox)?;
    let ended = sandbox.finish()?;
    equal(ended.signal, Some(9), "signal")?;
    equal(ended.counted.oom_kills >= 1, true, "a counted OOM kill")?;
    bench.nothing_left()
}

fn processes_bounded() -> Outcome {
    let bench = Bench::new()?;
    let mut sandbox = bench.start("threads", "threads")?;
    // The limit is 16 beside PID 1, whose own thread is one; without cgroups the resource limit holds.
    let threads: u32 = said(&mut sandbox)?.parse()?;
    equal((8..=16).contains(&threads), true, &format!("{threads} threads"))?;
    sandbox.finish()?;
    bench.nothing_left()
}

fn different_ids() -> Outcome {
    let bench = Bench::new()?;
    let first = bench.start("first", "sleep")?;
    let second = bench.start("second", "sleep")?;
    equal(
        first.observed().uids != second.observed().uids,
        true,
        "different ids",
    )?;
    first.finish()?;
    second.finish()?;
    bench.nothing_left()
}

fn fifty_runs() -> Outcome {
    let bench = Bench::new()?;
    for run in 0..50 {
        bench.start(&format!("many-{run}"), "sleep")?.finish()?;
    }
    let own_fds = std::fs::read_dir("/proc/self/fd")?.count();
    equal(own_fds < 40, true, &format!("{own_fds} descriptors of our own"))?;
    bench.nothing_left()
}
