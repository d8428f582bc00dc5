//! Wheels, through pip: never built from source, never installed on the machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{gone, says_gone};
use crate::error::{At, Result};
use crate::lock::Input;
use crate::tool;

const PURPOSE: &str = "fetch the Python packages";

/// Platform tags that the image's glibc satisfies, newest first. Nothing newer than manylinux_2_28, so that the image
/// could move to an older base.
const PLATFORMS: [&str; 7] = [
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_26_x86_64",
    "manylinux_2_24_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux_2_12_x86_64",
];

/// Downloads exactly the pinned wheels; pip checks their sha256 as well.
pub(crate) fn download_pinned(inputs: &[&Input], python: &str, into: &Path) -> Result<()> {
    let requirements = into.join("requirements.txt");
    let text: String = inputs
        .iter()
        .map(|input| {
            format!(
                "{}=={} --hash=sha256:{}\n",
                input.name, input.version, input.sha256
            )
        })
        .collect();
    fs::write(&requirements, text).at(&requirements)?;
    let mut command = pip(python, into)?;
    command
        .args(["--no-deps", "--require-hashes", "-r"])
        .arg(&requirements);
    let output = tool::output(&mut command, PURPOSE)?;
    if output.status.success() {
        return Ok(());
    }
    if says_gone(
        &output,
        &[
            "No matching distribution found",
            "Could not find a version that satisfies",
        ],
    ) {
        let said = tool::last_words(&output);
        let which = inputs
            .iter()
            .find(|input| said.contains(&format!("{}==", input.name)));
        let (name, version) = which.map_or(("a wheel", ""), |input| (&input.name, &input.version));
        return Err(gone(name, version, said));
    }
    Err(tool::failed(&command, PURPOSE, &output))
}

/// Downloads the newest wheels of these packages and of all that they depend on.
pub(crate) fn download_newest(packages: &[String], python: &str, into: &Path) -> Result<()> {
    let mut command = pip(python, into)?;
    tool::run(command.arg("--").args(packages), PURPOSE)?;
    Ok(())
}

/// The normalized name and the version in a wheel's file name.
pub(crate) fn name_and_version(file: &str) -> Option<(String, String)> {
    let mut parts = file.strip_suffix(".whl")?.split('-');
    let (name, version) = (parts.next()?, parts.next()?);
    (parts.count() >= 3).then(|| {
        (
            name.to_ascii_lowercase().replace(['_', '.'], "-"),
            version.to_owned(),
        )
    })
}

fn pip(python: &str, into: &Path) -> Result<Command> {
    let mut command = match tool::find("pip3").or_else(|| tool::find("pip")) {
        Some(path) => Command::new(path),
        None => return Err(tool::missing("pip3", PURPOSE, "python3-pip")),
    };
    command.env("LC_ALL", "C.UTF-8").args([
        "download",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--implementation=cp",
        "--python-version",
        python,
    ]);
    for platform in PLATFORMS {
        command.args(["--platform", platform]);
    }
    command.arg("--dest").arg(into);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_say_name_and_version() {
        assert_eq!(
            name_and_version("charset_normalizer-3.5.3-cp312-cp312-manylinux_2_28_x86_64.whl"),
            Some(("charset-normalizer".into(), "3.5.3".into()))
        );
        assert_eq!(
            name_and_version("pypdf-7.1.1-py3-none-any.whl"),
            Some(("pypdf".into(), "7.1.1".into()))
        );
        assert_eq!(name_and_version("pypdf-7.1.1.tar.gz"), None);
        assert_eq!(name_and_version("pypdf.whl"), None);
    }

    #[test]
    fn no_wheel_for_a_newer_base_than_manylinux_2_28_is_asked_for() {
        for platform in PLATFORMS {
            let minor = platform
                .strip_prefix("manylinux_2_")
                .and_then(|rest| rest.split('_').next());
            assert!(
                minor.is_none_or(|minor| minor.parse::<u32>().unwrap() <= 28),
                "{platform}"
            );
        }
    }
}
