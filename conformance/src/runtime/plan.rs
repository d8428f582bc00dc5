//! What is to be run, from the words of `sandglass run`.

use std::ffi::OsString;
use std::path::PathBuf;

use sandglass_run::{Language, Limits, RunId, parse_bytes, parse_cpus, parse_duration};

use super::Role;
use crate::asked::Asked;

/// A script with everything that it needs.
#[derive(Debug)]
pub struct Plan {
    /// The run's name, and the container's.
    pub id: RunId,
    /// What interprets the script.
    pub language: Language,
    /// The script's name and text.
    pub script: (String, Vec<u8>),
    /// Names and texts of its inputs.
    pub inputs: Vec<(String, Vec<u8>)>,
    /// Its arguments.
    pub args: Vec<String>,
    /// What it may use; processes are those of the container.
    pub limits: Limits,
    /// Where artifacts go.
    pub out: Option<PathBuf>,
    /// Whether one report is wanted on stdout.
    pub json: bool,
}

impl Plan {
    /// Reads the words that come after `run`, and the files that they name.
    ///
    /// # Errors
    /// What cannot be understood or read, as a sentence.
    pub fn read(words: impl Iterator<Item = OsString>, role: Role) -> Result<Self, String> {
        let asked = Asked::read(words);
        let name = asked
            .script
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read(&asked.script).map_err(|e| format!("{}: {e}", asked.script.display()))?;
        let inputs = asked
            .inputs()
            .map(|(name, path)| {
                Ok((
                    name,
                    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?,
                ))
            })
            .collect::<Result<_, String>>()?;
        let args = asked.args.iter().map(|arg| {
            let text = arg
                .to_str()
                .ok_or_else(|| format!("the argument {arg:?} is not UTF-8"))?;
            Ok(text.to_owned())
        });
        Ok(Self {
            id: asked
                .text("--run-id")
                .unwrap_or("run")
                .parse()
                .map_err(|e| format!("--run-id: {e}"))?,
            language: Language::from_file_name(&name)
                .ok_or_else(|| format!("no language is known for {name}"))?,
            script: (name, text),
            inputs,
            args: args.collect::<Result<_, String>>()?,
            limits: limits(&asked, role)?,
            out: asked.flags.get("--out").map(PathBuf::from),
            json: asked.json,
        })
    }

    /// The command line of the script, for those who start it themselves.
    pub fn argv(&self) -> Vec<String> {
        let mut argv: Vec<String> = self
            .language
            .interpreter()
            .map(str::to_owned)
            .into_iter()
            .collect();
        argv.push(self.script.0.clone());
        argv.extend(self.args.iter().cloned());
        argv
    }
}

/// The limits that the flags name, and the documented defaults for the rest.
fn limits(asked: &Asked, role: Role) -> Result<Limits, String> {
    let mut limits = Limits::default();
    let said = |flag: &str, e: &dyn std::fmt::Display| format!("{flag}: {e}");
    if let Some(text) = asked.text("--timeout") {
        limits.wall = parse_duration(text).map_err(|e| said("--timeout", &e))?;
    }
    if let Some(text) = asked.text("--cpus") {
        limits.cpus = parse_cpus(text).map_err(|e| said("--cpus", &e))?;
    }
    if let Some(text) = asked.text("--pids") {
        limits.pids = text.parse().map_err(|e| said("--pids", &e))?;
    }
    for (flag, bytes) in [
        ("--memory", &mut limits.memory_bytes),
        ("--scratch", &mut limits.scratch_bytes),
    ] {
        if let Some(text) = asked.text(flag) {
            *bytes = parse_bytes(text).map_err(|e| said(flag, &e))?;
        }
    }
    // The one setting that cases give through the environment.
    if let Ok(text) = std::env::var("SANDGLASS_ARTIFACTS_BYTES") {
        limits.artifacts_bytes = parse_bytes(&text).map_err(|e| said("SANDGLASS_ARTIFACTS_BYTES", &e))?;
    }
    // The process beside the script: the runner, or the one that sleeps.
    if role != Role::First {
        limits.pids += 1;
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str, role: Role) -> Result<Plan, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("s.py"), "pass\n").unwrap();
        let words = words.replace("DIR", dir.path().to_str().unwrap());
        Plan::read(words.split(' ').map(OsString::from), role)
    }

    #[test]
    fn limits_are_those_of_the_flags_and_the_defaults_for_the_rest() {
        let plan = read(
            "--run-id a-1 --memory 64Mi --cpus 0.2 --timeout 2s --json DIR/s.py -- x",
            Role::First,
        )
        .unwrap();
        assert_eq!(plan.limits.memory_bytes, 64 << 20);
        assert_eq!(plan.limits.wall.as_secs(), 2);
        assert_eq!(plan.limits.pids, Limits::default().pids);
        assert_eq!(plan.argv(), ["python3", "s.py", "x"]);
        assert!(plan.json);
    }

    #[test]
    fn a_process_beside_the_script_is_not_counted_as_its_own() {
        for role in [Role::Runner, Role::Exec] {
            assert_eq!(
                read("DIR/s.py", role).unwrap().limits.pids,
                Limits::default().pids + 1
            );
        }
    }

    #[test]
    fn what_is_not_understood_or_not_there_is_said() {
        for words in [
            "DIR/none.py",
            "--memory x DIR/s.py",
            "--run-id A/b DIR/s.py",
            "--input DIR/none DIR/s.py",
        ] {
            assert!(read(words, Role::First).is_err(), "{words}");
        }
    }
}
