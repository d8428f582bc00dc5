//! What a run tells while it lives, and where its artifacts go.

use std::io;

use sandglass_run::Stream;

use crate::outdir::{OutDir, StoreError, Stored};
use crate::refusal::Refusal;

/// Who listens to a run.
///
/// Nothing here may block for long: the driver's own clock stands still meanwhile. What comes is bounded (each
/// stream by the output cap), so a listener can keep it until its own reader is ready.
pub trait Events {
    /// The request was admitted, and a sandbox is going to be made: the last moment to refuse the run.
    ///
    /// # Errors
    /// Why it shall not begin.
    fn admitted(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    /// The script's process is there.
    fn started(&mut self) {}

    /// A piece of a stream.
    fn output(&mut self, stream: Stream, bytes: &[u8]);

    /// Bytes of a stream were left out here.
    fn dropped(&mut self, stream: Stream, bytes: u64);

    /// An artifact comes: where to store it, or nowhere. It is listed and hashed either way.
    ///
    /// # Errors
    /// Why it cannot be stored; it is then listed as skipped.
    fn artifact(&mut self, path: &str, bytes: u64) -> Result<Option<Box<dyn Store>>, StoreError>;
}

/// Takes the bytes of one artifact. Dropped without [`keep`](Store::keep) it leaves nothing.
pub trait Store {
    /// Appends bytes.
    ///
    /// # Errors
    /// What the place says, such as no room.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// All bytes came: it stays.
    fn keep(self: Box<Self>);
}

impl Store for Stored {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        Stored::write(self, bytes)
    }

    fn keep(self: Box<Self>) {
        Stored::keep(*self);
    }
}

/// Listens to nothing but artifacts, which go to a directory if there is one.
#[derive(Debug)]
pub struct Quiet<'a>(pub Option<&'a OutDir>);

impl Events for Quiet<'_> {
    fn admitted(&mut self) -> Result<(), Refusal> {
        self.0.map_or(Ok(()), OutDir::make)
    }
    fn output(&mut self, _: Stream, _: &[u8]) {}
    fn dropped(&mut self, _: Stream, _: u64) {}
    fn artifact(&mut self, path: &str, _: u64) -> Result<Option<Box<dyn Store>>, StoreError> {
        store_in(self.0, path)
    }
}

/// Begins to store an artifact in a directory, if there is one.
///
/// # Errors
/// See [`OutDir::create`].
pub fn store_in(out: Option<&OutDir>, path: &str) -> Result<Option<Box<dyn Store>>, StoreError> {
    out.map(|out| out.create(path).map(|stored| Box::new(stored) as Box<dyn Store>))
        .transpose()
}
