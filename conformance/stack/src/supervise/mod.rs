//! The process that holds a stack: alone in its namespaces and control groups, it starts containerd, does what it is
//! asked, adopts shims whose containerd is gone, and takes everything down when it is told to, or when whoever started
//! it is gone.

pub(crate) mod cgroup;
pub(crate) mod containerd;
mod leftovers;
mod private;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, Mode, OFlags};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::error::{Result, StackError};
use crate::place::{SETTINGS, SHIMS};
use crate::protocol::{Order, Reply, Request};
use crate::settings;
use cgroup::Groups;
use containerd::Containerd;
use leftovers::Picture;

/// How long runtimes get to clear up after the last container.
const SETTLE: Duration = Duration::from_secs(5);

/// What the hidden subcommand does: reads its order, brings the stack up, serves until the end.
pub fn run(order: &str) -> ExitCode {
    let order: Order = match serde_json::from_str(order) {
        Ok(order) => order,
        Err(error) => {
            reply(&Reply::Failed {
                message: format!("The order cannot be read: {error}."),
            });
            return ExitCode::FAILURE;
        }
    };
    match hold(&order) {
        Ok(left) if left.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            reply(&Reply::Failed {
                message: error.to_string(),
            });
            ExitCode::FAILURE
        }
    }
}

/// Everything that has to be undone, in one hand.
struct Held {
    order: Order,
    groups: Groups,
    containerd: Containerd,
    /// The host's `/run`, as it was before it was covered.
    run: OwnedFd,
}

