//! What a case has at hand: the command line under test, directories of its own, the secrets of the host.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::case::Need;
use crate::invoke::{Invocation, write};
use crate::judge::{Line, find_line};
use crate::permitted::Permitted;
use crate::runtime::{Role, Runtime};
use crate::verdict::Stop;
use crate::view::View;

/// The text of the prober.
pub const PROBER: &str = include_str!("../prober/prober.py");
/// The text of the prober for what concerns Node itself.
pub const PROBER_JS: &str = include_str!("../prober/prober.js");

/// What holds for the whole run of the suite.
#[derive(Debug, Default)]
pub struct Config {
    /// The command line under test.
    pub sandglass: PathBuf,
    /// Its driver.
    pub driver: String,
    /// Controls that are waived, by name.
    pub waived: Vec<String>,
    /// Further words of every `sandglass run`.
    pub extra: Vec<String>,
    /// Whether we are an ordinary user.
    pub user: bool,
    /// Leave to change a setting of the host for a moment.
    pub touch_host: bool,
    /// How many runs `endurance/runs` makes.
    pub endurance: u32,
    /// The suite's own directory.
    pub dir: PathBuf,
    /// A word in the id of every run of this suite.
    pub tag: String,
    /// The image's root, where the suite itself plays the driver.
    pub nothing: Option<PathBuf>,
    /// The runtime that is under test in place of the command line.
    pub runtime: Option<Runtime>,
    /// What may be skipped and what may fail.
    pub permitted: Permitted,
}

impl Config {
    /// Where the driver under test keeps the state of live runs.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Why a case that needs this cannot run, if so.
    pub fn lacks(&self, need: Need) -> Option<&'static str> {
        let waived = |name: &str| self.waived.iter().any(|w| w == name);
        match need {
            Need::Memory => waived("memory").then_some("memory-waived"),
            Need::Pids => waived("pids").then_some("pids-waived"),
            Need::Cpu => waived("cpu").then_some("cpu-waived"),
            Need::Landlock => waived("landlock").then_some("landlock-waived"),
            Need::Root => self.user.then_some("needs-root"),
            Need::TouchHost => (!self.touch_host).then_some("needs-touch-host"),
            Need::X86 => (!cfg!(target_arch = "x86_64")).then_some("needs-x86_64"),
            // Those say for whom a case is, not what it can be done with.
            Need::Driver
            | Need::Runner
            | Need::Child
            | Need::NoTerminals
            | Need::UserNamespace
            | Need::Pods => None,
        }
    }

    /// Whose question a case with this need is, where it is none of what is under test.
    pub fn is_for_others(&self, need: Need) -> Option<&'static str> {
        let role = self.runtime.as_ref().map(|runtime| runtime.role);
        match need {
            Need::Driver => role.is_some().then_some("driver"),
            Need::Runner => role.is_some_and(|role| role != Role::Runner).then_some("runner"),
            Need::Child => (role == Some(Role::First)).then_some("child"),
            Need::NoTerminals => role.is_some().then_some("no-terminals"),
            Need::UserNamespace => role.is_some().then_some("user-namespace"),
            // They do not depend on what scripts are, so they are asked for once.
            Need::Pods => (role != Some(Role::First)).then_some("pods"),
            _ => None,
        }
    }
}

/// The surroundings of one case.
#[derive(Debug)]
pub struct Context<'a> {
    /// What holds for the whole suite.
    pub config: &'a Config,
    /// Secrets of the host.
    pub canary: &'a Canary,
    /// A directory of the case's own.
    pub dir: PathBuf,
    name: String,
    runs: Cell<u32>,
}

impl<'a> Context<'a> {
    /// Makes the directory of a case.
    pub fn new(config: &'a Config, canary: &'a Canary, case: &str, number: usize) -> std::io::Result<Self> {
        let dir = config.dir.join("cases").join(number.to_string());
        std::fs::create_dir_all(&dir)?;
        Ok(Self {
            config,
            canary,
            dir,
            name: case.replace('/', "-"),
            runs: Cell::new(0),
        })
    }

    /// An id that no other run has.
    pub fn run_id(&self) -> String {
        let n = self.runs.get();
        self.runs.set(n + 1);
        let mut id = format!("{}-{}-{n}", self.config.tag, self.name);
        id.truncate(60);
        if n > 0 {
            // The number must survive the cut.
            id.truncate(52);
            id = format!("{id}-x{n}");
        }
        id
    }

    /// A person of this case's own.
    pub fn person(&self) -> String {
        format!("{}-{}", self.config.tag, self.name)
    }

    /// `sandglass run` of a script that is a file already.
    pub fn run_file(&self, script: impl Into<OsString>) -> Invocation {
        self.run_with(script, true)
    }

    /// The same, without the flags that the suite passes on, where they would hide what is looked at.
    pub fn run_bare(&self, script: impl Into<OsString>) -> Invocation {
        self.run_with(script, false)
    }

