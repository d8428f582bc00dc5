//! Names of runs and of the people they belong to. Both become file names and labels, so both are narrow.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a run id or a person was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The run id is not a DNS label.
    #[error(
        "The run id {found:?} is not allowed: use 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or a digit."
    )]
    RunId {
        /// What was given, shortened and made printable.
        found: String,
    },
    /// The person is not a plain word.
    #[error(
        "The person {found:?} is not allowed: use 1 to 128 of a-z, A-Z, 0-9, and . _ @ -, beginning with a letter or a digit."
    )]
    Person {
        /// What was given, shortened and made printable.
        found: String,
    },
}

/// The name of one run: a DNS label (RFC 1123), since it becomes part of directory, cgroup and pod names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let edges =
            bytes.first().is_some_and(|b| alphanumeric(*b)) && bytes.last().is_some_and(|b| alphanumeric(*b));
        if edges && bytes.len() <= 63 && bytes.iter().all(|b| alphanumeric(*b) || *b == b'-') {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::RunId {
                found: crate::name::printable(text.as_bytes(), 80),
            })
        }
    }
}

/// Whom a run belongs to: the key of the cap on runs at once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Person(String);

impl Person {
    /// The person as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Person {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bytes = text.as_bytes();
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"._@-".contains(b);
        if bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.len() <= 128
            && bytes.iter().all(allowed)
        {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::Person {
                found: crate::name::printable(text.as_bytes(), 80),
            })
        }
    }
}

macro_rules! text_newtype {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}
text_newtype!(RunId);
text_newtype!(Person);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_is_a_dns_label() {
        for good in ["a", "0", "run-1", &"a".repeat(63)] {
            assert_eq!(good.parse::<RunId>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a_b",
            "a.b",
            "a/b",
            "..",
            "a\n",
            "é",
            &"a".repeat(64),
        ] {
            assert!(bad.parse::<RunId>().is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn a_person_can_never_be_a_path() {
        for good in ["ann", "Ann.B_c@example-1.org", "7"] {
            assert_eq!(good.parse::<Person>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "a b",
            "a\0",
            "-x",
            &"a".repeat(129),
        ] {
            assert!(bad.parse::<Person>().is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn an_id_is_checked_when_it_is_read_from_json_too() {
        assert!(serde_json::from_str::<RunId>("\"../x\"").is_err());
        assert!(serde_json::from_str::<Person>("\"../x\"").is_err());
    }
}
