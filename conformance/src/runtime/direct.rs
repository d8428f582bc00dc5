//! A run whose script is a process of the container by itself: the first, or one beside it.

use std::io::{Read, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sandglass_driver::Cancel;
use sandglass_run::report::REPORT_SCHEMA;
use sandglass_run::{Output, OutputContent, Report, RunError, Status, Usage};

use super::ctr::Container;
use super::events::Listener;
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
const EVERY: Duration = Duration::from_millis(2);

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
    let own_limit = container.runtime().handler == Handler::Sandglass;
    let limit = |gone: &mut dyn FnMut() -> bool| match own_limit {
        true => Ok(()),
        false => limit_pids(container.id(), container.limits().pids, gone),
    };
    let (mut command, process) = match container.runtime().role {
        Role::Exec => {
            let made = container
                .run(&["--detach"], &["sleep", SLEEPS])
                .stdin(Stdio::null())
                .output();
            let made = made.map_err(|e| format!("ctr: {e}"))?;
            let limited = limit(&mut || true);
            if !made.status.success() || limited.is_err() {
                container.remove();
                let said = String::from_utf8_lossy(&made.stderr).into_owned();
                return Ok(refused(plan, &limited.err().unwrap_or(said)));
            }
            (container.exec(EXEC, &script), EXEC)
        }
        Role::First | Role::Runner => (container.run(&["--rm"], &script), container.id()),
    };
    let mut client = Client::start(&mut command, !plan.json)?;
    if container.runtime().role != Role::Exec
        && let Err(error) = limit(&mut || !matches!(client.child.try_wait(), Ok(None)))
    {
        container.kill(&mut client.child)?;
        return Ok(refused(plan, &error));
    }
    client.feed(staged.bytes);
    let ended = client.wait(plan.limits.wall, container, cancel)?;
    let told = match ended.why {
        // It may not even have been started.
        Why::Cancelled => Ok(false),
        _ => listener
            .until_exit(container.id(), process)
            .map(|told| told.out_of_memory),
    };
    if container.runtime().role == Role::Exec || ended.code != Some(0) {
        container.remove();
    }
    Ok(report(plan, ended, told, gauge.peak()))
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
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    totals: (u64, u64),
}

/// The client that waits for the script.
struct Client {
    child: Child,
    stdout: Option<JoinHandle<(Vec<u8>, u64)>>,
    stderr: Option<JoinHandle<(Vec<u8>, u64)>>,
}

impl Client {
    fn start(command: &mut Command, said_at_once: bool) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("ctr: {e}"))?;
        let stdout = child
            .stdout
            .take()
            .map(|pipe| drain(pipe, said_at_once.then(std::io::stdout)));
        let stderr = child
            .stderr
            .take()
            .map(|pipe| drain(pipe, said_at_once.then(std::io::stderr)));
        Ok(Self {
            child,
            stdout,
            stderr,
        })
    }

    /// Hands the files over; a container that does not read them shows by its end.
    fn feed(&mut self, bytes: Vec<u8>) {
        if let Some(mut stdin) = self.child.stdin.take() {
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
    }

    fn wait(mut self, wall: Duration, container: &Container<'_>, cancel: &Cancel) -> Result<Ended, String> {
        let started = Instant::now();
        let mut why = Why::Itself;
        let status = loop {
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                break status;
            }
            why = match (cancel.is_cancelled(), started.elapsed() > wall) {
                (true, _) => Why::Cancelled,
                (_, true) => Why::WallClock,
                _ => {
                    std::thread::sleep(EVERY);
                    continue;
                }
            };
            container.kill(&mut self.child)?;
        };
        let join =
            |thread: Option<JoinHandle<_>>| thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let ((stdout, out), (stderr, err)) = (join(self.stdout), join(self.stderr));
        Ok(Ended {
            why,
            code: status.code(),
            stdout,
            stderr,
            totals: (out, err),
        })
    }
}

/// Empties a pipe, and passes it on as it comes if there is somewhere to.
fn drain(
    mut pipe: impl Read + Send + 'static,
    mut to: Option<impl std::io::Write + Send + 'static>,
) -> JoinHandle<(Vec<u8>, u64)> {
    std::thread::spawn(move || {
        let (mut kept, mut total, mut buffer) = (Vec::new(), 0, vec![0; 64 << 10]);
        while let Ok(n @ 1..) = pipe.read(&mut buffer) {
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
fn report(plan: &Plan, ended: Ended, out_of_memory: Result<bool, String>, peak: Option<u64>) -> Report {
    let output = |bytes: Vec<u8>, bytes_total: u64| Output {
        truncated: bytes.len() as u64 != bytes_total,
        content: OutputContent::from(bytes),
        bytes_total,
    };
    let status = match (ended.why, &out_of_memory) {
        (_, Err(_)) => Status::Lost,
        (Why::Cancelled, _) => Status::Cancelled,
        (Why::WallClock, _) => Status::TimedOut,
        (Why::Itself, Ok(true)) => Status::OutOfMemory,
        (Why::Itself, Ok(false)) if ended.code == Some(0) => Status::Succeeded,
        (Why::Itself, Ok(false)) => Status::Failed,
    };
    let own = matches!(status, Status::Succeeded | Status::Failed);
    let error = out_of_memory.err().map(|message| RunError {
        code: "event_missing".to_owned(),
        message: format!("{message}; ctr said {:?}", String::from_utf8_lossy(&ended.stderr)),
        hint: "See the shim's log.".to_owned(),
    });
    Report {
        schema: REPORT_SCHEMA,
        run_id: plan.id.clone(),
        status,
        exit_code: ended.code.filter(|_| own),
        signal: None,
        stdout: output(ended.stdout, ended.totals.0),
        stderr: output(ended.stderr, ended.totals.1),
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

    fn status(why: Why, code: i32, out_of_memory: Result<bool, String>) -> Status {
        let ended = Ended {
            why,
            code: Some(code),
            stdout: Vec::new(),
            stderr: Vec::new(),
            totals: (0, 0),
        };
        report(&plan(), ended, out_of_memory, None).status
    }

    #[test]
    fn that_we_ended_it_comes_before_lack_of_memory_and_that_before_its_own_end() {
        assert_eq!(status(Why::WallClock, 137, Ok(true)), Status::TimedOut);
        assert_eq!(status(Why::Cancelled, 137, Ok(true)), Status::Cancelled);
        assert_eq!(status(Why::Itself, 137, Ok(true)), Status::OutOfMemory);
        assert_eq!(status(Why::Itself, 137, Ok(false)), Status::Failed);
        assert_eq!(status(Why::Itself, 0, Ok(false)), Status::Succeeded);
    }

    #[test]
    fn a_script_whose_end_is_not_told_never_counts_as_ended_well() {
        assert_eq!(status(Why::Itself, 0, Err("late".into())), Status::Lost);
    }
}
