//! The life of a stack: needs root and what `make stack` makes, so `make stack-test` runs it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails the test"
)]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{groups, servers, text, within};
use sandglass_stack::{BUSYBOX, Config, Stack, StackError};

fn up() -> Stack {
    Stack::up(&Config::new(servers(), None, &[])).unwrap()
}

fn sh(stack: &Stack, script: &str) -> Output {
    stack.command("sh").args(["-c", script]).output().unwrap()
}

fn gone(name: &str, roomy: &Path) {
    assert!(!Path::new("/run").join(name).exists());
    assert!(!roomy.exists());
    assert_eq!(groups(name), Vec::<PathBuf>::new());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(name), "{mounts}");
}

#[test]
#[ignore = "needs root and the servers: make stack-test"]
fn a_stack_runs_containers_and_leaves_nothing() {
    let stack = up();
    let (name, roomy) = (stack.place().name.clone(), stack.place().roomy.clone());
    assert!(!groups(&name).is_empty());
    // `ctr run` closes the streams as soon as it has the status, whether it has read them or not.
    let run = format!("ctr run --rm {BUSYBOX} one sh -c 'echo hello; sleep 1'");
    assert_eq!(text(&sh(&stack, &run)), "hello");
    assert_eq!(sh(&stack, "exit 7").status.code(), Some(7));
    stack.down().unwrap();
    gone(&name, &roomy);
}

#[test]
#[ignore = "needs root and the servers: make stack-test"]
fn a_command_is_inside_and_in_the_callers_folder() {
    let stack = up();
    let inside = text(&sh(
        &stack,
        "readlink /proc/self/ns/net; readlink /proc/self/ns/mnt; pwd; ip -o route",
    ));
    let lines: Vec<_> = inside.lines().collect();
    for (kind, found) in ["net", "mnt"].iter().zip(&lines) {
        let ours = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert_ne!(Path::new(found), ours);
    }
    assert_eq!(Path::new(lines[2]), std::env::current_dir().unwrap());
    // No way out: not one route before there is a pod.
    assert_eq!(lines.len(), 3, "{inside}");
    stack.down().unwrap();
}

#[test]
#[ignore = "needs root and the servers: make stack-test"]
fn what_a_command_leaves_running_is_named_and_ended() {
    let stack = up();
    let pid: u32 = text(&sh(&stack, "sleep 1000 >/dev/null 2>&1 & echo $!"))
        .parse()
        .unwrap();
    let started = fs::metadata(format!("/proc/{pid}")).unwrap().ino();
    match stack.down() {
        Err(StackError::Left(left)) => {
            assert!(left.iter().any(|what| what.contains("sleep 1000")), "{left:?}");
            assert_eq!(left.len(), 1, "{left:?}");
        }
        other => panic!("{other:?}"),
    }
    // Dead it is; whoever adopted it takes it a moment later.
    let gone = || fs::metadata(format!("/proc/{pid}")).map_or(true, |now| now.ino() != started);
    assert!(within(Duration::from_secs(10), gone));
}

#[test]
#[ignore = "needs root and the servers: make stack-test"]
fn a_container_outlives_its_containerd() {
    let mut stack = up();
    let first = stack.containerd().unwrap();
    text(&sh(
        &stack,
        &format!("ctr run --detach {BUSYBOX} one sleep 1000 2>&1"),
    ));
    let listed = text(&sh(&stack, "ctr tasks list --quiet"));
    assert_eq!(listed, "one");
    stack.kill_containerd().unwrap();
    assert_eq!(stack.containerd(), None);
    assert!(!Path::new(&format!("/proc/{first}")).exists());
    assert!(!sh(&stack, "ctr --connect-timeout 1s tasks list").status.success());
    stack.start_containerd().unwrap();
    let second = stack.containerd().unwrap();
    assert_ne!(first, second);
    assert_eq!(
        text(&sh(&stack, "ctr tasks exec --exec-id e one echo alive")),
        "alive"
    );
    stack.restart_containerd().unwrap();
    assert_ne!(stack.containerd().unwrap(), second);
    assert_eq!(
        text(&sh(&stack, "ctr tasks exec --exec-id f one echo alive")),
        "alive"
    );
    stack.down().unwrap();
}

#[test]
#[ignore = "needs root and the servers: make stack-test"]
fn stacks_do_not_meet() {
    let (one, two) = (up(), up());
    text(&sh(
        &one,
        &format!("ctr run --detach {BUSYBOX} same sleep 1000 2>&1"),
    ));
    assert_eq!(text(&sh(&two, "ctr containers list --quiet")), "");
    text(&sh(
        &two,
        &format!("ctr run --detach {BUSYBOX} same sleep 1000 2>&1"),
    ));
    one.down().unwrap();
    assert_eq!(
        text(&sh(&two, "ctr tasks exec --exec-id e same echo alive")),
        "alive"
    );
    two.down().unwrap();
}

#[test]
#[ignore = "needs root and the servers: make stack-test"]
fn a_stack_ends_with_whoever_started_it() {
    let servers = servers();
    let mut owner = Command::new(servers.program("sandglass-stack"))
        .args(["up", "--servers"])
        .arg(&servers.root)
        .args(["--", "sh", "-c", "cat /run/sandglass-stack/name; sleep 1000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = owner.stdout.take().unwrap();
    let mut name = String::new();
    let mut byte = [0; 1];
    while !name.ends_with('\n') {
        assert_eq!(std::io::Read::read(&mut output, &mut byte).unwrap(), 1, "{name}");
        name.push(char::from(byte[0]));
    }
    let name = name.trim().to_owned();
    assert!(!groups(&name).is_empty());
    owner.kill().unwrap();
    owner.wait().unwrap();
    within(Duration::from_secs(60), || groups(&name).is_empty());
    gone(&name, &servers.root.join("live").join(&name));
}

#[test]
#[ignore = "needs root and the servers: make stack-test"]
fn a_stack_whose_supervisor_was_killed_is_cleared_away_by_the_next() {
    let stack = up();
    let (name, roomy) = (stack.place().name.clone(), stack.place().roomy.clone());
    text(&sh(
        &stack,
        &format!("ctr run --detach {BUSYBOX} one sleep 1000 2>&1"),
    ));
    let pid = i32::try_from(stack.supervisor()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    drop(stack);
    assert!(!groups(&name).is_empty());
    up().down().unwrap();
    gone(&name, &roomy);
}

#[test]
#[ignore = "needs root and the servers: make stack-test"]
fn a_stack_that_cannot_come_up_says_why_and_leaves_nothing() {
    let mut config = Config::new(servers(), None, &[]);
    config.containerd_flags = vec!["--no-such-flag".to_owned()];
    let error = Stack::up(&config).unwrap_err().to_string();
    assert!(error.contains("no-such-flag"), "{error}");
    let name = error
        .split_whitespace()
        .find(|word| word.starts_with("sg-"))
        .unwrap();
    gone(name, &config.servers.root.join("live").join(name));
}
