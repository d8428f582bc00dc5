//! Why a run was refused or never started.

/// A reason not to run, in the three parts that a report's `error` has.
///
/// A refusal is a value and not an error chain: it is shown to a person as it is, and tools branch on `code`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A stable word for tools, `snake_case`: `over_cap`, `state_dir`, `control_missing` …
    pub code: &'static str,
    /// What is wrong, as a whole sentence, with the value that was found and what is allowed.
    pub message: String,
    /// What to do next, as a whole sentence.
    pub hint: String,
}

impl Refusal {
    /// Makes a refusal from its three parts.
    pub fn new(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl From<Refusal> for sandglass_run::RunError {
    fn from(r: Refusal) -> Self {
        Self {
            code: r.code.to_owned(),
            message: r.message,
            hint: r.hint,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.message, self.hint)
    }
}

impl std::error::Error for Refusal {}
