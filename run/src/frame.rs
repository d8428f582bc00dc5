//! The wire: `u32` little-endian length of kind and payload, `u8` kind, payload.
//!
//! Control payloads are JSON, bulk payloads raw bytes of at most [`MAX_BULK_BYTES`]. Each kind has a bound of
//! its own, which is checked as soon as the header is there, so a peer can never make this side hold more than
//! one frame of that kind. The [`Decoder`] does no I/O; [`read_frame`] and [`write_frame`] are for callers who
//! can block.

use std::io::{self, Read, Write};
use std::marker::PhantomData;

/// Most bytes in one bulk frame, without its stream byte.
pub const MAX_BULK_BYTES: usize = 64 * 1024;
/// Most bytes of kind and payload in any frame.
pub const MAX_FRAME_BYTES: usize = 1024 * 1024 + 64 * 1024;
/// Bytes before the payload: the length and the kind.
pub const HEADER_BYTES: usize = 5;

/// Why bytes are not a frame. Whoever gets one ends the conversation: there is no way to find the next frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length of zero: not even a kind.
    #[error("A frame was announced with no bytes in it, not even its kind.")]
    Empty,
    /// A frame longer than its kind may be.
    #[error(
        "A frame of kind {kind:#04x} was announced or built with {bytes} bytes, of which {allowed} are allowed."
    )]
    TooLong {
        /// The frame's kind.
        kind: u8,
        /// Payload bytes announced, or built.
        bytes: usize,
        /// Payload bytes allowed.
        allowed: usize,
    },
    /// A kind that this protocol does not have.
    #[error("A frame of the unknown kind {kind:#04x} came: the two sides speak different protocols.")]
    UnknownKind {
        /// The frame's kind.
        kind: u8,
    },
    /// A kind that only goes the other way.
    #[error("A frame of kind {kind:#04x} came, which only goes the other way.")]
    WrongDirection {
        /// The frame's kind.
        kind: u8,
    },
    /// A payload that is not what its kind holds.
    #[error("A frame of kind {kind:#04x} has a payload that cannot be read: {reason}.")]
    BadPayload {
        /// The frame's kind.
        kind: u8,
        /// What is wrong with it, made printable and bounded.
        reason: String,
    },
    /// The other side speaks another version.
    #[error(
        "The other side speaks version {found} of the runner protocol and this one {supported}: use an image of this release."
    )]
    Version {
        /// Their version.
        found: u32,
        /// Ours.
        supported: u32,
    },
    /// The stream ended within a frame.
    #[error("The stream ended in the middle of a frame.")]
    Truncated,
}

/// One direction's frames. Implemented by [`crate::ToRunner`] and [`crate::FromRunner`] only.
pub trait Message: Sized {
    /// Most payload bytes of a kind.
    ///
    /// # Errors
    /// When the kind is unknown or goes the other way.
    fn payload_limit(kind: u8) -> Result<usize, FrameError>;

    /// Reads a payload.
    ///
    /// # Errors
    /// When the payload is not what the kind holds.
    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError>;

    /// Appends the frame to `out`, header included.
    ///
    /// # Errors
    /// When the payload would be longer than its kind may be; `out` is then as it was.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrameError>;
}

/// Checks a header and gives the kind and the payload's length.
fn parse_header<M: Message>(header: [u8; HEADER_BYTES]) -> Result<(u8, usize), FrameError> {
    let [a, b, c, d, kind] = header;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let bytes = length.checked_sub(1).ok_or(FrameError::Empty)?;
    let allowed = M::payload_limit(kind)?.min(MAX_FRAME_BYTES - 1);
    if bytes > allowed {
        Err(FrameError::TooLong { kind, bytes, allowed })
    } else {
        Ok((kind, bytes))
    }
}

