//! Clearing away stacks whose owner and whose supervisor were both killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Result, StackError};
use crate::place::Place;
use crate::supervise::cgroup::{Hierarchy, below};

/// How long killed processes may take to go.
const PATIENCE: Duration = Duration::from_secs(5);

/// Marks a stack as alive as long as the file that is returned is open, in this process or another.
///
/// # Errors
/// Where the folder of the stack cannot be written.
pub(crate) fn mark(place: &Place) -> Result<File> {
    let roomy = place.short.join("roomy");
    fs::write(&roomy, place.roomy.as_os_str().as_encoded_bytes())
        .map_err(StackError::at("Writing", &roomy))?;
    // Under its name it is locked from the first moment on.
    let (new, path) = (place.short.join("lock.new"), place.short.join("lock"));
    let file = shared(&new)?;
    fs::rename(&new, &path).map_err(StackError::at("Renaming", &new))?;
    Ok(file)
}

/// The same, for a stack that is marked already.
///
/// # Errors
/// Where the mark is not there.
pub(crate) fn hold(place: &Place) -> Result<File> {
    shared(&place.short.join("lock"))
}

fn shared(path: &Path) -> Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(StackError::at("Opening", path))?;
    file.lock_shared().map_err(StackError::at("Locking", path))?;
    Ok(file)
}

/// Removes what dead stacks left; returns their names. One that cannot be removed is left to the next.
pub fn reap() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("sg-"))
        .filter_map(|entry| {
            let (name, short) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
            let lock = File::open(short.join("lock")).ok()?;
            lock.try_lock().ok()?;
            remove(&name, &short).then_some(name)
        })
        .collect()
}

fn remove(name: &str, short: &Path) -> bool {
    let groups = groups(name);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let processes: Vec<i32> = groups
            .iter()
            .flat_map(|group| below(group))
            .filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok())
            .flat_map(|pids| {
                pids.lines()
                    .filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<i32>>()
            })
            .filter(|pid| *pid > 1)
            .collect();
        if processes.is_empty() {
            break;
        }
        if Instant::now() > deadline {
            return false;
        }
        for pid in processes {
            // One that is gone already is what is wanted.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for group in groups.iter().flat_map(|group| below(group).into_iter().rev()) {
        if fs::remove_dir(group).is_err() {
            return false;
        }
    }
    // The name in the file must be the one that such a stack has: nothing else is removed on its word.
    let roomy = fs::read_to_string(short.join("roomy")).map(PathBuf::from).ok();
    if let Some(roomy) = roomy.filter(|path| path.ends_with(Path::new("live").join(name))) {
        let _ = fs::remove_dir_all(roomy);
    }
    fs::remove_dir_all(short).is_ok()
}

/// The groups of a stack, wherever in a hierarchy its owner was.
fn groups(name: &str) -> Vec<PathBuf> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    Hierarchy::all(&mountinfo)
        .iter()
        .flat_map(|hierarchy| below(&hierarchy.mount))
        .filter(|folder| folder.ends_with(name))
        .collect()
}
