//! A stack, from the side of whoever wants one.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::config::Config;
use crate::error::{Result, StackError};
use crate::place::Place;
use crate::protocol::{Order, Reply, Request};
use crate::reap::{mark, reap};
use crate::seed;
use crate::supervise::containerd::environment;

/// Joins the groups that are named before `--`, then becomes what follows.
const JOIN: &str =
    r#"while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@""#;
/// Becomes what follows, in the folder that is named first.
const GO: &str = r#"cd -- "$0" && exec "$@""#;

/// A containerd of its own, in namespaces of its own. It ends with [`Stack::down`]; dropped, or left by a process that
/// is killed, it ends as well, but nobody hears what was left.
#[derive(Debug)]
pub struct Stack {
    config: Config,
    place: Place,
    supervisor: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    containerd: Option<u32>,
    cgroups: Vec<String>,
    /// Says to others that the stack is somebody's.
    _alive: File,
}

impl Stack {
    /// Brings a stack up. Needs root.
    ///
    /// # Errors
    /// Where something is missing, or a server does not come up; nothing of it stays then.
    pub fn up(config: &Config) -> Result<Self> {
        Self::start(config, false)
    }

    /// The same; containerd's root stays when it ends.
    pub(crate) fn up_to_keep(config: &Config) -> Result<Self> {
        Self::start(config, true)
    }

    fn start(config: &Config, keep_root: bool) -> Result<Self> {
        let seed = if config.images {
            Some(seed::ensure(&config.servers)?)
        } else {
            None
        };
        for name in reap() {
            eprintln!("Cleared away {name}, whose owner was killed.");
        }
        let place = make_place(config)?;
        let made = fill(&place, seed.as_ref().map(|seed| seed.path.as_path()))
            .and_then(|alive| Self::supervise(config, &place, keep_root, alive));
        if made.is_err() {
            // The supervisor removes what it found; this is for what it never saw.
            let _ = fs::remove_dir_all(&place.short);
            let _ = fs::remove_dir_all(&place.roomy);
        }
        made
    }

    fn supervise(config: &Config, place: &Place, keep_root: bool, alive: File) -> Result<Self> {
        let order = Order {
            config: config.clone(),
            place: place.clone(),
            keep_root,
        };
        let order = serde_json::to_string(&order).map_err(|e| StackError::Setting(e.to_string()))?;
        let mut supervisor = Command::new(config.servers.program("sandglass-stack"))
            .args(["supervise", &order])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(StackError::doing("Starting the stack's supervisor"))?;
        let (Some(requests), Some(replies)) = (supervisor.stdin.take(), supervisor.stdout.take()) else {
            return Err(StackError::Supervisor("has no pipes.".to_owned()));
        };
        let mut stack = Self {
            config: config.clone(),
            place: place.clone(),
            supervisor,
            requests: Some(requests),
            replies: BufReader::new(replies),
            containerd: None,
            cgroups: Vec::new(),
            _alive: alive,
        };
        match stack.reply()? {
            Reply::Ready { containerd, cgroups } => {
                stack.containerd = Some(containerd);
                stack.cgroups = cgroups;
                Ok(stack)
            }
            Reply::Failed { message } => Err(StackError::Supervisor(format!(
                "could not bring {} up: {message}",
                place.name
            ))),
            other => Err(StackError::Supervisor(format!(
                "said {other:?} before it was ready."
            ))),
        }
    }

    /// Where its folders are.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// containerd's pid, while it runs.
    pub fn containerd(&self) -> Option<u32> {
        self.containerd
    }

    /// The pid of the process that holds the namespaces: `/proc/PID/root` is the view from inside.
    pub fn supervisor(&self) -> u32 {
        self.supervisor.id()
    }

    /// containerd's socket, as a process outside reaches it.
    pub fn socket(&self) -> PathBuf {
        self.place.socket()
    }