fn hold(order: &Order) -> Result<Vec<String>> {
    // Signals for a terminal's foreground are not for this process: it ends when its input does.
    let _ = nix::unistd::setsid();
    nix::sys::prctl::set_child_subreaper(true).map_err(StackError::doing("Becoming a subreaper"))?;
    let signals = Signals::catch()?;
    let run = rustix::fs::open("/run", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(StackError::doing("Opening /run"))?;
    let _alive = crate::reap::hold(&order.place)?;
    let groups = Groups::enter(&order.place.name)?;
    let mut held = Held {
        order: order.clone(),
        groups,
        containerd: Containerd::new(order.config.clone(), order.place.clone()),
        run,
    };
    let before = match held.come_up() {
        Ok(picture) => picture,
        Err(error) => {
            // The first reason is the one to tell; what stays is still named by the last reply.
            reply(&Reply::Failed {
                message: error.to_string(),
            });
            return Ok(held.go_down(None));
        }
    };
    held.serve(&signals);
    Ok(held.go_down(Some(&before)))
}

impl Held {
    fn come_up(&mut self) -> Result<Picture> {
        private::enter(&self.order.place)?;
        self.groups.settle()?;
        write_settings(&self.order)?;
        self.containerd.start()?;
        let before = Picture::take(&self.groups, &self.expected());
        reply(&Reply::Ready {
            containerd: self.containerd.pid().unwrap_or_default(),
            cgroups: self.groups.outside(),
        });
        Ok(before)
    }

    fn expected(&self) -> Vec<u32> {
        self.containerd.pid().into_iter().collect()
    }

    /// Answers requests until one of them, the end of the input or a signal says stop.
    fn serve(&mut self, signals: &Signals) {
        let mut input = std::io::stdin();
        let (mut pending, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let [asked, child, end] = signals.wait(&input);
            if child {
                self.containerd.reap();
            }
            if end {
                return;
            }
            if !asked {
                continue;
            }
            match input.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => pending.extend_from_slice(&buffer[..count]),
            }
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(Request::Stop) => return,
                    Ok(request) => self.answer(request),
                    Err(error) => reply(&Reply::Failed {
                        message: format!("The request cannot be read: {error}."),
                    }),
                }
            }
        }
    }

    fn answer(&mut self, request: Request) {
        let outcome = match request {
            Request::Terminate => {
                self.containerd.end(Signal::SIGTERM);
                Ok(())
            }
            Request::Kill => {
                self.containerd.end(Signal::SIGKILL);
                Ok(())
            }
            Request::Start => self.containerd.start(),
            Request::Look => {
                self.containerd.reap();
                let what = Picture::take(&self.groups, &self.expected()).phrases();
                return reply(&Reply::Seen { what });
            }
            Request::Stop => Ok(()),
        };
        reply(&match outcome {
            Ok(()) => Reply::Done {
                containerd: self.containerd.pid(),
            },
            Err(error) => Reply::Failed {
                message: error.to_string(),
            },
        });
    }

    /// Ends everything; says what was left by the runtimes and by the stack.
    fn go_down(mut self, before: Option<&Picture>) -> Vec<String> {
        let mut left = Vec::new();
        if let Some(before) = before {
            if let Err(error) = self.containerd.start().and_then(|()| self.remove_containers()) {
                left.push(format!("containers that cannot be removed: {error}"));
            }
            left.extend(self.settle(before));
        }
        self.containerd.end(Signal::SIGTERM);
        left.extend(self.kill_all());
        private::unmount_all();
        left.extend(self.remove_folders());
        left.extend(self.groups.leave());
        reply(&Reply::Down { left: left.clone() });
        left
    }

    /// Removes every pod and every container of every namespace, as a person would who tidies up. Tries again where
    /// something went away meanwhile by itself, or came.
    fn remove_containers(&self) -> Result<()> {
        let mut tried = self.remove_containers_once();
        for _ in 0..2 {
            if tried.is_ok() {
                break;
            }
            tried = self.remove_containers_once();
        }
        tried
    }

    fn remove_containers_once(&self) -> Result<()> {
        let ask = |program: &str, arguments: &[&str]| self.containerd.ask(program, arguments);
        if !ask("crictl", &["pods", "--quiet"])?.trim().is_empty() {
            ask("crictl", &["rmp", "--all", "--force"])?;
        }
        for namespace in ask("ctr", &["namespaces", "list", "--quiet"])?.split_whitespace() {
            for id in ask("ctr", &["-n", namespace, "tasks", "list", "--quiet"])?.split_whitespace() {
                ask("ctr", &["-n", namespace, "tasks", "remove", "--force", id])?;
            }
            for id in ask("ctr", &["-n", namespace, "containers", "list", "--quiet"])?.split_whitespace() {
                ask("ctr", &["-n", namespace, "containers", "remove", id])?;
            }
        }
        Ok(())
    }

    fn settle(&mut self, before: &Picture) -> Vec<String> {
        let deadline = Instant::now() + SETTLE;
        loop {
            self.containerd.reap();
            let left = Picture::take(&self.groups, &self.expected()).since(before);
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills whoever is in the stack's groups until nobody is.
    fn kill_all(&mut self) -> Vec<String> {
        let deadline = Instant::now() + SETTLE;
        loop {
            let processes = self.groups.processes();
            if processes.is_empty() {
                return Vec::new();
            }
            if Instant::now() > deadline {
                return processes
                    .iter()
                    .map(|pid| format!("process {pid}, which does not die"))
                    .collect();
            }
            for pid in processes.iter().filter_map(|pid| i32::try_from(*pid).ok()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            self.containerd.reap();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn remove_folders(&self) -> Vec<String> {
        let place = &self.order.place;
        let mut left = Vec::new();
        let mut remove = |path: &std::path::Path| match fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                left.push(format!("{}: {error}", path.display()));
            }
            _ => {}
        };
        for folder in [place.state(), place.settings()] {
            remove(&folder);
        }
        if let Some(copy) = &self.order.config.keep_log {
            // Without a copy the log is lost, and nothing else.
            let _ = fs::copy(place.log(), copy);
        }
        if !self.order.keep_root {
            remove(&place.roomy);
        }
        for file in ["roomy", "lock"] {
            // What stays is named with its folder.
            let _ = fs::remove_file(place.short.join(file));
        }
        if let Err(error) = rustix::fs::unlinkat(&self.run, &place.name, AtFlags::REMOVEDIR) {
            left.push(format!("{}: {error}", place.short.display()));
        }
        left
    }
}

fn write_settings(order: &Order) -> Result<()> {
    let folder = std::path::Path::new(SETTINGS);
    let network = folder.join("network");
    fs::create_dir_all(&network).map_err(StackError::at("Making", &network))?;
    for (name, text) in [
        ("containerd.toml", settings::containerd(&order.config)),
        ("crictl.yaml", settings::crictl()),
        ("network/10-sandglass.conflist", settings::network()),
        ("name", format!("{}\n", order.place.name)),
    ] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(StackError::at("Writing", &path))?;
    }
    if let Some(shim) = &order.config.shim {
        let shims = std::path::Path::new(SHIMS);
        fs::create_dir_all(shims).map_err(StackError::at("Making", shims))?;
        let link = shims.join("containerd-shim-sandglass-spec-v1");
        std::os::unix::fs::symlink(shim, &link).map_err(StackError::at("Linking", &link))?;
    }
    Ok(())
}

/// Writes one line. Nobody listening is how a stack learns that it shall end; that is seen at the input.
fn reply(reply: &Reply) {
    if let Ok(mut line) = serde_json::to_vec(reply) {
        line.push(b'\n');
        let mut output = std::io::stdout();
        let _ = output.write_all(&line).and_then(|()| output.flush());
    }
}

/// The signals that matter, as descriptors.
struct Signals {
    child: UnixStream,
    end: UnixStream,
}

impl Signals {
    fn catch() -> Result<Self> {
        let caught = |signals: &[i32]| -> std::io::Result<UnixStream> {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            for signal in signals {
                signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
            }
            Ok(read)
        };
        Ok(Self {
            child: caught(&[SIGCHLD]).map_err(StackError::doing("Catching signals"))?,
            end: caught(&[SIGTERM, SIGINT, SIGHUP]).map_err(StackError::doing("Catching signals"))?,
        })
    }

    /// Waits; says whether there is input, whether a child ended, whether to end.
    fn wait(&self, input: &impl AsFd) -> [bool; 3] {
        let mut ready = [
            PollFd::new(input, PollFlags::IN),
            PollFd::new(&self.child, PollFlags::IN),
            PollFd::new(&self.end, PollFlags::IN),
        ];
        // An interruption comes with a byte in one of the pipes.
        if poll(&mut ready, None).is_err() {
            return [false, true, false];
        }
        let ready = [0, 1, 2].map(|index| !ready[index].revents().is_empty());
        let mut drained = [0; 64];
        while matches!((&self.child).read(&mut drained), Ok(1..)) {}
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_end_is_seen_beside_the_input() {
        let signals = Signals::catch().unwrap();
        let (quiet, _other) = UnixStream::pair().unwrap();
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert!(signals.wait(&quiet)[2]);
        assert!(!signals.wait(&quiet)[0]);
    }
}
