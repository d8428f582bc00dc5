//! Takes the artifacts out of `/out`, when the runner is the only process left.
//!
//! Every name there was chosen by the script. Nothing is opened by a path: each step opens one name below a
//! directory that is already open, never through a link and never into another file system, and what is open is
//! looked at again before it is read.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use sandglass_run::frame::MAX_BULK_BYTES;
use sandglass_run::name::{MAX_PATH_BYTES, MAX_SHOWN_PATH_BYTES, file_name_from_bytes, printable};
use sandglass_run::protocol::{
    ArtifactBounds, ArtifactEnd, ArtifactStart, MAX_SKIPPED, SkippedEntry, SkippedMore,
};
use sandglass_run::{FromRunner, SkipReason};

use crate::channel::Channel;
use crate::error::{During, RunnerError};
use crate::listing::{Listing, list};

/// Most entries that are looked at; more are only counted.
const MAX_VISITED: u64 = 100_000;

/// Where artifacts go.
pub trait Sink {
    /// Takes a frame.
    fn frame(&mut self, frame: &FromRunner) -> Result<(), RunnerError>;
    /// Takes a piece of the artifact that was begun.
    fn data(&mut self, bytes: &[u8]) -> Result<(), RunnerError>;
}

impl Sink for Channel {
    fn frame(&mut self, frame: &FromRunner) -> Result<(), RunnerError> {
        self.queue(frame)?;
        // Many small frames go out together, and never more than a bulk frame's worth waits.
        if self.queued_bytes() > MAX_BULK_BYTES {
            self.settle()
        } else {
            Ok(())
        }
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), RunnerError> {
        self.queue_artifact_data(bytes)?;
        self.settle()
    }
}

/// Opens `/out`.
pub fn open_out() -> Result<OwnedFd, RunnerError> {
    rustix::fs::openat(
        CWD,
        "/out",
        OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .during("Opening /out")
}

/// Sends every regular file below `out` that is within the bounds, and a line about everything else. Paths come
/// in the order of [`sandglass_run::name::compare_paths`].
pub fn collect(out: &OwnedFd, bounds: ArtifactBounds, sink: &mut impl Sink) -> Result<(), RunnerError> {
    let device = rustix::fs::fstat(out).during("Looking at /out")?.st_dev;
    let directory = rustix::io::fcntl_dupfd_cloexec(out, 3).during("Opening /out again")?;
    let bytes_left = bounds.max_bytes_total;
    let mut walk = Walk {
        bounds,
        device,
        sink,
        count: 0,
        bytes_left,
        listed: 0,
        more: 0,
        visited: 0,
        buffer: Vec::new(),
    };
    // Depth first, names in order. Both the depth and the names of each level are bounded.
    let mut levels = Vec::from_iter(walk.enter(directory, Vec::new(), 0)?);
    while let Some(mut level) = levels.pop() {
        let Some(name) = level.listing.names.pop() else {
            continue;
        };
        let below = walk.visit(&level, &name)?;
        levels.push(level);
        levels.extend(below);
    }
    match walk.more {
        0 => Ok(()),
        count => walk.sink.frame(&FromRunner::SkippedMore(SkippedMore { count })),
    }
}

/// A directory that is being walked.
struct Level {
    directory: OwnedFd,
    listing: Listing,
    /// Its path below `/out`, empty or ending in a slash.
    prefix: Vec<u8>,
    /// How many components that path has.
    depth: u32,
}

/// What an entry turned out to be.
enum Entry {
    File(OwnedFd, Stat),
    Directory(OwnedFd),
    Other(SkipReason),
}

struct Walk<'a, S> {
    bounds: ArtifactBounds,
    device: u64,
    sink: &'a mut S,
    count: u32,
    bytes_left: u64,
    /// Lines sent about what was not taken.
    listed: usize,
    /// What no line was sent about.
    more: u64,
    visited: u64,
    buffer: Vec<u8>,
}

