//! Where each millisecond of ours goes: what the client sees, cut up by what containerd and the shim log.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sandglass_figures::clock::{between_ms, of_day_ms};
use sandglass_figures::{Interrupt, Summary, summary};
use serde::Serialize;

use crate::containers::{Containers, Row as Target};
use crate::error::{BenchError, Result};
use crate::latency::Lifecycle;

/// How long the log's last lines may take: they come through a pipe.
const PATIENCE: Duration = Duration::from_secs(5);

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name.
    pub phase: String,
    /// What happens in it.
    pub what: &'static str,
    /// How long it takes.
    #[serde(flatten)]
    pub time: Summary,
}

/// Times of one life in milliseconds, by phase.
type Times = Vec<(String, f64)>;

/// Measures `runs` containers of one handler in a stack that logs at debug level.
///
/// # Errors
/// A container that did not live, or a log without the phases.
pub async fn measure(
    containers: &Containers,
    target: &Target,
    log: &Path,
    runs: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Row>> {
    let mut lives = Vec::new();
    for nth in 0..=runs {
        interrupt.check()?;
        let steps = containers.live(target, nth).await?;
        // The first warms every cache.
        if nth > 0 {
            lives.push((containers.id(&target.0, nth), steps));
        }
        eprint!("\rphases: {nth} of {runs} ");
    }
    eprintln!();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(log).map_err(BenchError::doing("Reading containerd's log"))?;
        let lines = by_container(&text);
        let times: Option<Vec<Times>> = lives
            .iter()
            .map(|(id, steps)| lines.get(id.as_str()).and_then(|lines| phases(lines, steps)))
            .collect();
        match times {
            Some(times) => return Ok(rows(&times)),
            None if Instant::now() > deadline => {
                return Err(BenchError::Setup(
                    "The log of containerd and of the shim does not tell the phases.".into(),
                ));
            }
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn rows(times: &[Times]) -> Vec<Row> {
    let names = times.first().into_iter().flatten().map(|(name, _)| name.clone());
    names
        .filter_map(|name| {
            let of_one = |times: &Times| times.iter().find(|(n, _)| *n == name).map(|(_, ms)| *ms);
            let time = summary(&times.iter().filter_map(of_one).collect::<Vec<_>>())?;
            Some(Row {
                what: meaning(&name),
                phase: name,
                time,
            })
        })
        .collect()
}

/// What the log says of one container.
#[derive(Debug, Default)]
struct Lines {
    /// containerd: `creating task`.
    asked: Option<f64>,
    /// containerd: `connecting to shim`, which has told its address.
    connecting: Option<f64>,
    /// containerd: `shim disconnected`.
    gone: Option<f64>,
    /// The worker's phases.
    worker: Times,
    /// The shim's spans: when they closed, and how long they were open.
    spans: HashMap<String, (f64, f64)>,
}

fn by_container(log: &str) -> HashMap<String, Lines> {
    let mut found: HashMap<String, Lines> = HashMap::new();
    for line in log.lines() {
        if read_containerd(line, &mut found).is_none() {
            let _ = read_shim(line, &mut found);
        }
    }
    found
}

/// `time="…" level=info msg="shim disconnected" id=c1 namespace=default`
fn read_containerd(line: &str, found: &mut HashMap<String, Lines>) -> Option<()> {
    let (time, rest) = line.strip_prefix("time=\"")?.split_once('"')?;
    let at = of_day_ms(time);
    let (_, message) = rest.split_once("msg=")?;
    let id = |after: &str| {
        let (_, rest) = message.split_once(after)?;
        let end = rest.find([' ', '"']).unwrap_or(rest.len());
        rest.get(..end).map(str::to_owned)
    };
    if message.starts_with("\"creating task\"") {
        found.entry(id(" id=")?).or_default().asked = at;
    } else if message.starts_with("\"connecting to shim ") {
        found.entry(id("connecting to shim ")?).or_default().connecting = at;
    } else if message.starts_with("\"shim disconnected\"") {
        found.entry(id(" id=")?).or_default().gone = at;
    }
    Some(())
}

/// `2026-01-31T12:34:56.789012Z DEBUG create{id="c1"}: close time.busy=2.11ms time.idle=7.47ms`
fn read_shim(line: &str, found: &mut HashMap<String, Lines>) -> Option<()> {
    let mut words = line.split_whitespace();
    let at = of_day_ms(words.next()?)?;
    let span = words.nth(1)?;
    let (name, fields) = span.split_once('{')?;
    let (id, _) = fields.strip_prefix("id=\"")?.split_once('"')?;
    let lines = found.entry(id.to_owned()).or_default();
    if let Some((_, phases)) = line.split_once("phases_ms=\"") {
        let (phases, _) = phases.split_once('"')?;
        lines.worker = phases.split(' ').filter_map(pair).collect();
    } else if let Some((_, times)) = line.split_once(": close time.busy=") {
        let (busy, idle) = times.split_once(" time.idle=")?;
        let open = duration_ms(busy)? + duration_ms(idle)?;
        lines.spans.insert(name.to_owned(), (at, open));
    }
    Some(())
}

fn pair(text: &str) -> Option<(String, f64)> {
    let (name, ms) = text.split_once('=')?;
    Some((name.to_owned(), ms.parse().ok()?))
}

/// `2.11ms`, as the log has it.
fn duration_ms(text: &str) -> Option<f64> {
    let number_ends = text.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(number_ends)?;
    let in_ms = match unit.trim_end() {
        "ns" => 1e-6,
        "µs" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * in_ms)
}

/// Cuts the client's steps of one life up by the log's lines. What a step has beyond them is its last phase.
fn phases(lines: &Lines, steps: &[f64]) -> Option<Times> {
    let &[container, task_create, start, exit, task_delete, container_delete] = steps else {
        return None;
    };
    let (created, create_open) = *lines.spans.get("create")?;
    let (_, start_open) = *lines.spans.get("start")?;
    let (deleted, delete_open) = *lines.spans.get("delete")?;
    let shim_start = between_ms(lines.asked?, lines.connecting?);
    let connect = between_ms(lines.connecting?, created) - create_open;
    let in_worker: f64 = lines.worker.iter().map(|(_, ms)| ms).sum();
    let end = between_ms(deleted, lines.gone?);
    let mut times = vec![
        ("container".to_owned(), container),
        ("task create: shim start".to_owned(), shim_start),
        ("task create: connect".to_owned(), connect),
        ("task create: spawn".to_owned(), create_open - in_worker),
    ];
    for (phase, ms) in &lines.worker {
        times.push((format!("task create: {phase}"), *ms));
    }
    times.extend([
        (
            "task create: containerd".to_owned(),
            task_create - shim_start - connect - create_open,
        ),
        ("start: shim".to_owned(), start_open),
        ("start: containerd".to_owned(), start - start_open),
        ("exit".to_owned(), exit),
        ("task delete: shim".to_owned(), delete_open),
        ("task delete: shim end".to_owned(), end),
        (
            "task delete: containerd".to_owned(),
            task_delete - delete_open - end,
        ),
        ("container delete".to_owned(), container_delete),
        ("all".to_owned(), steps.iter().sum()),
    ]);
    Some(times)
}

fn meaning(phase: &str) -> &'static str {
    match phase {
        "container" => "containerd notes the container",
        "task create: shim start" => "bundle, exec of `start`, exec of the server, its socket",
        "task create: connect" => "containerd connects and asks; roots are mounted by whoever mounts them",
        "task create: spawn" => "spec read, checked and hardened, exec of the worker, its answer",
        "task create: cgroup" => "the control groups",
        "task create: mount" => "the worker's own mount tree",
        "task create: prepare" => "the root",
        "task create: create" => "the container library: namespaces, mounts, identity",
        "task create: limit" => "the limits",
        "task create: containerd" => "the answer, the event",
        "start: shim" => "Landlock and the filters, exec, the receipt",
        "start: containerd" => "call and answer",
        "exit" => "from the start's answer to the exit",
        "task delete: shim" => "control groups, mounts, state",
        "task delete: shim end" => "shutdown, the server ends",
        "task delete: containerd" => "exec of `delete`, the bundle, the event",
        "container delete" => "containerd forgets the container",
        "all" => "from nothing to nothing left",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"
time="2026-01-31T10:00:00.010000000Z" level=debug msg="creating task" id=c1 runtime=io.containerd.sandglass.v1
time="2026-01-31T10:00:00.015000000Z" level=info msg="connecting to shim c1" address="unix:///run/s/1" version=3
2026-01-31T10:00:00.026000Z DEBUG create{id="c1"}: a worker is done container="c1" exec="" pid=6 phases_ms="cgroup=1.00 create=5.00"
2026-01-31T10:00:00.027000Z DEBUG create{id="c1"}: close time.busy=2.5ms time.idle=7.5ms
2026-01-31T10:00:00.030000Z DEBUG start{id="c1" exec=""}: close time.busy=500µs time.idle=1.5ms
2026-01-31T10:00:00.031000Z DEBUG exited container="c1" exec="" status=0
2026-01-31T10:00:00.034000Z DEBUG delete{id="c1" exec=""}: close time.busy=1ms time.idle=1ms
time="2026-01-31T10:00:00.036000000Z" level=info msg="shim disconnected" id=c1 namespace=default
"#;
    const STEPS: [f64; 6] = [2.0, 19.0, 3.0, 1.0, 6.0, 2.0];

    fn read(log: &str) -> Option<Times> {
        phases(by_container(log).get("c1")?, &STEPS)
    }

    #[test]
    fn every_millisecond_of_a_life_is_in_one_phase() {
        let times = read(LOG).unwrap();
        let of = |name: &str| times.iter().find(|(n, _)| n == name).unwrap().1;
        assert!((of("task create: shim start") - 5.0).abs() < 1e-6, "{times:?}");
        assert!((of("task create: connect") - 2.0).abs() < 1e-6, "{times:?}");
        assert!((of("task create: spawn") - 4.0).abs() < 1e-6, "{times:?}");
        assert!((of("task delete: containerd") - 2.0).abs() < 1e-6, "{times:?}");
        let sum: f64 = times.iter().filter(|(n, _)| n != "all").map(|(_, ms)| ms).sum();
        assert!((sum - of("all")).abs() < 1e-6, "{times:?}");
    }

    #[test]
    fn a_log_that_lacks_a_phase_is_no_measurement() {
        assert!(read("").is_none());
        for lacking in [
            "creating",
            "connecting",
            "disconnected",
            "create{",
            "start{",
            "delete{",
        ] {
            assert!(read(&LOG.replace(lacking, "x")).is_none(), "{lacking}");
        }
    }

    #[test]
    fn every_phase_says_what_happens_in_it() {
        for (name, _) in read(LOG).unwrap() {
            assert_ne!(meaning(&name), "", "{name}");
        }
    }

    #[test]
    fn a_duration_has_a_unit() {
        assert_eq!(duration_ms("250ns"), Some(250e-6));
        assert_eq!(duration_ms("1.5s"), Some(1500.0));
        assert_eq!(duration_ms("15"), None);
        assert_eq!(duration_ms("15h"), None);
    }
}
