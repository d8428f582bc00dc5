//! Where each millisecond of a run goes, from what the command line and its worker log about themselves.

use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

use sandglass_figures::clock::of_day_ms;
use sandglass_figures::{Interrupt, Summary, ms, summary};
use serde::Serialize;
use serde_json::Value;

use crate::error::{BenchError, Result};
use crate::ways::sandglass::Ours;
use crate::workload::Workload;

/// The driver's phases, in their order.
const PHASES: [&str; 6] = ["queued", "create", "stage", "run", "collect", "delete"];
/// The worker's, within `create`.
const WORKER: [&str; 6] = ["receive", "cgroup", "world", "create", "start", "observe"];

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name; those of the worker begin with `create: `.
    pub phase: String,
    /// What happens in it.
    pub what: &'static str,
    /// How long it takes.
    #[serde(flatten)]
    pub time: Summary,
}

/// Times of one run in milliseconds, by phase.
type Times = Vec<(String, f64)>;

/// Measures `python3 -c pass` through the command line, with its log.
///
/// # Errors
/// A run that did not succeed, or a log without the phases.
pub fn measure(ours: &Ours, runs: usize, interrupt: &Interrupt) -> Result<Vec<Row>> {
    let mut all: Vec<Times> = Vec::new();
    for round in 0..=runs {
        interrupt.check()?;
        let times = once(ours)?;
        if round > 0 {
            all.push(times);
        }
    }
    let Some(first) = all.first() else {
        return Ok(Vec::new());
    };
    let names: Vec<String> = first.iter().map(|(name, _)| name.clone()).collect();
    let rows = names.into_iter().filter_map(|name| {
        let times: Vec<f64> = all
            .iter()
            .flat_map(|times| times.iter().find(|(n, _)| *n == name).map(|(_, ms)| *ms))
            .collect();
        let time = summary(&times)?;
        Some(Row {
            what: meaning(&name),
            phase: name,
            time,
        })
    });
    Ok(rows.collect())
}

fn once(ours: &Ours) -> Result<Times> {
    let mut command: Command = ours.command();
    let (name, _) = Workload::Python.script().unwrap_or_default();
    command
        .args(["--json", "--log-format", "json", "--log-level", "debug"])
        .arg(ours.scripts.join(name))
        .stdin(Stdio::null());
    let (begun, begin) = (SystemTime::now(), Instant::now());
    let output = command
        .output()
        .map_err(BenchError::doing("Starting `sandglass run`"))?;
    let wall = ms(begin.elapsed());
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(BenchError::Setup(format!(
            "`sandglass run` ended with {}: {log}",
            output.status
        )));
    }
    let since = begun.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    read(&log, ms(since), wall).ok_or_else(|| {
        BenchError::Setup(format!(
            "The log of `sandglass run` does not tell its phases: {log}"
        ))
    })
}

/// Puts the phases of one log in order, with what comes before the first and after the last of them.
fn read(log: &str, begun_ms: f64, wall_ms: f64) -> Option<Times> {
    let mut driver: Vec<(String, f64)> = Vec::new();
    let mut worker: Vec<(String, f64)> = Vec::new();
    let mut first = None;
    let mut last = 0.0;
    for entry in log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        if let Some(phases) = entry["phases"].as_str() {
            worker = pairs(phases);
        }
        let (Some(name), Some(us)) = (entry["span"]["name"].as_str(), entry["us"].as_f64()) else {
            continue;
        };
        let at = of_day_ms(entry["timestamp"].as_str()?)?;
        first = first.or(Some(at - us / 1e3));
        last = at;
        driver.push((name.to_owned(), us / 1e3));
    }
    let of = |times: &[(String, f64)], name: &str| times.iter().find(|(n, _)| n == name).map(|(_, ms)| *ms);
    let day = 86_400_000.0;
    let before = (first? - begun_ms.rem_euclid(day)).rem_euclid(day);
    let after = wall_ms - before - (last - first?);
    let mut times = vec![("begin".to_owned(), before)];
    for phase in PHASES {
        let whole = of(&driver, phase)?;
        if phase != "create" {
            times.push((phase.to_owned(), whole));
            continue;
        }
        let known: f64 = worker.iter().map(|(_, ms)| ms).sum();
        times.push(("create: spawn".to_owned(), whole - known));
        for step in WORKER {
            times.push((format!("create: {step}"), of(&worker, step)?));
        }
    }
    let told: f64 = times.iter().map(|(_, ms)| ms).sum();
    times.push(("between".to_owned(), (wall_ms - told - after).max(0.0)));
    times.push(("end".to_owned(), after));
    times.push(("all".to_owned(), wall_ms));
    Some(times)
}

