//! Node's own binary distribution, through npm. Only a file is fetched; no script of a package runs.

use std::path::Path;

use super::{gone, says_gone};
use crate::error::{ImageError, Result};
use crate::tool;

const PURPOSE: &str = "fetch Node";

/// Downloads one package file.
pub(crate) fn download(name: &str, version: &str, into: &Path) -> Result<()> {
    let mut command = tool::command("npm", PURPOSE, "npm")?;
    command
        .args([
            "pack",
            "--silent",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
        ])
        .arg(format!("{name}@{version}"))
        .current_dir(into);
    let output = tool::output(&mut command, PURPOSE)?;
    if output.status.success() {
        return Ok(());
    }
    if says_gone(&output, &["E404", "ETARGET", "No matching version"]) {
        return Err(gone(name, version, tool::last_words(&output)));
    }
    Err(tool::failed(&command, PURPOSE, &output))
}

/// The newest version that a range such as `20` allows.
pub(crate) fn newest(name: &str, range: &str) -> Result<String> {
    let mut command = tool::command("npm", PURPOSE, "npm")?;
    command.args(["view", "--json", &format!("{name}@{range}"), "version"]);
    let said = tool::run(&mut command, PURPOSE)?;
    newest_of(&said).ok_or_else(|| ImageError::Lock(format!("npm names no version of {name}@{range}")))
}

/// npm answers with one string, or with a list of them.
fn newest_of(json: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let all = match &value {
        serde_json::Value::String(one) => vec![one.as_str()],
        serde_json::Value::Array(many) => many.iter().filter_map(serde_json::Value::as_str).collect(),
        _ => return None,
    };
    all.into_iter()
        .max_by_key(|version| numbers(version))
        .map(str::to_owned)
}

fn numbers(version: &str) -> Vec<u64> {
    version
        .split(['.', '-', '+'])
        .map(|part| part.parse().unwrap_or(0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::newest_of;

    #[test]
    fn the_newest_version_is_chosen_by_number() {
        assert_eq!(
            newest_of(r#"["20.9.0","20.20.2","20.10.0"]"#).as_deref(),
            Some("20.20.2")
        );
        assert_eq!(newest_of(r#""20.20.2""#).as_deref(), Some("20.20.2"));
        assert_eq!(newest_of("{}"), None);
        assert_eq!(newest_of("[]"), None);
    }
}
