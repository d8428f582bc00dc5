//! The table: each workload by each way, all interleaved in one go so that what the machine does hits all alike.

use std::collections::BTreeMap;

use sandglass_figures::{Interrupt, Summary, median, ms, summary, turns};
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::ways::{Name, Way};
use crate::workload::Workload;

/// One row of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was run.
    pub workload: Workload,
    /// In which way.
    pub way: Name,
    /// How long it took.
    #[serde(flatten)]
    pub time: Summary,
    /// Median by the median of bare exec.
    pub to_bare: Option<f64>,
    /// Median by the median of bwrap.
    pub to_bwrap: Option<f64>,
}

/// The whole table.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// In the order of workloads, then of ways.
    pub rows: Vec<Row>,
}

impl Table {
    /// The median of a row.
    pub fn median(&self, workload: Workload, way: Name) -> Option<f64> {
        let row = self
            .rows
            .iter()
            .find(|row| row.workload == workload && row.way == way)?;
        Some(row.time.median_ms)
    }

    /// A row's median by that of another way.
    pub fn ratio(&self, workload: Workload, way: Name, to: Name) -> Option<f64> {
        Some(self.median(workload, way)? / self.median(workload, to)?)
    }
}

/// Measures `runs` rounds, after one that warms every cache and is not counted.
///
/// # Errors
/// A run that did not succeed.
pub fn measure(
    ways: &mut [Box<dyn Way>],
    workloads: &[Workload],
    runs: usize,
    interrupt: &Interrupt,
) -> Result<Table> {
    let mut samples: BTreeMap<(Workload, Name), Vec<f64>> = BTreeMap::new();
    for round in 0..=runs {
        for workload in workloads {
            let mut taking: Vec<_> = ways.iter_mut().filter(|way| way.takes(*workload)).collect();
            for at in turns(taking.len(), round) {
                interrupt.check()?;
                let Some(way) = taking.get_mut(at) else { continue };
                let took = way.run(*workload).map_err(|error| BenchError::Run {
                    way: way.name().title().to_owned(),
                    workload: workload.title().to_owned(),
                    what: error.to_string(),
                })?;
                if round > 0 {
                    let row = samples.entry((*workload, way.name())).or_default();
                    row.push(ms(took));
                }
            }
        }
        eprint!("\rlatency: round {round} of {runs} ");
    }
    eprintln!();
    Ok(table(&samples))
}

fn table(samples: &BTreeMap<(Workload, Name), Vec<f64>>) -> Table {
    let median_of = |workload, way| samples.get(&(workload, way)).and_then(|times| median(times));
    let rows = samples
        .iter()
        .filter_map(|(&(workload, way), times)| {
            let time = summary(times)?;
            let to = |other| median_of(workload, other).map(|median| time.median_ms / median);
            Some(Row {
                workload,
                way,
                time,
                to_bare: to(Name::Bare),
                to_bwrap: to(Name::Bwrap),
            })
        })
        .collect();
    Table { rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Fake(Name, u64);

    impl Way for Fake {
        fn name(&self) -> Name {
            self.0
        }

        fn takes(&self, workload: Workload) -> bool {
            self.0 != Name::Library || workload == Workload::True
        }

        fn run(&mut self, _: Workload) -> Result<Duration> {
            Ok(Duration::from_millis(self.1))
        }
    }

    #[test]
    fn ratios_are_of_medians_and_a_way_is_only_asked_for_what_it_takes() {
        let mut ways: Vec<Box<dyn Way>> = vec![
            Box::new(Fake(Name::Bare, 10)),
            Box::new(Fake(Name::Bwrap, 20)),
            Box::new(Fake(Name::Library, 30)),
        ];
        let workloads = [Workload::True, Workload::Python];
        let table = measure(&mut ways, &workloads, 5, &Interrupt::default()).unwrap();
        assert_eq!(table.rows.len(), 5);
        assert!(
            table.rows.iter().all(|row| row.time.runs == 5),
            "the warm-up does not count"
        );
        assert_eq!(table.ratio(Workload::True, Name::Library, Name::Bwrap), Some(1.5));
        assert_eq!(table.median(Workload::Python, Name::Library), None);
    }
}
