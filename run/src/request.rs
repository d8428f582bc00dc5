//! What a person asks for.

use std::collections::BTreeSet;
use std::fs::File;

use crate::id::{Person, RunId};
use crate::language::Language;
use crate::limits::Limits;
use crate::name::{NameError, check_file_name, printable};
use crate::parse::format_bytes;
use crate::protocol::MAX_ENTRIES;
use crate::waiver::Waiver;

/// Largest script, in bytes.
pub const MAX_SCRIPT_BYTES: u64 = 4 << 20;
/// Most bytes of all arguments together: they travel in one frame, escaped, and the kernel must take them too.
pub const MAX_ARGS_BYTES: usize = 128 * 1024;

/// One run as it was asked for.
#[derive(Debug)]
pub struct Request {
    /// The run's name.
    pub run_id: RunId,
    /// Whom it belongs to.
    pub person: Person,
    /// What interprets the script.
    pub language: Language,
    /// The script's text; empty for [`Language::Exec`].
    pub script: Vec<u8>,
    /// The name under which it is staged in `/work`.
    pub script_name: String,
    /// Its arguments, or the argument vector for [`Language::Exec`].
    pub args: Vec<String>,
    /// Files to be staged beside it.
    pub inputs: Vec<Input>,
    /// What it may use.
    pub limits: Limits,
    /// Layers that it may do without.
    pub waivers: Vec<Waiver>,
}

/// A file to be staged in `/work`.
#[derive(Debug)]
pub struct Input {
    /// Its name there; see [`check_file_name`].
    pub name: String,
    /// Its bytes.
    pub source: InputSource,
}

/// Where an input's bytes come from.
#[derive(Debug)]
pub enum InputSource {
    /// From memory.
    Bytes(Vec<u8>),
    /// From an open regular file, from its current position.
    File {
        /// The file. The caller opened it and made sure that it is a regular one.
        file: File,
        /// The bytes to be staged; a file that turns out shorter is an error, more is not read.
        bytes: u64,
    },
}

impl InputSource {
    /// How many bytes will be staged.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { bytes, .. } => *bytes,
        }
    }
}

/// Why a request was refused, before anything was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There is no script.
    #[error("The script is empty: give at least one statement.")]
    ScriptEmpty,
    /// The script is not text.
    #[error("The script is not UTF-8 (the first bad byte is at {at}): save it as UTF-8.")]
    ScriptNotUtf8 {
        /// Offset of the first byte that is not.
        at: usize,
    },
    /// The script is too large.
    #[error(
        "The script has {bytes} bytes, and {} are allowed: pass data as an input instead.",
        format_bytes(MAX_SCRIPT_BYTES)
    )]
    ScriptTooLarge {
        /// Its size.
        bytes: u64,
    },
    /// An exec job without a program.
    #[error("There is no program to execute: give at least one argument.")]
    NoProgram,
    /// A file's name is not allowed.
    #[error(
        "The name {name:?} is not allowed for a file in /work: {reason}. Give it another with NAME=PATH."
    )]
    Name {
        /// The name, made printable.
        name: String,
        /// Which rule it breaks.
        reason: NameError,
    },
    /// Two files have the same name, the script being one of the files.
    #[error("Two files would be called {name:?} in /work: give one of them another name with NAME=PATH.")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// Too many files.
    #[error("There are {count} inputs, and {} are allowed: pack them into an archive.", MAX_ENTRIES - 1)]
    TooManyInputs {
        /// How many.
        count: usize,
    },
    /// The inputs are too large together.
    #[error("The inputs have {bytes} bytes together, and {} are allowed: raise the limit or give less.", format_bytes(*allowed))]
    InputsTooLarge {
        /// Their size.
        bytes: u64,
        /// What the limit allows.
        allowed: u64,
    },
    /// Script and inputs do not fit into `/work`.
    #[error("Script and inputs have {bytes} bytes, and /work holds {}: raise the scratch limit.", format_bytes(*allowed))]
    ScratchTooSmall {
        /// Their size.
        bytes: u64,
        /// The scratch limit.
        allowed: u64,
    },
    /// An argument cannot be passed.
    #[error("Argument {index} holds a NUL character, which no program can be given.")]
    ArgumentNul {
        /// Which one, from 0.
        index: usize,
    },
    /// The arguments are too long together.
    #[error(
        "The arguments have {bytes} bytes together, and {MAX_ARGS_BYTES} are allowed: pass data as an input instead."
    )]
    ArgumentsTooLong {
        /// Their size.
        bytes: usize,
    },
}

impl RequestError {
    /// The code for [`crate::RunError`].
    pub fn code(&self) -> &'static str {
        match self {
            Self::ScriptEmpty => "script_empty",
            Self::ScriptNotUtf8 { .. } => "script_not_utf8",
            Self::ScriptTooLarge { .. } => "script_too_large",
            Self::NoProgram => "no_program",
            Self::Name { .. } => "input_name_invalid",
            Self::DuplicateName { .. } => "input_name_duplicate",
            Self::TooManyInputs { .. } => "inputs_too_many",
            Self::InputsTooLarge { .. } => "inputs_too_large",
            Self::ScratchTooSmall { .. } => "scratch_too_small",
            Self::ArgumentNul { .. } => "argument_invalid",
            Self::ArgumentsTooLong { .. } => "arguments_too_long",
        }
    }
}

