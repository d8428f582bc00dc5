//! What `linux.cgroupsPath` says, in either of its forms.

use std::path::{Component, Path, PathBuf};

/// A path below the root of a hierarchy, from one that the spec gave.
pub(super) fn relative(path: &str) -> Option<PathBuf> {
    let below: PathBuf = Path::new(path.trim_start_matches('/')).components().collect();
    let plain = below
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    (plain && below.components().next().is_some()).then_some(below)
}

/// `slice:prefix:name` as slice and unit.
pub(super) fn scope(path: &str) -> Option<(&str, String)> {
    let name = |text: &str| !text.contains('/') && !text.contains("..");
    let mut parts = path.split(':');
    let (slice, prefix, unit) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || unit.is_empty() || ![slice, prefix, unit].into_iter().all(name) {
        return None;
    }
    let slice = if slice.is_empty() { "system.slice" } else { slice };
    Some((slice, format!("{prefix}-{unit}.scope")))
}

/// Where systemd puts a slice: `a-b.slice` lies in `a.slice`.
pub(super) fn slice_path(slice: &str) -> PathBuf {
    let stem = slice.strip_suffix(".slice").unwrap_or(slice);
    if stem == "-" || stem.is_empty() {
        return PathBuf::new();
    }
    let mut path = PathBuf::new();
    let mut name = String::new();
    for part in stem.split('-') {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(part);
        path.push(format!("{name}.slice"));
    }
    path
}
