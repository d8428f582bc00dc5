//! The shim is killed: containerd says so, and `delete` takes away from disk alone what was in the shim's hands.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::node::{HANDLERS, Node, gone, parent, proc};
use crate::pods::Pod;
use crate::streams::Client;

/// What CRI says of a container whose end nobody saw, whatever the runtime's `delete` says.
const UNKNOWN: i32 = 255;

/// Kills the shim of a container's first process.
fn kill_shim(node: &Node, of: i32) -> i32 {
    let shim = parent(of);
    assert!(node.shims().contains(&shim), "{}", proc(shim, "cmdline"));
    kill(Pid::from_raw(shim), Signal::SIGKILL).unwrap();
    shim
}

#[test]
#[ignore = "needs root, the servers and the shim: make stack-test"]
fn a_task_whose_shim_is_killed_is_told_to_have_ended_with_137_and_leaves_nothing() {
    let mut node = Node::up();
    let before = node.look();
    let events = Client::events(&node);
    for handler in HANDLERS {
        let (id, folder) = (handler.name, node.folder(handler.name));
        node.start(handler, &folder, "setsid sleep 600 & sleep 600 & exec sleep 600");
        let fifos = folder.display().to_string();
        let exec = [
            "tasks",
            "exec",
            "--detach",
            "--fifo-dir",
            &fifos,
            "--exec-id",
            "e",
            id,
        ];
        node.ok("ctr", &[&exec[..], &["sleep", "600"]].concat());
        let inside: Vec<i32> = node
            .ok("ctr", &["tasks", "ps", id])
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(inside.len(), 4, "{inside:?}");
        let first = node.pid(id);
        let shim = kill_shim(&node, first);
        let container = format!("\"container_id\":\"{id}\"");
        events.tells(&[
            "/tasks/exit",
            &container,
            &format!("\"id\":\"{id}\""),
            "\"exit_status\":137",
            &format!("\"pid\":{first}"),
            "\"seconds\":",
        ]);
        events.tells(&["/tasks/delete", &container, "\"exit_status\":137"]);
        for pid in inside.into_iter().chain([shim]) {
            assert!(gone(pid), "{}", proc(pid, "cmdline"));
        }
        assert!(!node.tasks("default").contains_key(id));
        node.ok("ctr", &["containers", "delete", id]);
    }
    drop(events);
    node.nothing_since(&before);
    node.down();
}

#[test]
#[ignore = "needs root, the servers and the shim: make stack-test"]
fn a_pod_whose_shim_is_killed_is_not_ready_any_more_and_can_be_removed_whole() {
    let mut node = Node::up();
    let before = node.look();
    let events = Client::events(&node);
    for handler in HANDLERS {
        let pod = Pod::run(&node, handler.name, handler.name);
        let containers = ["one", "two"].map(|name| pod.start(&node, name, &["sleep", "600"]));
        let pids = containers.each_ref().map(|container| container.pid(&node));
        assert_eq!(pod.state(&node), "SANDBOX_READY");
        assert_eq!(node.shims(), [parent(pids[1])], "a pod has one shim");
        let shim = kill_shim(&node, pids[0]);
        for id in [&pod.id, &containers[0].id, &containers[1].id] {
            events.tells(&["/tasks/exit", &format!("\"id\":\"{id}\""), "\"exit_status\":137"]);
        }
        for pid in pids.into_iter().chain([shim]) {
            assert!(gone(pid), "{}", proc(pid, "cmdline"));
        }
        for container in &containers {
            container.exited(&node, UNKNOWN);
        }
        assert_eq!(pod.state(&node), "SANDBOX_NOTREADY");
        pod.remove(&node);
    }
    drop(events);
    node.nothing_since(&before);
    node.down();
}
