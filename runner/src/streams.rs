//! The script's output: pipes that are always emptied, of which a bounded part is sent on.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use sandglass_run::frame::MAX_BULK_BYTES;
use sandglass_run::protocol::{Dropped, OutputEnd};
use sandglass_run::{FromRunner, Keeper, Stream};

use crate::channel::Channel;
use crate::error::{During, RunnerError};

/// One stream. At most its cap is held in memory, however slow the outer side is.
pub struct ScriptStream {
    stream: Stream,
    /// None once it has ended.
    pipe: Option<OwnedFd>,
    keeper: Keeper,
    /// Of the first half: what the channel has not taken yet.
    pending: Vec<u8>,
}

impl ScriptStream {
    /// A stream, and the end that the script gets.
    pub fn new(stream: Stream, cap_bytes: u64) -> Result<(Self, OwnedFd), RunnerError> {
        let (ours, scripts) = pipe_with(PipeFlags::CLOEXEC).during("Making a pipe")?;
        // Ours alone: the script's end blocks, as programs expect.
        rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK).during("Setting a pipe's flags")?;
        let keeper = Keeper::new(cap_bytes);
        Ok((
            Self {
                stream,
                pipe: Some(ours),
                keeper,
                pending: Vec::new(),
            },
            scripts,
        ))
    }

    /// The end to wait for, until the stream has ended.
    pub fn pipe(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref()
    }

    /// Takes one piece. False when there was none, now or for ever.
    pub fn drain(&mut self, buffer: &mut [u8]) -> Result<bool, RunnerError> {
        let Some(pipe) = &self.pipe else { return Ok(false) };
        match rustix::io::read(pipe, &mut *buffer) {
            Ok(0) => {
                self.pipe = None;
                Ok(false)
            }
            Ok(bytes) => {
                let first = self.keeper.push(buffer.get(..bytes).unwrap_or_default());
                self.pending.extend_from_slice(first);
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(RunnerError::Kernel {
                what: "Reading the script's output",
                errno,
            }),
        }
    }

    /// Hands to the channel what waits, in as few frames as can be.
    pub fn forward(&mut self, channel: &mut Channel) -> Result<(), RunnerError> {
        for piece in self.pending.chunks(MAX_BULK_BYTES) {
            channel.queue_output(self.stream, piece)?;
        }
        if self.pending.capacity() > MAX_BULK_BYTES {
            self.pending = Vec::new();
        } else {
            self.pending.clear();
        }
        Ok(())
    }

    /// The script is dead and the pipe empty: hands the rest to the channel, where a little of it may still wait.
    pub fn finish(mut self, channel: &mut Channel) -> Result<(), RunnerError> {
        self.forward(channel)?;
        channel.settle_what_is_much()?;
        let tail = self.keeper.finish();
        let stream = self.stream;
        if tail.dropped > 0 {
            channel.queue(&FromRunner::Dropped(Dropped {
                stream,
                bytes: tail.dropped,
            }))?;
        }
        for piece in tail.bytes.chunks(MAX_BULK_BYTES) {
            channel.queue_output(stream, piece)?;
            channel.settle_what_is_much()?;
        }
        let (bytes_total, dropped_bytes) = (tail.total, tail.dropped);
        channel.queue(&FromRunner::OutputEnd(OutputEnd {
            stream,
            bytes_total,
            dropped_bytes,
        }))
    }
}
