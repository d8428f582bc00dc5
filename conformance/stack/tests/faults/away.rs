//! containerd is killed and comes back; what the shim holds meanwhile goes on.

use std::path::PathBuf;
use std::time::Duration;

use crate::node::{HANDLERS, Handler, Node, gone};
use crate::pods::{Pod, signal};
use crate::staged::{STATUS, can_be_led, flaw, script};
use crate::streams::{Client, Fifo};

/// How long is written with nobody there to read. Far less than fills a FIFO.
const UNHEARD: Duration = Duration::from_millis(300);

/// A process that is led, as its FIFO is heard.
struct Led {
    handler: Handler,
    folder: PathBuf,
    pid: i32,
    fifo: Fifo,
}

#[test]
#[ignore = "needs root, the servers and the shim: make stack-test"]
fn a_task_goes_on_while_containerd_is_killed_and_restarted_and_its_output_and_exit_status_arrive() {
    let mut node = Node::up();
    let before = node.look();
    let mut all = HANDLERS.map(|handler| {
        let folder = node.folder(handler.name);
        node.start(handler, &folder, &script(&["rest", "write", "rest"]));
        let pid = node.pid(handler.name);
        can_be_led(pid);
        let fifo = Fifo::open(&folder, &format!("{}-stdout", handler.name));
        Led {
            handler,
            folder,
            pid,
            fifo,
        }
    });
    for led in &mut all {
        node.signal(led.handler.name, None);
        led.fifo.more(10);
    }
    node.stack.kill_containerd().unwrap();
    for led in &mut all {
        led.fifo.more(10);
    }
    // Whoever reads next gets what comes from here on.
    let all = all.map(|led| (led.handler.name, led.folder, led.pid, led.fifo.heard()));
    std::thread::sleep(UNHEARD);
    node.stack.start_containerd().unwrap();
    for (id, folder, pid, heard) in all {
        assert_eq!(node.pid(id), pid);
        let mut client = Client::ctr(&node, id, &["tasks", "attach", id]);
        client.says("no output", |said| said.lines().count() > 20);
        node.signal(id, None);
        client.says("no end of the output", |said| said.contains("wrote"));
        node.signal(id, None);
        assert_eq!(client.ends().code(), Some(STATUS));
        assert_eq!(flaw(&(heard + &client.said()), 1), None);
        node.ok("ctr", &["containers", "delete", id]);
        std::fs::remove_dir_all(folder).unwrap();
    }
    node.nothing_since(&before);
    node.down();
}

#[test]
#[ignore = "needs root, the servers and the shim: make stack-test"]
fn an_exec_goes_on_while_containerd_is_killed_and_restarted_and_its_output_and_exit_status_arrive() {
    let mut node = Node::up();
    let before = node.look();
    let mut all = HANDLERS.map(|handler| {
        let (id, fifos) = (handler.name, node.folder(handler.name));
        node.start(handler, &node.folder("tasks"), "exec sleep 600");
        let folder = fifos.display().to_string();
        let flags = [
            "tasks",
            "exec",
            "--detach",
            "--fifo-dir",
            &folder,
            "--exec-id",
            "e",
        ];
        let steps = script(&["rest", "write", "rest"]);
        node.ok("ctr", &[&flags[..], &[id, "sh", "-c", &steps]].concat());
        let pid = exec_pid(&node, id).unwrap();
        can_be_led(pid);
        let fifo = Fifo::open(&fifos, "e-stdout");
        Led {
            handler,
            folder: fifos,
            pid,
            fifo,
        }
    });
    for led in &mut all {
        node.signal(led.handler.name, Some("e"));
        led.fifo.more(10);
    }
    node.stack.kill_containerd().unwrap();
    for led in &mut all {
        led.fifo.more(10);
    }
    std::thread::sleep(UNHEARD);
    node.stack.start_containerd().unwrap();
    let events = Client::events(&node);
    for mut led in all {
        let id = led.handler.name;
        led.fifo.more(10);
        assert_eq!(exec_pid(&node, id), Some(led.pid));
        node.signal(id, Some("e"));
        led.fifo.has("wrote");
        node.signal(id, Some("e"));
        led.fifo.ends();
        assert_eq!(flaw(&led.fifo.heard(), 1), None);
        let status = format!("\"exit_status\":{STATUS},");
        events.tells(&[
            "/tasks/exit",
            &format!("\"container_id\":\"{id}\",\"id\":\"e\""),
            &status,
        ]);
        assert_eq!(exec_pid(&node, id), None);
        // What `ctr` itself ends with is the status of the process that it deletes.
        let deleted = node.run("ctr", &["tasks", "delete", "--exec-id", "e", id]);
        assert_eq!(deleted.status.code(), Some(STATUS), "{deleted:?}");
        assert_eq!(
            node.ok("ctr", &["tasks", "exec", "--exec-id", "f", id, "echo", "alive"]),
            "alive"
        );
        node.ok("ctr", &["tasks", "delete", "--force", id]);
        node.ok("ctr", &["containers", "delete", id]);
        std::fs::remove_dir_all(led.folder).unwrap();
    }
    drop(events);
    node.nothing_since(&before);
    node.down();
}

/// The exec'ed process `e`, where it runs.
fn exec_pid(node: &Node, id: &str) -> Option<i32> {
    let listed = node.ok("ctr", &["tasks", "ps", id]);
    let line = listed.lines().find(|line| line.contains("exec_id:\"e\""))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
#[ignore = "needs root, the servers and the shim: make stack-test"]
fn the_log_of_a_pods_container_has_each_line_once_though_containerd_was_killed_meanwhile() {
    let mut node = Node::up();
    let before = node.look();
    let steps = script(&["rest", "write", "rest", "write", "rest"]);
    let pods = HANDLERS.map(|handler| {
        let pod = Pod::run(&node, handler.name, handler.name);
        let container = pod.start(&node, "led", &["sh", "-c", &steps]);
        can_be_led(container.pid(&node));
        (pod, container)
    });
    for (_, container) in &pods {
        signal(container.pid(&node));
        container.logs(10);
        // containerd must have nothing in its hands when it is killed: what it read and did not write is lost by it.
        signal(container.pid(&node));
        container.logs_word("wrote", 1);
    }
    let pids = pods.each_ref().map(|(_, container)| container.pid(&node));
    node.stack.kill_containerd().unwrap();
    for pid in pids {
        signal(pid);
    }
    std::thread::sleep(UNHEARD);
    let written = pods
        .each_ref()
        .map(|(_, container)| container.log().lines().count());
    node.stack.start_containerd().unwrap();
    for (((pod, container), pid), written) in pods.into_iter().zip(pids).zip(written) {
        assert_eq!(container.pid(&node), pid);
        container.logs(written + 20);
        signal(pid);
        container.logs_word("wrote", 2);
        signal(pid);
        assert!(gone(pid));
        container.exited(&node, STATUS);
        assert_eq!(flaw(&container.log(), 2), None);
        pod.remove(&node);
    }
    node.nothing_since(&before);
    node.down();
}