    /// A command that runs inside: in the namespaces, in the stack's control groups, in the caller's folder, with `ctr`,
    /// `crictl` and shims on its `PATH` and their settings in its environment. What it leaves running ends with the
    /// stack, and is reported then.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("/bin/sh");
        let folder = std::env::current_dir().unwrap_or_else(|_| "/".into());
        command
            .args(["-c", JOIN, "sh"])
            .args(&self.cgroups)
            .args(["--", "nsenter", "--target", &self.supervisor().to_string()])
            .args(["--mount", "--net", "--cgroup", "/bin/sh", "-c", GO])
            .arg(folder)
            .arg(program)
            .envs(environment(&self.config, &self.place));
        command
    }

    /// Ends containerd as a service manager would (`SIGTERM`) and waits for it. Shims live on.
    ///
    /// # Errors
    /// Where the supervisor is gone.
    pub fn terminate_containerd(&mut self) -> Result<()> {
        self.ask(Request::Terminate)
    }

    /// Kills containerd (`SIGKILL`) and waits for it. Shims live on.
    ///
    /// # Errors
    /// Where the supervisor is gone.
    pub fn kill_containerd(&mut self) -> Result<()> {
        self.ask(Request::Kill)
    }

    /// Starts containerd again, and waits until it answers. Does nothing where it runs.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn start_containerd(&mut self) -> Result<()> {
        self.ask(Request::Start)
    }

    /// Ends containerd as a service manager would, and starts it again.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn restart_containerd(&mut self) -> Result<()> {
        self.terminate_containerd()?;
        self.start_containerd()
    }

    /// What there is beside the servers, as phrases: processes, mounts, control groups, files of runtimes and networks.
    /// What one look shows and an earlier one did not has been left by what happened between them.
    ///
    /// # Errors
    /// Where the supervisor is gone.
    pub fn look(&mut self) -> Result<BTreeSet<String>> {
        self.send(Request::Look)?;
        match self.reply()? {
            Reply::Seen { what } => Ok(what.into_iter().collect()),
            other => Err(StackError::Supervisor(format!(
                "said {other:?} when asked what is there."
            ))),
        }
    }

    /// Removes every container, looks for what the runtimes left, and ends everything.
    ///
    /// # Errors
    /// [`StackError::Left`] where something was left.
    pub fn down(mut self) -> Result<()> {
        self.send(Request::Stop)?;
        let left = self.last_word()?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(StackError::Left(left))
        }
    }

    fn last_word(&mut self) -> Result<Vec<String>> {
        loop {
            match self.reply()? {
                Reply::Down { mut left } => {
                    let status = self
                        .supervisor
                        .wait()
                        .map_err(StackError::doing("Waiting for the supervisor"))?;
                    if left.is_empty() && !status.success() {
                        left.push(format!("a supervisor that ended with {status}"));
                    }
                    if self.place.short.exists() {
                        left.push(self.place.short.display().to_string());
                    }
                    return Ok(left);
                }
                // What was asked before and never waited for.
                _ => continue,
            }
        }
    }

    fn ask(&mut self, request: Request) -> Result<()> {
        self.send(request)?;
        match self.reply()? {
            Reply::Done { containerd } => {
                self.containerd = containerd;
                Ok(())
            }
            Reply::Failed { message } => Err(StackError::Supervisor(format!("says: {message}"))),
            other => Err(StackError::Supervisor(format!(
                "said {other:?} when asked for {request:?}."
            ))),
        }
    }

    fn send(&mut self, request: Request) -> Result<()> {
        let mut line = serde_json::to_vec(&request).map_err(|e| StackError::Setting(e.to_string()))?;
        line.push(b'\n');
        match &mut self.requests {
            Some(requests) => requests
                .write_all(&line)
                .map_err(StackError::doing("Writing to the supervisor")),
            None => Err(StackError::Supervisor("is gone.".to_owned())),
        }
    }

    fn reply(&mut self) -> Result<Reply> {
        let mut line = String::new();
        let read = self
            .replies
            .read_line(&mut line)
            .map_err(StackError::doing("Reading from the supervisor"))?;
        if read == 0 {
            let how = self
                .supervisor
                .wait()
                .map_or_else(|e| e.to_string(), |status| status.to_string());
            return Err(StackError::Supervisor(format!("ended without a word ({how}).")));
        }
        serde_json::from_str(&line).map_err(|_| StackError::Supervisor(format!("said {line:?}.")))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // The end of its input tells the supervisor to end; after `down` both are over already.
        drop(self.requests.take());
        let _ = self.supervisor.wait();
    }
}

/// A name that no other stack has, and the folder that claims it.
fn make_place(config: &Config) -> Result<Place> {
    let folder = tempfile::Builder::new()
        .prefix("sg-")
        .rand_bytes(6)
        .tempdir_in("/run")
        .map_err(StackError::doing("Making a folder in /run (this wants root)"))?
        .keep();
    let name = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(Place::new(&name, &config.servers))
}

fn fill(place: &Place, seed: Option<&Path>) -> Result<File> {
    let alive = mark(place)?;
    for folder in [place.state(), place.settings(), place.scratch()] {
        fs::create_dir_all(&folder).map_err(StackError::at("Making", &folder))?;
    }
    match seed {
        Some(seed) => seed::copy(seed, &place.root())?,
        None => fs::create_dir(place.root()).map_err(StackError::at("Making", &place.root()))?,
    }
    Ok(alive)
}
