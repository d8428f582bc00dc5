//! One invocation of the command line under test, and what came of it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use wait4::Wait4 as _;

use crate::ended::Ended;
use crate::judge::shortened;
use crate::verdict::Stop;
use crate::view::View;

/// More of an output than this is not kept by the suite; it is counted on.
const KEPT: usize = 64 << 20;
/// Longest that any invocation may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(120);

/// An invocation that is being put together.
#[derive(Debug)]
pub struct Invocation {
    program: PathBuf,
    words: Vec<OsString>,
    script: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: PathBuf,
    json: bool,
    stdin: Vec<u8>,
    slow_reader: bool,
    patience: Duration,
}

impl Invocation {
    /// `program words… SCRIPT -- args…`, run in `dir`.
    pub fn new(program: &Path, words: Vec<OsString>, script: OsString, dir: &Path) -> Self {
        Self {
            program: program.to_owned(),
            words,
            script,
            args: Vec::new(),
            env: Vec::new(),
            dir: dir.to_owned(),
            json: true,
            stdin: Vec::new(),
            slow_reader: false,
            patience: PATIENCE,
        }
    }

    /// A flag with its value. The last one wins where the suite gave one itself.
    pub fn flag(mut self, flag: &str, value: impl Into<OsString>) -> Self {
        self.words.retain_pair(flag);
        self.push(flag, value.into());
        self
    }

    /// A flag that may come several times.
    pub fn input(mut self, value: impl Into<OsString>) -> Self {
        self.push("--input", value.into());
        self
    }

    /// In one word where the value could be taken for a flag.
    fn push(&mut self, flag: &str, value: OsString) {
        if value.as_encoded_bytes().starts_with(b"-") {
            let mut word = OsString::from(format!("{flag}="));
            word.push(value);
            self.words.push(word);
        } else {
            self.words.push(flag.into());
            self.words.push(value);
        }
    }

    /// Words as they are.
    pub fn words(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(OsString::from));
        self
    }

    /// An argument of the script.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// A variable in the environment of the command line.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Without `--json`: the script's output comes as it is.
    pub fn plain(mut self) -> Self {
        self.json = false;
        self
    }

    /// What the command line gets on its standard input.
    pub fn stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin = bytes.to_owned();
        self
    }

    /// Nobody reads the output for the first two seconds.
    pub fn slow_reader(mut self) -> Self {
        self.slow_reader = true;
        self
    }

    /// The longest that it may take.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Starts it and waits for its end.
    pub fn go(self) -> Result<Ended, Stop> {
        self.start()?.wait()
    }

    /// Starts it.
    pub fn start(self) -> Result<Live, Stop> {
        let mut command = Command::new(&self.program);
        command.args(&self.words);
        if self.json {
            command.arg("--json");
        }
        command.arg(&self.script);
        if !self.args.is_empty() {
            command.arg("--").args(&self.args);
        }
        command
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            let kept = ["SANDGLASS_STORE", "SANDGLASS_IMAGE", "SANDGLASS_CONFIG"];
            if name
                .to_str()
                .is_some_and(|n| n.starts_with("SANDGLASS_") && !kept.contains(&n))
            {
                command.env_remove(name);
            }
        }
        command.envs(self.env);
        let shown = format!("{command:?}");
        let started = Instant::now();
        let mut child = command
            .spawn()
            .map_err(|e| Stop::failed("the command line under test starts", format!("{shown}: {e}")))?;
        if let Some(mut stdin) = child.stdin.take() {
            let bytes = self.stdin;
            // A command line that does not read its input is no error of the suite.
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
        let pause = if self.slow_reader {
            Duration::from_secs(2)
        } else {
            Duration::ZERO
        };
        let stdout = child.stdout.take().map(|pipe| Reader::start(pipe, pause));
        let stderr = child.stderr.take().map(|pipe| Reader::start(pipe, pause));
        Ok(Live {
            child,
            stdout,
            stderr,
            started,
            json: self.json,
            patience: self.patience,
            shown,
            waited: false,
        })
    }
}

/// Removal of a flag and its value.
trait RetainPair {
    fn retain_pair(&mut self, flag: &str);
}

impl RetainPair for Vec<OsString> {
    fn retain_pair(&mut self, flag: &str) {
        while let Some(at) = self.iter().position(|word| word == flag) {
            self.drain(at..(at + 2).min(self.len()));
        }
    }
}

