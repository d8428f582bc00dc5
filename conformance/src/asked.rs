//! The words of `sandglass run`, as far as the suite itself has to understand them when it plays a driver.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// What the words ask for. Nothing is checked: the suite plays drivers only for itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Flags with their values; of one that comes twice, the last.
    pub flags: BTreeMap<String, OsString>,
    /// Values of `--input`, in their order.
    pub inputs: Vec<OsString>,
    /// Whether one report is wanted on stdout.
    pub json: bool,
    /// The script's path.
    pub script: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl Asked {
    /// Reads the words that come after `run`.
    pub fn read(words: impl Iterator<Item = OsString>) -> Self {
        let mut asked = Self::default();
        let mut words = words;
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--json") => asked.json = true,
                Some("--") => asked.args.extend(words.by_ref()),
                _ => match flag(&word) {
                    Some((name, value)) => {
                        let value = value.or_else(|| words.next()).unwrap_or_default();
                        if name == "--input" {
                            asked.inputs.push(value);
                        } else {
                            asked.flags.insert(name, value);
                        }
                    }
                    None => asked.script = word.into(),
                },
            }
        }
        asked
    }

    /// The value of a flag, as text.
    pub fn text(&self, flag: &str) -> Option<&str> {
        self.flags.get(flag)?.to_str()
    }

    /// The inputs: each with the name that is wanted for it, which nobody has checked, and its path.
    pub fn inputs(&self) -> impl Iterator<Item = (String, &Path)> {
        self.inputs.iter().map(|input| {
            let bytes = input.as_bytes();
            let (name, path) = match bytes.iter().rposition(|byte| *byte == b'=') {
                Some(at) => (&bytes[..at], Path::new(OsStr::from_bytes(&bytes[at + 1..]))),
                None => (&bytes[..0], Path::new(input)),
            };
            let name = match name {
                [] => path.file_name().unwrap_or_default().to_string_lossy(),
                name => String::from_utf8_lossy(name),
            };
            (name.into_owned(), path)
        })
    }
}

/// `--name` or `--name=value`.
fn flag(word: &OsStr) -> Option<(String, Option<OsString>)> {
    let bytes = word.as_bytes();
    bytes.strip_prefix(b"--")?;
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
        None => (bytes, None),
    };
    Some((String::from_utf8_lossy(name).into_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_inputs_script_and_arguments_are_told_apart() {
        let words =
            "--driver local --memory=1Mi --input a=/x/b --input=-c --input /y/d --json s.py -- --json x";
        let asked = Asked::read(words.split(' ').map(OsString::from));
        assert!(asked.json);
        assert_eq!(asked.text("--driver"), Some("local"));
        assert_eq!(asked.text("--memory"), Some("1Mi"));
        assert_eq!(asked.text("--cpus"), None);
        assert_eq!(asked.script, Path::new("s.py"));
        assert_eq!(asked.args, ["--json", "x"]);
        let inputs: Vec<_> = asked.inputs().collect();
        assert_eq!(
            inputs,
            [
                ("a".to_owned(), Path::new("/x/b")),
                ("-c".to_owned(), Path::new("-c")),
                ("d".to_owned(), Path::new("/y/d"))
            ]
        );
    }

    #[test]
    fn of_a_flag_that_comes_twice_the_last_counts() {
        let words = ["--cpus", "1", "--cpus", "2"];
        assert_eq!(
            Asked::read(words.iter().map(OsString::from)).text("--cpus"),
            Some("2")
        );
    }
}
