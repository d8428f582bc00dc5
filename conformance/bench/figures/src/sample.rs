//! Times of one row, and what is said about them.

use std::time::Duration;

use serde::Serialize;

/// What is known of one row, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The least: what is left when nothing else runs on the machine.
    pub least_ms: f64,
    /// The median.
    pub median_ms: f64,
    /// The 95th percentile, by nearest rank.
    pub p95_ms: f64,
    /// How many runs it comes from.
    pub runs: usize,
}

/// Median and 95th percentile of some milliseconds; `None` where there are none.
#[must_use]
pub fn summary(samples: &[f64]) -> Option<Summary> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Summary {
        least_ms: *sorted.first()?,
        median_ms: median(&sorted)?,
        p95_ms: *sorted.get((sorted.len() * 95).div_ceil(100).checked_sub(1)?)?,
        runs: sorted.len(),
    })
}

/// Milliseconds.
#[must_use]
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The median of any numbers; `None` where there are none.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*sorted.get(sorted.len() / 2 - 1)?, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn the_95th_percentile_of_forty_is_the_third_largest() {
        let samples: Vec<f64> = (1..=40).rev().map(f64::from).collect();
        let summary = summary(&samples).unwrap();
        assert_eq!(
            (summary.median_ms, summary.p95_ms, summary.runs),
            (20.5, 38.0, 40)
        );
    }

    #[test]
    fn one_run_is_its_own_median_and_percentile_and_none_has_neither() {
        let one = summary(&[7.0]).unwrap();
        assert_eq!((one.median_ms, one.p95_ms), (7.0, 7.0));
        assert_eq!(summary(&[]), None);
    }
}
