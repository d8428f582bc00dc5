//! The tables, for people.

use sandglass_figures::memory::Memory;
use sandglass_figures::table::{self, Table, figures, lines, ms, times};

use crate::handlers::{IMAGE, OURS};
use crate::latency;
use crate::results::Results;

/// All sections that were measured, as text.
pub fn render(results: &Results) -> String {
    let mut text = String::new();
    let mut section = |title: &str, table: Table| table::section(&mut text, title, &table);
    section("What is measured", host(results));
    if let Some(containers) = &results.containers {
        section(
            "`true` by containerd's API (ms; median of each step, all rows interleaved). [seccomp]: the default profile in \
             the spec; sandglass has its own filters and Landlock in both",
            latency_table(containers),
        );
    }
    if let Some(pods) = &results.pods {
        section(
            "A pod of `true` by the CRI, with RuntimeDefault (ms; median of each step, all rows interleaved)",
            latency_table(pods),
        );
    }
    if let Some(rows) = &results.memory {
        let mut table = figures(
            &[
                "handler",
                "pods",
                "shim PSS, busy",
                "shim PSS",
                "shim RSS",
                "pause PSS",
                "container PSS",
                "pod PSS",
                "pod RSS",
            ],
            1..9,
        );
        for row in rows {
            let kib = |memory: f64| format!("{memory:.0}");
            let Memory { rss_kib, pss_kib } = row.all;
            table.add_row([
                row.handler.clone(),
                row.pods.to_string(),
                kib(row.busy.pss_kib),
                kib(row.shim.pss_kib),
                kib(row.shim.rss_kib),
                kib(row.pause.pss_kib),
                kib(row.container.pss_kib),
                kib(pss_kib),
                kib(rss_kib),
            ]);
        }
        section(
            "Memory of each pod that has waited for three seconds (KiB; busy: right after the last start; pod: the shim and \
             everything below it)",
            table,
        );
    }
    if let Some(phases) = &results.phases {
        let mut table = figures(&["phase", "median", "p95", "least", ""], 1..4);
        for row in phases {
            let [median, p95, least] = [row.time.median_ms, row.time.p95_ms, row.time.least_ms].map(ms);
            table.add_row([&row.phase, &median, &p95, &least, row.what]);
        }
        section(
            &format!(
                "{OURS} [seccomp] by containerd's API: where each millisecond goes (ms; logs at debug level)"
            ),
            table,
        );
    }
    section("Budgets", table::budgets(&results.budgets));
    text
}

fn host(results: &Results) -> Table {
    let host = &results.host;
    let mut table = lines(&["", ""]);
    table.add_row(["kernel", &host.kernel]);
    table.add_row(["image", IMAGE]);
    table.add_row([
        "load at the start",
        &format!("{} (idle is best: every wait for a CPU counts)", host.load),
    ]);
    for (name, version) in &host.programs {
        table.add_row([name, version]);
    }
    for measured in [&results.containers, &results.pods].into_iter().flatten() {
        for (name, reason) in &measured.missing {
            table.add_row([name, &format!("not measured: {reason}")]);
        }
    }
    for left in &results.left {
        table.add_row(["left behind by a runtime", left]);
    }
    table
}

fn latency_table(latency: &latency::Table) -> Table {
    let mut header = vec!["handler"];
    header.extend(latency.steps);
    header.extend(["all", "p95", "least", "to runc", "CPU", "to runc"]);
    let count = header.len();
    let mut table = figures(&header, 1..count);
    for row in &latency.rows {
        let name = latency::title(&row.handler, row.seccomp);
        let to_runc = latency
            .median("runc", row.seccomp)
            .map(|runc| row.all.median_ms / runc);
        let mut cells = vec![name];
        cells.extend(row.steps.iter().map(|step| ms(step.median_ms)));
        cells.extend([row.all.median_ms, row.all.p95_ms, row.all.least_ms].map(ms));
        cells.push(times(to_runc));
        let cpu = |row: &latency::Row| row.cpu.map(|cpu| cpu.median_ms);
        let of_runc = latency.row("runc", row.seccomp).and_then(cpu);
        cells.push(cpu(row).map(ms).unwrap_or_default());
        cells.push(times(cpu(row).zip(of_runc).map(|(own, runc)| own / runc)));
        table.add_row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandglass_figures::summary;

    #[test]
    fn a_row_that_could_not_be_measured_is_told_with_its_reason() {
        let all = summary(&[50.0]).unwrap();
        let row = |handler: &str, seccomp| latency::Row {
            handler: handler.into(),
            seccomp,
            steps: vec![all],
            all,
            cpu: None,
        };
        let mut results = Results {
            containers: Some(latency::Table {
                steps: &["one"],
                rows: vec![row("runc", true), row(OURS, true)],
                missing: vec![("runsc".into(), "it wants CAP_SYS_RESOURCE".into())],
            }),
            ..Results::default()
        };
        results.budgets = crate::results::budgets(&results);
        let text = render(&results);
        let line = |with: &str| text.lines().find(|line| line.contains(with)).unwrap().to_owned();
        assert!(
            line("runsc").contains("not measured: it wants CAP_SYS_RESOURCE"),
            "{text}"
        );
        assert!(line("sandglass [seccomp]").contains("1.00"), "{text}");
        assert!(line("to runc's shim with runc").contains("NOT MET"), "{text}");
        assert!(line("with crun").contains("not measured"), "{text}");
    }
}
