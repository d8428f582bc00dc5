//! A mock containerd: what stands around a shim in these tests.

pub mod bench;
pub mod bundle;
pub mod events;
pub mod fifo;
pub mod host;
pub mod root;
pub mod shim;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

pub use bench::Bench;
pub use bundle::Bundle;
pub use containerd_shim::protos::ttrpc::Code;
pub use shim::{Refused, Shim};

pub type Outcome<T = ()> = Result<T, Failed>;

/// Fails with both values where they differ.
pub fn equal<T: PartialEq<U> + Debug, U: Debug>(found: T, expected: U, what: &str) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}").into())
}

/// Fails with the sentence where it does not hold.
pub fn holds(condition: bool, sentence: impl FnOnce() -> String) -> Outcome {
    if condition { Ok(()) } else { Err(sentence().into()) }
}

/// Fails unless the text has the part.
pub fn contains(text: &str, part: &str) -> Outcome {
    holds(text.contains(part), || format!("expected {part:?} in {text:?}"))
}

/// Waits until it is so, ten seconds at most.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        if Instant::now() > deadline {
            return Err(format!("{what}: not within ten seconds").into());
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    Ok(())
}

/// The future's result within a time, or a failure that says what was awaited.
pub async fn within<T>(seconds: u64, what: &str, future: impl Future<Output = T>) -> Outcome<T> {
    tokio::time::timeout(Duration::from_secs(seconds), future)
        .await
        .map_err(|_| format!("{what}: not within {seconds} seconds").into())
}
