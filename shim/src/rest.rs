//! A shim waits most of its life, and holds little while it does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

/// So long after the last call a shim counts as waiting.
const SETTLED: Duration = Duration::from_secs(1);

/// Tells that something is going on.
#[derive(Debug, Clone, Default)]
pub struct Rest(Arc<Notify>);

impl Rest {
    /// Starts the task that gives program text back to the kernel whenever nothing was going on for a while. It comes
    /// back from the page cache, page by page, when it is needed again.
    pub fn watch() -> Self {
        let rest = Self::default();
        let heard = rest.0.clone();
        tokio::spawn(async move {
            loop {
                heard.notified().await;
                while tokio::time::timeout(SETTLED, heard.notified()).await.is_ok() {}
                if let Err(error) = sandglass_sandbox::give_back_clean_pages() {
                    tracing::debug!(%error, "program text stays resident");
                }
            }
        });
        rest
    }

    /// Something is going on.
    pub fn disturb(&self) {
        self.0.notify_one();
    }
}
