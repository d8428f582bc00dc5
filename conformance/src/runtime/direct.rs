//! A run whose script is a process of the container by itself: the first, or one beside it.

use std::io::{Read, Write as _};
use std::os::fd::AsRawFd as _;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use sandglass_driver::Cancel;
use sandglass_run::report::REPORT_SCHEMA;
use sandglass_run::{Output, OutputContent, Report, RunError, Status, Usage};

use super::attach::Attached;
use super::ctr::Container;
use super::events::{Listener, Told};
use super::group::{Gauge, limit_pids};
use super::plan::Plan;
use super::{Handler, Role, refused};

/// The name of the process beside the first.
const EXEC: &str = "script";
/// How long the first process sleeps where the script is not it: longer than any run.
const SLEEPS: &str = "600";
/// More of an output than this is not kept; it is counted on.
const KEPT: usize = 64 << 20;
/// How often it is looked whether the script has ended.
const EVERY: Duration = Duration::from_millis(5);

/// Carries the run out.
///
/// # Errors
/// When nothing can be said about it.
pub fn run(plan: &Plan, container: &Container<'_>, cancel: &Cancel) -> Result<Report, String> {
    let listener = Listener::new(container.runtime());
    let gauge = Gauge::start(container.id());
    let (program, staged) = stager(plan);
    let script: Vec<&str> = ["sh", "-c", &program, "sh"]
        .into_iter()
        .chain(staged.words.iter().map(String::as_str))
        .collect();
    let (first, process) = match container.runtime().role {
        Role::Exec => (vec!["sleep", SLEEPS], EXEC),
        Role::First | Role::Runner => (script.clone(), container.id()),
    };
    let mut started = container.run(&first)?.and_then(|attached| {
        if container.runtime().handler != Handler::Sandglass {
            limit_pids(container.id(), container.limits().pids)?;
        }
        Ok(attached)
    });
    if process == EXEC && started.is_ok() {
        started = container.exec(EXEC, &script)?;
    }
    let attached = match started {
        Ok(attached) => attached,
        Err(said) => {
            container.remove();
            return Ok(refused(plan, &said));
        }
    };
    let streams = Streams::start(attached, staged.bytes, !plan.json)?;
    let (why, told) = wait(plan, container, &listener, (process, cancel))?;
    // Whoever may still hold a stream is gone with the container.
    container.remove();
    let ended = Ended {
        why,
        told,
        stdout: streams.stdout.join().unwrap_or_default(),
        stderr: streams.stderr.join().unwrap_or_default(),
    };
    Ok(report(plan, ended, gauge.peak()))
}

/// Waits for the script's end, and brings it about when its time is over or the run is cancelled.
fn wait(
    plan: &Plan,
    container: &Container<'_>,
    listener: &Listener,
    (process, cancel): (&str, &Cancel),
) -> Result<(Why, Result<Told, String>), String> {
    let started = Instant::now();
    loop {
        let told = listener.told(container.id(), process)?;
        let why = match (cancel.is_cancelled(), started.elapsed() > plan.limits.wall) {
            _ if told.exited.is_some() => return Ok((Why::Itself, Ok(told))),
            (true, _) => Why::Cancelled,
            (_, true) => Why::WallClock,
            _ => {
                std::thread::sleep(EVERY);
                continue;
            }
        };
        container.kill();
        return Ok((why, listener.until_exit(container.id(), process)));
    }
}

/// What the shell in the container needs to put files into `/work` and to become the script.
struct Staged {
    /// Arguments of the shell's program: sizes and names, then the script's command line.
    words: Vec<String>,
    /// Its standard input: all files, one after the other.
    bytes: Vec<u8>,
}

/// A program for the shell that reads as many files as there are, and becomes the script.
fn stager(plan: &Plan) -> (String, Staged) {
    let files: Vec<(&String, &Vec<u8>)> = std::iter::once((&plan.script.0, &plan.script.1))
        .chain(plan.inputs.iter().map(|(n, b)| (n, b)))
        .collect();
    // Reads its two first arguments once for each file; nothing is read beyond a file's end.
    let one = "head -c \"$1\" > \"./$2\" || exit 125; shift 2; ";
    let program = format!("umask 022; {}exec \"$@\" </dev/null", one.repeat(files.len()));
    let mut words: Vec<String> = files
        .iter()
        .flat_map(|(name, bytes)| [bytes.len().to_string(), (*name).clone()])
        .collect();
    words.extend(plan.argv());
    let bytes = files
        .iter()
        .flat_map(|(_, bytes)| bytes.iter().copied())
        .collect();
    (program, Staged { words, bytes })
}

/// Why a script's end came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Itself,
    WallClock,
    Cancelled,
}

/// What came of a script.
struct Ended {
    why: Why,
    told: Result<Told, String>,
    stdout: Drained,
    stderr: Drained,
}

/// The first bytes of a stream, and how many there were.
type Drained = (Vec<u8>, u64);

/// The script's output, as it comes.
struct Streams {
    stdout: JoinHandle<Drained>,
    stderr: JoinHandle<Drained>,
}

