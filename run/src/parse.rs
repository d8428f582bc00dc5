//! Quantities as a person writes them: `512Mi`, `60s`, `0.5`.

use std::time::Duration;

/// Why a quantity could not be read. It does not name the setting: the caller knows it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a size.
    #[error(
        "{found:?} is not a size: use a whole number and a unit, such as 64Ki, 512Mi, 2Gi, or bytes without one."
    )]
    Bytes {
        /// What was given, shortened and made printable.
        found: String,
    },
    /// Not a duration.
    #[error(
        "{found:?} is not a duration: use whole numbers with ms, s, m or h, such as 500ms, 60s or 1m30s; \
         without a unit it is seconds."
    )]
    Duration {
        /// What was given, shortened and made printable.
        found: String,
    },
    /// Not a number of processors.
    #[error("{found:?} is not a number of CPUs: use a number such as 0.5 or 2, or thousandths such as 500m.")]
    Cpus {
        /// What was given, shortened and made printable.
        found: String,
    },
}

fn shown(text: &str) -> String {
    crate::name::printable(text.as_bytes(), 40)
}

/// Splits `12Mi` into 12 and `Mi`. Signs, points and blanks are not digits, so they end up in the unit and
/// are refused there.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let end = text
        .bytes()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    Some((digits.parse().ok()?, unit))
}

/// Parses a size in bytes. Units: `Ki Mi Gi Ti` (powers of 1024, also written `KiB`), `k K M G T` (powers of
/// 1000), `B` or none.
///
/// # Errors
/// When it is not a whole, unsigned number with such a unit, or more than 2^64 - 1.
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    let parse = || {
        let (number, unit) = number_and_unit(text.trim())?;
        let factor = match unit.strip_suffix('B').unwrap_or(unit) {
            "" => 1,
            "Ki" => 1 << 10,
            "Mi" => 1 << 20,
            "Gi" => 1 << 30,
            "Ti" => 1 << 40,
            "k" | "K" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            "T" => 1_000_000_000_000_u64,
            _ => return None,
        };
        number.checked_mul(factor)
    };
    parse().ok_or_else(|| QuantityError::Bytes { found: shown(text) })
}

/// Parses a duration: `500ms`, `60s`, `2m`, `1h`, a sum of those from large to small as in `1m30s`, or seconds
/// without a unit.
///
/// # Errors
/// When it is anything else, or more than 2^64 - 1 milliseconds.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let parse = || {
        let mut rest = text.trim();
        if let Some((seconds, "")) = number_and_unit(rest) {
            return Some(Duration::from_millis(seconds.checked_mul(1_000)?));
        }
        let mut millis = 0_u64;
        let mut last_unit = u64::MAX;
        while !rest.is_empty() {
            let (number, after) = number_and_unit(rest)?;
            let end = after
                .bytes()
                .position(|b| b.is_ascii_digit())
                .unwrap_or(after.len());
            let (unit, following) = after.split_at_checked(end)?;
            let unit = match unit {
                "h" => 3_600_000,
                "m" => 60_000,
                "s" => 1_000,
                "ms" => 1,
                _ => return None,
            };
            if unit >= last_unit {
                return None;
            }
            millis = millis.checked_add(number.checked_mul(unit)?)?;
            last_unit = unit;
            rest = following;
        }
        (last_unit != u64::MAX).then(|| Duration::from_millis(millis))
    };
    parse().ok_or_else(|| QuantityError::Duration { found: shown(text) })
}

/// Parses a number of CPUs: `2`, `0.5`, or `500m` (thousandths). Always finite and not negative.
///
/// # Errors
/// When it is anything else.
pub fn parse_cpus(text: &str) -> Result<f64, QuantityError> {
    let parse = || {
        let text = text.trim();
        let (digits, scale) = match text.strip_suffix('m') {
            Some(digits) => (digits, 1_000.0),
            None => (text, 1.0),
        };
        // `f64::from_str` also takes signs, exponents, inf and nan.
        let plain = !digits.is_empty()
            && digits.len() <= 16
            && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if !plain {
            return None;
        }
        digits.parse::<f64>().ok().map(|number| number / scale)
    };
    parse().ok_or_else(|| QuantityError::Cpus { found: shown(text) })
}