/// `[("receive", 0.08), …]`, as the log has it.
fn pairs(text: &str) -> Vec<(String, f64)> {
    text.split('(')
        .filter_map(|part| {
            let (name, rest) = part.strip_prefix('"')?.split_once('"')?;
            let number = rest.trim_start_matches([',', ' ']).split(')').next()?;
            Some((name.to_owned(), number.parse().ok()?))
        })
        .collect()
}

fn meaning(phase: &str) -> &'static str {
    match phase {
        "begin" => "exec of the command line, flags, settings, script",
        "queued" => "limits, state directory, image, a place in the cap, the reaper",
        "create: spawn" => "ids, record, pipes, exec of the worker, its answer",
        "create: receive" => "the request, with its descriptors",
        "create: cgroup" => "the cgroups and their limits",
        "create: world" => "the worker's own mount tree",
        "create: create" => "the container library: namespaces, mounts, identity, Landlock",
        "create: start" => "the filters, exec of the runner",
        "create: observe" => "the receipt, read back from the kernel",
        "stage" => "the runner begins, the receipt is checked, script and inputs go in",
        "run" => "the script",
        "collect" => "/out comes back",
        "delete" => "everything is killed, cgroups and record go",
        "between" => "between the phases",
        "end" => "report, exit",
        "all" => "start to exit, as seen from outside",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> String {
        let mut lines = vec![
            r#"{"timestamp":"2026-01-31T10:00:00.040Z","message":"the sandbox stands","phases":"[(\"receive\", 1.0), (\"cgroup\", 2.0), (\"world\", 3.0), (\"create\", 4.0), (\"start\", 5.0), (\"observe\", 6.0)]"}"#.to_owned(),
        ];
        for (phase, at, us) in [
            ("queued", "012", 2_000),
            ("create", "042", 30_000),
            ("stage", "043", 1_000),
            ("run", "053", 10_000),
            ("collect", "053", 0),
            ("delete", "056", 3_000),
        ] {
            lines.push(format!(
                r#"{{"timestamp":"2026-01-31T10:00:00.{at}Z","message":"phase ended","us":{us},"span":{{"name":"{phase}"}}}}"#
            ));
        }
        lines.join("\n")
    }

    #[test]
    fn every_millisecond_of_a_run_is_in_one_phase() {
        let begun = 36_000_000.0 + 86_400_000.0 * 3.0 + 4.0;
        let times = read(&log(), begun, 60.0).unwrap();
        let of = |name: &str| times.iter().find(|(n, _)| n == name).unwrap().1;
        assert!((of("begin") - 6.0).abs() < 1e-6, "{times:?}");
        assert!((of("create: spawn") - 9.0).abs() < 1e-6, "{times:?}");
        assert!((of("end") - 8.0).abs() < 1e-6, "{times:?}");
        let sum: f64 = times.iter().filter(|(n, _)| n != "all").map(|(_, ms)| ms).sum();
        assert!((sum - 60.0).abs() < 1e-6, "{times:?}");
    }

    #[test]
    fn a_log_that_lacks_a_phase_is_no_measurement() {
        assert!(read(&log().replace("stage", "staged"), 0.0, 60.0).is_none());
        assert!(read("", 0.0, 60.0).is_none());
    }
}
