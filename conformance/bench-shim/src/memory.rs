//! What pods that wait hold in memory.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sandglass_figures::Interrupt;
use sandglass_figures::memory::Memory;
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::latency::Watch;
use crate::pods::{Pods, Running};

/// How long everything has waited when it is measured: a shim may need a moment to put its things away.
const WAITED: Duration = Duration::from_secs(3);
/// What every pod runs.
const WAIT: [&str; 2] = ["sleep", "3600"];

/// A handler's pods; means over those alive.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The handler.
    pub handler: String,
    /// Pods alive, each with one container.
    pub pods: usize,
    /// The shim, right after the last pod was started.
    pub busy: Memory,
    /// The shim, when it has waited for three seconds, as everything below.
    pub shim: Memory,
    /// The pause container's process.
    pub pause: Memory,
    /// The container's.
    pub container: Memory,
    /// The shim and everything below it.
    pub all: Memory,
}

/// Measures one pod of each handler, alone on the machine, and then `many` of each.
///
/// # Errors
/// A pod that cannot be made, or a process tree that is not as expected.
pub async fn measure(
    pods: &Pods,
    handlers: &[String],
    many: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for handler in handlers {
        for count in [1, many] {
            interrupt.check()?;
            let mut running = Vec::new();
            let row = alive(pods, handler, count, &mut running, interrupt).await;
            for pod in &running {
                pods.remove(&pod.pod).await;
            }
            rows.push(row.map_err(BenchError::of(format!("{handler}, {count} pods")))?);
        }
    }
    eprintln!();
    Ok(rows)
}

async fn alive(
    pods: &Pods,
    handler: &str,
    count: usize,
    running: &mut Vec<Running>,
    interrupt: &Interrupt,
) -> Result<Row> {
    for nth in 0..count {
        interrupt.check()?;
        running.push(pods.start(handler, nth, &WAIT, &mut Watch::start()).await?);
        eprint!("\rmemory: {handler}, pod {} of {count}      ", nth + 1);
    }
    let pids = pods.client.pids().await?;
    let busy = held(running, &pids)?.shim;
    tokio::time::sleep(WAITED).await;
    let held = held(running, &pids)?;
    Ok(Row {
        handler: handler.to_owned(),
        pods: count,
        busy: busy.each(count),
        shim: held.shim.each(count),
        pause: held.pause.each(count),
        container: held.container.each(count),
        all: held.all.each(count),
    })
}

/// What several pods hold together.
#[derive(Debug, Default)]
struct Held {
    shim: Memory,
    pause: Memory,
    container: Memory,
    all: Memory,
}

fn held(running: &[Running], pids: &HashMap<String, u32>) -> Result<Held> {
    let pid = |id: &str| {
        pids.get(id)
            .copied()
            .ok_or_else(|| BenchError::Setup(format!("containerd does not know the task {id}.")))
    };
    let of = |pid| Memory::of(pid).map_err(BenchError::doing("Measuring the memory"));
    let parents = parents();
    let mut held = Held::default();
    for one in running {
        let pause = pid(&one.pod)?;
        let shim = shim_of(&parents, pause)?;
        held.shim += of(shim)?;
        held.pause += of(pause)?;
        held.container += of(pid(&one.container)?)?;
        for process in tree(&parents, shim) {
            held.all += of(process)?;
        }
    }
    Ok(held)
}

/// A process's parent, by both pids: the first processes of containers are their shim's children.
type Parents = HashMap<u32, u32>;

fn parents() -> Parents {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parent(&stat)?))
    })
    .collect()
}

/// The fourth field of proc_pid_stat(5). The second, a name, may hold anything; its closing bracket is the last.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn shim_of(parents: &Parents, pause: u32) -> Result<u32> {
    let shim = parents.get(&pause).copied().unwrap_or_default();
    let name = std::fs::read_to_string(format!("/proc/{shim}/comm")).unwrap_or_default();
    // The kernel keeps fifteen characters of it.
    if name.trim_end() == "containerd-shim" {
        return Ok(shim);
    }
    Err(BenchError::Setup(format!(
        "The parent of the pause container {pause} is {shim}, {:?}, and no shim.",
        name.trim_end()
    )))
}

/// A process and all below it.
fn tree(parents: &Parents, root: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut next = VecDeque::from([root]);
    while let Some(pid) = next.pop_front() {
        found.push(pid);
        next.extend(
            parents
                .iter()
                .filter(|(_, parent)| **parent == pid)
                .map(|(child, _)| *child),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_end_of_a_name() {
        assert_eq!(parent("17 (a) S 3 (x) R 42 17 17 0"), Some(42));
        assert_eq!(parent("17"), None);
    }

    #[test]
    fn a_pods_memory_is_its_shims_and_all_below_it() {
        let parents = Parents::from([(10, 1), (11, 10), (12, 10), (13, 12), (20, 1)]);
        let mut found = tree(&parents, 10);
        found.sort_unstable();
        assert_eq!(found, [10, 11, 12, 13]);
    }

    #[test]
    fn a_parent_that_is_no_shim_is_not_measured_as_one() {
        let parents = Parents::from([(7, std::process::id())]);
        let error = shim_of(&parents, 7).unwrap_err().to_string();
        assert!(error.contains("no shim"), "{error}");
    }
}