/// A thread that empties a pipe.
#[derive(Debug)]
struct Reader {
    so_far: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<u64>,
}

impl Reader {
    fn start(mut pipe: impl Read + Send + 'static, pause: Duration) -> Self {
        let so_far = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&so_far);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(pause);
            let mut total = 0;
            let mut buffer = vec![0; 64 << 10];
            loop {
                let n = match pipe.read(&mut buffer) {
                    Ok(0) | Err(_) => return total,
                    Ok(n) => n,
                };
                total += n as u64;
                if let (Ok(mut kept), Some(chunk)) = (kept.lock(), buffer.get(..n))
                    && kept.len() < KEPT
                {
                    kept.extend_from_slice(chunk);
                }
            }
        });
        Self { so_far, thread }
    }

    fn seen(&self) -> Vec<u8> {
        self.so_far.lock().map(|bytes| bytes.clone()).unwrap_or_default()
    }
}

/// An invocation that runs.
#[derive(Debug)]
pub struct Live {
    child: Child,
    stdout: Option<Reader>,
    stderr: Option<Reader>,
    started: Instant,
    json: bool,
    patience: Duration,
    shown: String,
    waited: bool,
}

impl Live {
    /// The process id of the command line.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    /// Sends a signal to the command line.
    pub fn signal(&self, signal: Signal) -> Result<(), Stop> {
        kill(self.pid(), signal)
            .map_err(|e| Stop::failed("the command line still runs", format!("{signal}: {e}")))
    }

    /// Waits until the script has printed `text`; only without `--json` does its output come as it goes.
    pub fn wait_for(&self, text: &str) -> Result<(), Stop> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if self
                .stdout
                .as_ref()
                .is_some_and(|out| contains(&out.seen(), text.as_bytes()))
            {
                return Ok(());
            }
            if self.gone() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let out = self.stdout.as_ref().map(Reader::seen).unwrap_or_default();
        let err = self.stderr.as_ref().map(Reader::seen).unwrap_or_default();
        Err(Stop::failed(
            format!("the script prints {text:?} while it runs"),
            format!("stdout {:?}, stderr {:?}", lossy(&out), lossy(&err)),
        ))
    }

    /// Whether the command line has ended.
    pub fn gone(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(waitid(Id::Pid(self.pid()), flags), Ok(WaitStatus::StillAlive))
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Result<Ended, Stop> {
        let mut hung = false;
        let mut pause = Duration::from_micros(200);
        while !self.gone() {
            if self.started.elapsed() > self.patience {
                hung = true;
                let _ = kill(self.pid(), Signal::SIGKILL);
                break;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        let wall = self.started.elapsed();
        let used = self.child.wait4()?;
        self.waited = true;
        // The pipes end with the last process that holds them; one that outlives the command line must not hang us.
        let stdout = finish(self.stdout.take());
        let stderr = finish(self.stderr.take());
        if hung {
            return Err(Stop::failed(
                format!("{} ends within {:?}", self.shown, self.patience),
                format!("it still ran; stderr {:?}", lossy(&stderr.bytes)),
            ));
        }
        Ok(Ended {
            code: used.status.code(),
            signal: used.status.signal(),
            report: if self.json {
                View::parse(&stdout.bytes)
            } else {
                Err("it ran without --json".to_owned())
            },
            pipes_closed: stdout.closed && stderr.closed,
            stdout: stdout.bytes,
            stderr: stderr.bytes,
            peak_bytes: used.rusage.maxrss,
            wall,
            shown: self.shown.clone(),
        })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if !self.waited {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

struct Drained {
    bytes: Vec<u8>,
    closed: bool,
}

fn finish(reader: Option<Reader>) -> Drained {
    let Some(reader) = reader else {
        return Drained {
            bytes: Vec::new(),
            closed: true,
        };
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !reader.thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    Drained {
        closed: reader.thread.is_finished(),
        bytes: reader.seen(),
    }
}

/// Bytes as a short text.
pub fn lossy(bytes: &[u8]) -> String {
    shortened(&String::from_utf8_lossy(bytes))
}

fn contains(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len().max(1)).any(|window| window == needle)
}

/// Writes a file of a case.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Stop> {
    File::create(path)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(Stop::from)
}
