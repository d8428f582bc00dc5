//! Having a worker do something.

use std::os::fd::OwnedFd;
use std::time::Duration;

use sandglass_sandbox::container::{self, Done, Request};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};

use super::{LONGEST_ANSWER, Shared};
use crate::error::{Result, failed};
use crate::exits::InFlight;
use crate::io::Theirs;

/// How long the answer of a worker that is gone may still be on its way.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Has a worker do something, and waits until it has ended.
#[cfg_attr(
    feature = "otlp",
    tracing::instrument(target = "otlp", name = "worker", level = "trace", skip_all)
)]
pub(super) async fn work(
    shared: &Shared,
    request: &Request,
    streams: &Theirs,
    status: Option<&OwnedFd>,
) -> Result<(Done, InFlight)> {
    use std::os::fd::AsFd;
    let io = |error: std::io::Error| failed("starting a worker", error);
    let in_flight = shared.exits.in_flight();
    let status = status.map(AsFd::as_fd);
    let spawned = container::spawn(&shared.program, request, streams.fds(), status).map_err(io)?;
    let child = shared.exits.watch_fd(spawned.pid, spawned.pidfd).map_err(io)?;
    spawned.answer.set_nonblocking(true).map_err(io)?;
    let answer = tokio::net::UnixStream::from_std(spawned.answer).map_err(io)?;
    let mut body = Vec::new();
    // A line: the end of the stream would not come, since a created container is a copy of the worker, socket and all.
    let mut answer = tokio::io::BufReader::new(answer.take(LONGEST_ANSWER));
    let mut end = std::pin::pin!(child.wait());
    #[cfg(feature = "otlp")]
    let mut answered = None;
    let (read, exit) = tokio::select! {
        biased;
        read = answer.read_until(b'\n', &mut body) => {
            #[cfg(feature = "otlp")]
            {
                answered = Some(std::time::SystemTime::now());
            }
            (read, end.await)
        }
        // It was killed, for all that is known; and such a copy may hold the stream open for ever.
        exit = &mut end => {
            let rest = answer.read_until(b'\n', &mut body);
            (tokio::time::timeout(LAST_WORDS, rest).await.unwrap_or(Ok(0)), exit)
        }
    };
    read.map_err(io)?;
    let done = container::parse_reply(&body).map_err(|error| match exit.status {
        0 | 1 => failed("making the sandbox", error),
        status => failed("making the sandbox", format!("{error} (status {status})")),
    })?;
    #[cfg(feature = "otlp")]
    crate::otlp::phases(&done.phases, answered.unwrap_or_else(std::time::SystemTime::now));
    Ok((done, in_flight))
}

pub(super) fn say(container: &str, exec: &str, done: &Done) {
    for warning in &done.warnings {
        tracing::warn!(container, exec, "{warning}");
    }
    let phases: Vec<String> = done
        .phases
        .iter()
        .map(|(name, ms)| format!("{name}={ms:.2}"))
        .collect();
    tracing::debug!(
        container,
        exec,
        pid = done.pid,
        phases_ms = phases.join(" "),
        "a worker is done"
    );
}
