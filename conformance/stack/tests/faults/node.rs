//! A stack with our shim, what is asked of it, and what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use sandglass_stack::{BUSYBOX, Config, Stack};

use crate::common::{servers, text, within};

/// How long anything may take that is waited for.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The same, for a client, in seconds.
const CLIENT: &str = "30";
/// Longest time that what is over may take to be gone.
const SETTLE: Duration = Duration::from_secs(10);

/// One of our handlers.
#[derive(Debug, Clone, Copy)]
pub struct Handler {
    /// As CRI knows it; what is run with it is called so, too.
    pub name: &'static str,
    /// As `ctr` knows it.
    pub runtime: &'static str,
}

/// Both.
pub const HANDLERS: [Handler; 2] = [
    Handler {
        name: "sandglass",
        runtime: "io.containerd.sandglass.v1",
    },
    Handler {
        name: "sandglass-spec",
        runtime: "io.containerd.sandglass-spec.v1",
    },
];

/// A stack with our shim.
pub struct Node {
    /// The stack.
    pub stack: Stack,
}

impl Node {
    /// One with nothing in it.
    pub fn up() -> Self {
        let servers = servers();
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let shim = servers
            .root
            .with_file_name(triple)
            .join("release/containerd-shim-sandglass-v1");
        assert!(shim.exists(), "{} is not there: make shim", shim.display());
        let stack = Stack::up(&Config::new(servers, Some(&shim), &[])).unwrap();
        Self { stack }
    }

    /// A folder of this node's own, whose path is the same inside.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.stack.place().scratch().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Runs a program inside, not for ever.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Output {
        self.stack
            .command("timeout")
            .args(["--kill-after=1", CLIENT, program])
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap()
    }

    /// What a program printed that succeeded.
    pub fn ok(&self, program: &str, arguments: &[&str]) -> String {
        text(&self.run(program, arguments))
    }

    /// Starts a container called as its handler, whose FIFOs are below `fifos`.
    pub fn start(&self, handler: Handler, fifos: &Path, script: &str) {
        let fifos = fifos.display().to_string();
        let flags = [
            "run",
            "--detach",
            "--fifo-dir",
            &fifos,
            "--user",
            "65534:65534",
            "--runtime",
            handler.runtime,
        ];
        let what = [BUSYBOX, handler.name, "sh", "-c", script];
        self.ok("ctr", &[&flags[..], &what].concat());
    }

    /// The tasks of a namespace that answer for themselves: their pids and what they say they do.
    pub fn tasks(&self, namespace: &str) -> BTreeMap<String, (i32, String)> {
        self.ok("ctr", &["-n", namespace, "tasks", "list"])
            .lines()
            .skip(1)
            .map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [id, pid, status] => (id.to_owned(), (pid.parse().unwrap(), status.to_owned())),
                _ => panic!("a task is {line:?}"),
            })
            .collect()
    }

    /// The first process of a container of `ctr`'s.
    pub fn pid(&self, id: &str) -> i32 {
        self.tasks("default")[id].0
    }

    /// Sends SIGUSR1 by way of containerd; `exec` may be none.
    pub fn signal(&self, id: &str, exec: Option<&str>) {
        let mut words = vec!["tasks", "kill", "--signal", "SIGUSR1"];
        words.extend(exec.iter().flat_map(|exec| ["--exec-id", exec]));
        words.push(id);
        self.ok("ctr", &words);
    }

    /// What is there: what the stack sees, every mount of the node, every process in its namespaces whatever its control
    /// group, every network device, and what containerd keeps for a task beside its bundle.
    pub fn look(&mut self) -> BTreeSet<String> {
        let mut seen = self.stack.look().unwrap();
        seen.extend(self.mounts());
        seen.extend(
            self.processes()
                .iter()
                .map(|pid| format!("process {pid} of the node")),
        );
        seen.extend(self.links());
        let kept = self.stack.place().root().join("io.containerd.runtime.v2.task");
        for namespace in entries(&kept) {
            seen.extend(
                entries(&namespace)
                    .iter()
                    .map(|at| format!("folder {}", at.display())),
            );
        }
        seen
    }

    /// Waits until nothing is there that was not there `before`.
    pub fn nothing_since(&mut self, before: &BTreeSet<String>) {
        let mut left = Vec::new();
        within(SETTLE, || {
            left = self.look().difference(before).cloned().collect();
            left.is_empty()
        });
        assert!(left.is_empty(), "left: {left:#?}");
    }

    /// Our shims in this node, whatever they are just doing.
    pub fn shims(&self) -> Vec<i32> {
        let mut shims = self.processes();
        shims.retain(|pid| proc(*pid, "cmdline").contains("containerd-shim-sandglass"));
        shims
    }

    /// Ends the node; the stack itself says whether something was left.
    pub fn down(self) {
        self.stack.down().unwrap();
    }

    /// The processes in its network or its mounts, the servers excepted.
    fn processes(&self) -> Vec<i32> {
        let supervisor = i32::try_from(self.stack.supervisor()).unwrap();
        let containerd = self.stack.containerd().and_then(|pid| i32::try_from(pid).ok());
        let namespace = |pid: i32, kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
        let node = ["net", "mnt"].map(|kind| namespace(supervisor, kind).unwrap());
        entries(Path::new("/proc"))
            .iter()
            .filter_map(|entry| entry.file_name()?.to_str()?.parse().ok())
            .filter(|pid| *pid != supervisor && Some(*pid) != containerd)
            .filter(|pid| {
                let its = ["net", "mnt"].map(|kind| namespace(*pid, kind));
                its.iter()
                    .zip(&node)
                    .any(|(its, node)| its.as_ref() == Some(node))
            })
            .collect()
    }

    fn mounts(&self) -> Vec<String> {
        let table = self.seen_from_inside("mountinfo");
        // What the host mounts meanwhile comes in with a `master`.
        let own = table.lines().filter(|line| !line.contains(" master:"));
        own.filter_map(|line| line.split(' ').nth(4))
            .map(|at| format!("mount of the node {at}"))
            .collect()
    }

    fn links(&self) -> Vec<String> {
        let table = self.seen_from_inside("net/dev");
        let names = table.lines().skip(2).filter_map(|line| line.split(':').next());
        // The bridge of all pods stays with the node.
        names
            .map(str::trim)
            .filter(|name| *name != "cni0")
            .map(|name| format!("network device {name}"))
            .collect()
    }

    fn seen_from_inside(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.stack.supervisor())).unwrap()
    }
}

/// A file of a process's, as far as it can be read; empty where the process is gone.
pub fn proc(pid: i32, file: &str) -> String {
    let body = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&body).into_owned()
}

/// The process that started, or adopted, another.
pub fn parent(pid: i32) -> i32 {
    let status = proc(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.unwrap().trim().parse().unwrap()
}

/// Waits until a process is gone, or dead and not yet taken by its parent.
pub fn gone(pid: i32) -> bool {
    within(PATIENCE, || {
        let status = proc(pid, "status");
        status.is_empty() || status.contains("State:\tZ")
    })
}

/// How many descriptors a process has open.
pub fn descriptors(pid: i32) -> usize {
    entries(&Path::new("/proc").join(pid.to_string()).join("fd")).len()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    listed.map(|entry| entry.path()).collect()
}

#[test]
fn an_open_descriptor_counts() {
    let me = i32::try_from(std::process::id()).unwrap();
    let before = descriptors(me);
    // More than other tests of this process may close meanwhile.
    let open: Vec<fs::File> = (0..200).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    assert!(descriptors(me) > before + 100);
    drop(open);
}
