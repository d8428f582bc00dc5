//! What one test has to itself: a directory, an Events server, cgroups; and the look at what is left of it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::{RwLock, RwLockReadGuard};

use super::events::Events;
use super::{Bundle, Outcome, Shim, holds, host, shim};

/// A test's own place. Its name is in every id, path and cgroup of the test, and in no other's.
pub struct Bench {
    dir: TempDir,
    tag: String,
    pub events: Events,
    /// The program under test; a test may have a copy of its own.
    pub program: PathBuf,
    shims: Mutex<Vec<(u32, String)>>,
    logs: Mutex<Vec<std::fs::File>>,
}

static REAPING: RwLock<()> = RwLock::const_new(());

/// While it is held, no orphan is reaped, so that a child of ours can be waited for by whoever started it.
pub async fn no_reaping() -> RwLockReadGuard<'static, ()> {
    REAPING.read().await
}

/// Takes away the zombies of shims that were killed and of what they left: they become ours.
pub fn reap() {
    use rustix::process::{WaitOptions, wait};
    let Ok(_alone) = REAPING.try_write() else { return };
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn directories(of: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(of).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// Thaws and removes the cgroups below one, the deepest first; what is busy is left.
fn take_down(cgroup: &Path) {
    for below in directories(cgroup) {
        take_down(&below);
        let _ = std::fs::write(below.join("freezer.state"), "THAWED");
        let _ = std::fs::remove_dir(&below);
    }
}

impl Bench {
    pub async fn new() -> Outcome<Self> {
        // Short, so that a socket's name fits, and plain, so that it can be part of an id.
        let dir = tempfile::Builder::new()
            .prefix("sgt")
            .rand_bytes(8)
            .tempdir_in("/tmp")?;
        let tag = dir
            .path()
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        std::fs::create_dir(dir.path().join("b"))?;
        let events = Events::serve(dir.path().join("e.sock")).await?;
        // As kubelet makes the pod's, and keeps it while containers come and go.
        for (_, place) in host::hierarchies() {
            match std::fs::create_dir(place.join(&tag)) {
                // A hybrid host's empty tree beside the others is nobody's to use.
                Err(error) if error.kind() != std::io::ErrorKind::ReadOnlyFilesystem => {
                    return Err(format!("{}: {error}", place.display()).into());
                }
                _ => {}
            }
        }
        Ok(Self {
            dir,
            tag,
            events,
            program: shim::PROGRAM.into(),
            shims: Mutex::default(),
            logs: Mutex::default(),
        })
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The id of a container of this test.
    pub fn id(&self, name: &str) -> String {
        format!("{}-{name}", self.tag)
    }

    /// Its cgroup.
    pub fn cgroup(&self, name: &str) -> String {
        format!("/{}/{name}", self.tag)
    }

    pub fn events_path(&self) -> PathBuf {
        self.dir().join("e.sock")
    }

    /// Where shims are to put their sockets.
    pub fn sockets(&self) -> PathBuf {
        self.dir().join("s")
    }

    pub fn bundle(&self, name: &str, args: &[&str]) -> Outcome<Bundle> {
        Bundle::new(self, name, args)
    }

    /// A bundle whose shell runs a script.
    pub fn script(&self, name: &str, script: &str) -> Outcome<Bundle> {
        Bundle::new(self, name, &["sh", "-c", script])
    }

    /// A shim for a bundle.
    pub async fn shim(&self, bundle: &Bundle) -> Outcome<Shim> {
        Shim::start(self, bundle).await
    }

    pub fn knows_shim(&self, pid: u32, address: &str) {
        let mut shims = lock(&self.shims);
        if !shims.iter().any(|(known, _)| *known == pid) {
            shims.push((pid, address.to_owned()));
        }
    }

    /// Holds a shim's log open as containerd does, so that what it says can be read when a test fails.
    pub fn keep_log(&self, path: &Path) -> Outcome {
        use std::os::unix::fs::OpenOptionsExt;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(path)?;
        nix::fcntl::fcntl(
            std::os::fd::AsRawFd::as_raw_fd(&file),
            nix::fcntl::FcntlArg::F_SETPIPE_SZ(1 << 20),
        )?;
        lock(&self.logs).push(file);
        Ok(())
    }

    /// What the shims of this test logged since the last time.
    pub fn log(&self) -> String {
        use std::io::Read;
        let mut text = String::new();
        for file in lock(&self.logs).iter_mut() {
            let mut all = Vec::new();
            // Ends with EAGAIN when it is empty.
            let _ = file.read_to_end(&mut all);
            text.push_str(&String::from_utf8_lossy(&all));
        }
        text
    }

    /// Runs the action `delete` of a container, as containerd does when a shim is lost.
    pub async fn delete_action(&self, bundle: &Bundle) -> Outcome<std::process::Output> {
        shim::call(
            self,
            &bundle.id,
            &bundle.dir,
            &["-bundle", &bundle.dir.display().to_string()],
            "delete",
            &[],
        )
        .await
    }

    /// What is there of a container apart from what containerd put into its bundle.
    pub fn left_of(&self, bundle: &Bundle) -> Vec<String> {
        let known = ["address", "config.json", "log", "rootfs"];
        let mut left: Vec<String> = host::files(&bundle.dir)
            .into_iter()
            .filter(|name| !known.contains(&name.as_str()))
            .collect();
        left.extend(host::mounts(&format!("{}/", bundle.dir.display())));
        let cgroup = bundle.cgroup();
        let below = host::hierarchies()
            .into_iter()
            .map(|(_, place)| place.join(cgroup.trim_start_matches('/')));
        left.extend(
            below
                .filter(|path| path.exists())
                .map(|path| path.display().to_string()),
        );
        left.extend(host::pids().into_iter().filter_map(|pid| {
            let inside = host::proc(pid, "cgroup")
                .lines()
                .any(|line| line.ends_with(&cgroup));
            inside.then(|| format!("process {pid} {}", host::proc(pid, "cmdline")))
        }));
        left
    }

    /// Fails if anything is there of a container that is gone or was never made.
    pub fn nothing_of(&self, bundle: &Bundle) -> Outcome {
        let left = self.left_of(bundle);
        holds(left.is_empty(), || format!("left of {}: {left:?}", bundle.id))
    }

    fn left(&self) -> Vec<String> {
        reap();
        let mut left = Vec::new();
        for (pid, address) in lock(&self.shims).iter() {
            if Path::new(&format!("/proc/{pid}")).exists() {
                left.push(format!("shim {pid}, children {:?}", host::children(*pid)));
            }
            let socket = address.trim_start_matches("unix://");
            if Path::new(socket).exists() {
                left.push(format!("socket {socket}"));
            }
        }
        left.extend(
            host::processes(&self.tag)
                .into_iter()
                .map(|said| format!("process {said}")),
        );
        left.extend(
            host::mounts(&self.tag)
                .into_iter()
                .map(|place| format!("mount {place}")),
        );
        let own: Vec<PathBuf> = host::hierarchies()
            .into_iter()
            .map(|(_, place)| place.join(&self.tag))
            .collect();
        left.extend(
            host::cgroups(&self.tag)
                .into_iter()
                .filter(|path| !own.contains(path))
                .map(|path| path.display().to_string()),
        );
        for place in &own {
            let below = std::fs::read_dir(place).into_iter().flatten().flatten();
            left.extend(
                below
                    .filter(|entry| entry.path().is_dir())
                    .map(|entry| format!("cgroup {}", entry.path().display())),
            );
        }
        let events = self.events_path().display().to_string();
        left.extend(
            host::sockets(&self.tag)
                .into_iter()
                .filter(|name| *name != events)
                .map(|name| format!("socket {name}")),
        );
        left.extend(
            host::files(&self.sockets())
                .into_iter()
                .map(|name| format!("socket file {name}")),
        );
        for bundle in host::files(&self.dir().join("b")) {
            let state = self.dir().join("b").join(&bundle).join("sandglass");
            if state.exists() {
                left.push(format!("state of {bundle}"));
            }
        }
        left
    }

    /// Shuts every shim down and fails if anything is left. After a failure everything is taken away by force, and what
    /// the shims logged is part of it.
    pub async fn finish(mut self, outcome: Outcome) -> Outcome {
        let shims = lock(&self.shims).clone();
        let outcome = match outcome {
            Ok(()) => self.finish_well(&shims).await,
            failed => failed,
        };
        let outcome = outcome.map_err(|failed| {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(25)..].join("\n  ");
            format!(
                "{}\n  the shims' last words:\n  {last}",
                failed.message().unwrap_or("failed")
            )
        });
        if outcome.is_err() {
            self.force(&shims).await;
        }
        for (_, place) in host::hierarchies() {
            let _ = std::fs::remove_dir(place.join(&self.tag));
        }
        let _ = self.events.go_away().await;
        Ok(outcome?)
    }

    async fn finish_well(&self, shims: &[(u32, String)]) -> Outcome {
        for (pid, address) in shims {
            if Path::new(&format!("/proc/{pid}")).exists()
                && Path::new(address.trim_start_matches("unix://")).exists()
            {
                let children = host::children(*pid);
                holds(children.is_empty(), || {
                    format!("an idle shim has children: {children:?}")
                })?;
                let shim = Shim::connect(self, address).await?;
                shim.shut_down().await?;
            }
        }
        for _ in 0..200 {
            if self.left().is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(format!("left behind: {:#?}", self.left()).into())
    }

    async fn force(&self, shims: &[(u32, String)]) {
        for (pid, _) in shims {
            if host::proc(pid, "cmdline").contains(&self.tag) {
                host::kill(*pid);
            }
        }
        for _ in 0..100 {
            for said in host::processes(&self.tag) {
                if let Some(pid) = said.split(' ').next().and_then(|pid| pid.parse().ok()) {
                    host::kill(pid);
                }
            }
            for (_, place) in host::hierarchies() {
                take_down(&place.join(&self.tag));
            }
            for place in host::mounts(&self.tag).into_iter().rev() {
                let _ = nix::mount::umount2(place.as_str(), nix::mount::MntFlags::MNT_DETACH);
            }
            for (_, address) in shims {
                let _ = std::fs::remove_file(address.trim_start_matches("unix://"));
            }
            reap();
            let no_cgroup = host::hierarchies()
                .iter()
                .all(|(_, place)| directories(&place.join(&self.tag)).is_empty());
            if no_cgroup && host::processes(&self.tag).is_empty() && host::mounts(&self.tag).is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
