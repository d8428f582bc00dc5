//! CPython's jar, through Maven: no project file, one call of its dependency plug-in.

use std::path::Path;

use super::{gone, says_gone};
use crate::error::Result;
use crate::lock::Input;
use crate::tool;

const PURPOSE: &str = "fetch CPython";
const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy";

/// Downloads one jar.
pub(crate) fn download(input: &Input, into: &Path) -> Result<()> {
    let mut command = tool::command("mvn", PURPOSE, "maven")?;
    command
        .args([
            "--batch-mode",
            "--quiet",
            "--no-transfer-progress",
            PLUGIN,
            "-Dmdep.useBaseVersion=true",
        ])
        .arg(format!("-Dartifact={}", coordinates(input)))
        .arg(format!("-DoutputDirectory={}", into.display()))
        .current_dir(into);
    let output = tool::output(&mut command, PURPOSE)?;
    if output.status.success() {
        return Ok(());
    }
    if says_gone(&output, &[&format!("Could not find artifact {}", input.name)]) {
        return Err(gone(&input.name, &input.version, tool::last_words(&output)));
    }
    Err(tool::failed(&command, PURPOSE, &output))
}

fn coordinates(input: &Input) -> String {
    match &input.classifier {
        Some(classifier) => format!("{}:{}:jar:{classifier}", input.name, input.version),
        None => format!("{}:{}:jar", input.name, input.version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Kind, tests::tiny};

    #[test]
    fn coordinates_are_written_as_maven_reads_them() {
        let mut input = tiny().inputs[0].clone();
        input.kind = Kind::Maven;
        input.name = "org.example:cpython".into();
        input.version = "3.12.1".into();
        assert_eq!(coordinates(&input), "org.example:cpython:3.12.1:jar");
        input.classifier = Some("linux-x86_64".into());
        assert_eq!(coordinates(&input), "org.example:cpython:3.12.1:jar:linux-x86_64");
    }
}
