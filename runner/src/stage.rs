//! Takes the job and its files, and puts the files into `/work`.

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use sandglass_run::protocol::{EntryStart, Job};
use sandglass_run::session::SessionError;
use sandglass_run::session::runner::Session;
use sandglass_run::{Language, ToRunner};

use crate::channel::Channel;
use crate::error::{During, RunnerError};

/// Where the image keeps a font cache that matplotlib made ahead. It must stand in a directory that can be
/// written, or matplotlib makes it anew.
const FONT_CACHE: &str = "/usr/share/sandglass/matplotlib";
/// Where matplotlib looks for it: see [`crate::environment`].
const FONT_CACHE_LINKS: &str = "/tmp/.matplotlib";

/// A job whose files are in place.
#[derive(Debug)]
pub struct Staged {
    /// What to run.
    pub job: Job,
    /// The name of the first file: the script.
    pub script: Option<String>,
    session: Session,
}

/// Takes the job and everything that belongs to it.
pub fn receive(channel: &mut Channel) -> Result<Staged, RunnerError> {
    let mut session = Session::new();
    let frame = next(channel, &mut session)?;
    let ToRunner::Job(job) = frame else {
        return Err(unexpected());
    };
    let work = rustix::fs::openat(CWD, "/work", DIRECTORY, Mode::empty()).during("Opening /work")?;
    let mut script = None;
    while !session.is_staged() {
        match next(channel, &mut session)? {
            ToRunner::EntryStart(start) => {
                receive_entry(channel, &mut session, &work, &start)?;
                script.get_or_insert(start.name);
            }
            _ => return Err(unexpected()),
        }
    }
    if job.language == Language::Python {
        link_font_cache();
    }
    Ok(Staged { job, script, session })
}

/// Waits until the outer side has checked what `Ready` said.
pub fn await_go(channel: &mut Channel, staged: &mut Staged) -> Result<(), RunnerError> {
    match next(channel, &mut staged.session)? {
        ToRunner::Go => channel.stop_listening(),
        _ => Err(unexpected()),
    }
}

const DIRECTORY: OFlags =
    OFlags::from_bits_retain(OFlags::DIRECTORY.bits() | OFlags::NOFOLLOW.bits() | OFlags::CLOEXEC.bits());

fn next(channel: &mut Channel, session: &mut Session) -> Result<ToRunner, RunnerError> {
    let frame = channel.receive()?;
    session.accept(&frame)?;
    Ok(frame)
}

/// The session lets nothing through that the callers do not expect; were it otherwise, it is a breach.
fn unexpected() -> RunnerError {
    SessionError::Over.into()
}

fn receive_entry(
    channel: &mut Channel,
    session: &mut Session,
    work: &OwnedFd,
    start: &EntryStart,
) -> Result<(), RunnerError> {
    let refused = |errno| RunnerError::Staging {
        name: start.name.clone(),
        errno,
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(work, &start.name, flags, Mode::from_raw_mode(0o644)).map_err(refused)?;
    loop {
        match next(channel, session)? {
            ToRunner::EntryData(bytes) => write_all(&file, &bytes).map_err(refused)?,
            ToRunner::EntryEnd => return Ok(()),
            _ => return Err(unexpected()),
        }
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Links rather than copies: matplotlib asks whether the directory can be written, and reads the file. A link
/// costs no memory of the run's. Without the cache matplotlib is slow and not wrong, so nothing here is an error.
fn link_font_cache() {
    let Ok(caches) = std::fs::read_dir(FONT_CACHE) else {
        return;
    };
    let _ = rustix::fs::mkdirat(CWD, FONT_CACHE_LINKS, Mode::from_raw_mode(0o755));
    for cache in caches.flatten() {
        let name = cache.file_name();
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"fontlist-") && bytes.ends_with(b".json") {
            let link = std::path::Path::new(FONT_CACHE_LINKS).join(&name);
            let _ = rustix::fs::symlinkat(cache.path(), CWD, link);
        }
    }
}
