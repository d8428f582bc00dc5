//! The outer side of the runner protocol: one conversation with the runner of one sandbox.
//!
//! The runner is taken for hostile: every frame passes [`Session`] first, each phase has a clock of its own here,
//! and the script starts only after the receipt was checked.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use sandglass_run::name::{MAX_DEPTH, MAX_NAME_BYTES};
use sandglass_run::protocol::{
    ArtifactBounds, ArtifactEnd, EntryStart, Exit, Job, Observed, PROTOCOL_VERSION,
};
use sandglass_run::session::outer::Session;
use sandglass_run::{
    Artifact, Capture, FromRunner, Input, InputSource, Isolation, Language, Limits, Message, Skipped, Stream,
    ToRunner,
};
use tokio::time::Instant;

use crate::Cancel;
use crate::channel::Channel;
use crate::collect::Collector;
use crate::events::Events;
use crate::outcome::Stop;
use crate::phase::{Phase, Phases};
use crate::receipt::MissingControl;
use crate::refusal::Refusal;

/// How long staging may take: far above what the largest inputs need at the smallest CPU share.
pub const STAGE_WITHIN: Duration = Duration::from_secs(30);
/// How long after the wall clock the runner may take to kill everything and say so.
pub const GRACE: Duration = Duration::from_secs(2);
/// How long handing back `/out` may take: far above what the most artifacts need at the smallest CPU share.
pub const COLLECT_WITHIN: Duration = Duration::from_secs(60);

/// How long a signal that ended the sandbox may take to reach our own ears.
const CANCEL_ARRIVES_WITHIN: Duration = Duration::from_millis(20);

/// Bytes of one bulk frame.
const PIECE: usize = sandglass_run::frame::MAX_BULK_BYTES;

/// What is to be run.
#[derive(Debug)]
pub struct Staging {
    /// The job; its `entries` must be the count of the two below.
    pub job: Job,
    /// The script's name and text, unless the job has none.
    pub script: Option<(String, Vec<u8>)>,
    /// The inputs.
    pub inputs: Vec<Input>,
}

impl Staging {
    /// The job that a run's limits make, with its script and inputs. `memory_bytes` is what interpreters are told of the
    /// limit; absent where there is none.
    pub fn new(
        (language, args): (Language, Vec<String>),
        limits: &Limits,
        memory_bytes: Option<u64>,
        script: Option<(String, Vec<u8>)>,
        inputs: Vec<Input>,
    ) -> Self {
        let entries = inputs.len() + usize::from(script.is_some());
        let job = Job {
            protocol: PROTOCOL_VERSION,
            language,
            args,
            wall_ms: u64::try_from(limits.wall.as_millis()).unwrap_or(u64::MAX),
            output_cap_bytes: limits.output_bytes,
            artifacts: ArtifactBounds {
                max_count: limits.artifacts_max,
                max_bytes_total: limits.artifacts_bytes,
                max_depth: MAX_DEPTH as u32,
                max_name_bytes: MAX_NAME_BYTES as u32,
            },
            cpus: limits.cpus,
            memory_bytes,
            env: std::collections::BTreeMap::new(),
            // Admission keeps this far below.
            entries: u32::try_from(entries).unwrap_or(u32::MAX),
        };
        Self { job, script, inputs }
    }
}

/// What the conversation brought.
#[derive(Debug, Default)]
pub struct Told {
    /// The receipt, once it was checked.
    pub isolation: Option<Isolation>,
    /// Whether the script's process was there.
    pub started: bool,
    /// How the script ended.
    pub exit: Option<Exit>,
    /// Its output.
    pub stdout: Capture,
    /// Its diagnostics.
    pub stderr: Capture,
    /// Its artifacts.
    pub artifacts: Vec<Artifact>,
    /// What was in `/out` besides.
    pub skipped: Vec<Skipped>,
}

/// The clocks of a conversation, so that tests need not wait for the real ones.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// See [`STAGE_WITHIN`].
    pub stage: Duration,
    /// See [`GRACE`].
    pub grace: Duration,
    /// See [`COLLECT_WITHIN`].
    pub collect: Duration,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            stage: STAGE_WITHIN,
            grace: GRACE,
            collect: COLLECT_WITHIN,
        }
    }
}

