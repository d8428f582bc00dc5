//! The tables, for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use crate::budgets::Budget;
use crate::results::Results;
use crate::workload::Workload;

/// All sections that were measured, as text.
pub fn render(results: &Results) -> String {
    let mut text = String::new();
    let mut section = |title: &str, table: Table| {
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        text.push_str(&format!("\n{title}\n\n{}\n", lines.join("\n")));
    };
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
    let mut table = figures(&["budget", "at most", "measured", "", ""], 1..3);
    for budget in &results.budgets {
        table.add_row(budget_line(budget));
    }
    section("Budgets", table);
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

fn budget_line(budget: &Budget) -> [String; 5] {
    let limit = format!("{}{}", if budget.at_least { "≥ " } else { "" }, budget.limit);
    let measured = budget
        .measured
        .map_or("-".to_owned(), |figure| format!("{figure:.2}"));
    let verdict = match budget.met {
        Some(true) => "met",
        Some(false) => "NOT MET",
        None => "not measured",
    };
    [
        budget.promise.to_owned(),
        limit,
        measured,
        budget.unit.to_owned(),
        verdict.to_owned(),
    ]
}

fn lines(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    if header.iter().any(|title| !title.is_empty()) {
        table.set_header(header);
    }
    table
}

/// A table some of whose columns hold figures.
fn figures(header: &[&str], right: std::ops::Range<usize>) -> Table {
    let mut table = lines(header);
    for at in right {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn ms(time: f64) -> String {
    format!("{time:.2}")
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))
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
