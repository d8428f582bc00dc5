//! The phases of a run, each a tracing span; the report's `timings_ms` are these spans' own times.

use std::time::{Duration, Instant};

use sandglass_run::Timings;

/// A phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Admission, and the place in the cap.
    Queued,
    /// The sandbox is made.
    Create,
    /// Script and inputs go in, and the receipt is checked.
    Stage,
    /// The script runs.
    Run,
    /// `/out` comes back.
    Collect,
    /// The sandbox is taken away.
    Delete,
}

/// The clock of one run. At most one phase is open at a time.
#[derive(Debug)]
pub struct Phases {
    started: Instant,
    open: Option<(Phase, Instant, tracing::Span)>,
    took: [Duration; 6],
}

impl Phases {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            open: None,
            took: [Duration::ZERO; 6],
        }
    }

    /// Ends the open phase and begins another.
    pub fn enter(&mut self, phase: Phase) {
        self.leave();
        let span = match phase {
            Phase::Queued => tracing::info_span!("queued"),
            Phase::Create => tracing::info_span!("create"),
            Phase::Stage => tracing::info_span!("stage"),
            Phase::Run => tracing::info_span!("run"),
            Phase::Collect => tracing::info_span!("collect"),
            Phase::Delete => tracing::info_span!("delete"),
        };
        // Not entered: a phase lasts over awaits, in which other work of the same thread goes on.
        self.open = Some((phase, Instant::now(), span));
    }

    /// Does something within the span of the open phase.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.open {
            Some((_, _, span)) => span.in_scope(work),
            None => work(),
        }
    }

    /// Ends the open phase.
    pub fn leave(&mut self) {
        if let Some((phase, since, span)) = self.open.take() {
            let took = since.elapsed();
            self.took[phase as usize] += took;
            span.in_scope(|| {
                tracing::debug!(
                    us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                    "phase ended"
                );
            });
        }
    }

    /// The times so far; the total is from the start to now.
    pub fn timings(&self) -> Timings {
        let of = |phase: Phase| millis(self.took[phase as usize]);
        Timings {
            queued: of(Phase::Queued),
            create: of(Phase::Create),
            stage: of(Phase::Stage),
            run: of(Phase::Run),
            collect: of(Phase::Collect),
            delete: of(Phase::Delete),
            total: millis(self.started.elapsed()),
        }
    }
}

/// Milliseconds, rounded to the nearest.
fn millis(time: Duration) -> u64 {
    u64::try_from((time.as_micros() + 500) / 1000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_own_time_and_the_total_covers_all() {
        let mut phases = Phases::start();
        phases.enter(Phase::Create);
        std::thread::sleep(Duration::from_millis(20));
        phases.enter(Phase::Run);
        std::thread::sleep(Duration::from_millis(40));
        phases.leave();
        let t = phases.timings();
        assert!(t.create >= 20 && t.run >= 40 && t.run > t.create, "{t:?}");
        assert_eq!((t.queued, t.stage, t.collect, t.delete), (0, 0, 0, 0));
        assert!(t.total >= t.create + t.run - 1, "{t:?}");
    }

    #[test]
    fn times_are_rounded_to_the_nearest_millisecond() {
        assert_eq!(millis(Duration::from_micros(499)), 0);
        assert_eq!(millis(Duration::from_micros(1500)), 2);
    }
}
