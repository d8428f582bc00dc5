//! Drives the real runner as process 1 of namespaces of its own, on a root of its own, as nobody: what every
//! test here needs. It takes user namespaces; where there are none the tests fail, they are not skipped.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails here fails the test"
)]

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use sandglass_run::protocol::{
    ArtifactBounds, ArtifactStart, EntryStart, Exit, Failed, Job, Observed, PROTOCOL_VERSION, SkippedEntry,
};
use sandglass_run::session::outer::Session;
use sandglass_run::{
    Capture, FromRunner, Language, Output, SkipReason, Stream, ToRunner, read_frame, write_frame,
};

/// Enters a root with the host's programs and scratch like a sandbox's; the mounts are those of [`mounts`]. It
/// starts few programs, since every test here pays for it.
const ENTER: &str = r#"
set -eu
root=$1 table=$2
shift 2
mount -t tmpfs -o mode=755 none "$root"
cd "$root"
for top in bin sbin lib lib32 lib64; do if [ -L "/$top" ]; then cp -P "/$top" .; fi; done
mkdir dev etc
: > runner; for node in null zero full random urandom; do : > "dev/$node"; done
mount --all --fstab "$table"
if [ -d usr/share/sandglass/matplotlib ]; then echo '{}' > usr/share/sandglass/matplotlib/fontlist-v390.json; fi
pivot_root . old
umount -l /old
mount -o remount,bind,ro /
exec "$@" /runner
"#;

/// A table of mounts below this root.
fn mounts(root: &Path, seed: bool, owner: &str) -> String {
    let root = root.display();
    let mut table = String::new();
    let mut bind = |from: &str, to: &str| {
        table += &format!("{from} {root}/{to} none rbind,X-mount.mkdir 0 0\n");
    };
    bind("/usr", "usr");
    for top in ["bin", "sbin", "lib", "lib32", "lib64"] {
        let path = Path::new("/").join(top);
        if path.is_dir() && !path.is_symlink() {
            bind(&format!("/{top}"), top);
        }
    }
    for node in ["null", "zero", "full", "random", "urandom"] {
        bind(&format!("/dev/{node}"), &format!("dev/{node}"));
    }
    bind(env!("CARGO_BIN_EXE_sandglass-runner"), "runner");
    for scratch in ["work", "out", "tmp", "dev/shm"] {
        let caps = "size=64m,nr_inodes=300k,mode=700,nosuid,nodev,noexec,X-mount.mkdir";
        table += &format!("none {root}/{scratch} tmpfs {caps},{owner} 0 0\n");
    }
    if seed {
        table += &format!("none {root}/usr/share tmpfs mode=755 0 0\n");
        table += &format!("none {root}/usr/share/sandglass/matplotlib tmpfs mode=755,X-mount.mkdir 0 0\n");
    }
    table += &format!("none {root}/proc proc X-mount.mkdir 0 0\nnone {root}/old tmpfs X-mount.mkdir 0 0\n");
    table
}

/// A runner that waits for a job.
pub struct Outer {
    child: Child,
    pub to: Option<ChildStdin>,
    pub from: ChildStdout,
    session: Session,
    _root: tempfile::TempDir,
}

/// Longest that any one test's sandbox may live.
const PATIENCE: &str = "120";

pub const BOUNDS: ArtifactBounds = ArtifactBounds {
    max_count: 100,
    max_bytes_total: 32 << 20,
    max_depth: 8,
    max_name_bytes: 255,
};

pub fn job(language: Language, args: &[&str]) -> Job {
    Job {
        protocol: PROTOCOL_VERSION,
        language,
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        wall_ms: 60_000,
        output_cap_bytes: 1 << 20,
        artifacts: BOUNDS,
        cpus: 0.5,
        memory_bytes: Some(512 << 20),
        env: [].into(),
        entries: 0,
    }
}

/// A job that runs a shell script.
pub fn shell(script: &str) -> Job {
    job(Language::Exec, &["sh", "-c", script])
}

/// A job that runs a Perl script.
pub fn perl(script: &str) -> Job {
    job(Language::Exec, &["perl", "-e", script])
}

impl Outer {
    pub fn start() -> Self {
        Self::start_seeded(false)
    }

