//! Who comes when, in rounds in which each way is measured once.

/// The order of one round: each of `ways` once.
///
/// What a way leaves to the kernel to tidy up is paid by whoever comes next. So that this is not always the same one, the
/// rounds are the rows of Williams' squares: over `2 * ways` rounds in a row, each way comes right after each other one
/// equally often.
pub fn turns(ways: usize, round: usize) -> Vec<usize> {
    if ways == 0 {
        return Vec::new();
    }
    // 0, n-1, 1, n-2, …: neighbours differ by each distance once.
    let zigzag = (0..ways).map(|turn| {
        if turn % 2 == 0 {
            turn / 2
        } else {
            ways - turn.div_ceil(2)
        }
    });
    let mut order: Vec<usize> = zigzag.map(|at| (at + round) % ways).collect();
    // With an odd number, it takes the mirror images as well.
    if (round / ways) % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_way_comes_right_after_each_other_one_equally_often() {
        for ways in 2..12 {
            let mut after = BTreeMap::new();
            for round in 0..2 * ways {
                let order = turns(ways, round);
                for pair in order.windows(2) {
                    *after.entry((pair[0], pair[1])).or_insert(0) += 1;
                }
            }
            assert_eq!(after.len(), ways * (ways - 1), "{ways} ways");
            assert!(after.values().all(|&times| times == 2), "{ways} ways: {after:?}");
        }
    }

    #[test]
    fn each_way_has_one_turn_in_a_round() {
        for ways in 0..12 {
            for round in 0..40 {
                let mut order = turns(ways, round);
                order.sort_unstable();
                assert_eq!(order, (0..ways).collect::<Vec<_>>());
            }
        }
    }
}
