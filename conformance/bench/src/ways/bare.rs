//! Nothing around it: fork and exec on the image's root.
//!
//! A helper process of ours stands in a mount namespace whose root is the image with the same scratch directories as a
//! sandbox has. It starts each run with `posix_spawn` and times it there, so that neither a `chroot` program nor the
//! conversation with the helper counts.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;
use serde::{Deserialize, Serialize};

use super::{Name, Way};
use crate::error::{BenchError, Result};
use crate::timed::timed;
use crate::view::{FONT_CACHE_LINKS, SCRATCH, View};
use crate::workload::Workload;

/// The hidden word that makes a process of ours the helper.
pub const HELPER: &str = "bare-helper";

/// What the helper is told first.
#[derive(Debug, Serialize, Deserialize)]
struct Setup {
    rootfs: std::path::PathBuf,
    scripts: std::path::PathBuf,
    font_caches: Vec<(String, String)>,
    environment: Vec<(String, String)>,
}

/// Its answer to each command: nanoseconds, or what went wrong.
type Answer = std::result::Result<u64, String>;

/// The benchmark's side.
#[derive(Debug)]
pub struct Bare {
    helper: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Bare {
    /// Starts the helper.
    ///
    /// # Errors
    /// It cannot be started, or cannot make its view.
    pub fn start(view: &View) -> Result<Self> {
        let own = std::env::current_exe().map_err(BenchError::doing("Finding this program"))?;
        let mut helper = Command::new(own)
            .arg(HELPER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::doing("Starting the helper for bare runs"))?;
        let (Some(commands), Some(answers)) = (helper.stdin.take(), helper.stdout.take()) else {
            return Err(BenchError::Setup("The helper for bare runs has no pipes.".into()));
        };
        let mut bare = Self {
            helper,
            commands: Some(commands),
            answers: BufReader::new(answers),
        };
        let environment = view.environment();
        bare.ask(&Setup {
            rootfs: view.rootfs.clone(),
            scripts: view.scripts.clone(),
            font_caches: view.font_caches.clone(),
            environment: environment
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        })?;
        Ok(bare)
    }

    fn ask(&mut self, question: &impl Serialize) -> Result<Duration> {
        let gone = || BenchError::Setup("The helper for bare runs is gone.".into());
        let mut line = serde_json::to_vec(question).map_err(|_| gone())?;
        line.push(b'\n');
        let commands = self.commands.as_mut().ok_or_else(gone)?;
        commands.write_all(&line).map_err(|_| gone())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(|_| gone())?;
        let answer: Answer = serde_json::from_str(&answer).map_err(|_| gone())?;
        answer.map(Duration::from_nanos).map_err(BenchError::Setup)
    }
}

impl Way for Bare {
    fn name(&self) -> Name {
        Name::Bare
    }

    fn run(&mut self, workload: Workload) -> Result<Duration> {
        self.ask(&workload.argv())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It ends at the end of its input, and its mounts with it.
        self.commands = None;
        let _ = self.helper.wait();
    }
}

/// The helper's whole life.
///
/// # Errors
/// Its pipes broke.
pub fn helper() -> Result<()> {
    let mut lines = std::io::stdin().lines();
    let mut environment = Vec::new();
    while let Some(Ok(line)) = lines.next() {
        let answer: Answer = if environment.is_empty() {
            let setup: Setup = serde_json::from_str(&line).map_err(|e| BenchError::Setup(e.to_string()))?;
            let entered = enter(&setup).map_err(|e| e.to_string());
            environment = setup.environment;
            entered.map(|()| 0)
        } else {
            let argv: Vec<String> =
                serde_json::from_str(&line).map_err(|e| BenchError::Setup(e.to_string()))?;
            once(&argv, &environment)
        };
        let mut text = serde_json::to_vec(&answer).map_err(|e| BenchError::Setup(e.to_string()))?;
        text.push(b'\n');
        let mut stdout = std::io::stdout();
        stdout
            .write_all(&text)
            .and_then(|()| stdout.flush())
            .map_err(BenchError::doing("Answering"))?;
    }
    Ok(())
}

fn once(argv: &[String], environment: &[(String, String)]) -> Answer {
    let (program, args) = argv.split_first().ok_or("No command.")?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/work");
    let took = timed(&mut command).map_err(|e| e.to_string())?;
    u64::try_from(took.as_nanos()).map_err(|e| e.to_string())
}

/// Makes the image this process's root, read-only, with the scratch directories of a sandbox.
fn enter(setup: &Setup) -> nix::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    nix::mount::mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let root = setup.rootfs.as_path();
    nix::mount::mount(Some(root), root, none, MsFlags::MS_BIND, none)?;
    nix::mount::mount(
        none,
        root,
        none,
        MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY,
        none,
    )?;
    for tree in ["proc", "dev"] {
        let host = Path::new("/").join(tree);
        nix::mount::mount(
            Some(&host),
            &root.join(tree),
            none,
            MsFlags::MS_BIND | MsFlags::MS_REC,
            none,
        )?;
    }
    for scratch in SCRATCH {
        let at = root.join(scratch.trim_start_matches('/'));
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        nix::mount::mount(
            Some("tmpfs"),
            &at,
            Some("tmpfs"),
            flags,
            Some("size=128m,mode=1777"),
        )?;
    }
    let errno = |error: std::io::Error| nix::Error::from_raw(error.raw_os_error().unwrap_or(0));
    for entry in std::fs::read_dir(&setup.scripts).map_err(errno)?.flatten() {
        std::fs::copy(entry.path(), root.join("work").join(entry.file_name())).map_err(errno)?;
    }
    // stderr of the runs goes to a file without a name in TMPDIR, which is the new root's by then.
    nix::unistd::chdir(root)?;
    nix::unistd::pivot_root(".", ".")?;
    nix::mount::umount2(".", MntFlags::MNT_DETACH)?;
    nix::unistd::chdir("/work")?;
    std::fs::create_dir(FONT_CACHE_LINKS).map_err(errno)?;
    for (name, target) in &setup.font_caches {
        let link = Path::new(FONT_CACHE_LINKS).join(name);
        std::os::unix::fs::symlink(target, link).map_err(errno)?;
    }
    Ok(())
}