impl<S: Sink> Walk<'_, S> {
    fn enter(
        &mut self,
        directory: OwnedFd,
        prefix: Vec<u8>,
        depth: u32,
    ) -> Result<Option<Level>, RunnerError> {
        let keep = self.bounds.max_count as usize + MAX_SKIPPED + 1;
        match list(&directory, keep) {
            Ok(listing) => {
                self.more = self.more.saturating_add(listing.more);
                Ok(Some(Level {
                    directory,
                    listing,
                    prefix,
                    depth,
                }))
            }
            Err(_) => {
                self.skip(prefix.strip_suffix(b"/").unwrap_or(b"."), SkipReason::Unreadable)?;
                Ok(None)
            }
        }
    }

    /// Sends one entry, or a line about it. Gives the level below when it is a directory to be walked.
    fn visit(&mut self, level: &Level, name: &[u8]) -> Result<Option<Level>, RunnerError> {
        if self.visited >= MAX_VISITED {
            self.more = self.more.saturating_add(1);
            return Ok(None);
        }
        self.visited += 1;
        let path = [level.prefix.as_slice(), name].concat();
        let allowed = name.len() <= self.bounds.max_name_bytes as usize
            && path.len() <= MAX_PATH_BYTES
            && file_name_from_bytes(name).is_ok();
        let Some(text) = std::str::from_utf8(&path).ok().filter(|_| allowed) else {
            self.skip(&path, SkipReason::NameInvalid)?;
            return Ok(None);
        };
        match open_entry(&level.directory, name, self.device) {
            Entry::File(file, stat) => self.take(&file, &stat, text)?,
            Entry::Directory(_) if level.depth + 1 >= self.bounds.max_depth => {
                self.skip(&path, SkipReason::DirectoryTooDeep)?;
            }
            Entry::Directory(directory) => {
                return self.enter(directory, [&path, &b"/"[..]].concat(), level.depth + 1);
            }
            Entry::Other(reason) => self.skip(&path, reason)?,
        }
        Ok(None)
    }

    fn take(&mut self, file: &OwnedFd, stat: &Stat, path: &str) -> Result<(), RunnerError> {
        let bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if self.count >= self.bounds.max_count {
            return self.skip(path.as_bytes(), SkipReason::TooMany);
        }
        // A sparse file counts as what it would take to hold it.
        if bytes > self.bytes_left {
            return self.skip(path.as_bytes(), SkipReason::TooLarge);
        }
        self.count += 1;
        self.bytes_left -= bytes;
        let start = ArtifactStart {
            path: path.to_owned(),
            bytes,
            mode: stat.st_mode & 0o777,
        };
        self.sink.frame(&FromRunner::ArtifactStart(start))?;
        let complete = self.copy(file, bytes)?;
        self.sink
            .frame(&FromRunner::ArtifactEnd(ArtifactEnd { complete }))
    }

    /// Sends what was announced. True when that was exactly what is there.
    fn copy(&mut self, file: &OwnedFd, bytes: u64) -> Result<bool, RunnerError> {
        self.buffer.resize(MAX_BULK_BYTES, 0);
        let mut left = bytes;
        loop {
            match rustix::io::read(file, &mut self.buffer) {
                Ok(0) => return Ok(left == 0),
                Ok(read) => {
                    let Some(after) = left.checked_sub(read as u64) else {
                        return Ok(false);
                    };
                    left = after;
                    self.sink.data(self.buffer.get(..read).unwrap_or_default())?;
                }
                Err(Errno::INTR) => {}
                Err(_) => return Ok(false),
            }
        }
    }

    fn skip(&mut self, path: &[u8], reason: SkipReason) -> Result<(), RunnerError> {
        if self.listed >= MAX_SKIPPED {
            self.more = self.more.saturating_add(1);
            return Ok(());
        }
        self.listed += 1;
        let path_lossy = printable(path, MAX_SHOWN_PATH_BYTES);
        self.sink
            .frame(&FromRunner::Skipped(SkippedEntry { path_lossy, reason }))
    }
}

/// Opens one entry if it is a file or a directory on this device. Pipes, sockets and devices are not opened.
fn open_entry(directory: &OwnedFd, name: &[u8], device: u64) -> Entry {
    let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return Entry::Other(SkipReason::Unreadable);
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    let more = match kind {
        FileType::RegularFile => OFlags::NONBLOCK | OFlags::NOCTTY,
        FileType::Directory => OFlags::DIRECTORY,
        FileType::Symlink => return Entry::Other(SkipReason::SymbolicLink),
        FileType::Fifo => return Entry::Other(SkipReason::Fifo),
        FileType::Socket => return Entry::Other(SkipReason::Socket),
        _ => return Entry::Other(SkipReason::Device),
    };
    let opened = open_beneath(
        directory,
        name,
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | more,
    )
    .and_then(|file| Ok((rustix::fs::fstat(&file)?, file)));
    match opened {
        Ok((open, file)) if open.st_dev == device && FileType::from_raw_mode(open.st_mode) == kind => {
            match kind {
                FileType::Directory => Entry::Directory(file),
                _ => Entry::File(file, open),
            }
        }
        Err(Errno::LOOP) => Entry::Other(SkipReason::SymbolicLink),
        _ => Entry::Other(SkipReason::Unreadable),
    }
}

/// Opens a name below a directory. Kernels without `openat2` open it the older way: it is a single component
/// that is not followed, and the caller compares the device, so nothing is lost.
fn open_beneath(directory: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_XDEV
        | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS) => rustix::fs::openat(directory, name, flags, Mode::empty()),
        result => result,
    }
}