/// Writes a size as [`parse_bytes`] reads it, with the largest unit that loses nothing.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, name) in [
        (1_u64 << 40, "Ti"),
        (1 << 30, "Gi"),
        (1 << 20, "Mi"),
        (1 << 10, "Ki"),
    ] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}

/// Writes a bound as [`parse_bytes`] reads it, with few digits: rounded down, by less than a sixteenth.
pub fn format_bound(bytes: u64) -> String {
    // A number of 16 or more loses less than a sixteenth of itself with its fraction.
    let unit = [1_u64 << 40, 1 << 30, 1 << 20, 1 << 10]
        .into_iter()
        .find(|unit| bytes / unit >= 16)
        .unwrap_or(1);
    let exact = format_bytes(bytes);
    let rounded = format_bytes(bytes / unit * unit);
    if exact.len() <= rounded.len() {
        exact
    } else {
        rounded
    }
}

/// Writes a duration as [`parse_duration`] reads it, in the largest unit in which it is a whole number above one.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [(3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole =
        |(unit, _): &(u128, &str)| millis.is_multiple_of(*unit) && (millis / unit > 1 || *unit == 1_000);
    units.into_iter().find(whole).map_or_else(
        || format!("{millis}ms"),
        |(unit, name)| format!("{}{name}", millis / unit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_whole_numbers_with_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("64Ki", 65_536),
            ("512Mi", 536_870_912),
            ("512MiB", 536_870_912),
            ("1k", 1_000),
            ("2G", 2_000_000_000),
            (" 7B ", 7),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text:?}");
        }
        for bad in [
            "",
            "-1",
            "+1",
            "1.5Gi",
            "Mi",
            "1 Mi",
            "1mi",
            "1Pi",
            "99999999999Gi",
            "18446744073709551616",
            "0x10",
        ] {
            assert!(parse_bytes(bad).is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn durations_have_units_from_large_to_small() {
        for (text, millis) in [
            ("60", 60_000),
            ("60s", 60_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h2m3s4ms", 3_723_004),
            ("0s", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text:?}"
            );
        }
        for bad in [
            "",
            "-1s",
            "1.5s",
            "s",
            "1x",
            "1s1m",
            "1s1s",
            "1s5",
            "9999999999999999999s",
            "1é",
            "inf",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn cpus_are_finite_and_not_negative() {
        assert_eq!(parse_cpus("0.5"), Ok(0.5));
        assert_eq!(parse_cpus("2"), Ok(2.0));
        assert_eq!(parse_cpus("250m"), Ok(0.25));
        for bad in [
            "",
            "-1",
            "+1",
            "nan",
            "inf",
            "1e9",
            "m",
            "1.2.3",
            "99999999999999999999",
            "½",
        ] {
            assert!(parse_cpus(bad).is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn a_person_reads_few_digits() {
        for (bytes, shown) in [
            (24_684_092 << 10, "23Gi"),
            (2 << 30, "2Gi"),
            ((2 << 30) + 1, "2Gi"),
            (64 << 20, "64Mi"),
            (17, "17"),
            (0, "0"),
        ] {
            assert_eq!(format_bound(bytes), shown, "{bytes}");
        }
        for (seconds, shown) in [
            (0, "0s"),
            (60, "60s"),
            (90, "90s"),
            (120, "2m"),
            (3_600, "60m"),
            (86_400, "24h"),
            (86_401, "86401s"),
        ] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), shown);
        }
        assert_eq!(format_duration(Duration::from_millis(1_500)), "1500ms");
    }

    proptest! {
        #[test]
        fn a_bound_is_never_above_what_it_stands_for(bytes in any::<u64>()) {
            let read = parse_bytes(&format_bound(bytes)).unwrap();
            prop_assert!(read <= bytes && bytes - read <= bytes / 16, "{} for {}", read, bytes);
        }

        #[test]
        fn what_is_written_is_read_back(bytes in any::<u64>(), millis in 0..u64::MAX / 1_000) {
            prop_assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC*|[0-9.msMGKihBT]{0,24}") {
            let _ = parse_bytes(&text);
            let _ = parse_duration(&text);
            if let Ok(cpus) = parse_cpus(&text) {
                prop_assert!(cpus.is_finite() && cpus >= 0.0);
            }
        }
    }
}
