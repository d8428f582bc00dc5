//! A promise about cost, held against what was measured.

use serde::Serialize;

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

impl Budget {
    /// At most `limit` (the unit, the figure) is promised.
    #[must_use]
    pub fn most(promise: &'static str, limit: (&'static str, f64), measured: Option<f64>) -> Self {
        Self {
            promise,
            unit: limit.0,
            limit: limit.1,
            at_least: false,
            measured,
            met: measured.map(|figure| figure <= limit.1),
        }
    }

    /// At least `limit` is promised.
    #[must_use]
    pub fn least(promise: &'static str, limit: (&'static str, f64), measured: Option<f64>) -> Self {
        Self {
            at_least: true,
            met: measured.map(|figure| figure >= limit.1),
            ..Self::most(promise, limit, measured)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_met_on_its_own_side_of_the_limit() {
        assert_eq!(Budget::most("", ("ms", 12.0), Some(12.0)).met, Some(true));
        assert_eq!(Budget::most("", ("ms", 12.0), Some(12.1)).met, Some(false));
        assert_eq!(Budget::least("", ("times", 0.6), Some(0.7)).met, Some(true));
        assert_eq!(Budget::least("", ("times", 0.6), Some(0.5)).met, Some(false));
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        assert_eq!(Budget::most("", ("ms", 12.0), None).met, None);
        assert_eq!(Budget::least("", ("ms", 12.0), None).met, None);
    }
}
