//! What came of an invocation, and the ways to look at it that most cases share.

use std::time::Duration;

use crate::invoke::lossy;
use crate::judge::shortened;
use crate::verdict::{Stop, check};
use crate::view::{Status, View};

/// What came of an invocation.
#[derive(Debug)]
pub struct Ended {
    /// Exit code of the command line.
    pub code: Option<i32>,
    /// Signal that ended the command line.
    pub signal: Option<i32>,
    /// The report, or why stdout is none.
    pub report: Result<View, String>,
    /// Whether nobody holds its output any more.
    pub pipes_closed: bool,
    /// All of stdout.
    pub stdout: Vec<u8>,
    /// All of stderr.
    pub stderr: Vec<u8>,
    /// Peak of the resident memory of the command line and the processes that it waited for.
    pub peak_bytes: u64,
    /// How long it took.
    pub wall: Duration,
    /// The command, for people.
    pub shown: String,
}

impl Ended {
    /// The report, or a failure.
    pub fn report(&self) -> Result<&View, Stop> {
        self.report.as_ref().map_err(|e| {
            Stop::failed(
                format!("a report on stdout of {}", self.shown),
                format!(
                    "{e}; exit {:?}, signal {:?}, stdout {:?}, stderr {:?}",
                    self.code,
                    self.signal,
                    lossy(&self.stdout),
                    lossy(&self.stderr)
                ),
            )
        })
    }

    /// Goes on only if the run ended so, by report and exit status.
    pub fn ended(&self, status: Status, code: i32) -> Result<&View, Stop> {
        let report = self.report()?;
        let observed = format!(
            "status {:?}, exit {:?}{}; script: exit {:?}, signal {:?}; error {:?}; stdout {:?}; stderr {:?}; logs {:?}",
            report.status,
            self.code,
            self.signal.map(|s| format!(" (signal {s})")).unwrap_or_default(),
            report.exit_code,
            report.signal,
            report.error,
            shortened(report.stdout.text().unwrap_or("(base64)")),
            shortened(report.stderr.text().unwrap_or("(base64)")),
            lossy(&self.stderr),
        );
        check(
            report.status == status && self.code == Some(code),
            format!("status {status:?}, exit Some({code})"),
            observed,
        )?;
        check(
            self.pipes_closed,
            "nobody holds the pipes of the command line after its end",
            "they are still open",
        )?;
        Ok(report)
    }

    /// Goes on only if the script succeeded; hands back what it printed.
    pub fn succeeded(&self) -> Result<&str, Stop> {
        let report = self.ended(Status::Succeeded, 0)?;
        report
            .stdout
            .text()
            .ok_or_else(|| Stop::failed("text on stdout", "base64"))
    }

    /// Goes on only if the run was refused with an error that names `about` and says what to do.
    pub fn refused(&self, code: Option<&str>, about: &str) -> Result<(), Stop> {
        let report = self.ended(Status::Refused, 125)?;
        let error = report
            .error
            .as_ref()
            .ok_or_else(|| Stop::failed("an error in the report", "error is null"))?;
        let said = format!(
            "code {:?}, message {:?}, hint {:?}",
            error.code, error.message, error.hint
        );
        check(
            !error.code.is_empty() && error.message.len() > 10 && error.hint.len() > 5,
            "code, message and hint",
            &said,
        )?;
        if let Some(code) = code {
            check(error.code == code, format!("code {code:?}"), &said)?;
        }
        let (whole, about) = (
            format!("{} {}", error.message, error.hint).to_lowercase(),
            about.to_lowercase(),
        );
        check(
            about.split('|').any(|word| whole.contains(word)),
            format!("a sentence that names {about:?}"),
            &said,
        )?;
        check(
            report.artifacts.is_empty() && report.stdout.bytes_total == 0,
            "nothing ran",
            "there is output",
        )?;
        Ok(())
    }
}
