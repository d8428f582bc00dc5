//! What is promised, and what was measured.

use serde::Serialize;

use crate::results::Results;
use crate::ways::Name;
use crate::workload::Workload;

/// A promise about cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Budget {
    /// What is promised.
    pub promise: &'static str,
    /// What it is measured in.
    pub unit: &'static str,
    /// The figure that is promised.
    pub limit: f64,
    /// Whether the limit is the least that is promised; otherwise it is the most.
    pub at_least: bool,
    /// What was measured; nothing where its section was left out or a program is missing.
    pub measured: Option<f64>,
    /// Whether it is kept.
    pub met: Option<bool>,
}

/// Every budget, with what was measured.
pub fn budgets(results: &Results) -> Vec<Budget> {
    let table = results.latency.as_ref();
    let ratio = |workload, to| table.and_then(|table| table.ratio(workload, Name::Sandglass, to));
    let at_8 = results
        .throughput
        .as_ref()
        .and_then(|rows| rows.iter().find(|row| row.at_once == 8));
    let at_200 = results
        .alive
        .as_ref()
        .and_then(|rows| rows.iter().find(|row| row.alive == 200));
    let mib = |alive| {
        let row = results.memory.as_ref()?.iter().find(|row| row.alive == alive)?;
        Some(row.total_kib / 1024.0)
    };
    vec![
        most(
            "`true` through the library, receipt, runner and clean-up included",
            ("ms", 12.0),
            table.and_then(|table| table.median(Workload::True, Name::Library)),
        ),
        most(
            "`python3 -c pass` to bwrap",
            ("times", 1.8),
            ratio(Workload::Python, Name::Bwrap),
        ),
        most(
            "`python3 -c pass` to runc",
            ("times", 0.5),
            ratio(Workload::Python, Name::Runc),
        ),
        most(
            "`python3 -c pass` to crun",
            ("times", 1.0),
            ratio(Workload::Python, Name::Crun),
        ),
        most(
            "`node -e 0` to bwrap",
            ("times", 1.25),
            ratio(Workload::Node, Name::Bwrap),
        ),
        most(
            "the chart to bare exec, equal CPU",
            ("times", 1.1),
            ratio(Workload::Chart, Name::Bare),
        ),
        least(
            "runs per second at 8 at once, of bwrap's",
            ("times", 0.6),
            at_8.map(|row| row.to_bwrap),
        ),
        most(
            "latency beside 200 that wait, to none",
            ("times", 1.3),
            at_200.map(|row| row.to_none),
        ),
        most("memory of ours for one that waits alone", ("MiB", 4.0), mib(1)),
        most("memory of ours for each of 20 that wait", ("MiB", 4.0), mib(20)),
    ]
}

fn most(promise: &'static str, limit: (&'static str, f64), measured: Option<f64>) -> Budget {
    Budget {
        promise,
        unit: limit.0,
        limit: limit.1,
        at_least: false,
        measured,
        met: measured.map(|figure| figure <= limit.1),
    }
}

fn least(promise: &'static str, limit: (&'static str, f64), measured: Option<f64>) -> Budget {
    Budget {
        at_least: true,
        met: measured.map(|figure| figure >= limit.1),
        ..most(promise, limit, measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let budgets = budgets(&Results::default());
        assert_eq!(budgets.len(), 10);
        assert!(
            budgets
                .iter()
                .all(|budget| budget.met.is_none() && budget.measured.is_none())
        );
    }

    #[test]
    fn a_budget_is_met_on_its_own_side_of_the_limit() {
        assert_eq!(most("", ("ms", 12.0), Some(12.0)).met, Some(true));
        assert_eq!(most("", ("ms", 12.0), Some(12.1)).met, Some(false));
        assert_eq!(least("", ("times", 0.6), Some(0.7)).met, Some(true));
        assert_eq!(least("", ("times", 0.6), Some(0.5)).met, Some(false));
    }
}
