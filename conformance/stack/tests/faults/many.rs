//! Many at once, and many one after the other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sandglass_stack::BUSYBOX;

use crate::common::within;
use crate::node::{HANDLERS, Node, PATIENCE, descriptors};
use crate::pods::Pod;

/// Pods that are alive at once.
const PODS: usize = 100;
/// Names how many containers are made one after the other.
const CYCLES: &str = "SANDGLASS_CYCLES";
/// As many, where nothing is said: what a run of all tests has time for. The number that the runtime promises is 1000.
const FEW: usize = 100;
/// How much is done at once.
const HANDS: usize = 4;
/// Shims that may be there for each one that is wanted: the one before may be about to end, and each is started by a
/// process called alike.
const SHIMS: usize = 4;
/// Descriptors that containerd may have more, when it is quiet again: its connections to clients come and go.
const DESCRIPTORS: usize = 8;

/// Set when it goes, by a panic as well: what others do beside comes to its end then.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something for each number below `count`, with several hands; returns what came of it.
fn each<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, done, over) = (
        AtomicUsize::new(0),
        Mutex::new(Vec::new()),
        AtomicBool::new(false),
    );
    std::thread::scope(|scope| {
        for _ in 0..HANDS {
            scope.spawn(|| {
                let _over = Over(&over);
                while !over.load(Ordering::Relaxed) {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= count {
                        return;
                    }
                    let made = work(nth);
                    done.lock().unwrap().push(made);
                }
            });
        }
    });
    done.into_inner().unwrap()
}

#[test]
#[ignore = "needs root, the servers and the shim: make stack-test"]
fn a_hundred_pods_live_at_once_each_answers_and_nothing_of_them_is_left() {
    let mut node = Node::up();
    let before = node.look();
    let pods = each(PODS, |nth| {
        let handler = HANDLERS[nth % HANDLERS.len()].name;
        Pod::run(&node, &format!("pod-{nth}"), handler)
    });
    assert_eq!(node.shims().len(), PODS);
    // Each shim is asked for the state of its task.
    let tasks = node.tasks("k8s.io");
    assert_eq!(tasks.len(), PODS);
    for pod in &pods {
        let (pid, state) = &tasks[&pod.id];
        assert!(*pid > 1 && state == "RUNNING", "{pid} {state}");
    }
    assert_eq!(
        node.look()
            .iter()
            .filter(|what| what.starts_with("network device veth"))
            .count(),
        PODS
    );
    let pods = Mutex::new(pods);
    each(PODS, |_| {
        let pod = pods.lock().unwrap().pop();
        pod.unwrap().remove(&node);
    });
    node.nothing_since(&before);
    node.down();
}

#[test]
#[ignore = "needs root, the servers and the shim: make stack-test"]
fn containers_made_started_and_deleted_one_after_the_other_leave_nothing_and_containerd_as_it_was() {
    let cycles = std::env::var(CYCLES).map_or(FEW, |count| count.parse().expect("a number of cycles"));
    let mut node = Node::up();
    let before = node.look();
    let cycle = |nth: usize| {
        let id = format!("c{nth}");
        let runtime = HANDLERS[nth % HANDLERS.len()].runtime;
        let flags = ["run", "--rm", "--user", "65534:65534", "--runtime", runtime];
        // Its status says that it ran. Its output does not: `ctr run` closes the FIFOs as soon as it has the status.
        let ran = node.run(
            "ctr",
            &[&flags[..], &[BUSYBOX, &id, "sh", "-c", "exit 7"]].concat(),
        );
        assert_eq!(ran.status.code(), Some(7), "{ran:?}");
    };
    // What containerd opens once and keeps is none of theirs.
    each(2 * HANDS, cycle);
    let containerd = i32::try_from(node.stack.containerd().unwrap()).unwrap();
    assert!(within(PATIENCE, || node.shims().is_empty()));
    let open = descriptors(containerd);
    assert!(open > 0);
    let (over, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(node.shims().len(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let _over = Over(&over);
        each(cycles, cycle);
    });
    let most = most.into_inner();
    assert!((1..=SHIMS * HANDS).contains(&most), "{most} shims at once");
    let mut now = 0;
    let flat = within(PATIENCE, || {
        now = descriptors(containerd);
        now <= open + DESCRIPTORS
    });
    assert!(flat, "{now} descriptors, and {open} before");
    assert_eq!(node.stack.containerd(), u32::try_from(containerd).ok());
    node.nothing_since(&before);
    node.down();
}
