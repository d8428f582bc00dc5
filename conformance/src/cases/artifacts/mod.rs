//! What a hostile script leaves in `/out`: only regular files within bounds come back, everything else is told.

mod attributes;
mod bounds;
mod kinds;
mod names;

use crate::case::Case;
use crate::context::Context;
use crate::verdict::{Stop, check, same};
use crate::view::{Status, View};
use std::collections::BTreeSet;
use std::path::Path;

/// Every case of this group.
pub fn cases() -> Vec<Case> {
    [
        kinds::cases(),
        bounds::cases(),
        names::cases(),
        attributes::cases(),
    ]
    .concat()
}

/// Runs a script, with `0-good.txt` in `/out` beside whatever it does, and hands back the report and what came.
fn collect(c: &Context<'_>, text: &str) -> Result<(View, BTreeSet<String>), Stop> {
    let out = c.subdir("out")?;
    let whole = format!("import os\nopen('/out/0-good.txt', 'w').write('good')\nos.chdir('/out')\n{text}");
    let ended = c.python(&whole)?.flag("--out", &out).go()?;
    let report = ended.ended(Status::Succeeded, 0)?.clone();
    let stored = below(&out, &out)?;
    let told: BTreeSet<String> = report.artifacts.iter().map(|a| a.path.clone()).collect();
    same("files in --out and artifacts in the report", &told, &stored)?;
    same(
        "content of the good file",
        &"good".to_owned(),
        &std::fs::read_to_string(out.join("0-good.txt"))?,
    )?;
    for artifact in &report.artifacts {
        let path = out.join(&artifact.path);
        let meta = std::fs::symlink_metadata(&path)?;
        check(
            meta.is_file(),
            "only regular files are stored",
            format!("{path:?}"),
        )?;
        same("size", &artifact.bytes, &meta.len())?;
        if meta.len() < 1 << 26 {
            same("digest", &artifact.sha256, &digest(&path)?)?;
        }
    }
    Ok((report, stored))
}

fn digest(path: &Path) -> Result<String, Stop> {
    use sha2::Digest as _;
    Ok(sha2::Sha256::digest(std::fs::read(path)?)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect())
}

fn below(root: &Path, dir: &Path) -> Result<BTreeSet<String>, Stop> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(below(root, &entry.path())?);
        } else {
            let path = entry.path();
            found.insert(
                path.strip_prefix(root)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned(),
            );
        }
    }
    Ok(found)
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|n| (*n).to_owned()).collect()
}

/// Only the good file came back, and each of these was told with a reason.
fn only_good(report: &View, stored: &BTreeSet<String>, skipped: &[(&str, &str)]) -> Result<(), Stop> {
    same("stored", &names(&["0-good.txt"]), stored)?;
    told(report, skipped)
}

fn told(report: &View, skipped: &[(&str, &str)]) -> Result<(), Stop> {
    for (path, reason) in skipped {
        check(
            report
                .skipped
                .iter()
                .any(|s| s.path == *path && (reason.is_empty() || s.reason == *reason)),
            format!("{path} among skipped {reason}"),
            format!("{:?}", report.skipped),
        )?;
    }
    Ok(())
}
