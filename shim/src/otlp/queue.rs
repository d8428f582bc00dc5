//! A bounded queue and the thread that empties it: nobody who has something to send waits for that to happen.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What may wait; of spans of ours, well below a megabyte.
const LONGEST: usize = 1024;
/// What is sent at once.
const AT_ONCE: usize = 256;
/// How long the first of a batch waits for others.
const LINGERS: Duration = Duration::from_secs(1);
/// Far above what it takes to encode and send.
const STACK: usize = 256 << 10;

/// What became of all that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// How many were offered.
    pub offered: usize,
    /// How many of them the other side took.
    pub taken: usize,
}

/// The queue.
#[derive(Debug)]
pub struct Queue<T> {
    entry: Mutex<Option<SyncSender<T>>>,
    over: Mutex<Receiver<()>>,
    offered: AtomicUsize,
    taken: Arc<AtomicUsize>,
}

impl<T: Send + 'static> Queue<T> {
    /// Starts the thread.
    ///
    /// # Errors
    /// There can be none.
    pub fn start(
        name: &str,
        send: impl Fn(Vec<T>) -> std::io::Result<()> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (entry, waiting) = sync_channel(LONGEST);
        let (ends, over) = sync_channel(0);
        let taken = Arc::new(AtomicUsize::new(0));
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .stack_size(STACK);
        thread.spawn({
            let taken = taken.clone();
            move || {
                // Dropped with the thread's last act, which is what `finish` waits for.
                let _ends: SyncSender<()> = ends;
                while let Some(batch) = gather(&waiting) {
                    let count = batch.len();
                    match send(batch) {
                        Ok(()) => {
                            taken.fetch_add(count, Ordering::SeqCst);
                        }
                        Err(error) => tracing::debug!(%error, count, "the collector took no spans"),
                    }
                }
            }
        })?;
        Ok(Self {
            entry: Mutex::new(Some(entry)),
            over: Mutex::new(over),
            offered: AtomicUsize::new(0),
            taken,
        })
    }

    /// Puts one in, or drops it where there is no room.
    pub fn offer(&self, item: T) {
        self.offered.fetch_add(1, Ordering::SeqCst);
        if let Some(entry) = &*self.entry.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = entry.try_send(item);
        }
    }

    /// Lets no more in, and waits until the thread has sent what was in it, for a time at most.
    pub fn finish(&self, within: Duration) -> Tally {
        drop(self.entry.lock().unwrap_or_else(PoisonError::into_inner).take());
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = over.recv_timeout(within);
        Tally {
            offered: self.offered.load(Ordering::SeqCst),
            taken: self.taken.load(Ordering::SeqCst),
        }
    }
}

/// The next batch. `None` when the queue is closed and empty.
fn gather<T>(waiting: &Receiver<T>) -> Option<Vec<T>> {
    let mut batch = vec![waiting.recv().ok()?];
    let deadline = Instant::now() + LINGERS;
    while batch.len() < AT_ONCE {
        match waiting.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(item) => batch.push(item),
            Err(_) => break,
        }
    }
    Some(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn all_is_sent_in_order_and_no_later_than_at_the_end() {
        let (tell, told) = sync_channel(8);
        let queue = Queue::start("test", move |batch: Vec<usize>| {
            tell.send(batch).map_err(std::io::Error::other)
        })
        .unwrap();
        (0..AT_ONCE + 7).for_each(|n| queue.offer(n));
        let began = Instant::now();
        let (offered, taken) = (AT_ONCE + 7, AT_ONCE + 7);
        assert_eq!(queue.finish(LONG), Tally { offered, taken });
        assert!(began.elapsed() < LINGERS, "it waited for more than there is");
        let batches: Vec<Vec<usize>> = told.iter().collect();
        assert_eq!(batches.iter().map(Vec::len).max(), Some(AT_ONCE));
        assert_eq!(batches.concat(), (0..AT_ONCE + 7).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_not_taken_is_counted() {
        let queue = Queue::start("test", |_: Vec<u8>| Err(std::io::ErrorKind::TimedOut.into())).unwrap();
        queue.offer(1);
        queue.offer(2);
        let (offered, taken) = (2, 0);
        assert_eq!(queue.finish(LONG), Tally { offered, taken });
        queue.offer(3);
        assert_eq!(queue.finish(LONG).offered, 3);
    }

    #[test]
    fn one_that_takes_for_ever_holds_up_neither_who_offers_nor_the_end() {
        let (hold, held) = sync_channel::<()>(0);
        let queue = Queue::start("test", move |_: Vec<usize>| {
            let _ = held.recv();
            Ok(())
        })
        .unwrap();
        let began = Instant::now();
        (0..LONGEST * 3).for_each(|n| queue.offer(n));
        let tally = queue.finish(Duration::from_millis(50));
        assert_eq!((tally.offered, tally.taken), (LONGEST * 3, 0));
        assert!(began.elapsed() < LONG);
        drop(hold);
        // Less was in it than was offered: the rest had no room.
        let taken = queue.finish(LONG).taken;
        assert!((LONGEST..=LONGEST + AT_ONCE).contains(&taken), "{taken}");
    }
}