/// Holds the whole conversation. When it returns anything but [`Stop::Said`] the caller kills the sandbox.
pub async fn converse(
    channel: &mut Channel,
    staging: Staging,
    check: impl FnOnce(&Observed) -> Result<Isolation, MissingControl>,
    events: &mut dyn Events,
    (cancel, clocks, phases): (&Cancel, Clocks, &mut Phases),
) -> (Stop, Told) {
    let session = Session::new(staging.job.output_cap_bytes, staging.job.artifacts);
    let mut talk = Talk {
        channel,
        session,
        cancel,
        queue: Vec::new(),
        told: Told::default(),
    };
    let mut collector = Collector::default();
    let stop = match talk
        .hold(staging, check, events, &mut collector, (clocks, phases))
        .await
    {
        Ok(()) => Stop::Said,
        // Ctrl-C goes to every process in the terminal's foreground group: what vanished may be what was cancelled.
        Err(Stop::Vanished) if was_cancelled(cancel).await => Stop::Cancelled,
        Err(stop) => stop,
    };
    let mut told = talk.told;
    (told.artifacts, told.skipped) = collector.finish();
    (stop, told)
}

/// Whether a cancellation is on its way to us.
async fn was_cancelled(cancel: &Cancel) -> bool {
    tokio::time::timeout(CANCEL_ARRIVES_WITHIN, cancel.cancelled())
        .await
        .is_ok()
}

struct Talk<'a> {
    channel: &'a mut Channel,
    session: Session,
    cancel: &'a Cancel,
    /// Frames that have not been written yet.
    queue: Vec<u8>,
    told: Told,
}

