//! The loop that runs the script: one wait for its pipes, its processes, the channel and the wall clock.

use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sandglass_run::frame::MAX_BULK_BYTES;
use sandglass_run::protocol::{Exit, ExitUsage, Started};
use sandglass_run::{FromRunner, Stream};

use crate::channel::Channel;
use crate::environment::{Invocation, invocation};
use crate::error::{During, RunnerError};
use crate::processes::{Ending, Reaped, usage};
use crate::stage::Staged;
use crate::streams::ScriptStream;

/// Runs the script to its end, or to the wall clock, and everything that it started to its death. All output is
/// on its way or queued when this returns.
pub fn run_script(channel: &mut Channel, staged: &Staged) -> Result<Exit, RunnerError> {
    let job = &staged.job;
    let invocation =
        invocation(job, staged.script.as_deref()).ok_or(sandglass_run::session::SessionError::BadValue {
            what: "The job's program",
        })?;
    let children = children_signal()?;
    let (stdout, stdout_end) = ScriptStream::new(Stream::Stdout, job.output_cap_bytes)?;
    let (stderr, stderr_end) = ScriptStream::new(Stream::Stderr, job.output_cap_bytes)?;
    let started = Instant::now();
    let pid = crate::spawn::spawn(&invocation, stdout_end, stderr_end)
        .map_err(|error| not_started(&invocation, error))?;
    channel.queue(&FromRunner::Started(Started { pid }))?;
    let mut run = Run {
        channel,
        children,
        pid,
        deadline: started + Duration::from_millis(job.wall_ms),
        streams: [stdout, stderr],
        buffer: Vec::new(),
        reaped: Reaped::default(),
    };
    let timed_out = run.until_end()?;
    let run_time = started.elapsed();
    let before = run.reaped.killed;
    run.reaped.kill_and_reap_all(pid)?;
    run.empty_pipes()?;
    let Run {
        streams,
        reaped,
        channel,
        ..
    } = run;
    for stream in streams {
        stream.finish(channel)?;
    }
    let (cpu_ms, max_rss_bytes) = usage()?;
    let (code, signal) = match reaped.main {
        Some(Ending::Code(code)) => (Some(code), None),
        Some(Ending::Signal(signal)) => (None, Some(signal)),
        None => return Err(RunnerError::ProcessesLeft),
    };
    Ok(Exit {
        code,
        signal,
        timed_out,
        run_ms: u64::try_from(run_time.as_millis()).unwrap_or(u64::MAX),
        usage: ExitUsage {
            cpu_ms,
            max_rss_bytes,
            processes_peak: None,
        },
        killed_leftovers: reaped.killed - before,
    })
}

/// A descriptor that can be read when a child has died. The signal stays blocked, so it needs no handler.
fn children_signal() -> Result<SignalFd, RunnerError> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block().during("Blocking SIGCHLD")?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).during("Making a signalfd")
}

fn not_started(invocation: &Invocation, error: std::io::Error) -> RunnerError {
    let program = sandglass_run::name::printable(invocation.program.as_bytes(), 200);
    if error.kind() == std::io::ErrorKind::NotFound {
        RunnerError::ProgramMissing { program }
    } else {
        RunnerError::Spawn { program, error }
    }
}

struct Run<'a> {
    channel: &'a mut Channel,
    children: SignalFd,
    pid: u32,
    deadline: Instant,
    streams: [ScriptStream; 2],
    buffer: Vec<u8>,
    reaped: Reaped,
}

impl Run<'_> {
    /// Until the script's own process has ended, or the wall clock has run out. True for the latter.
    fn until_end(&mut self) -> Result<bool, RunnerError> {
        loop {
            self.reaped.reap(self.pid)?;
            if self.reaped.main.is_some() {
                return Ok(false);
            }
            let Some(left) = self.deadline.checked_duration_since(Instant::now()) else {
                return Ok(true);
            };
            self.forward()?;
            self.step(left)?;
        }
    }

    /// Waits once and acts once.
    fn step(&mut self, left: Duration) -> Result<(), RunnerError> {
        let ready = self.wait(left)?;
        self.channel.note(ready.input, ready.output)?;
        if ready.children {
            while matches!(self.children.read_signal(), Ok(Some(_))) {}
        }
        if self.buffer.is_empty() && ready.streams.contains(&true) {
            self.buffer = vec![0; MAX_BULK_BYTES];
        }
        for (stream, ready) in self.streams.iter_mut().zip(ready.streams) {
            if ready {
                stream.drain(&mut self.buffer)?;
            }
        }
        Ok(())
    }

    /// Sends on what the channel takes. While it takes nothing, output waits in the streams, within their caps.
    fn forward(&mut self) -> Result<(), RunnerError> {
        self.channel.flush()?;
        if self.channel.is_idle() {
            for stream in &mut self.streams {
                stream.forward(self.channel)?;
            }
            self.channel.flush()?;
        }
        Ok(())
    }

    fn wait(&self, left: Duration) -> Result<Ready, RunnerError> {
        let output = if self.channel.is_idle() {
            PollFlags::empty()
        } else {
            PollFlags::OUT
        };
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.channel.input(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.channel.output(), output),
            PollFd::new(&self.children, PollFlags::IN),
        ];
        for pipe in self.streams.iter().filter_map(ScriptStream::pipe) {
            fds.push(PollFd::new(pipe, PollFlags::IN));
        }
        let timeout = Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(RunnerError::Kernel {
                    what: "Waiting",
                    errno,
                });
            }
        }
        let mut found = fds.iter().map(PollFd::revents);
        let mut next = || found.next().unwrap_or(PollFlags::empty());
        Ok(Ready {
            input: next(),
            output: next(),
            children: !next().is_empty(),
            streams: self
                .streams
                .each_ref()
                .map(|stream| stream.pipe().is_some() && !next().is_empty()),
        })
    }

    /// Takes what dead processes left in the pipes. It never waits: a writing end that is in flight on a socket
    /// keeps a pipe from ending, and nobody is there to write to it.
    fn empty_pipes(&mut self) -> Result<(), RunnerError> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; MAX_BULK_BYTES];
        }
        for stream in &mut self.streams {
            while stream.drain(&mut self.buffer)? {}
        }
        Ok(())
    }
}

/// What a wait found.
struct Ready {
    input: PollFlags,
    output: PollFlags,
    children: bool,
    streams: [bool; 2],
}
