//! The frames of the runner protocol, version [`PROTOCOL_VERSION`].
//!
//! Outer side to runner ([`ToRunner`]): `Job`, for each entry `EntryStart EntryData* EntryEnd`, then `Go`.
//! Runner to outer side ([`FromRunner`]): `Ready`, after `Go` `Started`, then for each stream
//! `Output* [Dropped Output*] OutputEnd` in any mixture, `Exit`, then `ArtifactStart ArtifactData* ArtifactEnd`
//! and `Skipped` in any mixture, at most one `SkippedMore`, `End`. `Failed` may take the place of any of them and
//! is the last. The outer side keeps its sending end open until `End`: the runner takes its closing for the
//! death of the outer side and kills everything.
//!
//! Two types, so that a frame in the wrong direction cannot be written down. Order and bounds are checked by
//! [`crate::session`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::language::Language;
use crate::report::SkipReason;

mod wire;

pub use wire::kind;

/// The version of the protocol that this crate speaks.
pub const PROTOCOL_VERSION: u32 = 1;
/// Most files that one job stages, the script included.
pub const MAX_ENTRIES: u32 = 1_024;
/// Most lines about files that were not taken; [`FromRunner::SkippedMore`] counts the rest.
pub const MAX_SKIPPED: usize = 1_000;

/// What to run, and within which bounds. The first frame of every conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// What interprets entry 0.
    pub language: Language,
    /// Arguments after the script, or the whole argument vector for [`Language::Exec`].
    pub args: Vec<String>,
    /// Wall clock in milliseconds, from the start of the script.
    pub wall_ms: u64,
    /// Bytes kept of each output stream.
    pub output_cap_bytes: u64,
    /// Bounds on what is taken from `/out`.
    pub artifacts: ArtifactBounds,
    /// CPUs' worth of time that the script gets; libraries start that many threads.
    pub cpus: f64,
    /// The memory limit, where there is one; Node is told to stay below it.
    pub memory_bytes: Option<u64>,
    /// Variables added to the script's environment; see [`crate::name::is_allowed_variable`].
    pub env: BTreeMap<String, String>,
    /// How many entries follow. The script is the first of them, except for [`Language::Exec`].
    pub entries: u32,
}

/// Bounds on what is taken from `/out`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactBounds {
    /// Most files.
    pub max_count: u32,
    /// Most bytes of all files together.
    pub max_bytes_total: u64,
    /// Most components of a path; never more than [`crate::name::MAX_DEPTH`].
    pub max_depth: u32,
    /// Most bytes of one component; never more than [`crate::name::MAX_NAME_BYTES`].
    pub max_name_bytes: u32,
}

/// One file to be staged in `/work`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryStart {
    /// Its name; see [`crate::name::check_file_name`].
    pub name: String,
    /// Its exact size.
    pub bytes: u64,
}

/// A frame from the outer side to the runner.
#[derive(Debug, Clone, PartialEq)]
pub enum ToRunner {
    /// What to run.
    Job(Job),
    /// A file begins.
    EntryStart(EntryStart),
    /// A piece of it, not empty, at most [`crate::frame::MAX_BULK_BYTES`].
    EntryData(Vec<u8>),
    /// It ends.
    EntryEnd,
    /// The outer side has checked [`FromRunner::Ready`]: start the script.
    Go,
}

/// One of the script's output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// What the runner reads about itself from the kernel, before the script starts: the receipt's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    /// The runner's process id in its own namespace: 1.
    pub pid: u32,
    /// Real, effective, saved and file-system user id.
    pub uids: [u32; 4],
    /// Real, effective, saved and file-system group id.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Inheritable capabilities, as a mask.
    pub cap_inh: u64,
    /// Permitted capabilities, as a mask.
    pub cap_prm: u64,
    /// Effective capabilities, as a mask.
    pub cap_eff: u64,
    /// The capability bounding set, as a mask.
    pub cap_bnd: u64,
    /// Ambient capabilities, as a mask.
    pub cap_amb: u64,
    /// Whether `no_new_privs` is set.
    pub no_new_privs: bool,
    /// 0 none, 1 strict mode, 2 filters.
    pub seccomp_mode: u8,
    /// How many seccomp filters are stacked; unknown before Linux 5.9.
    pub seccomp_filters: Option<u32>,
    /// Whether the root mount is read-only.
    pub root_read_only: bool,
    /// Names of the network interfaces.
    pub interfaces: Vec<String>,
    /// The scratch mounts that were found: `/work`, `/out`, `/tmp`, `/dev/shm`.
    pub scratch: Vec<ScratchMount>,
    /// The user namespace's map of user ids.
    pub uid_map: Vec<IdRange>,
    /// Whether others of the same user could trace the runner or read its files in `/proc`.
    pub dumpable: bool,
}

impl Observed {
    /// The user id, when all four agree.
    pub fn uid(&self) -> Option<u32> {
        let [first, rest @ ..] = self.uids;
        rest.iter().all(|id| *id == first).then_some(first)
    }