impl Talk<'_> {
    async fn hold(
        &mut self,
        staging: Staging,
        check: impl FnOnce(&Observed) -> Result<Isolation, MissingControl>,
        events: &mut dyn Events,
        collector: &mut Collector,
        (clocks, phases): (Clocks, &mut Phases),
    ) -> Result<(), Stop> {
        phases.enter(Phase::Stage);
        let wall = Duration::from_millis(staging.job.wall_ms);
        let deadline = (Instant::now() + clocks.stage, Stop::Stalled("staging"));
        self.stage(staging, &deadline).await?;
        self.flush(&deadline).await?;
        let FromRunner::Ready(observed) = self.next(&deadline).await? else {
            return Err(Stop::Broken("Ready did not come first".into()));
        };
        self.told.isolation = Some(check(&observed).map_err(|missing| Stop::Refused(missing.into()))?);
        self.session.go().map_err(|e| Stop::Broken(e.to_string()))?;
        self.send(&ToRunner::Go, &deadline).await?;
        self.flush(&deadline).await?;

        phases.enter(Phase::Run);
        let deadline = (Instant::now() + wall + clocks.grace, Stop::WallClock);
        while !self.session.has_exited() {
            let frame = self.next(&deadline).await?;
            self.hear(frame, events);
        }

        phases.enter(Phase::Collect);
        let deadline = (Instant::now() + clocks.collect, Stop::Stalled("collecting /out"));
        while !self.session.is_ended() {
            match self.next(&deadline).await? {
                FromRunner::ArtifactStart(start) => collector.start(start, events),
                FromRunner::ArtifactData(bytes) => collector.data(&bytes),
                FromRunner::ArtifactEnd(ArtifactEnd { complete }) => collector.end(complete),
                FromRunner::Skipped(entry) => collector.skip(entry),
                FromRunner::SkippedMore(more) => collector.skip_more(more),
                // The session lets nothing else through here but `End`.
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends the job, the script and the inputs.
    async fn stage(&mut self, staging: Staging, deadline: &(Instant, Stop)) -> Result<(), Stop> {
        self.send(&ToRunner::Job(staging.job), deadline).await?;
        if let Some((name, text)) = staging.script {
            self.entry(name, &InputSource::Bytes(text), deadline).await?;
        }
        for input in staging.inputs {
            self.entry(input.name, &input.source, deadline).await?;
        }
        Ok(())
    }

    async fn entry(
        &mut self,
        name: String,
        source: &InputSource,
        deadline: &(Instant, Stop),
    ) -> Result<(), Stop> {
        let start = EntryStart {
            name: name.clone(),
            bytes: source.bytes(),
        };
        self.send(&ToRunner::EntryStart(start), deadline).await?;
        match source {
            InputSource::Bytes(bytes) => {
                for piece in bytes.chunks(PIECE) {
                    self.piece(piece, deadline).await?;
                }
            }
            InputSource::File { file, bytes } => {
                let mut left = *bytes;
                let mut buffer = vec![0; PIECE];
                while left > 0 {
                    let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
                    let read = read_some(file, &mut buffer[..most], &name)?;
                    left -= read as u64;
                    self.piece(&buffer[..read], deadline).await?;
                }
            }
        }
        self.send(&ToRunner::EntryEnd, deadline).await
    }

    async fn piece(&mut self, bytes: &[u8], deadline: &(Instant, Stop)) -> Result<(), Stop> {
        ToRunner::encode_entry_data(bytes, &mut self.queue).map_err(|e| Stop::Broken(e.to_string()))?;
        self.flush_what_is_much(deadline).await
    }

    /// Queues a frame. Each write wakes the runner, so small frames go out together.
    async fn send(&mut self, frame: &ToRunner, deadline: &(Instant, Stop)) -> Result<(), Stop> {
        frame.encode(&mut self.queue).map_err(|e| {
            Stop::Refused(Refusal::new(
                "job_too_large",
                e.to_string(),
                "Give fewer or shorter arguments.",
            ))
        })?;
        self.flush_what_is_much(deadline).await
    }

    /// Keeps the queue bounded.
    async fn flush_what_is_much(&mut self, deadline: &(Instant, Stop)) -> Result<(), Stop> {
        if self.queue.len() < PIECE {
            return Ok(());
        }
        self.flush(deadline).await
    }

    /// Sends what is queued.
    async fn flush(&mut self, deadline: &(Instant, Stop)) -> Result<(), Stop> {
        let bytes = std::mem::take(&mut self.queue);
        match within(self.cancel, deadline, self.channel.send(&bytes)).await? {
            Ok(()) => Ok(()),
            // It went away while we were talking; what it said before that is the reason.
            Err(_) => loop {
                self.next(deadline).await?;
            },
        }
    }

    /// The next frame that may come here. A failure and a closed channel are the end.
    async fn next(&mut self, deadline: &(Instant, Stop)) -> Result<FromRunner, Stop> {
        let frame = within(self.cancel, deadline, self.channel.receive())
            .await?
            .map_err(Stop::Broken)?;
        let Some(frame) = frame else {
            return Err(Stop::Vanished);
        };
        self.session
            .accept(&frame)
            .map_err(|e| Stop::Broken(e.to_string()))?;
        match frame {
            FromRunner::Failed(failed) => Err(Stop::Failed(failed)),
            frame => Ok(frame),
        }
    }

    /// A frame of the time in which the script runs.
    fn hear(&mut self, frame: FromRunner, events: &mut dyn Events) {
        match frame {
            FromRunner::Started(_) => {
                self.told.started = true;
                events.started();
            }
            FromRunner::Output { stream, bytes } => {
                self.capture(stream).push(&bytes);
                events.output(stream, &bytes);
            }
            FromRunner::Dropped(dropped) => {
                self.capture(dropped.stream).dropped(dropped.bytes);
                events.dropped(dropped.stream, dropped.bytes);
            }
            FromRunner::Exit(exit) => self.told.exit = Some(exit),
            // The session lets nothing else through here but `OutputEnd`.
            _ => {}
        }
    }

    fn capture(&mut self, stream: Stream) -> &mut Capture {
        match stream {
            Stream::Stdout => &mut self.told.stdout,
            Stream::Stderr => &mut self.told.stderr,
        }
    }
}

/// Waits for something, but not beyond a cancellation or the deadline.
async fn within<T>(
    cancel: &Cancel,
    deadline: &(Instant, Stop),
    what: impl Future<Output = T>,
) -> Result<T, Stop> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Stop::Cancelled),
        done = what => Ok(done),
        () = tokio::time::sleep_until(deadline.0) => Err(deadline.1.clone()),
    }
}

/// Reads a piece of an input; one that is shorter than it was is refused.
fn read_some(mut file: &File, buffer: &mut [u8], name: &str) -> Result<usize, Stop> {
    let refused = |what: String| {
        Stop::Refused(Refusal::new(
            "input_changed",
            format!("The input {name:?} {what} while it was handed in."),
            "Run it again when nobody writes to that file.",
        ))
    };
    loop {
        match file.read(buffer) {
            Ok(0) => return Err(refused("became shorter".into())),
            Ok(n) => return Ok(n),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(refused(format!("could not be read ({e})"))),
        }
    }
}

#[cfg(test)]
mod tests;
