//! What the outer side accepts from the runner, which it takes for hostile.

use super::{SessionError, bad_name, count, name_order};
use crate::name::{MAX_SHOWN_PATH_BYTES, check_artifact_path, compare_paths, is_below, is_printable};
use crate::protocol::{
    ArtifactBounds, ArtifactEnd, ArtifactStart, Exit, FromRunner, MAX_SKIPPED, Observed, OutputEnd,
    SkippedEntry, Stream,
};

/// Most bytes of a message of [`FromRunner::Failed`].
const MAX_MESSAGE_BYTES: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Until `Ready`.
    Staging,
    /// `Ready` came; the outer side has not said `Go`.
    Checking,
    /// `Go` was said.
    Starting,
    /// Until both streams have ended and `Exit` came.
    Running,
    /// Between artifacts.
    Collecting,
    InArtifact {
        announced: u64,
        received: u64,
    },
    /// After `SkippedMore`.
    Closing,
    /// `End` or `Failed` came.
    Ended,
    /// A frame was not accepted.
    Over,
}

#[derive(Debug, Clone, Copy, Default)]
struct StreamState {
    received: u64,
    dropped: Option<u64>,
    ended: bool,
}

/// The outer side's view of the conversation. Pass each frame that comes to [`Session::accept`] first, and say
/// [`Session::go`] before `Go` is sent.
#[derive(Debug)]
pub struct Session {
    state: State,
    output_cap_bytes: u64,
    bounds: ArtifactBounds,
    stdout: StreamState,
    stderr: StreamState,
    started: bool,
    exited: bool,
    artifacts: u64,
    artifact_bytes: u64,
    last_path: Option<String>,
    skipped: u64,
}

impl Session {
    /// A conversation within the bounds that the job names.
    pub fn new(output_cap_bytes: u64, bounds: ArtifactBounds) -> Self {
        Self {
            state: State::Staging,
            output_cap_bytes,
            bounds,
            stdout: StreamState::default(),
            stderr: StreamState::default(),
            started: false,
            exited: false,
            artifacts: 0,
            artifact_bytes: 0,
            last_path: None,
            skipped: 0,
        }
    }

    /// The outer side has checked what `Ready` said and is about to send `Go`.
    ///
    /// # Errors
    /// When `Ready` did not come yet, or `Go` was said already.
    pub fn go(&mut self) -> Result<(), SessionError> {
        if self.state == State::Checking {
            self.state = State::Starting;
            Ok(())
        } else {
            let when = when(self.state);
            self.state = State::Over;
            Err(SessionError::OutOfOrder { frame: "Go", when })
        }
    }

    /// Whether the script was started.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// Whether the runner said how the script ended.
    pub fn has_exited(&self) -> bool {
        self.exited
    }

    /// Whether `End` or `Failed` came: nothing may follow.
    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Checks a frame and moves on.
    ///
    /// # Errors
    /// When the frame may not come now or breaks a bound; nothing is accepted any more after that.
    pub fn accept(&mut self, frame: &FromRunner) -> Result<(), SessionError> {
        let state = std::mem::replace(&mut self.state, State::Over);
        self.state = self.next(state, frame)?;
        Ok(())
    }

    fn next(&mut self, state: State, frame: &FromRunner) -> Result<State, SessionError> {
        Ok(match (state, frame) {
            (State::Over, _) => return Err(SessionError::Over),
            (State::Staging, FromRunner::Ready(observed)) => {
                check_observed(observed)?;
                State::Checking
            }
            (state, FromRunner::Failed(failed)) if state != State::Ended => {
                if failed.message.len() > MAX_MESSAGE_BYTES || !is_printable(&failed.message) {
                    return Err(SessionError::BadValue {
                        what: "The message of a failure",
                    });
                }
                State::Ended
            }
            (State::Starting, FromRunner::Started(_)) => {
                self.started = true;
                State::Running
            }
            (State::Running, FromRunner::Output { stream, bytes }) => {
                self.output(*stream, bytes)?;
                State::Running
            }
            (State::Running, FromRunner::Dropped(dropped)) => {
                let state = self.open_stream(dropped.stream, "Dropped")?;
                if state.dropped.is_some() || dropped.bytes == 0 {
                    return Err(SessionError::Mismatch {
                        what: "The bytes dropped from a stream",
                    });
                }
                state.dropped = Some(dropped.bytes);
                State::Running
            }
            (State::Running, FromRunner::OutputEnd(end)) => {
                self.output_end(*end)?;
                State::Running
            }
            (State::Running, FromRunner::Exit(exit)) if self.stdout.ended && self.stderr.ended => {
                check_exit(exit)?;
                self.exited = true;
                State::Collecting
            }
            (State::Collecting, FromRunner::ArtifactStart(start)) => self.artifact_start(start)?,
            (
                State::InArtifact {
                    announced,
                    mut received,
                },
                FromRunner::ArtifactData(bytes),
            ) => {
                if bytes.is_empty() {
                    return Err(SessionError::EmptyBulk {
                        frame: "ArtifactData",
                    });
                }
                count(
                    &mut received,
                    bytes.len() as u64,
                    announced,
                    "An artifact's bytes",
                )?;
                State::InArtifact { announced, received }
            }
            (
                State::InArtifact { announced, received },
                FromRunner::ArtifactEnd(ArtifactEnd { complete }),
            ) => {
                if *complete && received != announced {
                    return Err(SessionError::Mismatch {
                        what: "An artifact's bytes",
                    });
                }
                State::Collecting
            }
            (State::Collecting, FromRunner::Skipped(entry)) => {
                self.skipped(entry)?;
                State::Collecting
            }
            (State::Collecting, FromRunner::SkippedMore(more)) => {
                if more.count == 0 {
                    return Err(SessionError::BadValue {
                        what: "The number of further skipped files",
                    });
                }
                State::Closing
            }
            (State::Collecting | State::Closing, FromRunner::End) => State::Ended,
            (state, frame) => {
                return Err(SessionError::OutOfOrder {
                    frame: name(frame),
                    when: when(state),
                });
            }
        })
    }

