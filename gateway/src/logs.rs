//! Log lines on stderr.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use sandglass_driver::Refusal;

use crate::settings::{Key, Settings};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

/// Turns logging on as the settings say. Nothing is parsed and nothing installed where nothing is logged.
///
/// # Errors
/// A format or level that there is not.
pub fn start(settings: &Settings) -> Result<(), Refusal> {
    let format = settings.word(
        Key::LogFormat,
        Format::Text,
        &[("text", Format::Text), ("json", Format::Json)],
    )?;
    let levels = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    let level = settings.word(Key::LogLevel, LevelFilter::WARN, &levels)?;
    if level == LevelFilter::OFF {
        return Ok(());
    }
    // Spans are logged when they close, with their times, from `debug` on.
    let spans = if level >= LevelFilter::DEBUG {
        FmtSpan::CLOSE
    } else {
        FmtSpan::NONE
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_span_events(spans)
        .with_writer(std::io::stderr);
    match format {
        Format::Json => builder.json().flatten_event(true).with_current_span(true).init(),
        Format::Text => builder
            .with_ansi(crate::style::colours_on_stderr())
            .with_target(false)
            .init(),
    }
    Ok(())
}
