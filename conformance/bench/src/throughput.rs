//! Runs per second at several runs at once, ours beside bwrap.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use sandglass_figures::{Interrupt, median};
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::timed::timed;
use crate::ways::bwrap::Bwrap;
use crate::ways::sandglass::Ours;
use crate::workload::Workload;

/// How many runs are under way at once.
const AT_ONCE: [usize; 5] = [1, 2, 4, 8, 16];
/// Blocks of each, alternating.
const BLOCKS: usize = 5;

/// Runs per second, medians of the blocks.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Runs under way at once.
    pub at_once: usize,
    /// Ours.
    pub sandglass_per_second: f64,
    /// bwrap's.
    pub bwrap_per_second: f64,
    /// Ours by bwrap's.
    pub to_bwrap: f64,
}

/// Measures blocks of about `runs` runs of `python3 -c pass`, alternating.
///
/// # Errors
/// A run that did not succeed.
pub fn measure(ours: &Ours, bwrap: &Bwrap, runs: usize, interrupt: &Interrupt) -> Result<Vec<Row>> {
    let mut rates = AT_ONCE.map(|_| (Vec::new(), Vec::new()));
    for block in 0..BLOCKS {
        for (at_once, (own, other)) in AT_ONCE.into_iter().zip(&mut rates) {
            let count = runs.max(at_once * 2);
            other.push(rate(at_once, count, interrupt, &|| {
                Ok(bwrap.command(Workload::Python))
            })?);
            own.push(rate(at_once, count, interrupt, &|| ours.run(Workload::Python))?);
        }
        eprint!("\rthroughput: block {} of {BLOCKS} ", block + 1);
    }
    eprintln!();
    let rows = AT_ONCE
        .into_iter()
        .zip(rates)
        .filter_map(|(at_once, (own, other))| {
            let (own, other) = (median(&own)?, median(&other)?);
            Some(Row {
                at_once,
                sandglass_per_second: own,
                bwrap_per_second: other,
                to_bwrap: own / other,
            })
        });
    Ok(rows.collect())
}

/// Runs `count` commands, `at_once` at any time, and answers with how many that made each second.
fn rate(
    at_once: usize,
    count: usize,
    interrupt: &Interrupt,
    command: &(dyn Fn() -> Result<Command> + Sync),
) -> Result<f64> {
    let begun = AtomicUsize::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once)
            .map(|_| {
                scope.spawn(|| {
                    while begun.fetch_add(1, Ordering::Relaxed) < count {
                        interrupt.check()?;
                        timed(&mut command()?)?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(BenchError::Setup("A thread of the benchmark failed.".into())))
        })
    })?;
    // A count of runs: small.
    #[allow(clippy::cast_precision_loss)]
    let count = count as f64;
    Ok(count / begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_counts_each_run_once_and_is_never_better_than_the_runs() {
        let asked = AtomicUsize::new(0);
        let sleep = || {
            asked.fetch_add(1, Ordering::Relaxed);
            let mut command = Command::new("sleep");
            command.arg("0.05");
            Ok(command)
        };
        let one = rate(1, 4, &Interrupt::default(), &sleep).unwrap();
        assert_eq!(asked.swap(0, Ordering::Relaxed), 4);
        // However busy the machine is, a sleep lasts no less.
        assert!(one <= 20.0, "{one}");
        let four = rate(4, 8, &Interrupt::default(), &sleep).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 8);
        assert!(four <= 80.0, "{four}");
    }

    #[test]
    fn one_failed_run_spoils_the_rate() {
        let fail = || Ok(Command::new("false"));
        assert!(rate(2, 4, &Interrupt::default(), &fail).is_err());
    }
}
