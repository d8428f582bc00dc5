//! What comes back from a run. As JSON it is the product's contract: `report.schema.json` is made from these types.

use serde::{Deserialize, Serialize};

use crate::id::RunId;

/// The version of the report's shape.
pub const REPORT_SCHEMA: u32 = 1;

/// Exit status of the command line when the run met the wall clock.
pub const EXIT_TIMED_OUT: u8 = 124;
/// Exit status when it was refused, or never started, or was lost.
pub const EXIT_REFUSED: u8 = 125;
/// Exit status when it was cancelled.
pub const EXIT_CANCELLED: u8 = 130;
/// Exit status when it ran out of memory.
pub const EXIT_OUT_OF_MEMORY: u8 = 137;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Status {
    /// The script left with status 0.
    Succeeded,
    /// The script left with another status, or by a signal that was not ours.
    Failed,
    /// The wall clock ran out and everything was killed.
    TimedOut,
    /// The kernel killed it at the memory limit.
    OutOfMemory,
    /// The person cancelled it.
    Cancelled,
    /// Nothing ran: disabled, over the cap, a bad request, or a control that could not be applied.
    Refused,
    /// The sandbox vanished and nothing more is known.
    Lost,
}

/// Everything about one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// The version of this shape: 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1)))]
    pub schema: u32,
    /// The run's name.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))
    )]
    pub run_id: RunId,
    /// How it ended.
    pub status: Status,
    /// The script's exit status, where it left by itself.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 255)))]
    pub exit_code: Option<i32>,
    /// The signal that ended the script, where one did.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 64)))]
    pub signal: Option<i32>,
    /// What it wrote to its standard output.
    pub stdout: Output,
    /// What it wrote to its standard error.
    pub stderr: Output,
    /// Files taken from `/out`.
    pub artifacts: Vec<Artifact>,
    /// What was in `/out` and was not taken.
    pub skipped: Vec<Skipped>,
    /// Where the time went.
    pub timings_ms: Timings,
    /// What it used.
    pub usage: Usage,
    /// What was observed of its isolation; null when no sandbox came to be.
    pub isolation: Option<Isolation>,
    /// Why it was refused or lost; null otherwise.
    pub error: Option<RunError>,
}

impl Report {
    /// A report of a run that never started, with nothing observed.
    pub fn refused(run_id: RunId, error: RunError) -> Self {
        Self {
            schema: REPORT_SCHEMA,
            run_id,
            status: Status::Refused,
            exit_code: None,
            signal: None,
            stdout: Output::empty(),
            stderr: Output::empty(),
            artifacts: Vec::new(),
            skipped: Vec::new(),
            timings_ms: Timings::default(),
            usage: Usage::default(),
            isolation: None,
            error: Some(error),
        }
    }

    /// The exit status of a command that ran this: the script's own, 128 + n for a signal n of its own, 124 at
    /// the wall clock, 130 cancelled, 137 out of memory, 125 refused or lost.
    pub fn exit_code(&self) -> u8 {
        match self.status {
            Status::Succeeded => 0,
            Status::Failed => {
                let own = match (self.exit_code, self.signal) {
                    (Some(code), _) => Some(code),
                    (None, Some(signal)) => signal.checked_add(128),
                    (None, None) => None,
                };
                // A failure never looks like a success, even in a report that was made by hand.
                own.and_then(|code| u8::try_from(code).ok())
                    .filter(|code| *code != 0)
                    .unwrap_or(EXIT_REFUSED)
            }
            Status::TimedOut => EXIT_TIMED_OUT,
            Status::OutOfMemory => EXIT_OUT_OF_MEMORY,
            Status::Cancelled => EXIT_CANCELLED,
            Status::Refused | Status::Lost => EXIT_REFUSED,
        }
    }
}

/// What was kept of an output stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Output {
    /// The kept bytes. Where some were dropped between them, a line says how many.
    #[serde(flatten)]
    pub content: OutputContent,
    /// All bytes that the script wrote to the stream.
    pub bytes_total: u64,
    /// Whether some of them were dropped.
    pub truncated: bool,
}

impl Output {
    /// Of a stream to which nothing was written.
    pub fn empty() -> Self {
        Self {
            content: OutputContent::Text(String::new()),
            bytes_total: 0,
            truncated: false,
        }
    }
}

/// Kept output: text where it is UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OutputContent {
    /// UTF-8.
    #[serde(rename = "text")]
    Text(String),
    /// Anything else, in standard base64 with padding.
    #[serde(rename = "base64", with = "base64_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    Base64(Vec<u8>),
}

impl OutputContent {
    /// The bytes, whichever way they are written.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Base64(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for OutputContent {
    fn from(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|error| Self::Base64(error.into_bytes()), Self::Text)
    }
}

mod base64_bytes {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

/// A file that was taken from `/out`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Artifact {
    /// Its path below `/out`, with `/` between components.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256, in lower-case hexadecimal.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[0-9a-f]{64}$")))]
    pub sha256: String,
    /// Its media type, guessed from its name.
    pub media_type: String,
}

