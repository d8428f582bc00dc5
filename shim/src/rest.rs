//! A shim waits most of its life, and holds little while it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// So long after the last call that changed something a shim counts as waiting.
const SETTLED: Duration = Duration::from_secs(1);
/// And so long after one that only asked: containerd's CRI plugin asks every shim for its figures once a second.
const ANSWERED: Duration = Duration::from_millis(100);

/// Tells that something is going on.
#[derive(Debug, Clone, Default)]
pub struct Rest(Arc<Signals>);

#[derive(Debug, Default)]
struct Signals {
    heard: Notify,
    busy: AtomicBool,
}

impl Rest {
    /// Starts the task that gives program text back to the kernel whenever nothing was going on for a while. It comes
    /// back from the page cache, page by page, when it is needed again.
    pub fn watch() -> Self {
        let rest = Self::default();
        let signals = rest.0.clone();
        tokio::spawn(async move {
            loop {
                signals.heard.notified().await;
                signals.quiet().await;
                if let Err(error) = sandglass_sandbox::give_back_clean_pages() {
                    tracing::debug!(%error, "program text stays resident");
                }
            }
        });
        rest
    }

    /// Something is going on.
    pub fn disturb(&self) {
        self.0.busy.store(true, Ordering::Relaxed);
        self.0.heard.notify_one();
    }

    /// Somebody asks how things are.
    pub fn touch(&self) {
        self.0.heard.notify_one();
    }
}

impl Signals {
    /// Waits until nothing is heard any more.
    async fn quiet(&self) {
        loop {
            let pause = if self.busy.swap(false, Ordering::Relaxed) {
                SETTLED
            } else {
                ANSWERED
            };
            if tokio::time::timeout(pause, self.heard.notified()).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_is_over_sooner_than_work() {
        let signals = Signals::default();
        let asked = tokio::time::Instant::now();
        signals.quiet().await;
        assert!(asked.elapsed() < SETTLED);
        signals.busy.store(true, Ordering::Relaxed);
        let worked = tokio::time::Instant::now();
        signals.quiet().await;
        assert!(worked.elapsed() >= SETTLED);
    }
}
