//! How a case ends.

use serde::Serialize;

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// What must hold was seen to hold.
    Passed,
    /// It was seen not to hold.
    Failed {
        /// What should have been seen.
        expected: String,
        /// What was seen.
        observed: String,
    },
    /// It could not be looked at; the reason is one of the words of the list of permitted skips.
    Skipped {
        /// Why.
        reason: String,
    },
    /// It is no question for what is under test, by what the case itself says that it needs.
    NotApplicable {
        /// Whose question it is.
        to: String,
    },
    /// It was seen not to hold, as the list of permitted failures says of what is under test.
    FailedAsListed {
        /// What should have been seen.
        expected: String,
        /// What was seen.
        observed: String,
    },
}

/// Why a case stopped before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It failed.
    Failed {
        /// What should have been seen.
        expected: String,
        /// What was seen.
        observed: String,
    },
    /// It cannot be looked at here.
    Skipped(String),
}

impl Stop {
    /// A failure.
    pub fn failed(expected: impl Into<String>, observed: impl Into<String>) -> Self {
        Self::Failed {
            expected: expected.into(),
            observed: observed.into(),
        }
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::failed(
            "the suite can prepare the case",
            format!("the suite's own error: {error}"),
        )
    }
}

impl From<Result<(), Stop>> for Verdict {
    fn from(result: Result<(), Stop>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(Stop::Failed { expected, observed }) => Self::Failed { expected, observed },
            Err(Stop::Skipped(reason)) => Self::Skipped { reason },
        }
    }
}

/// Goes on only if `holds`.
pub fn check(holds: bool, expected: impl Into<String>, observed: impl Into<String>) -> Result<(), Stop> {
    if holds {
        Ok(())
    } else {
        Err(Stop::failed(expected, observed))
    }
}

/// Goes on only if both are the same; `what` names the thing.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, observed: &T) -> Result<(), Stop> {
    check(
        expected == observed,
        format!("{what} {expected:?}"),
        format!("{what} {observed:?}"),
    )
}