impl Request {
    /// Checks everything that can be known without the host. Limits have [`Limits::validate`].
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the fields.
    pub fn validate(&self) -> Result<(), Vec<RequestError>> {
        let mut errors = Vec::new();
        self.check_script(&mut errors);
        self.check_args(&mut errors);
        self.check_names(&mut errors);
        self.check_sizes(&mut errors);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn check_script(&self, errors: &mut Vec<RequestError>) {
        let bytes = self.script.len() as u64;
        if self.language == Language::Exec {
            if self.args.is_empty() {
                errors.push(RequestError::NoProgram);
            }
        } else if self.script.iter().all(u8::is_ascii_whitespace) {
            errors.push(RequestError::ScriptEmpty);
        }
        if bytes > MAX_SCRIPT_BYTES {
            errors.push(RequestError::ScriptTooLarge { bytes });
        } else if let Err(error) = std::str::from_utf8(&self.script) {
            errors.push(RequestError::ScriptNotUtf8 {
                at: error.valid_up_to(),
            });
        }
    }

    fn check_args(&self, errors: &mut Vec<RequestError>) {
        if let Some(index) = self.args.iter().position(|arg| arg.contains('\0')) {
            errors.push(RequestError::ArgumentNul { index });
        }
        // Each also costs the kernel a terminator and a pointer.
        let bytes = self.args.iter().map(|arg| arg.len() + 9).sum::<usize>();
        if bytes > MAX_ARGS_BYTES {
            errors.push(RequestError::ArgumentsTooLong { bytes });
        }
    }

    fn check_names(&self, errors: &mut Vec<RequestError>) {
        if self.inputs.len() >= MAX_ENTRIES as usize {
            errors.push(RequestError::TooManyInputs {
                count: self.inputs.len(),
            });
        }
        let script = (self.language != Language::Exec).then_some(&self.script_name);
        let mut seen = BTreeSet::new();
        for name in script
            .into_iter()
            .chain(self.inputs.iter().map(|input| &input.name))
        {
            if let Err(reason) = check_file_name(name) {
                errors.push(RequestError::Name {
                    name: printable(name.as_bytes(), 80),
                    reason,
                });
            } else if !seen.insert(name) {
                errors.push(RequestError::DuplicateName { name: name.clone() });
            }
        }
    }

    fn check_sizes(&self, errors: &mut Vec<RequestError>) {
        let sizes = self.inputs.iter().map(|input| input.source.bytes());
        let bytes = sizes.fold(0_u64, u64::saturating_add);
        if bytes > self.limits.inputs_bytes {
            errors.push(RequestError::InputsTooLarge {
                bytes,
                allowed: self.limits.inputs_bytes,
            });
        }
        let staged = bytes.saturating_add(self.script.len() as u64);
        if staged > self.limits.scratch_bytes {
            errors.push(RequestError::ScratchTooSmall {
                bytes: staged,
                allowed: self.limits.scratch_bytes,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            run_id: "r".parse().unwrap(),
            person: "p".parse().unwrap(),
            language: Language::Python,
            script: b"pass".to_vec(),
            script_name: "main.py".into(),
            args: vec![],
            inputs: vec![],
            limits: Limits::default(),
            waivers: vec![],
        }
    }

    fn input(name: &str, bytes: usize) -> Input {
        Input {
            name: name.into(),
            source: InputSource::Bytes(vec![0; bytes]),
        }
    }

    fn codes(change: impl FnOnce(&mut Request)) -> Vec<&'static str> {
        let mut request = request();
        change(&mut request);
        request
            .validate()
            .err()
            .unwrap_or_default()
            .iter()
            .map(RequestError::code)
            .collect()
    }

    #[test]
    fn a_plain_request_is_accepted() {
        assert_eq!(request().validate(), Ok(()));
    }

    #[test]
    fn a_bad_script_is_refused() {
        assert_eq!(codes(|r| r.script = vec![]), ["script_empty"]);
        assert_eq!(codes(|r| r.script = b" \n".to_vec()), ["script_empty"]);
        assert_eq!(codes(|r| r.script = b"x\xff".to_vec()), ["script_not_utf8"]);
        assert_eq!(codes(|r| r.script = vec![b'#'; 10 << 20]), ["script_too_large"]);
        assert_eq!(
            codes(|r| (r.language, r.script) = (Language::Exec, vec![])),
            ["no_program"]
        );
    }

    #[test]
    fn bad_arguments_are_refused() {
        assert_eq!(
            codes(|r| r.args = vec!["a".into(), "b\0".into()]),
            ["argument_invalid"]
        );
        assert_eq!(
            codes(|r| r.args = vec!["x".repeat(MAX_ARGS_BYTES)]),
            ["arguments_too_long"]
        );
    }

    #[test]
    fn hostile_and_duplicate_names_are_refused() {
        assert_eq!(
            codes(|r| r.inputs = vec![input("../x", 1)]),
            ["input_name_invalid"]
        );
        assert_eq!(codes(|r| r.script_name = "a/b".into()), ["input_name_invalid"]);
        assert_eq!(
            codes(|r| r.inputs = vec![input("a", 1), input("a", 1)]),
            ["input_name_duplicate"]
        );
        assert_eq!(
            codes(|r| r.inputs = vec![input("main.py", 1)]),
            ["input_name_duplicate"]
        );
        assert_eq!(codes(|r| r.inputs = vec![input("a", 1), input("A", 1)]), [""; 0]);
        assert_eq!(
            codes(|r| r.inputs = (0..1_024).map(|i| input(&i.to_string(), 0)).collect()),
            ["inputs_too_many"]
        );
    }

    #[test]
    fn inputs_beyond_the_limit_are_refused() {
        let limit = |r: &mut Request| r.limits.inputs_bytes = 10;
        assert_eq!(
            codes(|r| {
                limit(r);
                r.inputs = vec![input("a", 6), input("b", 5)];
            }),
            ["inputs_too_large"]
        );
        assert_eq!(
            codes(|r| {
                r.limits.scratch_bytes = 65_536;
                r.inputs = vec![input("a", 65_536)];
            }),
            ["scratch_too_small"]
        );
    }
}