    fn open_stream(&mut self, stream: Stream, frame: &'static str) -> Result<&mut StreamState, SessionError> {
        let state = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        if state.ended {
            return Err(SessionError::OutOfOrder {
                frame,
                when: "after its stream's end",
            });
        }
        Ok(state)
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), SessionError> {
        let allowed = self.output_cap_bytes;
        let state = self.open_stream(stream, "Output")?;
        if bytes.is_empty() {
            return Err(SessionError::EmptyBulk { frame: "Output" });
        }
        count(
            &mut state.received,
            bytes.len() as u64,
            allowed,
            "A stream's bytes",
        )
    }

    fn output_end(&mut self, end: OutputEnd) -> Result<(), SessionError> {
        let state = self.open_stream(end.stream, "OutputEnd")?;
        let agrees = end.dropped_bytes == state.dropped.unwrap_or(0)
            && state.received.checked_add(end.dropped_bytes) == Some(end.bytes_total);
        if !agrees {
            return Err(SessionError::Mismatch {
                what: "A stream's totals",
            });
        }
        state.ended = true;
        Ok(())
    }

    fn artifact_start(&mut self, start: &ArtifactStart) -> Result<State, SessionError> {
        check_artifact_path(&start.path).map_err(|reason| bad_name(&start.path, reason))?;
        let bounds = self.bounds;
        let components = start.path.split('/');
        if components.clone().count() > bounds.max_depth as usize {
            return Err(SessionError::TooMuch {
                what: "A path's levels",
                allowed: bounds.max_depth.into(),
            });
        }
        if components
            .map(str::len)
            .any(|bytes| bytes > bounds.max_name_bytes as usize)
        {
            return Err(SessionError::TooMuch {
                what: "A name's bytes",
                allowed: bounds.max_name_bytes.into(),
            });
        }
        // Strictly ascending, so none comes twice; and none lies below a file, so all can be created.
        let follows =
            |last: &String| compare_paths(last, &start.path).is_lt() && !is_below(&start.path, last);
        if !self.last_path.as_ref().is_none_or(follows) {
            return Err(name_order(&start.path));
        }
        if start.mode > 0o777 {
            return Err(SessionError::BadValue {
                what: "The mode of an artifact",
            });
        }
        count(&mut self.artifacts, 1, bounds.max_count.into(), "The artifacts")?;
        count(
            &mut self.artifact_bytes,
            start.bytes,
            bounds.max_bytes_total,
            "The artifacts' bytes",
        )?;
        self.last_path = Some(start.path.clone());
        Ok(State::InArtifact {
            announced: start.bytes,
            received: 0,
        })
    }

    fn skipped(&mut self, entry: &SkippedEntry) -> Result<(), SessionError> {
        if entry.path_lossy.len() > MAX_SHOWN_PATH_BYTES || !is_printable(&entry.path_lossy) {
            return Err(SessionError::BadValue {
                what: "The path of a skipped file",
            });
        }
        count(
            &mut self.skipped,
            1,
            MAX_SKIPPED as u64,
            "The skipped files that are listed",
        )
    }
}

fn check_exit(exit: &Exit) -> Result<(), SessionError> {
    match (exit.code, exit.signal) {
        (Some(0..=255), None) | (None, Some(1..=64)) => Ok(()),
        _ => Err(SessionError::BadValue {
            what: "How the script ended",
        }),
    }
}

/// Texts of the receipt are shown; what they say is for the driver to judge.
fn check_observed(observed: &Observed) -> Result<(), SessionError> {
    let texts = observed
        .scratch
        .iter()
        .flat_map(|mount| [&mount.path, &mount.kind])
        .chain(&observed.interfaces);
    if texts.into_iter().all(|text| is_printable(text)) {
        Ok(())
    } else {
        Err(SessionError::BadValue {
            what: "A text that the runner observed",
        })
    }
}

fn name(frame: &FromRunner) -> &'static str {
    match frame {
        FromRunner::Ready(_) => "Ready",
        FromRunner::Failed(_) => "Failed",
        FromRunner::Started(_) => "Started",
        FromRunner::Output { .. } => "Output",
        FromRunner::Dropped(_) => "Dropped",
        FromRunner::OutputEnd(_) => "OutputEnd",
        FromRunner::Exit(_) => "Exit",
        FromRunner::ArtifactStart(_) => "ArtifactStart",
        FromRunner::ArtifactData(_) => "ArtifactData",
        FromRunner::ArtifactEnd(_) => "ArtifactEnd",
        FromRunner::Skipped(_) => "Skipped",
        FromRunner::SkippedMore(_) => "SkippedMore",
        FromRunner::End => "End",
    }
}

fn when(state: State) -> &'static str {
    match state {
        State::Staging => "before Ready",
        State::Checking => "before Go",
        State::Starting => "before the script was started",
        State::Running => "while the script runs or a stream is open",
        State::Collecting => "between artifacts",
        State::InArtifact { .. } => "within an artifact",
        State::Closing => "after the count of skipped files",
        State::Ended => "after the end",
        State::Over => "after a frame that was not accepted",
    }
}