    /// With a font cache in the image, or without.
    pub fn start_seeded(seed: bool) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (top, table) = (root.path().join("root"), root.path().join("mounts"));
        std::fs::create_dir(&top).unwrap();
        // Root becomes nobody. Anyone else does so in a user namespace below the one that makes the mounts: with
        // root as that nobody, files in /proc that belong to root would be nobody's.
        let (user, owner, nobody): (&[&str], _, &[&str]) = if is_root() {
            (
                &[],
                "uid=65534,gid=65534",
                &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
            )
        } else {
            (
                &["--user", "--map-root-user"],
                "uid=0,gid=0",
                &["unshare", "--user", "--map-user=65534", "--map-group=65534"],
            )
        };
        std::fs::write(&table, mounts(&top, seed, owner)).unwrap();
        let mut child = Command::new("timeout")
            .args([
                "--signal=KILL",
                PATIENCE,
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--net",
                "--ipc",
            ])
            .args(user)
            .args(["sh", "-c", ENTER, "enter"])
            .arg(&top)
            .arg(&table)
            .args(nobody)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("timeout, unshare and setpriv are needed");
        let (to, from) = (child.stdin.take(), child.stdout.take().unwrap());
        Self {
            child,
            to,
            from,
            session: Session::new(1 << 20, BOUNDS),
            _root: root,
        }
    }

    pub fn send(&mut self, frame: &ToRunner) {
        write_frame(self.to.as_mut().unwrap(), frame).unwrap();
    }

    /// The next frame, which the session has accepted.
    pub fn receive(&mut self) -> Option<FromRunner> {
        let frame = read_frame(&mut self.from).unwrap()?;
        self.session
            .accept(&frame)
            .unwrap_or_else(|error| panic!("{error} ({frame:?})"));
        Some(frame)
    }

    pub fn stage(&mut self, job: &Job, entries: &[(&str, &[u8])]) {
        self.session = Session::new(job.output_cap_bytes, job.artifacts);
        self.send(&ToRunner::Job(Job {
            entries: entries.len().try_into().unwrap(),
            ..job.clone()
        }));
        for (name, bytes) in entries {
            self.send(&ToRunner::EntryStart(EntryStart {
                name: (*name).into(),
                bytes: bytes.len() as u64,
            }));
            for piece in bytes.chunks(64 * 1024) {
                self.send(&ToRunner::EntryData(piece.to_vec()));
            }
            self.send(&ToRunner::EntryEnd);
        }
    }

    pub fn ready(&mut self) -> Observed {
        match self.receive() {
            Some(FromRunner::Ready(observed)) => observed,
            other => panic!("Ready was expected, and {other:?} came"),
        }
    }

    pub fn go(&mut self) {
        self.session.go().unwrap();
        self.send(&ToRunner::Go);
    }

    /// Everything that comes, to the end of the conversation and of the runner.
    pub fn outcome(mut self) -> Outcome {
        let mut outcome = Outcome::default();
        let (mut stdout, mut stderr) = (Capture::new(), Capture::new());
        let mut artifact: Option<(ArtifactStart, Vec<u8>)> = None;
        while let Some(frame) = self.receive() {
            match frame {
                FromRunner::Output {
                    stream: Stream::Stdout,
                    bytes,
                } => stdout.push(&bytes),
                FromRunner::Output {
                    stream: Stream::Stderr,
                    bytes,
                } => stderr.push(&bytes),
                FromRunner::Dropped(dropped) if dropped.stream == Stream::Stdout => {
                    stdout.dropped(dropped.bytes)
                }
                FromRunner::Dropped(dropped) => stderr.dropped(dropped.bytes),
                FromRunner::Exit(exit) => outcome.exit = Some(exit),
                FromRunner::ArtifactStart(start) => artifact = Some((start, Vec::new())),
                FromRunner::ArtifactData(bytes) => artifact.as_mut().unwrap().1.extend(bytes),
                FromRunner::ArtifactEnd(end) => {
                    assert!(end.complete);
                    outcome.artifacts.push(artifact.take().unwrap());
                }
                FromRunner::Skipped(skipped) => outcome.skipped.push(skipped),
                FromRunner::SkippedMore(more) => outcome.skipped_more = more.count,
                FromRunner::Failed(failed) => outcome.failed = Some(failed),
                FromRunner::Ready(_)
                | FromRunner::Started(_)
                | FromRunner::OutputEnd(_)
                | FromRunner::End => {}
            }
        }
        assert!(self.session.is_ended(), "the conversation broke off");
        (outcome.stdout, outcome.stderr) = (stdout.finish(), stderr.finish());
        outcome.success = self.child.wait().unwrap().success();
        outcome
    }

    /// Waits for the runner's end, however it comes. False when it did not come in time.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < time {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// The runner's process id outside: the innermost of `timeout`, `unshare`, runner.
    pub fn runner_pid(&self) -> u32 {
        let mut pid = self.child.id();
        loop {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            let Some(child) = children.split_whitespace().next() else {
                return pid;
            };
            pid = child.parse().unwrap();
        }
    }

    /// Reads raw bytes until there are no more.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.from.read_to_end(&mut bytes).unwrap();
        bytes
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        // `timeout` passes its own death to nobody, so close the channel and let the runner end first.
        self.to = None;
        if !self.ends_within(Duration::from_secs(10)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What came of a job.
#[derive(Debug)]
pub struct Outcome {
    pub exit: Option<Exit>,
    pub failed: Option<Failed>,
    pub stdout: Output,
    pub stderr: Output,
    pub artifacts: Vec<(ArtifactStart, Vec<u8>)>,
    pub skipped: Vec<SkippedEntry>,
    pub skipped_more: u64,
    pub success: bool,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            exit: None,
            failed: None,
            stdout: Output::empty(),
            stderr: Output::empty(),
            artifacts: Vec::new(),
            skipped: Vec::new(),
            skipped_more: 0,
            success: false,
        }
    }
}

impl Outcome {
    pub fn exit(&self) -> &Exit {
        self.exit
            .as_ref()
            .unwrap_or_else(|| panic!("the script never ran: {:?}", self.failed))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(self.stdout.content.as_bytes()).unwrap()
    }

    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(self.stderr.content.as_bytes()).into_owned()
    }

    pub fn paths(&self) -> Vec<&str> {
        self.artifacts
            .iter()
            .map(|(start, _)| start.path.as_str())
            .collect()
    }

    pub fn reasons(&self) -> Vec<(&str, SkipReason)> {
        self.skipped
            .iter()
            .map(|entry| (entry.path_lossy.as_str(), entry.reason))
            .collect()
    }
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0
}

/// Runs a job with these files to its end.
pub fn run_with(job: &Job, entries: &[(&str, &[u8])]) -> Outcome {
    let mut outer = Outer::start();
    outer.stage(job, entries);
    outer.ready();
    outer.go();
    outer.outcome()
}

/// Runs a job to its end.
pub fn run(job: &Job) -> Outcome {
    run_with(job, &[])
}

/// Whether any process of the host has this word in its command line.
pub fn is_anywhere(word: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        // The script is also an argument of the shell that the test named, so look for the word alone.
        line.split(|byte| *byte == 0).any(|arg| arg == word.as_bytes())
    })
}
