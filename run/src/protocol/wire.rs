//! How the frames of the protocol are written and read: kinds, bounds, JSON or raw bytes.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{FromRunner, Job, PROTOCOL_VERSION, Stream, ToRunner};
use crate::frame::{FrameError, MAX_BULK_BYTES, Message, put_frame};

impl Stream {
    fn wire(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
        }
    }

    fn from_wire(byte: u8) -> Option<Self> {
        [Self::Stdout, Self::Stderr]
            .into_iter()
            .find(|stream| stream.wire() == byte)
    }
}

/// The kinds on the wire. The high bit is the direction.
pub mod kind {
    #![allow(missing_docs)]
    pub const JOB: u8 = 0x01;
    pub const ENTRY_START: u8 = 0x02;
    pub const ENTRY_DATA: u8 = 0x03;
    pub const ENTRY_END: u8 = 0x04;
    pub const GO: u8 = 0x05;
    pub const READY: u8 = 0x81;
    pub const FAILED: u8 = 0x82;
    pub const STARTED: u8 = 0x83;
    pub const OUTPUT: u8 = 0x84;
    pub const DROPPED: u8 = 0x85;
    pub const OUTPUT_END: u8 = 0x86;
    pub const EXIT: u8 = 0x87;
    pub const ARTIFACT_START: u8 = 0x88;
    pub const ARTIFACT_DATA: u8 = 0x89;
    pub const ARTIFACT_END: u8 = 0x8a;
    pub const SKIPPED: u8 = 0x8b;
    pub const SKIPPED_MORE: u8 = 0x8c;
    pub const END: u8 = 0x8d;
}

const KIB: usize = 1024;

fn to_runner_limit(kind: u8) -> Option<usize> {
    Some(match kind {
        kind::JOB => 1024 * KIB,
        kind::ENTRY_START => 4 * KIB,
        kind::ENTRY_DATA => MAX_BULK_BYTES,
        kind::ENTRY_END | kind::GO => 0,
        _ => return None,
    })
}

fn from_runner_limit(kind: u8) -> Option<usize> {
    Some(match kind {
        kind::READY => 256 * KIB,
        kind::FAILED | kind::SKIPPED => 16 * KIB,
        kind::OUTPUT => MAX_BULK_BYTES + 1,
        kind::ARTIFACT_START => 8 * KIB,
        kind::ARTIFACT_DATA => MAX_BULK_BYTES,
        kind::STARTED | kind::DROPPED | kind::OUTPUT_END | kind::ARTIFACT_END | kind::SKIPPED_MORE => 256,
        kind::EXIT => KIB,
        kind::END => 0,
        _ => return None,
    })
}

/// Picks the error for a kind that this direction lacks.
fn foreign(kind: u8, other: fn(u8) -> Option<usize>) -> FrameError {
    if other(kind).is_some() {
        FrameError::WrongDirection { kind }
    } else {
        FrameError::UnknownKind { kind }
    }
}

fn bad_payload(kind: u8, reason: &str) -> FrameError {
    FrameError::BadPayload {
        kind,
        reason: crate::name::printable(reason.as_bytes(), 200),
    }
}

fn read_json<T: DeserializeOwned>(kind: u8, payload: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(payload).map_err(|error| bad_payload(kind, &error.to_string()))
}

fn put_json<T: Serialize>(out: &mut Vec<u8>, kind: u8, value: &T, allowed: usize) -> Result<(), FrameError> {
    let payload = serde_json::to_vec(value).map_err(|error| bad_payload(kind, &error.to_string()))?;
    put_frame(out, kind, &[], &payload, allowed)
}

/// A job of another version may have other fields, and then the version is what is wrong with it.
fn read_job(payload: &[u8]) -> Result<Job, FrameError> {
    #[derive(Deserialize)]
    struct Version {
        protocol: u32,
    }
    match serde_json::from_slice::<Version>(payload) {
        Ok(Version { protocol }) if protocol != PROTOCOL_VERSION => Err(FrameError::Version {
            found: protocol,
            supported: PROTOCOL_VERSION,
        }),
        _ => read_json(kind::JOB, payload),
    }
}

impl ToRunner {
    /// The kind on the wire.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Job(_) => kind::JOB,
            Self::EntryStart(_) => kind::ENTRY_START,
            Self::EntryData(_) => kind::ENTRY_DATA,
            Self::EntryEnd => kind::ENTRY_END,
            Self::Go => kind::GO,
        }
    }

    /// Appends an `EntryData` frame without owning its bytes.
    ///
    /// # Errors
    /// When there are more than [`MAX_BULK_BYTES`].
    pub fn encode_entry_data(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        put_frame(out, kind::ENTRY_DATA, &[], bytes, MAX_BULK_BYTES)
    }
}

