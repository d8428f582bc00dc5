//! Reading and writing the kernel's control files through a directory descriptor.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// A control file is a page at most; no more than this is read of one.
const MOST: u64 = 64 << 10;

/// Opens a directory of a cgroup hierarchy.
pub(super) fn open_dir(at: impl AsFd, path: &Path) -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::openat(
        at,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Opens a control file for writing.
pub(super) fn open_to_write(dir: &OwnedFd, name: &str) -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::openat(
        dir,
        name,
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Writes a value in one write, as the kernel wants it.
pub(super) fn put(dir: &OwnedFd, name: &str, value: &str) -> std::io::Result<()> {
    std::fs::File::from(open_to_write(dir, name)?).write_all(value.as_bytes())
}

/// Reads a control file.
pub(super) fn get(dir: &OwnedFd, name: &str) -> std::io::Result<String> {
    let file = rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    std::fs::File::from(file).take(MOST).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a control file that holds one number; `None` also for `max`, which is no limit.
pub(super) fn get_u64(dir: &OwnedFd, name: &str) -> Option<u64> {
    get(dir, name).ok()?.trim().parse().ok()
}

/// The number behind a key in a file of `key value` lines.
pub(super) fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_key_and_not_its_namesake() {
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(value_of(v1, "oom_kill"), Some(3));
        let v2 = "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(value_of(v2, "oom_kill"), Some(1));
        assert_eq!(value_of(v2, "absent"), None);
    }
}
