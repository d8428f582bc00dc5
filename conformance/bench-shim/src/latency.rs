//! A table of latency: each row by each step, all rows interleaved so that what the machine does hits all alike.

use std::time::Instant;

use sandglass_figures::{Interrupt, Summary, ms, summary, turns};
use serde::Serialize;

use crate::cpu::Account;
use crate::error::{BenchError, Result};

/// Something that begins, ends and is gone, in steps.
pub trait Lifecycle {
    /// What tells a row from the others.
    type Row: Clone;

    /// The names of the steps.
    fn steps(&self) -> &'static [&'static str];

    /// The handler of a row, and whether its containers have a seccomp profile.
    fn title(&self, row: &Self::Row) -> (String, bool);

    /// One life; the time of each step in milliseconds. Nothing of it is left, also after an error.
    ///
    /// # Errors
    /// What containerd said.
    fn live(&self, row: &Self::Row, nth: usize) -> impl Future<Output = Result<Vec<f64>>>;
}

/// A row.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The handler.
    pub handler: String,
    /// Whether the containers had a seccomp profile.
    pub seccomp: bool,
    /// Each step.
    pub steps: Vec<Summary>,
    /// From nothing to nothing left.
    pub all: Summary,
    /// The processor time of that, of everything in the stack.
    pub cpu: Option<Summary>,
}

/// The table.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// The names of the steps.
    pub steps: &'static [&'static str],
    /// The rows that could be measured.
    pub rows: Vec<Row>,
    /// The rows that could not, and why.
    pub missing: Vec<(String, String)>,
}

impl Table {
    /// A row.
    pub fn row(&self, handler: &str, seccomp: bool) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.handler == handler && row.seccomp == seccomp)
    }

    /// The median of all steps of a row.
    pub fn median(&self, handler: &str, seccomp: bool) -> Option<f64> {
        Some(self.row(handler, seccomp)?.all.median_ms)
    }

    /// A handler's median by another's, both with a seccomp profile.
    pub fn ratio(&self, handler: &str, to: &str) -> Option<f64> {
        Some(self.median(handler, true)? / self.median(to, true)?)
    }
}

/// Tries each row once: those that work, and those that do not, by their titles and with the reason.
///
/// # Errors
/// Somebody wants this to stop.
pub async fn try_each<L: Lifecycle>(
    life: &L,
    rows: Vec<L::Row>,
    interrupt: &Interrupt,
) -> Result<(Vec<L::Row>, Vec<(String, String)>)> {
    let (mut working, mut missing) = (Vec::new(), Vec::new());
    for (at, row) in rows.into_iter().enumerate() {
        interrupt.check()?;
        match life.live(&row, at).await {
            Ok(_) => working.push(row),
            Err(error) => {
                let (handler, seccomp) = life.title(&row);
                missing.push((title(&handler, seccomp), error.to_string()));
            }
        }
    }
    Ok((working, missing))
}

/// How tables call a row.
pub fn title(handler: &str, seccomp: bool) -> String {
    let filter = if seccomp { " [seccomp]" } else { "" };
    format!("{handler}{filter}")
}

/// Tries each row once, and measures `runs` rounds of those that work.
///
/// # Errors
/// A row that worked and no longer does.
pub async fn measure<L: Lifecycle>(
    life: &L,
    rows: Vec<L::Row>,
    runs: usize,
    account: Option<&Account>,
    what: &str,
    interrupt: &Interrupt,
) -> Result<Table> {
    let mut nth = rows.len();
    let (working, missing) = try_each(life, rows, interrupt).await?;
    let mut lives = vec![Vec::new(); working.len()];
    for round in 0..runs {
        for at in turns(working.len(), round) {
            interrupt.check()?;
            nth += 1;
            let (Some(row), Some(lives)) = (working.get(at), lives.get_mut(at)) else {
                continue;
            };
            let used = || account.map(Account::used_ms).transpose();
            let before = used()?;
            let lived = life.live(row, nth).await;
            let steps = lived.map_err(BenchError::of(format!("{} worked before", life.title(row).0)))?;
            let cpu = used()?.zip(before).map(|(after, before)| after - before);
            lives.push(Life { steps, cpu });
        }
        eprint!("\r{what}: round {} of {runs} ", round + 1);
    }
    eprintln!();
    let rows = working
        .iter()
        .zip(&lives)
        .filter_map(|(row, lives)| tell(life.title(row), lives));
    Ok(Table {
        steps: life.steps(),
        rows: rows.collect(),
        missing,
    })
}