    /// The group id, when all four agree.
    pub fn gid(&self) -> Option<u32> {
        let [first, rest @ ..] = self.gids;
        rest.iter().all(|id| *id == first).then_some(first)
    }

    /// Whether all five capability sets are empty.
    pub fn has_no_capabilities(&self) -> bool {
        self.cap_inh | self.cap_prm | self.cap_eff | self.cap_bnd | self.cap_amb == 0
    }
}

/// A scratch mount as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScratchMount {
    /// Where it is mounted.
    pub path: String,
    /// Its file system, such as `tmpfs`.
    pub kind: String,
    /// Mounted or made read-only.
    pub read_only: bool,
    /// Mounted `nosuid`.
    pub nosuid: bool,
    /// Mounted `nodev`.
    pub nodev: bool,
    /// Mounted `noexec`.
    pub noexec: bool,
    /// Its size in bytes, where the kernel says one.
    pub size_bytes: Option<u64>,
    /// Its cap on inodes, where the kernel says one.
    pub inodes: Option<u64>,
}

/// One line of a map of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdRange {
    /// First id inside.
    pub inside: u32,
    /// First id outside.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// Why the runner could not do its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// It was not started as PID 1 of a namespace of its own.
    NotPid1,
    /// The outer side broke the protocol.
    Protocol,
    /// A file could not be staged in `/work`.
    Staging,
    /// The files do not fit into `/work`.
    StagingNoSpace,
    /// The interpreter, or the program of an exec job, is not in the image.
    ProgramMissing,
    /// The script's process could not be made.
    Spawn,
    /// Processes would not die, so `/out` was not read.
    ProcessesLeft,
    /// Anything else that the kernel refused.
    Internal,
}

/// The runner gave up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// Why, for a program.
    pub code: FailureCode,
    /// Why, for a person.
    pub message: String,
}

/// The script's process is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// Its process id inside.
    pub pid: u32,
}

/// Bytes were left out of a stream here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// Which stream.
    pub stream: Stream,
    /// How many bytes.
    pub bytes: u64,
}

/// A stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputEnd {
    /// Which stream.
    pub stream: Stream,
    /// All bytes that the script wrote to it.
    pub bytes_total: u64,
    /// Those of them that were left out.
    pub dropped_bytes: u64,
}

/// How the script ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exit {
    /// Its exit status, when it left by itself.
    pub code: Option<i32>,
    /// The signal that ended it, when one did.
    pub signal: Option<i32>,
    /// Whether the runner killed it at the wall clock.
    pub timed_out: bool,
    /// From start to end.
    pub run_ms: u64,
    /// What its processes used.
    pub usage: ExitUsage,
    /// Processes that were still there when the script ended, and were killed.
    pub killed_leftovers: u32,
}

/// What the script's processes used, as far as the runner can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitUsage {
    /// User and system time of all reaped processes.
    pub cpu_ms: u64,
    /// The largest resident set of any one process.
    pub max_rss_bytes: u64,
    /// Most processes at once, where known.
    pub processes_peak: Option<u32>,
}

/// A file from `/out` begins. Paths come in the order of [`crate::name::compare_paths`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactStart {
    /// Its path below `/out`; see [`crate::name::check_artifact_path`].
    pub path: String,
    /// Its exact size.
    pub bytes: u64,
    /// Its permission bits, at most `0o777`.
    pub mode: u32,
}

/// A file from `/out` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactEnd {
    /// Whether all announced bytes came. If not, the file is to be thrown away and listed as skipped.
    pub complete: bool,
}

/// Something in `/out` was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedEntry {
    /// Its path, made fit to be shown; see [`crate::name::printable`].
    pub path_lossy: String,
    /// Why.
    pub reason: SkipReason,
}

/// More was not taken than is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedMore {
    /// How many more.
    pub count: u64,
}

/// A frame from the runner to the outer side.
#[derive(Debug, Clone, PartialEq)]
pub enum FromRunner {
    /// Everything is staged; this is what the kernel says about the sandbox.
    Ready(Observed),
    /// The runner gave up. Nothing follows.
    Failed(Failed),
    /// The script runs.
    Started(Started),
    /// A piece of a stream, not empty, at most [`crate::frame::MAX_BULK_BYTES`].
    Output {
        /// Which stream.
        stream: Stream,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// Bytes were left out of a stream here; its last part follows.
    Dropped(Dropped),
    /// A stream has ended.
    OutputEnd(OutputEnd),
    /// The script has ended, and everything it left behind is dead.
    Exit(Exit),
    /// A file from `/out` begins.
    ArtifactStart(ArtifactStart),
    /// A piece of it, not empty, at most [`crate::frame::MAX_BULK_BYTES`].
    ArtifactData(Vec<u8>),
    /// It ends.
    ArtifactEnd(ArtifactEnd),
    /// Something was not taken.
    Skipped(SkippedEntry),
    /// More was not taken than is listed.
    SkippedMore(SkippedMore),
    /// All is said.
    End,
}