    fn run_with(&self, script: impl Into<OsString>, driver: bool) -> Invocation {
        let mut words: Vec<OsString> = vec!["run".into()];
        if driver {
            words.extend(["--driver".into(), OsString::from(&self.config.driver)]);
        }
        words.extend([
            "--run-id".into(),
            self.run_id().into(),
            "--person".into(),
            self.person().into(),
        ]);
        if !self.config.waived.is_empty() {
            words.extend(["--waive".into(), OsString::from(self.config.waived.join(","))]);
        }
        words.extend(self.config.extra.iter().map(OsString::from));
        let invocation = Invocation::new(&self.config.sandglass, words, script.into(), &self.dir)
            .env("SANDGLASS_STATE", self.config.state_dir());
        match &self.config.nothing {
            // Killed, it leaves its directory: in that of the suite.
            Some(rootfs) => invocation
                .env(crate::nothing::ROOTFS, rootfs)
                .env("TMPDIR", &self.config.dir),
            None => match &self.config.runtime {
                Some(runtime) => {
                    let settings = serde_json::to_string(runtime).unwrap_or_default();
                    invocation.env(crate::runtime::PLAYED, settings)
                }
                None => invocation,
            },
        }
    }

    /// `sandglass run` of a Python script.
    pub fn python(&self, text: &str) -> Result<Invocation, Stop> {
        self.script("script.py", text)
    }

    /// `sandglass run` of a Node script.
    pub fn node(&self, text: &str) -> Result<Invocation, Stop> {
        self.script("script.js", text)
    }

    /// `sandglass run` of a script with this name.
    pub fn script(&self, name: &str, text: &str) -> Result<Invocation, Stop> {
        // Renamed into place, so that a run that was started just now reads either the old text or the new one.
        let (path, new) = (self.dir.join(name), self.dir.join(".new-script"));
        write(&new, text.as_bytes())?;
        std::fs::rename(&new, &path)?;
        Ok(self.run_file(path))
    }

    /// Another command of the command line under test.
    pub fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(&self.config.sandglass);
        command
            .args(words)
            .current_dir(&self.dir)
            .env("SANDGLASS_STATE", self.config.state_dir());
        command
    }

    /// A run of the prober.
    pub fn prober(&self, args: &[&str]) -> Result<Invocation, Stop> {
        let invocation = self.script("main.py", PROBER)?;
        Ok(args
            .iter()
            .fold(invocation, |invocation, arg| invocation.arg(arg)))
    }

    /// Runs the prober and hands back its line and the report.
    pub fn probe(&self, args: &[&str]) -> Result<(Line, View), Stop> {
        self.probe_with(args, &[])
    }

    /// The same with further flags.
    pub fn probe_with(&self, args: &[&str], flags: &[&str]) -> Result<(Line, View), Stop> {
        let ended = self.prober(args)?.words(flags).go()?;
        let stdout = ended.succeeded()?;
        let probe = args.first().copied().unwrap_or_default();
        let line = find_line(probe, stdout).map_err(|e| Stop::failed("the prober's line", e))?;
        Ok((line, ended.report()?.clone()))
    }

    /// Fills in what the arguments of a probe refer to.
    pub fn fill_in(&self, args: &[String]) -> Vec<String> {
        self.canary.fill_in(args)
    }

    /// A new directory of the case.
    pub fn subdir(&self, name: &str) -> Result<PathBuf, Stop> {
        let path = self.dir.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }
}

/// A secret of the host, in the places where a run must not find it.
#[derive(Debug)]
pub struct Canary {
    /// The secret.
    pub token: String,
    /// Where it is.
    pub paths: Vec<PathBuf>,
    /// A socket of the host that nobody may reach.
    pub socket: PathBuf,
    /// The name of an abstract socket of the host.
    pub abstract_socket: String,
    root: PathBuf,
    _listeners: Vec<std::os::unix::net::UnixListener>,
}

impl Canary {
    /// Plants it below `dir`, readable by everyone, so that nothing but the sandbox stands before it.
    pub fn plant(dir: &Path, tag: &str) -> std::io::Result<Self> {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::fs::PermissionsExt as _;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let token = format!("canary-{tag}-{:x}", std::process::id());
        let mut paths = Vec::new();
        for place in [
            "root/.ssh/id",
            "run/containerd/secret",
            "var/lib/kubelet/token",
            "state/secret",
            "etc/shadow",
        ] {
            let path = dir.join(place);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(&path, &token)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
            paths.push(path);
        }
        let socket = dir.join("run/containerd.sock");
        let named = UnixListener::bind(&socket)?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666))?;
        let abstract_socket = format!("{tag}-abstract");
        let abstracted = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_socket)?)?;
        Ok(Self {
            token,
            paths,
            socket,
            abstract_socket,
            root: dir.to_owned(),
            _listeners: vec![named, abstracted],
        })
    }

    /// The directory that holds it.
    pub fn root(&self) -> Option<&Path> {
        Some(&self.root)
    }

    /// Fills in `{token}`, `{canaries}`, `{socket}` and `{abstract}`.
    pub fn fill_in(&self, args: &[String]) -> Vec<String> {
        let path = |p: &Path| p.display().to_string();
        args.iter()
            .flat_map(|arg| match arg.as_str() {
                "{token}" => vec![self.token.clone()],
                "{canaries}" => self.paths.iter().map(|p| path(p)).collect(),
                "{socket}" => vec![path(&self.socket)],
                "{abstract}" => vec![format!("@{}", self.abstract_socket)],
                _ => vec![arg.clone()],
            })
            .collect()
    }
}
