//! The script's output on its way to our stdout or stderr.
//!
//! A reader that is slow or gone must not hold up a run: bytes wait in a queue, and only what can be written
//! without blocking is written while the run lives. The queue is bounded by what the driver hands on, which is
//! the output cap of each stream. A reader that is gone (`| head -1`) ends the printing and not the run.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::terminal::Sanitiser;

/// A pipe that is ready takes this much without blocking (PIPE_BUF).
const CHUNK: usize = 4096;

/// One of our two output streams.
#[derive(Debug)]
pub struct Outlet<'fd> {
    fd: BorrowedFd<'fd>,
    queue: VecDeque<u8>,
    sanitiser: Option<Sanitiser>,
    gone: Option<Errno>,
}

impl<'fd> Outlet<'fd> {
    /// An outlet to `fd`; with `sanitise` its bytes are made harmless for a terminal.
    pub fn new(fd: BorrowedFd<'fd>, sanitise: bool) -> Self {
        Self {
            fd,
            queue: VecDeque::new(),
            sanitiser: sanitise.then(Sanitiser::default),
            gone: None,
        }
    }

    /// Takes bytes and writes what can be written at once.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.gone.is_some() {
            return;
        }
        match &mut self.sanitiser {
            None => self.queue.extend(bytes),
            Some(s) => self.queue.extend(s.push(bytes).into_bytes()),
        }
        self.write_ready();
    }

    /// Writes as much as can be written without blocking; true when nothing waits any more.
    pub fn write_ready(&mut self) -> bool {
        while !self.queue.is_empty()
            && ready(
                self.fd,
                Some(&Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                }),
            )
        {
            self.write_some();
        }
        self.queue.is_empty()
    }

    /// Writes everything, however long the reader takes.
    pub fn finish(&mut self) {
        if let Some(s) = &mut self.sanitiser {
            let rest = s.finish();
            self.queue.extend(rest.into_bytes());
        }
        while !self.queue.is_empty() {
            // A descriptor that poll does not know is simply written to.
            ready(self.fd, None);
            self.write_some();
        }
    }

    /// What broke the stream, but for a reader that went away.
    pub fn error(&self) -> Option<Errno> {
        self.gone.filter(|e| *e != Errno::PIPE)
    }

    fn write_some(&mut self) {
        let (head, _) = self.queue.as_slices();
        match rustix::io::write(self.fd, &head[..head.len().min(CHUNK)]) {
            Ok(n) => {
                self.queue.drain(..n);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => {
                self.gone = Some(e);
                self.queue.clear();
            }
        }
    }
}

/// Whether a write would not block (or would fail at once).
fn ready(fd: BorrowedFd<'_>, timeout: Option<&Timespec>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    match poll(&mut fds, timeout) {
        Ok(n) => n > 0,
        Err(Errno::INTR | Errno::AGAIN) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    #[test]
    fn a_reader_that_does_not_read_never_blocks_us_and_gets_everything_later() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut outlet = Outlet::new(writer.as_fd(), false);
        let bytes = vec![b'x'; 1 << 20];
        outlet.push(&bytes);
        assert!(!outlet.write_ready(), "a pipe does not take a megabyte");
        let got = std::thread::scope(|s| {
            let got = s.spawn(move || {
                let mut got = vec![0; 1 << 20];
                reader.read_exact(&mut got).unwrap();
                got
            });
            outlet.finish();
            got.join().unwrap()
        });
        assert_eq!(got, bytes);
        assert!(outlet.error().is_none());
    }

    #[test]
    fn a_reader_that_went_away_ends_the_printing_without_an_error() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut outlet = Outlet::new(writer.as_fd(), false);
        outlet.push(b"hello");
        assert!(outlet.write_ready());
        outlet.push(b"again");
        assert!(outlet.queue.is_empty() && outlet.error().is_none());
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut outlet = Outlet::new(full.as_fd(), false);
        outlet.push(b"hello");
        outlet.finish();
        assert_eq!(outlet.error(), Some(Errno::NOSPC));
    }

    #[test]
    fn what_is_cut_at_the_end_is_still_shown() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut outlet = Outlet::new(writer.as_fd(), true);
        outlet.push(b"a\x1b[3");
        outlet.finish();
        drop(outlet);
        drop(writer);
        let mut got = String::new();
        reader.read_to_string(&mut got).unwrap();
        assert_eq!(got, "a^[[3");
    }
}
