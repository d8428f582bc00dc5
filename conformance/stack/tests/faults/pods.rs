//! Pods, as a kubelet asks containerd for them by CRI.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandglass_stack::BUSYBOX;
use serde_json::{Value, json};

use crate::common::within;
use crate::node::{Node, PATIENCE};

/// What a kubelet would send; the README has people try the same. containerd knows no masked paths of its own.
const POD: &str = include_str!("../../examples/pod.json");
const CONTAINER: &str = include_str!("../../examples/container.json");

/// A pod.
pub struct Pod {
    /// Its id.
    pub id: String,
    folder: PathBuf,
}

/// A container of a pod.
pub struct Container {
    /// Its id.
    pub id: String,
    log: PathBuf,
}

impl Pod {
    /// One of a name of its own, of a handler.
    pub fn run(node: &Node, name: &str, handler: &str) -> Self {
        let folder = node.folder("pods").join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut pod: Value = serde_json::from_str(POD).unwrap();
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["uid"] = name.into();
        pod["log_directory"] = json!(folder);
        let asked = write(&folder.join("pod.json"), &pod);
        let id = node.ok("crictl", &["runp", "--runtime", handler, &asked]);
        Self { id, folder }
    }

    /// Starts a container in it.
    pub fn start(&self, node: &Node, name: &str, command: &[&str]) -> Container {
        let mut container: Value = serde_json::from_str(CONTAINER).unwrap();
        container["metadata"]["name"] = name.into();
        container["command"] = json!(command);
        container["log_path"] = format!("{name}.log").into();
        assert_eq!(container["image"]["image"], BUSYBOX);
        let asked = write(&self.folder.join(format!("{name}.json")), &container);
        let pod = self.folder.join("pod.json").display().to_string();
        let id = node.ok("crictl", &["create", "--no-pull", &self.id, &asked, &pod]);
        node.ok("crictl", &["start", &id]);
        Container {
            id,
            log: self.folder.join(format!("{name}.log")),
        }
    }

    /// What CRI says of the pod.
    pub fn state(&self, node: &Node) -> String {
        let template = "{{.status.state}}";
        node.ok(
            "crictl",
            &["inspectp", "-o", "go-template", "--template", template, &self.id],
        )
    }

    /// Takes it away with all that is in it.
    pub fn remove(self, node: &Node) {
        node.ok("crictl", &["rmp", "--force", &self.id]);
    }
}

impl Container {
    /// Its first process.
    pub fn pid(&self, node: &Node) -> i32 {
        self.inspect(node, "{{.info.pid}}").parse().unwrap()
    }

    /// Waits until CRI knows that it has ended with `status`.
    pub fn exited(&self, node: &Node, status: i32) {
        let wanted = format!("CONTAINER_EXITED {status}");
        let mut said = String::new();
        let ended = within(PATIENCE, || {
            said = self.inspect(node, "{{.status.state}} {{.status.exitCode}}");
            said == wanted
        });
        assert!(ended, "{said}");
    }

    /// What it has written, as its log has it.
    pub fn log(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap();
        // A line of the log: when, from which stream, whether whole, what.
        log.lines()
            .map(|line| match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
                [_, "stdout", "F", what] => format!("{what}\n"),
                _ => panic!("the log has {line:?}"),
            })
            .collect()
    }

    /// Waits until the log has so many lines.
    pub fn logs(&self, lines: usize) {
        assert!(
            within(PATIENCE, || self.log().lines().count() >= lines),
            "{}",
            self.log()
        );
    }

    /// Waits until the log has a word so often.
    pub fn logs_word(&self, word: &str, times: usize) {
        assert!(
            within(PATIENCE, || self.log().matches(word).count() == times),
            "{}",
            self.log()
        );
    }

    fn inspect(&self, node: &Node, template: &str) -> String {
        node.ok(
            "crictl",
            &["inspect", "-o", "go-template", "--template", template, &self.id],
        )
    }
}

/// Sends SIGUSR1, from outside.
pub fn signal(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGUSR1).unwrap();
}

fn write(path: &std::path::Path, value: &Value) -> String {
    fs::write(path, value.to_string()).unwrap();
    path.display().to_string()
}
