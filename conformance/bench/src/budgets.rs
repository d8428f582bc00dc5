//! What is promised, and what was measured.

use sandglass_figures::Budget;

use crate::results::Results;
use crate::ways::Name;
use crate::workload::Workload;

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
        Budget::most(
            "`true` through the library, receipt, runner and clean-up included",
            ("ms", 12.0),
            table.and_then(|table| table.median(Workload::True, Name::Library)),
        ),
        Budget::most(
            "`python3 -c pass` to bwrap",
            ("times", 1.8),
            ratio(Workload::Python, Name::Bwrap),
        ),
        Budget::most(
            "`python3 -c pass` to runc",
            ("times", 0.5),
            ratio(Workload::Python, Name::Runc),
        ),
        Budget::most(
            "`python3 -c pass` to crun",
            ("times", 1.0),
            ratio(Workload::Python, Name::Crun),
        ),
        Budget::most(
            "`node -e 0` to bwrap",
            ("times", 1.25),
            ratio(Workload::Node, Name::Bwrap),
        ),
        Budget::most(
            "the chart to bare exec, equal CPU",
            ("times", 1.1),
            ratio(Workload::Chart, Name::Bare),
        ),
        Budget::least(
            "runs per second at 8 at once, of bwrap's",
            ("times", 0.6),
            at_8.map(|row| row.to_bwrap),
        ),
        Budget::most(
            "latency beside 200 that wait, to none",
            ("times", 1.3),
            at_200.map(|row| row.to_none),
        ),
        Budget::most("memory of ours for one that waits alone", ("MiB", 4.0), mib(1)),
        Budget::most("memory of ours for each of 20 that wait", ("MiB", 4.0), mib(20)),
    ]
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
}
