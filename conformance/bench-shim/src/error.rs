//! What keeps the benchmark from measuring.

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
    /// containerd did not do what it was asked for.
    #[error("{call}: {said}")]
    Call {
        /// What it was asked for.
        call: String,
        /// What it said.
        said: String,
    },
    /// The stack.
    #[error(transparent)]
    Stack(#[from] sandglass_stack::StackError),
    /// A person pressed Ctrl-C.
    #[error(transparent)]
    Interrupted(#[from] sandglass_figures::Interrupted),
}

impl BenchError {
    /// For `map_err`: puts what was tried before what the system said.
    pub fn doing(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source }
    }

    /// For `map_err`: something went wrong with that.
    pub fn of(what: impl Into<String>) -> impl FnOnce(Self) -> Self {
        let what = what.into();
        move |error| match error {
            interrupted @ Self::Interrupted(_) => interrupted,
            other => Self::Setup(format!("{what}: {other}")),
        }
    }
}

/// What a measurement gives.
pub type Result<T> = std::result::Result<T, BenchError>;
