//! The only way out of the sandbox: frames on what were standard input and output.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use sandglass_run::session::SessionError;
use sandglass_run::{Decoder, FromRunner, Message, Stream, ToRunner};

use crate::error::{During, RunnerError};

/// Bytes taken from the channel at once.
const READ_BYTES: usize = 16 * 1024;
/// A buffer that grew beyond this is given back when it is empty.
const KEPT_BYTES: usize = 64 * 1024;

/// Both ends of the channel. Sending never blocks while the script runs: frames wait in a queue.
pub struct Channel {
    input: OwnedFd,
    output: OwnedFd,
    decoder: Decoder<ToRunner>,
    /// Whether more frames are expected.
    listening: bool,
    queue: Vec<u8>,
    /// How much of the queue has gone out.
    sent: usize,
}

impl Channel {
    /// Takes standard input and output away, so that no child can inherit them, and puts `/dev/null` there.
    pub fn from_stdio() -> Result<Self, RunnerError> {
        let away = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3).during("Moving the channel");
        let (input, output) = (away(rustix::stdio::stdin())?, away(rustix::stdio::stdout())?);
        let flags = rustix::fs::fcntl_getfl(&output).during("Reading the channel's flags")?;
        rustix::fs::fcntl_setfl(&output, flags | OFlags::NONBLOCK).during("Setting the channel's flags")?;
        let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .during("Opening /dev/null")?;
        rustix::stdio::dup2_stdin(&null).during("Closing standard input")?;
        rustix::stdio::dup2_stdout(&null).during("Closing standard output")?;
        Ok(Self {
            input,
            output,
            decoder: Decoder::new(),
            listening: true,
            queue: Vec::new(),
            sent: 0,
        })
    }

    /// Waits for the next frame.
    pub fn receive(&mut self) -> Result<ToRunner, RunnerError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(frame);
            }
            let mut buffer = [0; READ_BYTES];
            match rustix::io::read(&self.input, &mut buffer) {
                Ok(0) => return Err(RunnerError::Gone),
                Ok(bytes) => self.decoder.push(buffer.get(..bytes).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::empty())?,
                Err(errno) => {
                    return Err(RunnerError::Kernel {
                        what: "Reading the channel",
                        errno,
                    });
                }
            }
        }
    }

    /// Sends a frame and waits until it, and everything queued before it, has gone out.
    pub fn send(&mut self, frame: &FromRunner) -> Result<(), RunnerError> {
        self.queue(frame)?;
        self.settle()
    }

    /// Queues a frame.
    pub fn queue(&mut self, frame: &FromRunner) -> Result<(), RunnerError> {
        Ok(frame.encode(&mut self.queue)?)
    }

    /// Queues a piece of a stream.
    pub fn queue_output(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), RunnerError> {
        Ok(FromRunner::encode_output(stream, bytes, &mut self.queue)?)
    }

    /// Queues a piece of an artifact.
    pub fn queue_artifact_data(&mut self, bytes: &[u8]) -> Result<(), RunnerError> {
        Ok(FromRunner::encode_artifact_data(bytes, &mut self.queue)?)
    }

    /// Whether everything has gone out.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes that have not gone out.
    pub fn queued_bytes(&self) -> usize {
        self.queue.len() - self.sent
    }

    /// Waits until everything has gone out.
    pub fn settle(&mut self) -> Result<(), RunnerError> {
        loop {
            self.flush()?;
            if self.is_idle() {
                return Ok(());
            }
            self.wait(PollFlags::OUT)?;
        }
    }

    /// Keeps the queue bounded. Each write wakes the other side, so a few small frames go out together with what comes
    /// after them.
    pub fn settle_what_is_much(&mut self) -> Result<(), RunnerError> {
        if self.queued_bytes() < KEPT_BYTES {
            return Ok(());
        }
        self.settle()
    }

    /// Sends what the other side takes now.
    pub fn flush(&mut self) -> Result<(), RunnerError> {
        while let Some(waiting) = self.queue.get(self.sent..).filter(|waiting| !waiting.is_empty()) {
            match rustix::io::write(&self.output, waiting) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(RunnerError::Gone),
                Err(errno) => {
                    return Err(RunnerError::Kernel {
                        what: "Writing the channel",
                        errno,
                    });
                }
            }
        }
        self.sent = 0;
        if self.queue.capacity() > KEPT_BYTES {
            self.queue = Vec::new();
        } else {
            self.queue.clear();
        }
        Ok(())
    }

    /// `Go` came: nothing more is expected.
    pub fn stop_listening(&mut self) -> Result<(), RunnerError> {
        self.listening = false;
        let waiting = self.decoder.buffered_bytes() > 0;
        self.decoder = Decoder::new();
        if waiting { Err(after_go()) } else { Ok(()) }
    }

    /// Waits for input, for the end of the other side, or for these on the output.
    fn wait(&mut self, output: PollFlags) -> Result<(), RunnerError> {
        let mut fds = [
            PollFd::new(&self.input, PollFlags::IN),
            PollFd::new(&self.output, output),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(RunnerError::Kernel {
                    what: "Waiting for the channel",
                    errno,
                });
            }
        }
        let [input, output] = fds.map(|fd| fd.revents());
        self.note(input, output)
    }

    /// Acts on what a wait found: takes input, and notices the end of the other side.
    pub fn note(&mut self, input: PollFlags, output: PollFlags) -> Result<(), RunnerError> {
        if output.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            return Err(RunnerError::Gone);
        }
        if input.is_empty() {
            return Ok(());
        }
        let mut buffer = [0; 512];
        match rustix::io::read(&self.input, &mut buffer) {
            Ok(0) => Err(RunnerError::Gone),
            Ok(bytes) if self.listening => {
                self.decoder.push(buffer.get(..bytes).unwrap_or_default());
                Ok(())
            }
            Ok(_) => Err(after_go()),
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(_) => Err(RunnerError::Gone),
        }
    }

    /// The end to wait for input on.
    pub fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    /// The end to wait for room on.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }
}

fn after_go() -> RunnerError {
    SessionError::OutOfOrder {
        frame: "Something",
        when: "after Go",
    }
    .into()
}
