//! Conditions on arguments: what they mean, and whether two of them can hold at once.

/// What one 64-bit argument must be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Test {
    /// Equal to this.
    Equal(u64),
    /// Different from this.
    NotEqual(u64),
    /// At least this.
    AtLeast(u64),
    /// Greater than this.
    Above(u64),
    /// At most this.
    AtMost(u64),
    /// Less than this.
    Below(u64),
    /// These bits equal to those. The second has no bit that the first lacks.
    Masked(u64, u64),
}

impl Test {
    /// Whether it holds for a value.
    pub(super) fn holds(self, value: u64) -> bool {
        match self {
            Self::Equal(wanted) => value == wanted,
            Self::NotEqual(unwanted) => value != unwanted,
            Self::AtLeast(low) => value >= low,
            Self::Above(low) => value > low,
            Self::AtMost(high) => value <= high,
            Self::Below(high) => value < high,
            Self::Masked(mask, wanted) => value & mask == wanted,
        }
    }

    /// A value for which both hold, if there is one.
    pub(super) fn common(self, other: Self) -> Option<u64> {
        let low = self.lowest()?.max(other.lowest()?);
        let ((m1, w1), (m2, w2)) = (self.mask(), other.mask());
        if (w1 ^ w2) & m1 & m2 != 0 {
            return None;
        }
        // Lower bounds and masks hold for these values and for none between them. An upper bound holds for the first
        // of them or for none, and two inequalities exclude two of them at most.
        let next = |from: u64| least_from(from, m1 | m2, w1 | w2);
        let after = |value: u64| value.checked_add(1).and_then(next);
        let first = next(low);
        let second = first.and_then(after);
        let third = second.and_then(after);
        [first, second, third]
            .into_iter()
            .flatten()
            .find(|value| self.holds(*value) && other.holds(*value))
    }

    /// The least value that its lower bound leaves.
    fn lowest(self) -> Option<u64> {
        match self {
            Self::AtLeast(low) => Some(low),
            Self::Above(low) => low.checked_add(1),
            _ => Some(0),
        }
    }

    fn mask(self) -> (u64, u64) {
        match self {
            Self::Masked(mask, wanted) => (mask, wanted),
            Self::Equal(value) => (u64::MAX, value),
            _ => (0, 0),
        }
    }
}

/// The least value from `low` on of which the bits of `mask` are those of `wanted`.
fn least_from(low: u64, mask: u64, wanted: u64) -> Option<u64> {
    let wrong = (low ^ wanted) & mask;
    let Some(highest) = wrong.checked_ilog2() else {
        return Some(low);
    };
    // Above the highest wrong bit nothing changes, unless that bit must be cleared: then a free bit above it is
    // raised to make up for it. Everything below the changed bit is as small as the mask lets it be.
    let changed = if wanted >> highest & 1 == 1 {
        highest
    } else {
        (highest + 1..64).find(|bit| (mask | low) >> bit & 1 == 0)?
    };
    let kept = low & !(u64::MAX >> (63 - changed));
    Some((kept | 1 << changed) & !mask | wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_value_is_found() {
        for low in 0..64 {
            for mask in 0..64u64 {
                for wanted in (0..64).filter(|wanted| wanted & !mask == 0) {
                    let expected = (low..256).find(|value| value & mask == wanted);
                    assert_eq!(
                        least_from(low, mask, wanted),
                        expected,
                        "{low:b} {mask:b} {wanted:b}"
                    );
                }
            }
        }
        assert_eq!(least_from(u64::MAX, 1, 0), None);
        assert_eq!(least_from(1 << 63 | 1, 1 << 63, 0), None);
        assert_eq!(least_from(1, 1 << 63, 1 << 63), Some(1 << 63));
    }

    /// Every kind of test over a few bits, at both ends of the range.
    fn tests() -> Vec<Test> {
        let values: Vec<u64> = (0..6).flat_map(|v| [v, u64::MAX - v, v << 61 | v]).collect();
        let of_one = [
            Test::Equal,
            Test::NotEqual,
            Test::AtLeast,
            Test::Above,
            Test::AtMost,
            Test::Below,
        ];
        let mut tests: Vec<Test> = values
            .iter()
            .flat_map(|value| of_one.map(|test| test(*value)))
            .collect();
        for &mask in &values {
            tests.extend(
                values
                    .iter()
                    .filter(|v| *v & !mask == 0)
                    .map(|wanted| Test::Masked(mask, *wanted)),
            );
        }
        tests
    }

    #[test]
    fn a_common_value_is_found_wherever_one_exists() {
        let around = |v: u64| [v.wrapping_sub(1), v, v.wrapping_add(1)];
        let samples = (0..12)
            .flat_map(|v| [v, u64::MAX - v, v << 61, v << 61 | v])
            .flat_map(around);
        let samples: Vec<u64> = samples.collect();
        let (mut found, mut none) = (0, 0);
        for a in tests() {
            for b in tests() {
                if let Some(value) = a.common(b) {
                    assert!(a.holds(value) && b.holds(value), "{a:?} {b:?} {value:#x}");
                    found += 1;
                } else {
                    let missed = samples.iter().find(|value| a.holds(**value) && b.holds(**value));
                    assert_eq!(missed, None, "{a:?} {b:?}");
                    none += 1;
                }
            }
        }
        assert!(found > 1000 && none > 1000, "{found} {none}");
    }
}
