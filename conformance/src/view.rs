//! The report of a run, as the contract of the command line has it.
//!
//! Written down here a second time on purpose: the suite tests the contract from outside and takes no type from the
//! code under test.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde::Deserialize;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Exit code 0.
    Succeeded,
    /// An exit code or a signal of its own.
    Failed,
    /// The wall clock ended it.
    TimedOut,
    /// It ran out of memory.
    OutOfMemory,
    /// Somebody cancelled it.
    Cancelled,
    /// Nothing ran.
    Refused,
    /// The sandbox vanished.
    Lost,
}

/// One output stream.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    text: Option<String>,
    base64: Option<String>,
    /// Bytes that the script wrote.
    pub bytes_total: u64,
    /// Whether a part is missing here.
    pub truncated: bool,
}

impl Stream {
    /// The bytes that were kept; `None` if there is neither text nor valid base64, or both.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match (&self.text, &self.base64) {
            (Some(text), None) => Some(text.clone().into_bytes()),
            (None, Some(coded)) => base64::engine::general_purpose::STANDARD.decode(coded).ok(),
            _ => None,
        }
    }

    /// The text; `None` when it came as base64.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref().filter(|_| self.base64.is_none())
    }

    /// Whether it came as base64.
    pub fn is_base64(&self) -> bool {
        self.base64.is_some() && self.text.is_none()
    }
}

/// A file that came back.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// Where it was below `/out`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// The digest of its content, in lower-case hexadecimal.
    pub sha256: String,
    /// What it seems to be.
    pub media_type: String,
}

/// Something in `/out` that did not come back.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Skipped {
    /// Where it was, with replacement characters where it was not UTF-8.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// What a run used.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Usage {
    /// Peak of its memory.
    pub memory_peak_bytes: Option<u64>,
}

/// The receipt.
#[derive(Debug, Clone, Deserialize)]
pub struct Isolation {
    /// Who carried it out.
    pub driver: String,
    /// The image by digest.
    pub image: String,
    /// The uid of the script, inside.
    pub uid: u64,
    /// `none`.
    pub capabilities: String,
    /// Read from the kernel.
    pub no_new_privileges: bool,
    /// The name of the profile.
    pub seccomp_profile: String,
    /// The Landlock ABI in force, if any.
    pub landlock_abi: Option<u64>,
    /// Whether it had a user namespace of its own.
    pub user_namespace: bool,
    /// `none`.
    pub network: String,
    /// Whether the root was read-only.
    pub root_read_only: bool,
    /// Controls that a person did without.
    #[serde(default)]
    pub waived: Vec<String>,
}

/// Why nothing ran, or nothing more is known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RunError {
    /// A stable word.
    pub code: String,
    /// A sentence.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

/// The report.
#[derive(Debug, Clone, Deserialize)]
pub struct View {
    /// The id of the run.
    pub run_id: String,
    /// How it ended.
    pub status: Status,
    /// The script's exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended the script.
    pub signal: Option<i32>,
    /// Its standard output.
    pub stdout: Stream,
    /// Its standard error.
    pub stderr: Stream,
    /// What came back.
    pub artifacts: Vec<Artifact>,
    /// What did not.
    pub skipped: Vec<Skipped>,
    /// Where the time went.
    pub timings_ms: BTreeMap<String, f64>,
    /// What it used.
    pub usage: Usage,
    /// The receipt; absent if nothing ran.
    pub isolation: Option<Isolation>,
    /// Why nothing ran.
    pub error: Option<RunError>,
}

impl View {
    /// Reads the one report that stdout must be.
    pub fn parse(stdout: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(stdout).map_err(|e| format!("stdout is not one report ({e})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{ "schema": 1, "run_id": "a", "status": "succeeded", "exit_code": 0, "signal": null,
      "stdout": {"text": "x", "bytes_total": 1, "truncated": false},
      "stderr": {"base64": "/w==", "bytes_total": 1, "truncated": false},
      "artifacts": [{"path": "a", "bytes": 1, "sha256": "00", "media_type": "text/csv"}],
      "skipped": [{"path": "link", "reason": "symbolic_link"}],
      "timings_ms": {"queued": 0, "total": 829}, "usage": {"cpu_ms": 1, "memory_peak_bytes": 2, "processes_peak": 3},
      "isolation": { "driver": "local", "runtime": "sandglass", "image": "sha256:00", "uid": 65534,
        "capabilities": "none", "no_new_privileges": true, "seccomp_profile": "strict", "landlock_abi": 7,
        "user_namespace": true, "network": "none", "root_read_only": true },
      "error": null }"#;

    #[test]
    fn the_report_of_the_contract_is_read() {
        let view = View::parse(REPORT.as_bytes()).unwrap();
        assert_eq!(view.stdout.text(), Some("x"));
        assert!(view.stderr.is_base64());
        assert_eq!(view.stderr.bytes().unwrap(), [0xff]);
    }

    #[test]
    fn anything_beside_the_report_is_an_error() {
        assert!(View::parse(format!("{REPORT}\nforged").as_bytes()).is_err());
        assert!(View::parse(format!("log line\n{REPORT}").as_bytes()).is_err());
        assert!(View::parse(format!("{REPORT}{REPORT}").as_bytes()).is_err());
        assert!(View::parse(b"").is_err());
    }

    #[test]
    fn a_stream_with_both_forms_or_none_has_no_bytes() {
        let both = Stream {
            text: Some(String::new()),
            base64: Some(String::new()),
            ..Stream::default()
        };
        assert!(both.bytes().is_none());
        assert!(Stream::default().bytes().is_none());
    }
}