impl Streams {
    /// Hands the files over and begins to read. A container that does not read them shows by its end.
    fn start(attached: Attached, files: Vec<u8>, said_at_once: bool) -> Result<Self, String> {
        for file in [&attached.stdin, &attached.stdout, &attached.stderr] {
            let fd = file.as_raw_fd();
            fcntl(fd, FcntlArg::F_SETFL(OFlag::empty()))
                .map_err(|e| format!("a stream of the script: {e}"))?;
        }
        let mut stdin = attached.stdin;
        std::thread::spawn(move || stdin.write_all(&files));
        Ok(Self {
            stdout: drain(attached.stdout, said_at_once.then(std::io::stdout)),
            stderr: drain(attached.stderr, said_at_once.then(std::io::stderr)),
        })
    }
}

/// Empties a stream, and passes it on as it comes if there is somewhere to.
fn drain(
    mut from: impl Read + Send + 'static,
    mut to: Option<impl std::io::Write + Send + 'static>,
) -> JoinHandle<Drained> {
    std::thread::spawn(move || {
        let (mut kept, mut total, mut buffer) = (Vec::new(), 0, vec![0; 64 << 10]);
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            let chunk = &buffer[..n];
            total += n as u64;
            if kept.len() < KEPT {
                kept.extend_from_slice(chunk);
            }
            if let Some(to) = &mut to {
                let _ = to.write_all(chunk).and_then(|()| to.flush());
            }
        }
        (kept, total)
    })
}

/// The report. That *we* ended it comes first, then the kernel's lack of memory, then the script's own end.
fn report(plan: &Plan, ended: Ended, peak: Option<u64>) -> Report {
    let output = |(bytes, bytes_total): Drained| Output {
        truncated: bytes.len() as u64 != bytes_total,
        content: OutputContent::from(bytes),
        bytes_total,
    };
    let code = ended.told.as_ref().ok().and_then(|told| told.exited);
    let status = match (ended.why, &ended.told) {
        (_, Err(_)) => Status::Lost,
        (Why::Cancelled, _) => Status::Cancelled,
        (Why::WallClock, _) => Status::TimedOut,
        (Why::Itself, Ok(told)) if told.out_of_memory => Status::OutOfMemory,
        (Why::Itself, _) if code == Some(0) => Status::Succeeded,
        (Why::Itself, _) => Status::Failed,
    };
    let own = matches!(status, Status::Succeeded | Status::Failed);
    let error = ended.told.err().map(|message| RunError {
        code: "event_missing".to_owned(),
        message,
        hint: "See the shim's log.".to_owned(),
    });
    Report {
        schema: REPORT_SCHEMA,
        run_id: plan.id.clone(),
        status,
        exit_code: code.filter(|_| own),
        signal: None,
        stdout: output(ended.stdout),
        stderr: output(ended.stderr),
        artifacts: Vec::new(),
        skipped: Vec::new(),
        timings_ms: Default::default(),
        usage: Usage {
            memory_peak_bytes: peak,
            ..Usage::default()
        },
        isolation: None,
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn plan() -> Plan {
        Plan {
            id: "a".parse().unwrap(),
            language: sandglass_run::Language::Python,
            script: ("it's $x.py".into(), b"print(1)\n".to_vec()),
            inputs: vec![("b c".into(), b"\0\xffx".to_vec()), ("empty".into(), Vec::new())],
            args: vec!["$(id)".into()],
            limits: Default::default(),
            out: None,
            json: true,
        }
    }

    #[test]
    fn the_shell_stages_every_file_to_the_byte_and_becomes_the_script() {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan();
        let (program, staged) = stager(&plan);
        let mut words = staged.words;
        let at = words.iter().position(|word| word == "python3").unwrap();
        words.splice(at..=at, ["printf".to_owned(), "%s|".to_owned()]);
        let mut child = Command::new("sh")
            .args(["-c", &program, "sh"])
            .args(&words)
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&staged.bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it's $x.py|$(id)|");
        plan.inputs.push(plan.script.clone());
        for (name, bytes) in &plan.inputs {
            assert_eq!(&std::fs::read(dir.path().join(name)).unwrap(), bytes, "{name}");
        }
    }

    fn status(why: Why, told: Result<(i32, bool), &str>) -> Status {
        let told = told.map_err(str::to_owned).map(|(code, out_of_memory)| Told {
            out_of_memory,
            exited: Some(code),
        });
        let ended = Ended {
            why,
            told,
            stdout: Drained::default(),
            stderr: Drained::default(),
        };
        report(&plan(), ended, None).status
    }

    #[test]
    fn that_we_ended_it_comes_before_lack_of_memory_and_that_before_its_own_end() {
        assert_eq!(status(Why::WallClock, Ok((137, true))), Status::TimedOut);
        assert_eq!(status(Why::Cancelled, Ok((137, true))), Status::Cancelled);
        assert_eq!(status(Why::Itself, Ok((137, true))), Status::OutOfMemory);
        assert_eq!(status(Why::Itself, Ok((137, false))), Status::Failed);
        assert_eq!(status(Why::Itself, Ok((0, false))), Status::Succeeded);
    }

    #[test]
    fn a_script_whose_end_is_not_told_never_counts_as_ended_well() {
        for why in [Why::Itself, Why::WallClock, Why::Cancelled] {
            assert_eq!(status(why, Err("late")), Status::Lost);
        }
    }
}
