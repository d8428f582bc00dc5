//! The shim's log: containerd reads a FIFO named `log` in the bundle, and copies its lines into its own log.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{FmtSpan, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;

/// Starts logging into the FIFO `log` of the working directory. A FIFO that is not there or has no reader is no reason
/// not to run containers.
pub fn start(debug: bool) {
    // Opened for reading as well: without containerd at the other end a writer would wait, or die.
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC)
        .open("log");
    let Ok(fifo) = opened else { return };
    let level = if debug {
        LevelFilter::DEBUG
    } else {
        LevelFilter::INFO
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .with_timer(Rfc3339)
        .with_span_events(if debug { FmtSpan::CLOSE } else { FmtSpan::NONE })
        .with_writer(Mutex::new(Lossy(fifo)));
    #[cfg(not(feature = "otlp"))]
    let subscriber = tracing_subscriber::registry().with(lines).with(level);
    // Spans that are sent are made at every level of the log.
    #[cfg(feature = "otlp")]
    let subscriber = tracing_subscriber::registry()
        .with(tracing_subscriber::Layer::with_filter(lines, level))
        .with(crate::otlp::layer());
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        // What the libraries say through `log`.
        let level = if debug {
            tracing_log::log::LevelFilter::Debug
        } else {
            tracing_log::log::LevelFilter::Warn
        };
        let tracer = tracing_log::LogTracer::builder().with_max_level(level);
        // What the sender of spans says of each request is not about any container.
        #[cfg(feature = "otlp")]
        let tracer = tracer.ignore_all(["ureq", "ureq_proto"]);
        let _ = tracer.init();
    }
}

/// A FIFO that nobody empties loses lines, and holds nobody up.
struct Lossy<W>(W);

impl<W: Write> Write for Lossy<W> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        match self.0.write(line) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(line.len()),
            other => other,
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Seconds since the epoch would do for machines; containerd's own lines have this form.
struct Rfc3339;

impl FormatTime for Rfc3339 {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        let now = time::OffsetDateTime::now_utc();
        let (date, clock) = (now.date(), now.time());
        write!(
            w,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
            date.year(),
            u8::from(date.month()),
            date.day(),
            clock.hour(),
            clock.minute(),
            clock.second(),
            clock.microsecond()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let fifo = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(&path)
            .unwrap();
        let mut log = Lossy(fifo);
        for _ in 0..1000 {
            log.write_all(&[b'x'; 1000]).unwrap();
        }
    }
}
