//! Making the lock anew: the newest versions of the same inputs, with their sha256.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cache::Cache;
use crate::digest::sha256_file;
use crate::error::{At, ImageError, Result};
use crate::fetch::{apt, join, maven, npm, pip};
use crate::lock::{Input, Kind, Lock};
use crate::progress::Progress;

/// Resolves the newest versions of everything in `old` and gives a lock that pins them: Debian packages as the suite
/// has them today, `python_packages` with all their dependencies, the newest Node of the same major version. CPython
/// keeps its version, since the wheels are made for it. The fetched files stay in the cache for the next build.
pub fn relock(old: &Lock, cache: &Path, progress: &dyn Progress) -> Result<Lock> {
    let cache = Cache::open(cache)?;
    let found: Vec<Result<Vec<Input>>> = thread::scope(|scope| {
        let cache = &cache;
        let clients = [
            scope.spawn(|| step("resolve Debian packages (apt)", progress, || debian(old, cache))),
            scope.spawn(|| step("resolve Python packages (pip)", progress, || wheels(old, cache))),
            scope.spawn(|| step("resolve CPython (mvn)", progress, || jars(old, cache))),
            scope.spawn(|| step("resolve Node (npm)", progress, || node(old, cache))),
        ];
        clients.into_iter().map(join).collect()
    });
    let mut inputs: Vec<Input> = found
        .into_iter()
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    inputs.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let lock = Lock {
        inputs,
        source_date_epoch: now / 86_400 * 86_400,
        ..old.clone()
    };
    // Through the parser, so that what is written can be read.
    Lock::parse(&lock.to_toml()?)
}

fn step(
    name: &str,
    progress: &dyn Progress,
    work: impl FnOnce() -> Result<Vec<Input>>,
) -> Result<Vec<Input>> {
    progress.started(name);
    let inputs = work()?;
    progress.finished(name, &format!("{} files", inputs.len()));
    Ok(inputs)
}

fn debian(old: &Lock, cache: &Cache) -> Result<Vec<Input>> {
    let scratch = cache.scratch()?;
    let into = files(scratch.path())?;
    let names: Vec<_> = old
        .of(Kind::Deb)
        .map(|input| (input.name.as_str(), None))
        .collect();
    apt::Apt::prepare(scratch.path(), &old.debian_suite)?.download(&names, &into)?;
    pin_all(Kind::Deb, &into, cache, apt::name_and_version)
}

fn wheels(old: &Lock, cache: &Cache) -> Result<Vec<Input>> {
    let scratch = cache.scratch()?;
    let into = files(scratch.path())?;
    pip::download_newest(&old.python_packages, &old.python, &into)?;
    pin_all(Kind::Wheel, &into, cache, pip::name_and_version)
}

fn jars(old: &Lock, cache: &Cache) -> Result<Vec<Input>> {
    let scratch = cache.scratch()?;
    let into = files(scratch.path())?;
    let mut pinned = Vec::new();
    for input in old.of(Kind::Maven) {
        maven::download(input, &into)?;
        pinned.push(pin(input.clone(), &into, cache)?);
    }
    Ok(pinned)
}

fn node(old: &Lock, cache: &Cache) -> Result<Vec<Input>> {
    let scratch = cache.scratch()?;
    let into = files(scratch.path())?;
    let mut pinned = Vec::new();
    for input in old.of(Kind::Npm) {
        let major = input.version.split('.').next().unwrap_or_default();
        let version = npm::newest(&input.name, major)?;
        npm::download(&input.name, &version, &into)?;
        let file = format!("{}-{version}.tgz", input.name);
        pinned.push(pin(
            Input {
                version,
                file,
                ..input.clone()
            },
            &into,
            cache,
        )?);
    }
    Ok(pinned)
}

fn files(scratch: &Path) -> Result<std::path::PathBuf> {
    let into = scratch.join("files");
    fs::create_dir(&into).at(&into)?;
    Ok(into)
}

fn pin_all(
    kind: Kind,
    into: &Path,
    cache: &Cache,
    parse: impl Fn(&str) -> Option<(String, String)>,
) -> Result<Vec<Input>> {
    let mut pinned = Vec::new();
    for entry in fs::read_dir(into).at(into)? {
        let file = entry.at(into)?.file_name().to_string_lossy().into_owned();
        let (name, version) = parse(&file)
            .ok_or_else(|| ImageError::Lock(format!("{file} arrived, which has no name and version")))?;
        let input = Input {
            kind,
            name,
            version,
            classifier: None,
            file,
            sha256: String::new(),
            bytes: 0,
        };
        pinned.push(pin(input, into, cache)?);
    }
    Ok(pinned)
}

/// Fills in the digest of a downloaded file and moves it to the cache.
fn pin(input: Input, into: &Path, cache: &Cache) -> Result<Input> {
    let path = into.join(&input.file);
    let (sha256, bytes) = sha256_file(&path).at(&path)?;
    cache.keep(&path, &sha256)?;
    Ok(Input {
        sha256,
        bytes,
        ..input
    })
}
