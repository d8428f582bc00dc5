//! Layers that a person may do without, by name, where the host cannot give them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One layer that a run may do without. Nothing is ever waived unless it was named, and the receipt says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Waiver {
    /// The cgroup's memory limit.
    Memory,
    /// The cgroup's limit on processes.
    Pids,
    /// The cgroup's CPU quota.
    Cpu,
    /// Dropping the caller's supplementary groups.
    Groups,
    /// Landlock.
    Landlock,
}

/// A word that names no layer which can be waived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} cannot be waived: name any of memory, pids, cpu, groups, landlock, separated by commas.")]
pub struct WaiverError {
    /// What was given, shortened and made printable.
    pub found: String,
}

impl Waiver {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Pids, Self::Cpu, Self::Groups, Self::Landlock];

    /// The word that a person writes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Groups => "groups",
            Self::Landlock => "landlock",
        }
    }

    /// Parses `memory,pids`: sorted, each once. An empty text waives nothing.
    ///
    /// # Errors
    /// Names the first word that is not a layer.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, WaiverError> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        let mut waivers = text
            .split(',')
            .map(|word| word.trim().parse())
            .collect::<Result<Vec<Self>, _>>()?;
        waivers.sort_unstable();
        waivers.dedup();
        Ok(waivers)
    }
}

impl fmt::Display for Waiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Waiver {
    type Err = WaiverError;

    fn from_str(text: &str) -> Result<Self, WaiverError> {
        Self::ALL
            .into_iter()
            .find(|waiver| waiver.as_str() == text)
            .ok_or_else(|| WaiverError {
                found: crate::name::printable(text.as_bytes(), 40),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waivers_are_named_one_by_one() {
        assert_eq!(
            Waiver::parse_list(" pids, memory,pids"),
            Ok(vec![Waiver::Memory, Waiver::Pids])
        );
        assert_eq!(Waiver::parse_list(""), Ok(vec![]));
        for bad in ["all", "memory,", "seccomp", "memory pids"] {
            assert!(Waiver::parse_list(bad).is_err(), "{bad:?} must be refused");
        }
    }
}
