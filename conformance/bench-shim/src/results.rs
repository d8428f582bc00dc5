//! Everything that was measured: what `--json` prints.

use sandglass_figures::Budget;
use serde::Serialize;

use crate::handlers::OURS;
use crate::{latency, memory, phases};

/// What was measured, and on what.
#[derive(Debug, Default, Serialize)]
pub struct Host {
    /// The kernel's release.
    pub kernel: String,
    /// Load averages at the start: what else ran.
    pub load: String,
    /// The other programs: their first line of `--version`, or why they are not measured.
    pub programs: Vec<(String, String)>,
}

/// All sections; those that were left out are absent.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// What was measured, and on what.
    pub host: Host,
    /// A container by containerd's API.
    pub containers: Option<latency::Table>,
    /// A pod by the CRI.
    pub pods: Option<latency::Table>,
    /// Memory of pods that wait.
    pub memory: Option<Vec<memory::Row>>,
    /// Where each millisecond of ours goes.
    pub phases: Option<Vec<phases::Row>>,
    /// What the runtimes left behind, by the stack's own search; it was removed with the stack.
    pub left: Vec<String>,
    /// What is promised, and what was measured.
    pub budgets: Vec<Budget>,
}

impl Results {
    /// Whether a section was measured to its end.
    pub fn has_any(&self) -> bool {
        self.containers.is_some() || self.pods.is_some() || self.memory.is_some() || self.phases.is_some()
    }
}

/// Every budget, with what was measured.
pub fn budgets(results: &Results) -> Vec<Budget> {
    let ratio = |to| {
        results
            .containers
            .as_ref()
            .and_then(|table| table.ratio(OURS, to))
    };
    let shim_mib = |alone: bool| {
        let rows = results.memory.as_ref()?.iter();
        let row = rows
            .filter(|row| row.handler == OURS)
            .find(|row| (row.pods == 1) == alone)?;
        Some(row.shim.pss_kib / 1024.0)
    };
    vec![
        Budget::most(
            "a container, create to delete, to runc's shim with runc, both with seccomp",
            ("times", 0.45),
            ratio("runc"),
        ),
        Budget::most(
            "a container, create to delete, to runc's shim with crun, both with seccomp",
            ("times", 1.0),
            ratio("crun"),
        ),
        Budget::most("PSS of one shim alone", ("MiB", 3.0), shim_mib(true)),
        Budget::most("PSS of each shim of many", ("MiB", 1.5), shim_mib(false)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandglass_figures::memory::Memory;

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let budgets = budgets(&Results::default());
        assert_eq!(budgets.len(), 4);
        assert!(budgets.iter().all(|budget| budget.met.is_none()));
        assert!(!Results::default().has_any());
    }

    #[test]
    fn a_shims_budget_is_of_its_own_share_alone_and_among_many() {
        let row = |pods, pss_kib| memory::Row {
            handler: OURS.into(),
            pods,
            busy: Memory::default(),
            shim: Memory {
                rss_kib: 9e9,
                pss_kib,
            },
            pause: Memory::default(),
            container: Memory::default(),
            all: Memory {
                rss_kib: 9e9,
                pss_kib: 9e9,
            },
        };
        let results = Results {
            memory: Some(vec![row(1, 2048.0), row(50, 2048.0)]),
            ..Results::default()
        };
        assert!(results.has_any());
        let budgets = budgets(&results);
        assert_eq!((budgets[2].measured, budgets[2].met), (Some(2.0), Some(true)));
        assert_eq!((budgets[3].measured, budgets[3].met), (Some(2.0), Some(false)));
    }
}
