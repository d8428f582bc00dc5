//! containerd as a child: started, asked whether it answers, ended.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::config::Config;
use crate::error::{Result, StackError};
use crate::place::{Place, SETTINGS, SOCKET};

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_secs(60);
/// How long an end may take.
const END: Duration = Duration::from_secs(10);
/// How many seconds a client may take.
const ASK: &str = "30";
/// How often is looked.
const STEP: Duration = Duration::from_millis(20);

/// The one containerd of a stack.
#[derive(Debug)]
pub struct Containerd {
    config: Config,
    place: Place,
    running: Option<Pid>,
}

impl Containerd {
    /// Not yet started.
    pub fn new(config: Config, place: Place) -> Self {
        Self {
            config,
            place,
            running: None,
        }
    }

    /// The process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.running.and_then(|pid| u32::try_from(pid.as_raw()).ok())
    }

    /// Runs a program of the stack and returns what it printed.
    pub fn ask(&self, name: &str, arguments: &[&str]) -> Result<String> {
        // A shim that hangs must not keep the stack from going down.
        let output = Command::new("timeout")
            .args(["--kill-after=1", ASK])
            .arg(self.config.servers.program(name))
            .args(arguments)
            .stdin(Stdio::null())
            .envs(environment(&self.config, &self.place))
            .output()
            .map_err(StackError::doing(format!("Starting {name}")))?;
        succeeded(&format!("{name} {}", arguments.join(" ")), &output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts it and waits until the CRI answers.
    pub fn start(&mut self) -> Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let path = self.place.log();
        let log = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(StackError::at("Opening", &path))?;
        let errors = log.try_clone().map_err(StackError::at("Opening", &path))?;
        let child = Command::new(self.config.servers.program("containerd"))
            .stdin(Stdio::null())
            .envs(environment(&self.config, &self.place))
            .args(["--config", &format!("{SETTINGS}/containerd.toml")])
            .args(&self.config.containerd_flags)
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(StackError::doing("Starting containerd"))?;
        let pid = i32::try_from(child.id())
            .map_err(|_| StackError::Supervisor("got a pid that is none.".into()))?;
        self.running = Some(Pid::from_raw(pid));
        let deadline = Instant::now() + START;
        loop {
            self.reap();
            if self.running.is_some()
                && UnixStream::connect(SOCKET).is_ok()
                && self.ask("crictl", &["--timeout", "2s", "version"]).is_ok()
            {
                return Ok(());
            }
            if self.running.is_none() || Instant::now() > deadline {
                self.end(Signal::SIGKILL);
                return Err(StackError::NotReady {
                    server: "containerd",
                    seconds: START.as_secs(),
                    tail: tail(&fs::read_to_string(&path).unwrap_or_default(), 20),
                });
            }
            std::thread::sleep(STEP);
        }
    }

    /// Ends it with `signal`, harder when that does not help, and waits for it.
    pub fn end(&mut self, signal: Signal) {
        let deadline = Instant::now() + END;
        if let Some(pid) = self.running {
            // A process that is gone already is what is wanted.
            let _ = kill(pid, signal);
        }
        while let Some(pid) = self.running {
            self.reap();
            if Instant::now() > deadline {
                let _ = kill(pid, Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes every dead child: containerd itself, and shims whose containerd is gone.
    pub fn reap(&mut self) {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(status) => {
                    if status.pid() == self.running {
                        self.running = None;
                    }
                }
            }
        }
    }
}

/// The environment of containerd and of commands.
pub fn environment(config: &Config, place: &Place) -> Vec<(String, String)> {
    let inherited = std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
    [
        ("PATH", config.search_path(&inherited)),
        ("TMPDIR", place.scratch().display().to_string()),
        ("CONTAINERD_ADDRESS", SOCKET.to_owned()),
        ("CONTAINER_RUNTIME_ENDPOINT", format!("unix://{SOCKET}")),
        ("IMAGE_SERVICE_ENDPOINT", format!("unix://{SOCKET}")),
        // `ctr` would say on each call that cgroup v1 grows old.
        ("CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS", "1".to_owned()),
        ("CRI_CONFIG_FILE", format!("{SETTINGS}/crictl.yaml")),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// An error where a program did not succeed.
pub fn succeeded(command: &str, output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    Err(StackError::Program {
        command: command.to_owned(),
        status: output.status.to_string(),
        said: tail(&String::from_utf8_lossy(&output.stderr), 5),
    })
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_the_end_and_no_more() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 5), "a");
        assert_eq!(tail("", 5), "");
    }
}
