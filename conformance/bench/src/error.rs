//! What keeps the benchmark from measuring.

use std::path::Path;

/// Why a measurement could not be made. The message is a whole sentence and says what to do where that is known.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Something of the host is missing or cannot be used.
    #[error("{0}")]
    Setup(String),
    /// A call of the system failed.
    #[error("{doing} failed: {source}.")]
    System {
        /// What was tried.
        doing: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A run did not end as it must, so that its time says nothing.
    #[error("{way}: {workload} did not succeed: {what}")]
    Run {
        /// Which way to run.
        way: String,
        /// What was run.
        workload: String,
        /// How it ended, and what it said.
        what: String,
    },
    /// A person pressed Ctrl-C.
    #[error(transparent)]
    Interrupted(#[from] sandglass_figures::Interrupted),
}

impl BenchError {
    /// For `map_err`: puts what was tried before what the system said.
    pub fn doing<E: Into<std::io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |source| Self::System {
            doing,
            source: source.into(),
        }
    }

    /// The same, for a path.
    pub fn at<E: Into<std::io::Error>>(doing: &str, path: &Path) -> impl FnOnce(E) -> Self {
        Self::doing(format!("{doing} {}", path.display()))
    }
}

/// What a measurement gives.
pub type Result<T> = std::result::Result<T, BenchError>;
