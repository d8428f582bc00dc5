//! Running other programs: found on the machine, told nothing secret, their last words kept for the error.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::error::{ImageError, Result};

/// Where programs are looked for besides `PATH`: an ordinary user's `PATH` lacks the `sbin` ones.
const MORE_PLACES: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// How much of a failed program's output goes into the error.
const LAST_LINES: usize = 12;

/// The path of a program, if the machine has it.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(MORE_PLACES.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok())
}

/// A command for a program that must be there.
pub(crate) fn command(name: &str, purpose: &str, package: &str) -> Result<Command> {
    let path = find(name).ok_or_else(|| missing(name, purpose, package))?;
    Ok(Command::new(path))
}

/// The error for a program that is not there.
pub(crate) fn missing(tool: &str, purpose: &str, package: &str) -> ImageError {
    ImageError::ToolMissing {
        tool: tool.into(),
        purpose: purpose.into(),
        package: package.into(),
    }
}

/// Runs a command to its end, without input, and gives its standard output; failure is an error.
pub(crate) fn run(command: &mut Command, purpose: &str) -> Result<String> {
    let output = output(command, purpose)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(command, purpose, &output))
}

/// Runs a command to its end, without input.
pub(crate) fn output(command: &mut Command, purpose: &str) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| ImageError::Tool {
            purpose: purpose.into(),
            command: words(command),
            status: format!("an error at its start: {e}"),
            detail: String::new(),
        })
}

/// The error for a command that ended badly.
pub(crate) fn failed(command: &Command, purpose: &str, output: &Output) -> ImageError {
    ImageError::Tool {
        purpose: purpose.into(),
        command: words(command),
        status: output.status.to_string(),
        detail: last_words(output),
    }
}

/// The end of what a program said, standard error last.
pub(crate) fn last_words(output: &Output) -> String {
    let text = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout).trim(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

fn words(command: &Command) -> String {
    let name = std::path::Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    std::iter::once(name)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_the_package_that_has_it() {
        let error = command("no-such-program-anywhere", "fetch nothing", "nothing-utils")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no-such-program-anywhere") && error.contains("nothing-utils"),
            "{error}"
        );
    }

    #[test]
    fn a_failed_program_is_quoted() {
        let mut failing = command("sh", "fail", "dash").unwrap();
        failing.args(["-c", "echo out; echo reason >&2; exit 3"]);
        let error = run(&mut failing, "the attempt").unwrap_err().to_string();
        assert!(
            error.contains("the attempt failed") && error.contains("reason") && error.contains('3'),
            "{error}"
        );
    }
}
