//! Which frame may come when, and how much of it: one small state machine for each side.
//!
//! Each side takes the other for hostile: it passes every frame through its session before it acts on it, and
//! the first error ends the conversation.

pub mod outer;
pub mod runner;

use crate::name::NameError;

/// Why a well-formed frame was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It may not come now.
    #[error("{frame} came {when}, where it may not come.")]
    OutOfOrder {
        /// The frame's name.
        frame: &'static str,
        /// What the conversation had come to.
        when: &'static str,
    },
    /// An earlier frame was not accepted, and nothing is after that.
    #[error("An earlier frame was not accepted, so none is any more.")]
    Over,
    /// A bulk frame without bytes: an endless stream of those would never meet a bound.
    #[error("{frame} came without bytes.")]
    EmptyBulk {
        /// The frame's name.
        frame: &'static str,
    },
    /// More than the bound allows.
    #[error("{what} are more than the {allowed} that are allowed.")]
    TooMuch {
        /// What was counted.
        what: &'static str,
        /// The bound.
        allowed: u64,
    },
    /// Numbers that contradict what came before.
    #[error("{what} do not agree with what was announced or sent.")]
    Mismatch {
        /// What was compared.
        what: &'static str,
    },
    /// A value outside its range.
    #[error("{what} is out of its range.")]
    BadValue {
        /// Which value.
        what: &'static str,
    },
    /// A name or path that is not allowed.
    #[error("The name {shown:?} is not allowed: {reason}.")]
    BadName {
        /// The name, made printable.
        shown: String,
        /// Which rule it breaks.
        reason: NameError,
    },
    /// A name that came before, or a path that is not after the one before it.
    #[error("The name {shown:?} came twice, or out of order, or lies below a file.")]
    NameOrder {
        /// The name, made printable.
        shown: String,
    },
}

fn bad_name(name: &str, reason: NameError) -> SessionError {
    SessionError::BadName {
        shown: crate::name::printable(name.as_bytes(), 80),
        reason,
    }
}

fn name_order(name: &str) -> SessionError {
    SessionError::NameOrder {
        shown: crate::name::printable(name.as_bytes(), 80),
    }
}

/// Adds within a bound.
fn count(total: &mut u64, more: u64, allowed: u64, what: &'static str) -> Result<(), SessionError> {
    *total = total
        .checked_add(more)
        .filter(|sum| *sum <= allowed)
        .ok_or(SessionError::TooMuch { what, allowed })?;
    Ok(())
}
