//! The tables, for people.

use sandglass_figures::table::{self, Table, figures, lines, ms, times};

use crate::results::Results;
use crate::workload::Workload;

/// All sections that were measured, as text.
pub fn render(results: &Results) -> String {
    let mut text = String::new();
    let mut section = |title: &str, table: Table| table::section(&mut text, title, &table);
    if let Some(host) = &results.host {
        let mut table = lines(&["", ""]);
        table.add_row(["kernel", &host.kernel]);
        table.add_row(["image", &host.image]);
        table.add_row(["CPUs for each run", &host.cpus.to_string()]);
        table.add_row([
            "load at the start",
            &format!("{} (idle is best: every wait for a CPU counts)", host.load),
        ]);
        for (name, version) in &host.others {
            table.add_row([name, version]);
        }
        section("What is measured", table);
    }
    if let Some(latency) = &results.latency {
        section(
            "One run, from nothing to nothing left (ms; all rows interleaved)",
            latency_table(latency),
        );
    }
    if let Some(phases) = &results.phases {
        let mut table = figures(&["phase", "median", "p95", "least", ""], 1..4);
        for row in phases {
            let [median, p95, least] = [row.time.median_ms, row.time.p95_ms, row.time.least_ms].map(ms);
            table.add_row([&row.phase, &median, &p95, &least, row.what]);
        }
        section(
            "`sandglass run` of `pass`: where each millisecond goes (ms)",
            table,
        );
    }
    if let Some(rows) = &results.throughput {
        let mut table = figures(&["at once", "sandglass", "bwrap", "to bwrap"], 0..4);
        for row in rows {
            table.add_row([
                row.at_once.to_string(),
                format!("{:.1}", row.sandglass_per_second),
                format!("{:.1}", row.bwrap_per_second),
                times(Some(row.to_bwrap)),
            ]);
        }
        section("Runs of `python3 -c pass` per second", table);
    }
    if let Some(rows) = &results.memory {
        let mut table = figures(
            &["waiting", "command line", "worker", "runner", "all of ours"],
            0..5,
        );
        for row in rows {
            let kib = [
                row.command_line_kib,
                row.worker_kib,
                row.runner_kib,
                row.total_kib,
            ];
            table.add_row(
                [row.alive.to_string()]
                    .into_iter()
                    .chain(kib.map(|kib| format!("{kib:.0}"))),
            );
        }
        section(
            "Memory of ours for each sandbox that waits (KiB, proportional set size)",
            table,
        );
    }
    if let Some(rows) = &results.alive {
        let mut table = figures(&["waiting", "sandglass", "p95", "to none", "bwrap", "p95"], 0..6);
        for row in rows {
            table.add_row([
                row.alive.to_string(),
                ms(row.sandglass.median_ms),
                ms(row.sandglass.p95_ms),
                times(Some(row.to_none)),
                ms(row.bwrap.median_ms),
                ms(row.bwrap.p95_ms),
            ]);
        }
        section("`python3 -c pass` beside sandboxes of ours that wait (ms)", table);
    }
    section("Budgets", table::budgets(&results.budgets));
    text
}

fn latency_table(latency: &crate::latency::Table) -> Table {
    let mut table = figures(
        &["command", "way", "median", "p95", "least", "to bare", "to bwrap"],
        2..7,
    );
    for workload in Workload::ALL {
        for (nth, row) in latency
            .rows
            .iter()
            .filter(|row| row.workload == workload)
            .enumerate()
        {
            let command = if nth == 0 { workload.title() } else { "" };
            table.add_row([
                command,
                row.way.title(),
                &ms(row.time.median_ms),
                &ms(row.time.p95_ms),
                &ms(row.time.least_ms),
                &times(row.to_bare),
                &times(row.to_bwrap),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budgets::budgets;

    #[test]
    fn a_missed_budget_is_said_plainly() {
        let mut results = Results {
            memory: Some(vec![crate::alive::Memory {
                alive: 1,
                command_line_kib: 5_000.0,
                worker_kib: 0.0,
                runner_kib: 120.0,
                total_kib: 5_120.0,
            }]),
            ..Results::default()
        };
        results.budgets = budgets(&results);
        let text = render(&results);
        let line = text.lines().find(|line| line.contains("waits alone")).unwrap();
        assert!(line.contains("5.00") && line.contains("NOT MET"), "{line}");
        assert!(text.contains("not measured"));
    }
}
