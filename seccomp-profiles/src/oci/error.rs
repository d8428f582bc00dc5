//! Why a section is refused.

use oci_spec::runtime::{LinuxSeccompAction, LinuxSeccompFilterFlag};

/// A place in the section.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// `defaultAction` with `defaultErrnoRet`.
    Default,
    /// An element of `syscalls`, with the names that it gives.
    Rule {
        /// Position, from zero.
        index: usize,
        /// The names, of many only the first.
        names: String,
    },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("linux.seccomp.defaultAction"),
            Self::Rule { index, names } => write!(f, "linux.seccomp.syscalls[{index}] ({names})"),
        }
    }
}

/// What of a section has no exact translation. Nothing of it is applied then.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// `SCMP_ACT_NOTIFY` in a rule or as the default.
    #[error(
        "{place} asks for SCMP_ACT_NOTIFY, but no listener may answer the calls of a sandbox. Use another action."
    )]
    Notify {
        /// Where.
        place: Place,
    },
    /// `listenerPath` or `listenerMetadata`.
    #[error("linux.seccomp names a listener, but no listener may answer the calls of a sandbox. Remove it.")]
    Listener,
    /// A flag that the installer does not pass on.
    #[error("linux.seccomp.flags holds {0}, which cannot be honoured. Remove it.")]
    Flag(LinuxSeccompFilterFlag),
    /// An errno for an action that has none; the specification wants an error.
    #[error("{place} gives an errno, but {action} returns none. Remove errnoRet.")]
    ErrnoWithoutUse {
        /// Where.
        place: Place,
        /// The action.
        action: LinuxSeccompAction,
    },
    /// An errno beyond what the action can carry: 4095 for `SCMP_ACT_ERRNO`, 65535 for `SCMP_ACT_TRACE`.
    #[error("{place} gives {value} as errno, which is more than {most}.")]
    ErrnoTooLarge {
        /// Where.
        place: Place,
        /// The value.
        value: u32,
        /// The greatest that can be returned.
        most: u32,
    },
    /// A rule that names no call.
    #[error("{place} names no system call.")]
    NoNames {
        /// Where.
        place: Place,
    },
    /// A name that is no call of any architecture we know, in a rule that is to be stricter than the default.
    #[error(
        "{place} restricts {name:?}, which is no system call that this version knows, so the restriction could not \
         be kept. Correct the name, or remove it."
    )]
    UnknownCall {
        /// Where.
        place: Place,
        /// The name.
        name: String,
    },
    /// An argument that does not exist.
    #[error("{place} looks at argument {index}, but a system call has arguments 0 to 5.")]
    NoSuchArgument {
        /// Where.
        place: Place,
        /// The index.
        index: usize,
    },
    /// A masked comparison with bits outside of its mask: never true as written, but other runtimes drop those bits.
    #[error(
        "{place} compares with {value:#x} under the mask {mask:#x}, which lacks bits of it. Correct the value."
    )]
    OutsideMask {
        /// Where.
        place: Place,
        /// `value`: the mask.
        mask: u64,
        /// `valueTwo`: what the masked bits are compared with.
        value: u64,
    },
    /// Two rules with different actions for the same call and arguments; which one wins is not defined.
    #[error(
        "{first} and {second} give different actions to {call}, for example with the arguments {arguments:x?}. Make \
         the rules exclude each other."
    )]
    Conflict {
        /// The call.
        call: String,
        /// One rule.
        first: Place,
        /// The other.
        second: Place,
        /// Arguments that both rules match.
        arguments: Box<[u64; 6]>,
    },
    /// More than the kernel takes.
    #[error(
        "linux.seccomp comes to more than 4096 instructions, which the kernel does not take. Use fewer conditions."
    )]
    TooLong,
}
