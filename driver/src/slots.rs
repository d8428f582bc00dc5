//! The concurrency cap: how many runs one person may have at once, across every process of this host.
//!
//! `<state root>/slots/<sha256 of the person>/<index>` are empty files. A run holds one of them with `flock`
//! for as long as it lives, so the kernel frees the slot of a process that was killed. Counting and taking
//! happen under a lock on the person's directory, which makes them one step. Files without a holder are
//! removed by whoever comes next, and the directory with the last of them.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::refusal::Refusal;
use crate::state::{StateRoot, unusable};

/// The person's directory is locked for microseconds; one that stays locked longer than this belongs to a
/// stopped process, and waiting on would hang.
const GUARD_PATIENCE: Duration = Duration::from_secs(2);
const GUARD_PAUSE: Duration = Duration::from_millis(1);

/// A held slot. Dropping it gives the slot back and leaves nothing on the disk.
#[derive(Debug)]
pub struct Slot {
    person_dir: PathBuf,
    name: String,
    /// Holds the lock; the kernel lets go of it when this process ends in whatever way.
    _lock: OwnedFd,
}

/// What the slots of one person look like, seen under the person's lock.
struct Seen {
    running: u32,
    free: Vec<String>,
    taken: Vec<u32>,
}

/// Takes a slot for `person`, of whom at most `cap` runs may live at once.
///
/// # Errors
/// `over_cap` when `cap` runs live already; `state_dir` when the directory cannot be used.
pub fn take(root: &StateRoot, person: &str, cap: u32) -> Result<Slot, Refusal> {
    let slots = root.path().join("slots");
    let person_dir = slots.join(key(person));
    let deadline = Instant::now() + GUARD_PATIENCE;
    let dir = loop {
        make_dir(&slots)?;
        make_dir(&person_dir)?;
        let dir = match open_dir(&person_dir) {
            Ok(dir) => dir,
            // Another run of this person ended between the two lines above and took the directory with it.
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(unusable(&person_dir, "cannot be opened", e)),
        };
        if lock_guard(&dir, &person_dir, deadline)? {
            break dir;
        }
    };
    let seen = look(&dir).map_err(|e| unusable(&person_dir, "cannot be read", e))?;
    for name in &seen.free {
        // Left by a killed process. One that cannot be removed is only an empty file.
        let _ = fs::unlinkat(&dir, name.as_str(), AtFlags::empty());
    }
    if seen.running >= cap {
        return Err(Refusal::new(
            "over_cap",
            format!(
                "{} of {cap} runs of {person:?} are running, so this one was not started.",
                seen.running
            ),
            "Wait for one of them to end, or raise SANDGLASS_RUNS_PER_PERSON.",
        ));
    }
    let index = lowest_free(&seen.taken);
    let name = index.to_string();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = fs::openat(&dir, name.as_str(), flags, Mode::from_raw_mode(0o600))
        .map_err(|e| unusable(&person_dir, "cannot hold a slot", e))?;
    fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|e| unusable(&person_dir, "cannot be locked", e))?;
    Ok(Slot {
        person_dir,
        name,
        _lock: lock,
    })
}

/// Removes what killed processes left in the slots of everyone. A live run is never touched.
///
/// A run cleans up after its own person only; this is for `doctor` and the reaper.
pub fn sweep(root: &StateRoot) {
    let slots = root.path().join("slots");
    let Ok(entries) = std::fs::read_dir(&slots) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(dir) = open_dir(&path) else { continue };
        if fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        if let Ok(seen) = look(&dir) {
            for name in seen.free {
                let _ = fs::unlinkat(&dir, name.as_str(), AtFlags::empty());
            }
        }
        // Only an empty one goes.
        let _ = fs::rmdir(&path);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Ok(dir) = open_dir(&self.person_dir) else {
            return;
        };
        let deadline = Instant::now() + GUARD_PATIENCE;
        if !matches!(lock_guard(&dir, &self.person_dir, deadline), Ok(true)) {
            return;
        }
        let _ = fs::unlinkat(&dir, self.name.as_str(), AtFlags::empty());
        // Only an empty one goes; whoever waits for its lock sees that and makes it again.
        let _ = fs::rmdir(&self.person_dir);
    }
}

/// The name of a person's directory. The hash keeps any name (slashes, dots, length) a harmless one.
fn key(person: &str) -> String {
    hex(&Sha256::digest(person.as_bytes()))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut s, b| {
            let _ = write!(s, "{b:02x}");
            s
        })
}

fn make_dir(path: &Path) -> Result<(), Refusal> {
    match fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(unusable(path, "cannot be made", e)),
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty())
}

/// Locks the person's directory. `false`: it was removed while we waited, open it again.
fn lock_guard(dir: &OwnedFd, path: &Path, deadline: Instant) -> Result<bool, Refusal> {
    loop {
        match fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(GUARD_PAUSE),
            Err(Errno::INTR) => {}
            Err(e) => return Err(unusable(path, "stays locked by another process", e)),
        }
    }
    let stat = fs::fstat(dir).map_err(|e| unusable(path, "cannot be read", e))?;
    Ok(stat.st_nlink > 0)
}

