//! Times of day in logs.

/// Milliseconds since midnight of `2026-01-31T12:34:56.789012Z`.
#[must_use]
pub fn of_day_ms(timestamp: &str) -> Option<f64> {
    let (_, time) = timestamp.trim_end_matches('Z').split_once('T')?;
    let mut fields = time.split(':').map(|field| field.parse::<f64>().ok());
    let (hours, minutes, seconds) = (fields.next()??, fields.next()??, fields.next()??);
    Some((hours * 3600.0 + minutes * 60.0 + seconds) * 1e3)
}

/// Milliseconds from one time of day to the next such as the other.
#[must_use]
pub fn between_ms(from: f64, to: f64) -> f64 {
    const DAY: f64 = 86_400_000.0;
    let ahead = to - from;
    // Within half a day before counts as before: lines of two writers may be out of order.
    if ahead < -DAY / 2.0 { ahead + DAY } else { ahead }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_read_to_the_microsecond() {
        let ms = of_day_ms("2026-01-31T10:00:00.040002Z").unwrap();
        assert!((ms - 36_000_040.002).abs() < 1e-6, "{ms}");
        assert_eq!(of_day_ms("10:00"), None);
    }

    #[test]
    fn midnight_lies_between_two_times_and_does_not_make_a_day_of_them() {
        let (evening, morning) = (86_399_990.0, 15.0);
        assert!((between_ms(evening, morning) - 25.0).abs() < 1e-6);
        assert!((between_ms(20.0, 15.0) + 5.0).abs() < 1e-6);
    }
}
