//! containerd's own client: the command lines that make, enter and remove one container.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sandglass_run::Limits;

use super::attach::{self, Attached};
use super::{Handler, Runtime};

/// The uid and gid of every script.
const NOBODY: &str = "65534:65534";
/// The container's host name; a kubelet gives the pod's.
const HOST_NAME: &str = "sandbox";

/// One container, whether or not it exists yet.
#[derive(Debug)]
pub struct Container<'a> {
    runtime: &'a Runtime,
    id: String,
    limits: Limits,
    /// The runtime's options, a file that containerd's client names to the shim.
    options: Option<PathBuf>,
    /// For files of ours.
    dir: PathBuf,
}

impl<'a> Container<'a> {
    /// Names the container, and writes the runtime's options into the working directory.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new(runtime: &'a Runtime, id: &str, limits: &Limits) -> std::io::Result<Self> {
        let dir = std::env::current_dir()?;
        let options =
            options(runtime.handler, limits).map(|text| (dir.join(format!(".options-{id}.toml")), text));
        if let Some((path, text)) = &options {
            std::fs::write(path, text)?;
        }
        Ok(Self {
            runtime,
            id: id.to_owned(),
            limits: limits.clone(),
            options: options.map(|(path, _)| path),
            dir,
        })
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its runtime.
    pub fn runtime(&self) -> &Runtime {
        self.runtime
    }

    /// What it may use.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Makes it and starts its first process, with its streams in hand.
    ///
    /// # Errors
    /// As [`attach::start`].
    pub fn run(&self, argv: &[&str]) -> Result<Result<Attached, String>, String> {
        let (mut command, fifos) = self.detached(&["run"], "first");
        command
            .args(["--runtime", kind(self.runtime.handler), "--hostname", HOST_NAME])
            .arg("--seccomp")
            .args(["--memory-limit", &self.limits.memory_bytes.to_string()])
            .args(["--cpus", &self.limits.cpus.to_string()]);
        if let Some(options) = &self.options {
            command.arg("--runtime-config-path").arg(options);
        }
        for mount in mounts(self.runtime.handler, &self.limits) {
            command.args(["--mount", &mount]);
        }
        command.args([self.runtime.image.as_str(), &self.id]).args(argv);
        attach::start(command, &fifos)
    }

    /// Starts a process beside the first, with its streams in hand.
    ///
    /// # Errors
    /// As [`attach::start`].
    pub fn exec(&self, exec_id: &str, argv: &[&str]) -> Result<Result<Attached, String>, String> {
        let (mut command, fifos) = self.detached(&["task", "exec", "--exec-id", exec_id], exec_id);
        command.arg(&self.id).args(argv);
        attach::start(command, &fifos)
    }

    /// A client that starts a process as nobody in `/work` and leaves; and where its FIFOs are.
    fn detached(&self, words: &[&str], process: &str) -> (Command, PathBuf) {
        let fifos = self.dir.join(format!(".fifos-{}-{process}", self.id));
        let mut command = ctr(words);
        command
            .args(["--detach", "--user", NOBODY, "--cwd", "/work", "--fifo-dir"])
            .arg(&fifos);
        (command, fifos)
    }

    /// Kills everything in it.
    pub fn kill(&self) {
        quietly(ctr(&["task", "kill", "--signal", "SIGKILL", &self.id]));
    }

    /// Takes it away, whatever state it is in.
    pub fn remove(&self) {
        quietly(ctr(&["task", "rm", "--force", &self.id]));
        quietly(ctr(&["container", "rm", &self.id]));
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        if let Some(path) = &self.options {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn ctr(words: &[&str]) -> Command {
    let mut command = Command::new("ctr");
    command.args(words);
    command
}

/// Runs a command whose failure says nothing new.
fn quietly(mut command: Command) {
    let _ = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// The runtime as `ctr` names it.
fn kind(handler: Handler) -> &'static str {
    match handler {
        Handler::Sandglass | Handler::SandglassSpec => "io.containerd.sandglass.v1",
        Handler::Runc => "io.containerd.runc.v2",
    }
}

/// The options of ours. The other runtime has none that bear on a limit.
fn options(handler: Handler, limits: &Limits) -> Option<String> {
    let hardening = match handler {
        Handler::Sandglass => "sandbox",
        Handler::SandglassSpec => "spec",
        Handler::Runc => return None,
    };
    let mut text = format!("hardening = \"{hardening}\"\n");
    if handler == Handler::Sandglass {
        let _ = writeln!(
            text,
            "scratch = \"{}\"\npids = {}",
            limits.scratch_bytes, limits.pids
        );
    }
    Some(text)
}

/// Scratch as a pod's author would give it, an `emptyDir` in memory: where the runtime makes none of its own.
fn mounts(handler: Handler, limits: &Limits) -> Vec<String> {
    let scratch = |target: &str| {
        let size = limits.scratch_bytes;
        format!("type=tmpfs,src=tmpfs,dst={target},options=mode=1777:size={size}:nosuid:nodev")
    };
    match handler {
        Handler::Sandglass => Vec::new(),
        Handler::SandglassSpec | Handler::Runc => ["/work", "/out", "/tmp"].map(scratch).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Role;

    #[test]
    fn ours_gets_the_limits_as_options_in_a_file_that_is_gone_afterwards() {
        let runtime = Runtime {
            handler: Handler::Sandglass,
            role: Role::First,
            image: "image".into(),
            events: "/events".into(),
        };
        let container = Container::new(&runtime, "ctr-test", &Limits::default()).unwrap();
        let path = container.options.clone().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "hardening = \"sandbox\"\nscratch = \"134217728\"\npids = 128\n"
        );
        drop(container);
        assert!(!path.exists());
    }

    #[test]
    fn a_runtime_that_makes_no_scratch_gets_it_as_mounts_of_the_same_size() {
        let limits = Limits::default();
        assert_eq!(mounts(Handler::Sandglass, &limits), [""; 0]);
        for handler in [Handler::Runc, Handler::SandglassSpec] {
            let mounts = mounts(handler, &limits);
            assert_eq!(mounts.len(), 3);
            assert!(
                mounts.iter().all(|mount| mount.contains("size=134217728")),
                "{mounts:?}"
            );
        }
        assert_eq!(options(Handler::Runc, &limits), None);
        assert_eq!(
            options(Handler::SandglassSpec, &limits).as_deref(),
            Some("hardening = \"spec\"\n")
        );
    }
}
