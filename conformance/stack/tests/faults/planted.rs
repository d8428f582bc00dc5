//! That nothing is left is believed only since what is left is seen: each kind of it, planted.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{groups, within};
use crate::node::{Node, PATIENCE, gone};

/// Looks until there is something new whose phrase begins and ends like this.
fn sees(node: &mut Node, before: &BTreeSet<String>, begins: &str, ends: &str) {
    let mut new: Vec<String> = Vec::new();
    let seen = within(PATIENCE, || {
        new = node.look().difference(before).cloned().collect();
        new.iter()
            .any(|what| what.starts_with(begins) && what.ends_with(ends))
    });
    assert!(seen, "{begins}…{ends} is not in {new:#?}");
}

fn end(mut child: Child) {
    let pid = i32::try_from(child.id()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    assert!(gone(pid));
}

#[test]
#[ignore = "needs root, the servers and the shim: make stack-test"]
fn a_process_that_is_left_is_seen_in_the_nodes_groups_or_out_of_them() {
    let mut node = Node::up();
    let before = node.look();
    let inside = node.stack.command("sleep").arg("601").spawn().unwrap();
    sees(
        &mut node,
        &before,
        &format!("process {} (", inside.id()),
        "sleep 601",
    );
    end(inside);
    node.nothing_since(&before);
    // A shim that moved itself out of the node's control groups, say.
    let network = format!("--net=/proc/{}/ns/net", node.stack.supervisor());
    let outside = Command::new("nsenter")
        .args([&network, "sleep", "602"])
        .spawn()
        .unwrap();
    sees(
        &mut node,
        &before,
        &format!("process {} of the node", outside.id()),
        "",
    );
    end(outside);
    node.nothing_since(&before);
    node.down();
}

#[test]
#[ignore = "needs root, the servers and the shim: make stack-test"]
fn a_mount_a_control_group_a_socket_a_bundle_and_a_network_that_are_left_are_seen() {
    let mut node = Node::up();
    let before = node.look();

    let bundle = "io.containerd.runtime.v2.task/k8s.io/planted";
    for folder in [node.stack.place().state(), node.stack.place().root()] {
        let folder = folder.join(bundle);
        fs::create_dir_all(&folder).unwrap();
    }
    sees(&mut node, &before, "file /run/containerd/", bundle);
    sees(&mut node, &before, "folder ", &format!("root/{bundle}"));
    let rootfs = format!("/run/containerd/{bundle}");
    let elsewhere = node.folder("mount").display().to_string();
    for at in [&rootfs, &elsewhere] {
        node.ok("mount", &["-t", "tmpfs", "planted", at]);
        sees(&mut node, &before, "mount of the node ", at);
    }
    sees(&mut node, &before, "mount /", &rootfs);
    for at in [&rootfs, &elsewhere] {
        node.ok("umount", &[at]);
    }
    for folder in [node.stack.place().state(), node.stack.place().root()] {
        fs::remove_dir(folder.join(bundle)).unwrap();
    }
    node.nothing_since(&before);

    let groups = groups(&node.stack.place().name);
    assert!(!groups.is_empty());
    for group in groups {
        let pod = group.join("planted");
        fs::create_dir_all(pod.join("container")).unwrap();
        sees(&mut node, &before, "control group ", "planted/container");
        fs::remove_dir(pod.join("container")).unwrap();
        fs::remove_dir(pod).unwrap();
        node.nothing_since(&before);
    }

    let sockets = node.stack.place().state().join("s");
    fs::create_dir_all(&sockets).unwrap();
    let socket = sockets.join("planted");
    let listener = UnixListener::bind(&socket).unwrap();
    sees(&mut node, &before, "file /run/containerd/s/", "planted");
    drop(listener);
    fs::remove_file(socket).unwrap();
    node.nothing_since(&before);

    node.ok("ip", &["netns", "add", "planted"]);
    sees(&mut node, &before, "file /run/netns/", "planted");
    node.ok(
        "ip",
        &[
            "link",
            "add",
            "vethplanted",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            "planted",
        ],
    );
    sees(&mut node, &before, "network device ", "vethplanted");
    // The namespace lives on without its name, by the process that is in it.
    let inside = node
        .stack
        .command("ip")
        .args(["netns", "exec", "planted", "sleep", "603"])
        .spawn()
        .unwrap();
    // `ip` itself has not gone in yet.
    sees(
        &mut node,
        &before,
        &format!("process {} (", inside.id()),
        ") sleep 603",
    );
    node.ok("ip", &["netns", "delete", "planted"]);
    sees(&mut node, &before, "network device ", "vethplanted");
    end(inside);
    // `ip` has it shared, by a mount upon itself.
    node.ok("umount", &["/run/netns"]);
    node.nothing_since(&before);
    node.down();
}
