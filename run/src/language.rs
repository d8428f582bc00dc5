//! What interprets a script.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What interprets the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// CPython: `python3 /work/<script> args…`.
    Python,
    /// Node: `node /work/<script> args…`.
    Node,
    /// No script: `args` is the argument vector. For the suite and the benchmarks; a person cannot ask for it by name.
    Exec,
}

/// A language was named that there is no interpreter for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("The language {found:?} is unknown: use python or node.")]
pub struct LanguageError {
    /// What was given, shortened and made printable.
    pub found: String,
}

impl Language {
    /// The name that a person writes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Exec => "exec",
        }
    }

    /// The interpreter's program name, looked up on the sandbox's `PATH`. None for [`Language::Exec`].
    pub fn interpreter(self) -> Option<&'static str> {
        match self {
            Self::Python => Some("python3"),
            Self::Node => Some("node"),
            Self::Exec => None,
        }
    }

    /// The name under which a script without one of its own is staged in `/work`.
    pub fn default_script_name(self) -> &'static str {
        match self {
            Self::Python => "main.py",
            Self::Node => "main.js",
            Self::Exec => "main",
        }
    }

    /// Guesses from a file name's extension; `None` where the extension says nothing.
    pub fn from_file_name(name: &str) -> Option<Self> {
        match name.rsplit_once('.')?.1 {
            "py" => Some(Self::Python),
            "js" | "mjs" | "cjs" => Some(Self::Node),
            _ => None,
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Language {
    type Err = LanguageError;

    fn from_str(text: &str) -> Result<Self, LanguageError> {
        match text {
            "python" => Ok(Self::Python),
            "node" => Ok(Self::Node),
            other => Err(LanguageError {
                found: crate::name::printable(other.as_bytes(), 40),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_can_name_python_and_node_only() {
        assert_eq!("python".parse(), Ok(Language::Python));
        assert_eq!("node".parse(), Ok(Language::Node));
        for unknown in ["exec", "ruby", "", "Python"] {
            assert!(
                unknown.parse::<Language>().is_err(),
                "{unknown:?} must be refused"
            );
        }
    }

    #[test]
    fn the_language_is_guessed_from_the_extension() {
        assert_eq!(Language::from_file_name("a.b.py"), Some(Language::Python));
        assert_eq!(Language::from_file_name("x.mjs"), Some(Language::Node));
        assert_eq!(Language::from_file_name("x.sh"), None);
        assert_eq!(Language::from_file_name("py"), None);
    }
}
