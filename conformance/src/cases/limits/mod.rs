//! Limits: memory of every kind, disk, inodes, processor time, output.

mod output;
mod resources;

use crate::case::Case;

/// Every case of this group.
pub fn cases() -> Vec<Case> {
    [resources::cases(), output::cases()].concat()
}
