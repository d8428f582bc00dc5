//! containerd's own client: the command lines that make, enter and remove one container.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sandglass_run::Limits;

use super::{Handler, Runtime};

/// The uid and gid of every script.
const NOBODY: &str = "65534:65534";
/// The container's host name; a kubelet gives the pod's.
const HOST_NAME: &str = "sandbox";
/// Longest that a container may take to vanish once it was killed.
const DIES_WITHIN: Duration = Duration::from_secs(15);

/// One container, whether or not it exists yet.
#[derive(Debug)]
pub struct Container<'a> {
    runtime: &'a Runtime,
    id: String,
    limits: Limits,
    /// The runtime's options, a file that containerd's client names to the shim.
    options: Option<PathBuf>,
}

impl<'a> Container<'a> {
    /// Names the container, and writes the runtime's options into the working directory.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new(runtime: &'a Runtime, id: &str, limits: &Limits) -> std::io::Result<Self> {
        let options = match options(runtime.handler, limits) {
            None => None,
            Some(text) => {
                let path = std::env::current_dir()?.join(format!(".options-{id}.toml"));
                std::fs::write(&path, text)?;
                Some(path)
            }
        };
        Ok(Self {
            runtime,
            id: id.to_owned(),
            limits: limits.clone(),
            options,
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

    /// Makes it and starts its first process; `also` are further flags of `ctr run`.
    pub fn run(&self, also: &[&str], argv: &[&str]) -> Command {
        let mut command = ctr(&["run"]);
        command
            .args(also)
            .args(["--runtime", kind(self.runtime.handler)])
            .args([
                "--user",
                NOBODY,
                "--cwd",
                "/work",
                "--hostname",
                HOST_NAME,
                "--seccomp",
            ])
            .args(["--memory-limit", &self.limits.memory_bytes.to_string()])
            .args(["--cpus", &self.limits.cpus.to_string()]);
        if let Some(options) = &self.options {
            command.arg("--runtime-config-path").arg(options);
        }
        for mount in mounts(self.runtime.handler, &self.limits) {
            command.args(["--mount", &mount]);
        }
        command.args([self.runtime.image.as_str(), &self.id]).args(argv);
        command
    }

    /// Starts a process beside the first.
    pub fn exec(&self, exec_id: &str, argv: &[&str]) -> Command {
        let mut command = ctr(&["task", "exec", "--exec-id", exec_id]);
        command
            .args(["--user", NOBODY, "--cwd", "/work", &self.id])
            .args(argv);
        command
    }

    /// Kills it until `client`, which waits for its end, has ended.
    ///
    /// # Errors
    /// When the client does not end in time; it is ended then.
    pub fn kill(&self, client: &mut Child) -> Result<(), String> {
        let deadline = Instant::now() + DIES_WITHIN;
        while client.try_wait().map_err(|e| e.to_string())?.is_none() {
            if Instant::now() > deadline {
                let _ = client.kill();
                let _ = client.wait();
                return Err(format!(
                    "{} did not end within {DIES_WITHIN:?} after SIGKILL",
                    self.id
                ));
            }
            // Not found while it is being made, or when it has just ended: both pass.
            quietly(ctr(&["task", "kill", "--signal", "SIGKILL", &self.id]));
            let pause = Instant::now() + Duration::from_millis(100);
            while Instant::now() < pause && matches!(client.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    }

    /// Removes what `ctr run --rm` would have removed, where it could not.
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

    fn words(handler: Handler) -> (String, Option<PathBuf>) {
        let runtime = Runtime {
            handler,
            role: Role::First,
            image: "image".into(),
            events: "/events".into(),
        };
        let limits = Limits::default();
        let container = Container::new(&runtime, "ctr-test", &limits).unwrap();
        let words: Vec<_> = container
            .run(&["--rm"], &["true"])
            .get_args()
            .map(|a| a.to_string_lossy().into_owned())
            .collect();
        (words.join(" "), container.options.clone())
    }

    #[test]
    fn a_container_has_the_uid_the_limits_and_the_runtime_that_are_asked_for() {
        let (words, options) = words(Handler::Runc);
        for part in [
            "run --rm",
            "--runtime io.containerd.runc.v2",
            "--user 65534:65534",
            "--memory-limit 536870912",
            "--cpus 0.5",
            "--seccomp",
            "dst=/work",
            "image ctr-test true",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert_eq!(options, None);
    }

    #[test]
    fn ours_gets_its_options_in_a_file_that_is_gone_afterwards() {
        let (words, options) = words(Handler::Sandglass);
        let options = options.unwrap();
        assert!(
            words.contains(&format!("--runtime-config-path {}", options.display())),
            "{words}"
        );
        assert!(
            !words.contains("--mount"),
            "scratch is the runtime's own: {words}"
        );
        assert!(!options.exists());
        let text = super::options(Handler::Sandglass, &Limits::default()).unwrap();
        assert!(
            text.contains("hardening = \"sandbox\"") && text.contains("pids = 128"),
            "{text}"
        );
        assert!(
            super::options(Handler::SandglassSpec, &Limits::default())
                .unwrap()
                .contains("\"spec\"")
        );
    }
}