/// One life of a row, in milliseconds.
#[derive(Debug, Clone)]
struct Life {
    steps: Vec<f64>,
    cpu: Option<f64>,
}

fn tell((handler, seccomp): (String, bool), lives: &[Life]) -> Option<Row> {
    let count = lives.first()?.steps.len();
    let step = |at: usize| {
        let times: Vec<f64> = lives
            .iter()
            .filter_map(|life| life.steps.get(at).copied())
            .collect();
        summary(&times)
    };
    let all: Vec<f64> = lives.iter().map(|life| life.steps.iter().sum()).collect();
    let cpu: Vec<f64> = lives.iter().filter_map(|life| life.cpu).collect();
    Some(Row {
        handler,
        seccomp,
        steps: (0..count).filter_map(step).collect(),
        all: summary(&all)?,
        cpu: summary(&cpu),
    })
}

/// Cuts a life into steps.
#[derive(Debug)]
pub struct Watch {
    last: Instant,
    steps: Vec<f64>,
}

impl Watch {
    /// Begins the first step.
    pub fn start() -> Self {
        Self {
            last: Instant::now(),
            steps: Vec::new(),
        }
    }

    /// Ends a step and begins the next.
    pub fn lap(&mut self) {
        let now = Instant::now();
        self.steps.push(ms(now - self.last));
        self.last = now;
    }

    /// The steps.
    pub fn steps(self) -> Vec<f64> {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Rows of which `2` does not work; row n takes n, n+1 ms.
    #[derive(Default)]
    struct Fake(RefCell<Vec<u32>>);

    impl Lifecycle for Fake {
        type Row = u32;

        fn steps(&self) -> &'static [&'static str] {
            &["one", "two"]
        }

        fn title(&self, row: &u32) -> (String, bool) {
            (format!("handler {row}"), true)
        }

        async fn live(&self, row: &u32, _: usize) -> Result<Vec<f64>> {
            self.0.borrow_mut().push(*row);
            if *row == 2 {
                return Err(BenchError::Setup("Two does not run here.".into()));
            }
            Ok(vec![f64::from(*row), f64::from(*row + 1)])
        }
    }

    fn measured(runs: usize) -> (Table, Vec<u32>) {
        let fake = Fake::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let table = runtime
            .block_on(measure(
                &fake,
                vec![1, 2, 3],
                runs,
                None,
                "fake",
                &Interrupt::default(),
            ))
            .unwrap();
        (table, fake.0.into_inner())
    }

    #[test]
    fn what_does_not_run_here_is_named_with_its_reason_and_not_measured() {
        let (table, lives) = measured(2);
        assert_eq!(table.missing.len(), 1);
        assert_eq!(
            table.missing[0],
            ("handler 2 [seccomp]".into(), "Two does not run here.".into())
        );
        assert_eq!(lives.iter().filter(|row| **row == 2).count(), 1);
        assert_eq!(table.median("handler 2", true), None);
    }

    #[test]
    fn rows_are_interleaved_and_each_round_begins_with_another() {
        let (table, lives) = measured(2);
        assert_eq!(lives, [1, 2, 3, 1, 3, 3, 1]);
        assert!(table.rows.iter().all(|row| row.all.runs == 2));
    }

    #[test]
    fn all_is_the_sum_of_the_steps_and_a_ratio_is_of_medians() {
        let (table, _) = measured(3);
        assert_eq!(table.median("handler 3", true), Some(7.0));
        assert_eq!(table.ratio("handler 3", "handler 1"), Some(7.0 / 3.0));
        assert_eq!(table.rows[0].steps.len(), 2);
    }
}
