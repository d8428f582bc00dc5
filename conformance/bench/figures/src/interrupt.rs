//! A way to stop that leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A person pressed Ctrl-C, or somebody ended this.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("Interrupted.")]
pub struct Interrupted;

/// Set by Ctrl-C: sections end between two runs, and everything is cleaned up.
#[derive(Debug, Default, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to listen.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn listen() -> std::io::Result<Self> {
        let interrupt = Self::default();
        for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
            signal_hook::flag::register(signal.as_raw(), interrupt.0.clone())?;
        }
        Ok(interrupt)
    }

    /// # Errors
    /// Somebody wants this to stop.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Interrupted);
        }
        Ok(())
    }
}
