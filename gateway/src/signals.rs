//! Ctrl-C and its like: the first cancels the run, the second ends this process at once.

use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sandglass_driver::Cancel;
use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::net::UnixStream;

/// Signals that cancel.
#[derive(Debug)]
pub struct Signals {
    /// Once set, the next signal does what it does by default: it ends the process. What is left of the sandbox then
    /// ends with it, and the next run takes away the rest.
    last: Arc<AtomicBool>,
    arrived: UnixStream,
}

impl Signals {
    /// Begins to catch signals; must be called within a tokio runtime that has its I/O on.
    ///
    /// # Errors
    /// When no handler can be installed.
    pub fn catch() -> std::io::Result<Self> {
        let last = Arc::new(AtomicBool::new(false));
        let (arrived, notify) = StdStream::pair()?;
        arrived.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM] {
            // In this order: the flag is looked at before it is set.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&last))?;
            signal_hook::flag::register(signal, Arc::clone(&last))?;
            signal_hook::low_level::pipe::register(signal, notify.try_clone()?)?;
        }
        Ok(Self {
            last,
            arrived: UnixStream::from_std(arrived)?,
        })
    }

    /// Cancels when the first signal arrives, and never returns.
    pub async fn cancel(&self, cancel: &Cancel) -> std::convert::Infallible {
        if self.arrived.readable().await.is_ok() {
            tracing::info!("a signal arrived, cancelling");
            cancel.cancel();
        }
        std::future::pending().await
    }

    /// The run is over: from now on a signal ends the process.
    pub fn run_is_over(&self) {
        self.last.store(true, Ordering::SeqCst);
    }
}
