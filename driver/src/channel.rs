//! The three pipes of a sandbox, without blocking: frames out, frames in, diagnostics.

use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;

use sandglass_run::{Decoder, FromRunner};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Bytes that one read takes: a pipe's size.
const READ: usize = 64 * 1024;
/// What is kept of the runner's and the worker's own stderr.
const DIAGNOSTICS: usize = 4 * 1024;

/// The outer ends of a sandbox's pipes.
#[derive(Debug)]
pub struct Channel {
    to_runner: Sender,
    from_runner: Receiver,
    stderr: Option<Receiver>,
    decoder: Decoder<FromRunner>,
    buffer: Vec<u8>,
    diagnostics: Vec<u8>,
}

impl Channel {
    /// Takes the pipes over; must be called within a tokio runtime that has its I/O on.
    ///
    /// # Errors
    /// When they are not pipes, or cannot be watched.
    pub fn new(to_runner: OwnedFd, from_runner: OwnedFd, stderr: Option<OwnedFd>) -> std::io::Result<Self> {
        Ok(Self {
            to_runner: Sender::from_owned_fd(to_runner)?,
            from_runner: Receiver::from_owned_fd(from_runner)?,
            stderr: stderr.map(Receiver::from_owned_fd).transpose()?,
            decoder: Decoder::new(),
            buffer: vec![0; READ],
            diagnostics: Vec::new(),
        })
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// `BrokenPipe` when nobody reads any more.
    pub async fn send(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            self.to_runner.writable().await?;
            match self.to_runner.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next frame, or nothing when the other side has closed. May be dropped at any await without losing bytes.
    ///
    /// # Errors
    /// When the bytes are not frames, or reading fails.
    pub async fn receive(&mut self) -> Result<Option<FromRunner>, String> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(|e| e.to_string())? {
                return Ok(Some(frame));
            }
            let read = match &self.stderr {
                None => readable(&self.from_runner, &mut self.buffer).await,
                // Diagnostics are drained as they come: a full pipe there would hold up the runner.
                Some(stderr) => tokio::select! {
                    biased;
                    read = readable(&self.from_runner, &mut self.buffer) => read,
                    more = drain(stderr, &mut self.diagnostics) => {
                        if !more {
                            self.stderr = None;
                        }
                        continue;
                    }
                },
            };
            match read {
                Ok(0) => return self.decoder.end().map(|()| None).map_err(|e| e.to_string()),
                Ok(n) => self.decoder.push(&self.buffer[..n]),
                Err(e) => return Err(format!("The channel could not be read: {e}.")),
            }
        }
    }

    /// What the runner and the worker wrote to their own stderr, shortened and made printable.
    pub fn diagnostics(&mut self) -> String {
        if let Some(stderr) = &self.stderr {
            let mut buffer = [0; DIAGNOSTICS];
            while let Ok(n @ 1..) = stderr.try_read(&mut buffer) {
                keep(&mut self.diagnostics, &buffer[..n]);
                if self.diagnostics.len() >= DIAGNOSTICS {
                    break;
                }
            }
        }
        sandglass_run::name::printable(self.diagnostics.trim_ascii(), DIAGNOSTICS)
    }
}

/// Not an error: it was not ready after all, or a signal came.
fn again(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

async fn readable(pipe: &Receiver, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        pipe.readable().await?;
        match pipe.try_read(buffer) {
            Err(error) if again(&error) => {}
            other => return other,
        }
    }
}

/// Reads some diagnostics; false at their end.
async fn drain(fd: &Receiver, kept: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 1024];
    match readable(fd, &mut buffer).await {
        Ok(0) | Err(_) => false,
        Ok(n) => {
            keep(kept, &buffer[..n]);
            true
        }
    }
}

/// The first bytes are kept: what went wrong first is what matters.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = DIAGNOSTICS.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn run<T>(body: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(body)
    }

    #[test]
    fn a_flood_of_diagnostics_neither_blocks_the_runner_nor_grows_memory() {
        let (_from_us, to_runner) = std::io::pipe().unwrap();
        let (from_runner, mut runner_out) = std::io::pipe().unwrap();
        let (stderr, mut runner_err) = std::io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            let flood = vec![b'e'; 1 << 20];
            runner_err.write_all(&flood).unwrap();
            drop(runner_err);
            let mut end = Vec::new();
            sandglass_run::Message::encode(&FromRunner::End, &mut end).unwrap();
            runner_out.write_all(&end).unwrap();
        });
        run(async {
            let mut channel =
                Channel::new(to_runner.into(), from_runner.into(), Some(stderr.into())).unwrap();
            assert_eq!(channel.receive().await, Ok(Some(FromRunner::End)));
            assert_eq!(channel.receive().await, Ok(None));
            let kept = channel.diagnostics();
            assert!(kept.starts_with("eee") && kept.len() <= DIAGNOSTICS);
        });
        writer.join().unwrap();
    }

    #[test]
    fn nobody_reading_is_a_broken_pipe_and_not_a_signal() {
        let (from_us, to_runner) = std::io::pipe().unwrap();
        let (from_runner, _runner_out) = std::io::pipe().unwrap();
        drop(from_us);
        run(async {
            let mut channel = Channel::new(to_runner.into(), from_runner.into(), None).unwrap();
            let error = channel.send(b"x").await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        });
    }

    #[test]
    fn bytes_that_are_no_frames_are_an_error_and_half_a_frame_is_one_at_the_end() {
        for bytes in [&b"\xff\xff\xff\xff\x8d"[..], b"\x01\0\0\0\x01", b"\x01\0"] {
            let (_from_us, to_runner) = std::io::pipe().unwrap();
            let (from_runner, mut runner_out) = std::io::pipe().unwrap();
            runner_out.write_all(bytes).unwrap();
            drop(runner_out);
            run(async {
                let mut channel = Channel::new(to_runner.into(), from_runner.into(), None).unwrap();
                assert!(channel.receive().await.is_err(), "{bytes:?}");
            });
        }
    }
}