/// Something in `/out` that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// Its path below `/out`, made fit to be shown.
    pub path: String,
    /// Why.
    pub reason: SkipReason,
}

/// Why something in `/out` was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SkipReason {
    /// A symbolic link.
    SymbolicLink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device node, or something that is no kind of file known here.
    Device,
    /// It lies too deep.
    DirectoryTooDeep,
    /// There are already as many artifacts as allowed.
    TooMany,
    /// It does not fit into the bytes that are left for artifacts.
    TooLarge,
    /// Its name is too long, not UTF-8, or holds control characters.
    NameInvalid,
    /// It could not be opened or read, or lies on another file system.
    Unreadable,
    /// Its size changed while it was read.
    Changed,
    /// The place for artifacts holds a file of that name already, which is never overwritten. Said outside only.
    Exists,
    /// It came out whole and could not be stored. Said outside only.
    NotStored,
}

/// Where the time went, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timings {
    /// Waiting for one of the person's places.
    pub queued: u64,
    /// Making the sandbox, up to a runner that listens.
    pub create: u64,
    /// Handing in the script and the inputs.
    pub stage: u64,
    /// The script.
    pub run: u64,
    /// Handing back `/out`.
    pub collect: u64,
    /// Removing the sandbox.
    pub delete: u64,
    /// All of it.
    pub total: u64,
}

/// What the run used; null where nobody could tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// CPU time in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Most memory at once, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Most processes and threads at once.
    pub processes_peak: Option<u32>,
}

/// The receipt: what was observed inside, or read back from the kernel, for this run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Isolation {
    /// Which driver ran it.
    pub driver: String,
    /// Which runtime held it.
    pub runtime: String,
    /// The image, by digest.
    pub image: String,
    /// The user id that the script had inside.
    pub uid: u32,
    /// `none`, or the names of those it had.
    pub capabilities: String,
    /// Whether `no_new_privs` was set.
    pub no_new_privileges: bool,
    /// The seccomp profile's name, or `none`.
    pub seccomp_profile: String,
    /// The Landlock ABI that was enforced; null when none was.
    pub landlock_abi: Option<u32>,
    /// Whether it had a user namespace of its own.
    pub user_namespace: bool,
    /// `none` for an empty network namespace, or what there was instead.
    pub network: String,
    /// Whether the root was read-only.
    pub root_read_only: bool,
    /// Layers that were done without, because a person said so.
    pub waived: Vec<String>,
}

/// Why a run was refused or lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("{message} {hint}")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunError {
    /// Why, for a program: lower-case words with `_` between.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[a-z][a-z0-9_]*$")))]
    pub code: String,
    /// Why, for a person.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

/// The JSON schema of [`Report`] as it is written: every field is there, null where nothing is known.
#[cfg(feature = "schema")]
pub fn report_schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    settings
        .into_generator()
        .into_root_schema_for::<Report>()
        .to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: Status, exit_code: Option<i32>, signal: Option<i32>) -> u8 {
        let error = RunError {
            code: "x".into(),
            message: "x".into(),
            hint: "x".into(),
        };
        let report = Report::refused("r".parse().unwrap(), error);
        Report {
            status,
            exit_code,
            signal,
            ..report
        }
        .exit_code()
    }

    #[test]
    fn each_way_to_end_has_its_exit_status() {
        assert_eq!(ended(Status::Succeeded, Some(0), None), 0);
        for code in 1..=255 {
            assert_eq!(i32::from(ended(Status::Failed, Some(code), None)), code);
        }
        for signal in 1..=64 {
            assert_eq!(i32::from(ended(Status::Failed, None, Some(signal))), 128 + signal);
        }
        assert_eq!(ended(Status::TimedOut, None, Some(9)), 124);
        assert_eq!(ended(Status::Cancelled, None, Some(9)), 130);
        assert_eq!(ended(Status::OutOfMemory, None, Some(9)), 137);
        assert_eq!(ended(Status::Refused, None, None), 125);
        assert_eq!(ended(Status::Lost, None, None), 125);
    }

    #[test]
    fn a_failure_never_looks_like_a_success() {
        for (code, signal) in [
            (None, None),
            (Some(0), None),
            (Some(256), None),
            (None, Some(i32::MAX)),
        ] {
            assert_eq!(ended(Status::Failed, code, signal), 125);
        }
    }

    #[test]
    fn output_that_is_not_utf8_comes_as_base64() {
        let text = Output {
            content: b"hi".to_vec().into(),
            bytes_total: 2,
            truncated: false,
        };
        assert_eq!(
            serde_json::to_string(&text).unwrap(),
            r#"{"text":"hi","bytes_total":2,"truncated":false}"#
        );
        let bytes = Output {
            content: vec![0xff, 0].into(),
            bytes_total: 2,
            truncated: false,
        };
        let json = serde_json::to_string(&bytes).unwrap();
        assert_eq!(json, r#"{"base64":"/wA=","bytes_total":2,"truncated":false}"#);
        assert_eq!(serde_json::from_str::<Output>(&json).unwrap(), bytes);
    }
}