/// Appends one frame whose payload is `prefix` and `payload` together.
///
/// # Errors
/// When it would be longer than `allowed`; `out` is then as it was.
pub(crate) fn put_frame(
    out: &mut Vec<u8>,
    kind: u8,
    prefix: &[u8],
    payload: &[u8],
    allowed: usize,
) -> Result<(), FrameError> {
    let bytes = prefix.len() + payload.len();
    let length = u32::try_from(bytes + 1).ok().filter(|_| bytes <= allowed);
    let Some(length) = length else {
        return Err(FrameError::TooLong { kind, bytes, allowed });
    };
    out.reserve(HEADER_BYTES + bytes);
    out.extend_from_slice(&length.to_le_bytes());
    out.push(kind);
    out.extend_from_slice(prefix);
    out.extend_from_slice(payload);
    Ok(())
}

/// Takes bytes as they come, in any pieces, and gives frames. It holds what was pushed and not yet taken:
/// take all frames after each push, and it is never more than one frame and one push.
#[derive(Debug)]
pub struct Decoder<M> {
    buffer: Vec<u8>,
    /// Where the next frame begins in the buffer.
    start: usize,
    failed: Option<FrameError>,
    message: PhantomData<fn() -> M>,
}

impl<M> Default for Decoder<M> {
    fn default() -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            failed: None,
            message: PhantomData,
        }
    }
}

impl<M: Message> Decoder<M> {
    /// An empty one; it allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes. After an error they are thrown away.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or `None` until more bytes come.
    ///
    /// # Errors
    /// When the bytes are not a frame. The same error comes forever after.
    pub fn next_frame(&mut self) -> Result<Option<M>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.take_frame();
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            (self.buffer, self.start) = (Vec::new(), 0);
        }
        result
    }

    fn take_frame(&mut self) -> Result<Option<M>, FrameError> {
        let waiting = self.buffer.get(self.start..).unwrap_or_default();
        let Some((header, rest)) = waiting.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let (kind, bytes) = parse_header::<M>(*header)?;
        let Some(payload) = rest.get(..bytes) else {
            return Ok(None);
        };
        let message = M::decode(kind, payload)?;
        self.start += HEADER_BYTES + bytes;
        if self.start == self.buffer.len() {
            (self.buffer, self.start) = (Vec::new(), 0);
        }
        Ok(Some(message))
    }

    /// Says that the stream has ended.
    ///
    /// # Errors
    /// When that was in the middle of a frame, or an error came before.
    pub fn end(&self) -> Result<(), FrameError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.start < self.buffer.len() => Err(FrameError::Truncated),
            None => Ok(()),
        }
    }

    /// Bytes that were pushed and not yet taken.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len() - self.start
    }
}

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The bytes are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The channel failed.
    #[error("The channel between runner and driver failed: {0}.")]
    Io(#[from] io::Error),
}

/// Reads one frame; `None` when the stream ends before one begins. Reads no byte beyond it.
///
/// # Errors
/// When reading fails, or the bytes are not a frame.
pub fn read_frame<M: Message>(reader: &mut impl Read) -> Result<Option<M>, ChannelError> {
    let mut header = [0; HEADER_BYTES];
    let mut have = 0;
    while have < HEADER_BYTES {
        match reader.read(header.get_mut(have..).unwrap_or_default()) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(FrameError::Truncated.into()),
            Ok(read) => have += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (kind, bytes) = parse_header::<M>(header)?;
    // `read_to_end` grows with what arrives, not with what was announced.
    let mut payload = Vec::new();
    reader.by_ref().take(bytes as u64).read_to_end(&mut payload)?;
    if payload.len() < bytes {
        return Err(FrameError::Truncated.into());
    }
    Ok(Some(M::decode(kind, &payload)?))
}

/// Writes one frame in one go. Does not flush.
///
/// # Errors
/// When the frame is too long, or writing fails.
pub fn write_frame<M: Message>(writer: &mut impl Write, message: &M) -> Result<(), ChannelError> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes)?;
    Ok(writer.write_all(&bytes)?)
}