/// Counts the held and the free slots; the caller holds the person's lock.
fn look(dir: &OwnedFd) -> Result<Seen, Errno> {
    let mut seen = Seen {
        running: 0,
        free: Vec::new(),
        taken: Vec::new(),
    };
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let Some(name) = entry
            .file_name()
            .to_str()
            .ok()
            .filter(|n| n.parse::<u32>().is_ok())
        else {
            continue;
        };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let slot = match fs::openat(dir, name, flags, Mode::empty()) {
            Ok(slot) => slot,
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(e),
        };
        match fs::flock(&slot, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => seen.free.push(name.to_owned()),
            Err(Errno::WOULDBLOCK) => {
                seen.running += 1;
                seen.taken.extend(name.parse::<u32>());
            }
            Err(e) => return Err(e),
        }
    }
    Ok(seen)
}

fn lowest_free(taken: &[u32]) -> u32 {
    (0..).find(|i| !taken.contains(i)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    fn root() -> (tempfile::TempDir, StateRoot) {
        let tmp = tempfile::tempdir().unwrap();
        let root = StateRoot::open(&tmp.path().join("state")).unwrap();
        (tmp, root)
    }

    #[test]
    fn the_fourth_run_of_a_person_is_refused_and_says_how_many_run() {
        let (_tmp, root) = root();
        let held: Vec<_> = (0..3).map(|_| take(&root, "ada", 3).unwrap()).collect();
        let e = take(&root, "ada", 3).unwrap_err();
        assert_eq!(e.code, "over_cap");
        assert!(e.message.contains("3 of 3"), "{e}");
        take(&root, "grace", 3).unwrap();
        drop(held);
        take(&root, "ada", 3).unwrap();
    }

    #[test]
    fn a_lowered_cap_counts_the_runs_above_it() {
        let (_tmp, root) = root();
        let mut held: Vec<_> = (0..5).map(|_| take(&root, "ada", 5).unwrap()).collect();
        drop(held.drain(..2));
        let e = take(&root, "ada", 3).unwrap_err();
        assert!(e.message.contains("3 of 3"), "{e}");
    }

    #[test]
    fn nothing_is_left_when_the_last_run_ends() {
        let (_tmp, root) = root();
        let a = take(&root, "../../etc", 3).unwrap();
        let b = take(&root, "../../etc", 3).unwrap();
        drop(a);
        assert_eq!(std::fs::read_dir(root.path().join("slots")).unwrap().count(), 1);
        drop(b);
        assert_eq!(std::fs::read_dir(root.path().join("slots")).unwrap().count(), 0);
    }

    #[test]
    fn a_killed_process_frees_its_slot_and_a_live_one_keeps_it() {
        let (_tmp, root) = root();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "slots::tests::hold_a_slot_until_killed",
                "--nocapture",
            ])
            .env("SLOT_TEST_ROOT", root.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines.any(|l| l.unwrap().contains("slot is held")),
            "the helper holds a slot"
        );
        assert_eq!(take(&root, "ada", 1).unwrap_err().code, "over_cap");
        sweep(&root);
        assert_eq!(
            take(&root, "ada", 1).unwrap_err().code,
            "over_cap",
            "a sweep never takes a live run's slot"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        drop(take(&root, "ada", 1).unwrap());
        assert_eq!(std::fs::read_dir(root.path().join("slots")).unwrap().count(), 0);
    }

    /// Not a test: the other process of the test above.
    #[test]
    #[ignore = "a helper process of another test"]
    fn hold_a_slot_until_killed() {
        let root = StateRoot::open(Path::new(&std::env::var_os("SLOT_TEST_ROOT").unwrap())).unwrap();
        let _slot = take(&root, "ada", 1).unwrap();
        println!("slot is held");
        std::thread::sleep(Duration::from_secs(60));
        panic!("nobody killed the helper");
    }

    #[test]
    fn a_sweep_removes_what_a_killed_process_left() {
        let (_tmp, root) = root();
        let dir = root.path().join("slots").join(key("ada"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("0"), b"").unwrap();
        std::fs::write(dir.join("7"), b"").unwrap();
        sweep(&root);
        assert!(!dir.exists());
    }

    #[test]
    fn many_threads_never_hold_more_than_the_cap() {
        let (_tmp, root) = root();
        let most = std::sync::atomic::AtomicU32::new(0);
        let live = std::sync::atomic::AtomicU32::new(0);
        use std::sync::atomic::Ordering::SeqCst;
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for _ in 0..50 {
                        if let Ok(slot) = take(&root, "ada", 3) {
                            most.fetch_max(live.fetch_add(1, SeqCst) + 1, SeqCst);
                            live.fetch_sub(1, SeqCst);
                            drop(slot);
                        }
                    }
                });
            }
        });
        let most = most.load(SeqCst);
        assert!((1..=3).contains(&most), "{most} at once");
    }
}
