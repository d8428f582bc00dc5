//! What the runner accepts from the outer side.

use std::collections::BTreeSet;

use super::{SessionError, bad_name, count, name_order};
use crate::language::Language;
use crate::limits::Limits;
use crate::name::{MAX_DEPTH, MAX_NAME_BYTES, check_file_name, is_allowed_variable};
use crate::protocol::{EntryStart, Job, MAX_ENTRIES, PROTOCOL_VERSION, ToRunner};

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Fresh,
    Entries {
        left: u32,
    },
    InEntry {
        left: u32,
        announced: u64,
        received: u64,
    },
    Running,
    Over,
}

/// The runner's side of the conversation. Pass each frame that comes to [`Session::accept`] first.
#[derive(Debug)]
pub struct Session {
    state: State,
    names: BTreeSet<String>,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            state: State::Fresh,
            names: BTreeSet::new(),
        }
    }
}

impl Session {
    /// Before the first frame.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether everything is staged, so that `Ready` may be said.
    pub fn is_staged(&self) -> bool {
        self.state == State::Entries { left: 0 }
    }

    /// Whether `Go` was said.
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// Checks a frame and moves on.
    ///
    /// # Errors
    /// When the frame may not come now or breaks a bound; nothing is accepted any more after that.
    pub fn accept(&mut self, frame: &ToRunner) -> Result<(), SessionError> {
        let state = std::mem::replace(&mut self.state, State::Over);
        self.state = self.next(state, frame)?;
        Ok(())
    }

    fn next(&mut self, state: State, frame: &ToRunner) -> Result<State, SessionError> {
        Ok(match (state, frame) {
            (State::Over, _) => return Err(SessionError::Over),
            (State::Fresh, ToRunner::Job(job)) => {
                check_job(job)?;
                State::Entries { left: job.entries }
            }
            (State::Entries { left }, ToRunner::EntryStart(start)) if left > 0 => {
                self.check_entry(start)?;
                State::InEntry {
                    left: left - 1,
                    announced: start.bytes,
                    received: 0,
                }
            }
            (
                State::InEntry {
                    left,
                    announced,
                    mut received,
                },
                ToRunner::EntryData(bytes),
            ) => {
                if bytes.is_empty() {
                    return Err(SessionError::EmptyBulk { frame: "EntryData" });
                }
                count(&mut received, bytes.len() as u64, announced, "An entry's bytes")?;
                State::InEntry {
                    left,
                    announced,
                    received,
                }
            }
            (
                State::InEntry {
                    left,
                    announced,
                    received,
                },
                ToRunner::EntryEnd,
            ) => {
                if received != announced {
                    return Err(SessionError::Mismatch {
                        what: "An entry's bytes",
                    });
                }
                State::Entries { left }
            }
            (State::Entries { left: 0 }, ToRunner::Go) => {
                self.names.clear();
                State::Running
            }
            (state, frame) => {
                return Err(SessionError::OutOfOrder {
                    frame: name(frame),
                    when: when(&state),
                });
            }
        })
    }

    fn check_entry(&mut self, start: &EntryStart) -> Result<(), SessionError> {
        check_file_name(&start.name).map_err(|reason| bad_name(&start.name, reason))?;
        if self.names.insert(start.name.clone()) {
            Ok(())
        } else {
            Err(name_order(&start.name))
        }
    }
}

fn check_job(job: &Job) -> Result<(), SessionError> {
    let bad = |what| Err(SessionError::BadValue { what });
    if job.protocol != PROTOCOL_VERSION {
        return bad("The job's protocol version");
    }
    if job.wall_ms == 0 || u128::from(job.wall_ms) > Limits::MAX_WALL.as_millis() {
        return bad("The job's wall clock");
    }
    if job.output_cap_bytes > Limits::MAX_OUTPUT_BYTES {
        return bad("The job's output cap");
    }
    if !job.cpus.is_finite() || job.cpus <= 0.0 || job.cpus > 65_536.0 {
        return bad("The job's number of CPUs");
    }
    if job.memory_bytes == Some(0) {
        return bad("The job's memory limit");
    }
    let bounds = &job.artifacts;
    if bounds.max_count > Limits::MAX_ARTIFACTS
        || !(1..=MAX_DEPTH).contains(&(bounds.max_depth as usize))
        || !(1..=MAX_NAME_BYTES).contains(&(bounds.max_name_bytes as usize))
    {
        return bad("One of the job's bounds on artifacts");
    }
    if job.entries > MAX_ENTRIES || (job.language != Language::Exec && job.entries == 0) {
        return bad("The job's number of entries");
    }
    if (job.language == Language::Exec && job.args.is_empty())
        || job.args.iter().any(|arg| arg.contains('\0'))
    {
        return bad("One of the job's arguments");
    }
    if !job
        .env
        .iter()
        .all(|(name, value)| is_allowed_variable(name, value))
    {
        return bad("One of the job's variables");
    }
    Ok(())
}

fn name(frame: &ToRunner) -> &'static str {
    match frame {
        ToRunner::Job(_) => "Job",
        ToRunner::EntryStart(_) => "EntryStart",
        ToRunner::EntryData(_) => "EntryData",
        ToRunner::EntryEnd => "EntryEnd",
        ToRunner::Go => "Go",
    }
}

fn when(state: &State) -> &'static str {
    match state {
        State::Fresh => "before any job",
        State::Entries { left: 0 } => "after the last entry",
        State::Entries { .. } => "between entries",
        State::InEntry { .. } => "within an entry",
        State::Running => "after Go",
        State::Over => "after the end",
    }
}
