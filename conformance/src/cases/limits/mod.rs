//! Limits: memory of every kind, disk, inodes, processor time, output.

mod output;
mod resources;

use crate::case::{Case, Need};

/// Every case of this group.
pub fn cases() -> Vec<Case> {
    let output = output::cases()
        .into_iter()
        .map(|case| case.needs(&[Need::Runner]));
    resources::cases().into_iter().chain(output).collect()
}
