//! Everything that can go wrong, and what the outer side is told about it.

use rustix::io::Errno;
use sandglass_run::frame::FrameError;
use sandglass_run::protocol::FailureCode;
use sandglass_run::session::SessionError;

/// Why the runner gave up.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// Nobody is there to be told.
    #[error("The outer side is gone.")]
    Gone,
    /// It would have to kill every process of the host.
    #[error("The runner is process {pid} and must be process 1 of a process namespace of its own.")]
    NotPid1 {
        /// Its process id.
        pid: i32,
    },
    /// The outer side sent bytes that are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The outer side sent a frame that may not come.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A file could not be staged.
    #[error("{name:?} could not be staged in /work: {errno}.")]
    Staging {
        /// The file's name.
        name: String,
        /// What the kernel said.
        errno: Errno,
    },
    /// The interpreter or program is not there.
    #[error("{program:?} is not in this image.")]
    ProgramMissing {
        /// The program's name.
        program: String,
    },
    /// The script's process could not be made.
    #[error("{program:?} could not be started: {error}.")]
    Spawn {
        /// The program's name.
        program: String,
        /// What the kernel said.
        error: std::io::Error,
    },
    /// Killed processes do not die.
    #[error("Processes of the sandbox did not die after they were killed, so /out was not read.")]
    ProcessesLeft,
    /// The core limit cannot be what keeps crashes from the host's core handler.
    #[error(
        "The hard limit on core files is {hard}, and must be at least 1: at 0 a crash would reach the host's core handler."
    )]
    CoreLimit {
        /// The hard limit.
        hard: u64,
    },
    /// What the kernel says about the sandbox could not be understood.
    #[error("{file} does not say what it should: {what}.")]
    Unreadable {
        /// The file in `/proc`.
        file: &'static str,
        /// What is missing.
        what: &'static str,
    },
    /// Anything else.
    #[error("{what} failed: {errno}.")]
    Kernel {
        /// What was attempted.
        what: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

impl RunnerError {
    /// What to tell the outer side; nothing when it is gone.
    pub fn code(&self) -> Option<FailureCode> {
        Some(match self {
            Self::Gone => return None,
            Self::NotPid1 { .. } => FailureCode::NotPid1,
            Self::Frame(_) | Self::Session(_) => FailureCode::Protocol,
            Self::Staging {
                errno: Errno::NOSPC | Errno::DQUOT,
                ..
            } => FailureCode::StagingNoSpace,
            Self::Staging { .. } => FailureCode::Staging,
            Self::ProgramMissing { .. } => FailureCode::ProgramMissing,
            Self::Spawn { .. } => FailureCode::Spawn,
            Self::ProcessesLeft => FailureCode::ProcessesLeft,
            Self::CoreLimit { .. } | Self::Unreadable { .. } | Self::Kernel { .. } => FailureCode::Internal,
        })
    }
}

/// Names what was attempted when the kernel refuses.
pub trait During<T> {
    /// Names it.
    fn during(self, what: &'static str) -> Result<T, RunnerError>;
}

impl<T> During<T> for Result<T, Errno> {
    fn during(self, what: &'static str) -> Result<T, RunnerError> {
        self.map_err(|errno| RunnerError::Kernel { what, errno })
    }
}

impl<T> During<T> for Result<T, nix::Error> {
    fn during(self, what: &'static str) -> Result<T, RunnerError> {
        self.map_err(|errno| RunnerError::Kernel {
            what,
            errno: Errno::from_raw_os_error(errno as i32),
        })
    }
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, what: &'static str) -> Result<T, RunnerError> {
        self.map_err(|error| RunnerError::Kernel {
            what,
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })
    }
}
