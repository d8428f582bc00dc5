//! What keeps the stack from coming up, or from going away whole.

use std::path::Path;

/// Why something could not be done. The message is a whole sentence and says what to do where that is known.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// A program or a file that the stack is made of is not there.
    #[error("{what} is not at {path}. {hint}")]
    Missing {
        /// What it is.
        what: String,
        /// Where it was looked for.
        path: String,
        /// What to do.
        hint: &'static str,
    },
    /// A setting cannot be used.
    #[error("{0}")]
    Setting(String),
    /// A call of the system failed.
    #[error("{doing} failed: {source}.")]
    System {
        /// What was tried.
        doing: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A program that was started said no.
    #[error("`{command}` failed ({status}): {said}")]
    Program {
        /// What was started.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        said: String,
    },
    /// A server did not answer in time.
    #[error("{server} ended, or did not answer within {seconds} s. The end of its log:\n{tail}")]
    NotReady {
        /// Which one.
        server: &'static str,
        /// How long it was waited for.
        seconds: u64,
        /// The last lines of it.
        tail: String,
    },
    /// The process that holds the namespaces said something that it never should, or nothing.
    #[error("The stack's supervisor {0}")]
    Supervisor(String),
    /// Something was left when the stack ended.
    #[error("The stack left this behind:\n  {}", .0.join("\n  "))]
    Left(
        /// What, each as a phrase.
        Vec<String>,
    ),
    /// A file does not hold what it should.
    #[error("{path} cannot be read: {why}.")]
    Corrupt {
        /// Which one.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

impl StackError {
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

/// What most functions here return.
pub type Result<T, E = StackError> = std::result::Result<T, E>;