impl Message for ToRunner {
    fn payload_limit(kind: u8) -> Result<usize, FrameError> {
        to_runner_limit(kind).ok_or_else(|| foreign(kind, from_runner_limit))
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError> {
        Ok(match kind {
            kind::JOB => Self::Job(read_job(payload)?),
            kind::ENTRY_START => Self::EntryStart(read_json(kind, payload)?),
            kind::ENTRY_DATA => Self::EntryData(payload.to_vec()),
            kind::ENTRY_END => Self::EntryEnd,
            kind::GO => Self::Go,
            _ => return Err(foreign(kind, from_runner_limit)),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let kind = self.kind();
        let allowed = Self::payload_limit(kind)?;
        match self {
            Self::Job(job) => put_json(out, kind, job, allowed),
            Self::EntryStart(start) => put_json(out, kind, start, allowed),
            Self::EntryData(bytes) => put_frame(out, kind, &[], bytes, allowed),
            Self::EntryEnd | Self::Go => put_frame(out, kind, &[], &[], allowed),
        }
    }
}

impl FromRunner {
    /// The kind on the wire.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Ready(_) => kind::READY,
            Self::Failed(_) => kind::FAILED,
            Self::Started(_) => kind::STARTED,
            Self::Output { .. } => kind::OUTPUT,
            Self::Dropped(_) => kind::DROPPED,
            Self::OutputEnd(_) => kind::OUTPUT_END,
            Self::Exit(_) => kind::EXIT,
            Self::ArtifactStart(_) => kind::ARTIFACT_START,
            Self::ArtifactData(_) => kind::ARTIFACT_DATA,
            Self::ArtifactEnd(_) => kind::ARTIFACT_END,
            Self::Skipped(_) => kind::SKIPPED,
            Self::SkippedMore(_) => kind::SKIPPED_MORE,
            Self::End => kind::END,
        }
    }

    /// Appends an `Output` frame without owning its bytes.
    ///
    /// # Errors
    /// When there are more than [`MAX_BULK_BYTES`].
    pub fn encode_output(stream: Stream, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        put_frame(out, kind::OUTPUT, &[stream.wire()], bytes, MAX_BULK_BYTES + 1)
    }

    /// Appends an `ArtifactData` frame without owning its bytes.
    ///
    /// # Errors
    /// When there are more than [`MAX_BULK_BYTES`].
    pub fn encode_artifact_data(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        put_frame(out, kind::ARTIFACT_DATA, &[], bytes, MAX_BULK_BYTES)
    }
}

impl Message for FromRunner {
    fn payload_limit(kind: u8) -> Result<usize, FrameError> {
        from_runner_limit(kind).ok_or_else(|| foreign(kind, to_runner_limit))
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError> {
        Ok(match kind {
            kind::READY => Self::Ready(read_json(kind, payload)?),
            kind::FAILED => Self::Failed(read_json(kind, payload)?),
            kind::STARTED => Self::Started(read_json(kind, payload)?),
            kind::OUTPUT => {
                let (stream, bytes) = payload
                    .split_first()
                    .ok_or_else(|| bad_payload(kind, "no stream byte"))?;
                let stream = Stream::from_wire(*stream).ok_or_else(|| bad_payload(kind, "no such stream"))?;
                Self::Output {
                    stream,
                    bytes: bytes.to_vec(),
                }
            }
            kind::DROPPED => Self::Dropped(read_json(kind, payload)?),
            kind::OUTPUT_END => Self::OutputEnd(read_json(kind, payload)?),
            kind::EXIT => Self::Exit(read_json(kind, payload)?),
            kind::ARTIFACT_START => Self::ArtifactStart(read_json(kind, payload)?),
            kind::ARTIFACT_DATA => Self::ArtifactData(payload.to_vec()),
            kind::ARTIFACT_END => Self::ArtifactEnd(read_json(kind, payload)?),
            kind::SKIPPED => Self::Skipped(read_json(kind, payload)?),
            kind::SKIPPED_MORE => Self::SkippedMore(read_json(kind, payload)?),
            kind::END => Self::End,
            _ => return Err(foreign(kind, to_runner_limit)),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let kind = self.kind();
        let allowed = Self::payload_limit(kind)?;
        match self {
            Self::Ready(value) => put_json(out, kind, value, allowed),
            Self::Failed(value) => put_json(out, kind, value, allowed),
            Self::Started(value) => put_json(out, kind, value, allowed),
            Self::Output { stream, bytes } => put_frame(out, kind, &[stream.wire()], bytes, allowed),
            Self::Dropped(value) => put_json(out, kind, value, allowed),
            Self::OutputEnd(value) => put_json(out, kind, value, allowed),
            Self::Exit(value) => put_json(out, kind, value, allowed),
            Self::ArtifactStart(value) => put_json(out, kind, value, allowed),
            Self::ArtifactData(bytes) => put_frame(out, kind, &[], bytes, allowed),
            Self::ArtifactEnd(value) => put_json(out, kind, value, allowed),
            Self::Skipped(value) => put_json(out, kind, value, allowed),
            Self::SkippedMore(value) => put_json(out, kind, value, allowed),
            Self::End => put_frame(out, kind, &[], &[], allowed),
        }
    }
}
