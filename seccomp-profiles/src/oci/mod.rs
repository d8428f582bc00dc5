//! The translation of the `linux.seccomp` section of an OCI spec.
//!
//! A section has many actions, errnos and alternatives for a call, where a filter of seccompiler has one action beside
//! its default. A stack of such filters could give most sections, but not all: the kernel lets the strictest filter
//! win, so a call that is to be *more* open than the default for some arguments and of a third kind for others needs
//! negations, and those multiply. So this module writes the instructions itself, one program for a section, through
//! the same few dozen lines that lay out our own profile.
//!
//! What the translation holds to:
//!
//! - A rule matches where all its conditions hold, compared over 64 bits. Conditions that look at one argument twice
//!   are alternatives instead, as runc and crun have it.
//! - The rules of one call may overlap if they answer the same. If they answer differently and some arguments match
//!   both, nothing defines which wins, and the section is refused.
//! - A call of another architecture ends the process, and so does an x32 number, also where `architectures` lists them:
//!   a sandbox has one ABI. [`Translation::closed`] tells which ones the section would have opened.
//! - A name that this architecture does not have is passed over, as every runtime does. A name that nobody has is
//!   passed over too, unless the rule restricts it: then it is an error.
//! - `SCMP_ACT_TRACE` is kept, although there is no tracer in a sandbox: the kernel then answers ENOSYS.
//! - By itself a section answers calls that are newer than it with its default, often EPERM, which libraries do not
//!   take for "not there". [`Options::enosys_for_newer`] gives them ENOSYS, as runc does.
//!
//! Everything else that has no exact translation is an [`OciError`].

mod condition;
mod emit;
mod error;
mod rules;

pub use error::{OciError, Place};

use oci_spec::runtime::{Arch as OciArch, LinuxSeccomp, LinuxSeccompFilterFlag};

use crate::SockFilter;
use crate::arch::{Arch, X32_BIT};
use crate::bpf::{Bodies, KILL_PROCESS, LONGEST, RETURN, plain};
use rules::{Answer, Rules};

const ALLOW: Answer = 0x7fff_0000;
const LOG: Answer = 0x7ffc_0000;
const TRACE: Answer = 0x7ff0_0000;
const ENOSYS: Answer = 0x0005_0000 | 38;

/// Choices that a section does not make.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Answer ENOSYS for every number above the highest that the section names, if its default refuses. The authors
    /// of the section cannot have meant to refuse what they did not know of.
    pub enosys_for_newer: bool,
}

/// A section, translated.
#[derive(Clone, Debug)]
pub struct Translation {
    /// The program, to be installed before those of [`crate::strict`].
    pub program: Vec<SockFilter>,
    /// Names that were passed over, since this architecture has no such call.
    pub ignored: Vec<String>,
    /// Architectures that the section lists and that stay closed.
    pub closed: Vec<OciArch>,
    /// Whether the section itself lets further filters be installed behind it (`seccomp` and `prctl`, whatever their
    /// arguments). Where it does not, installing the next one fails.
    pub lets_filters_follow: bool,
}

/// Translates a section for one architecture.
///
/// # Errors
/// Whatever cannot be expressed exactly, with the place in the section.
pub fn translate(section: &LinuxSeccomp, arch: Arch, options: Options) -> Result<Translation, OciError> {
    for flag in section.flags().iter().flatten() {
        match flag {
            // A thread that installs filters for a new process is alone, so there is nothing to synchronise.
            LinuxSeccompFilterFlag::SeccompFilterFlagTsync => {}
            other => return Err(OciError::Flag(*other)),
        }
    }
    if section.listener_path().is_some() || section.listener_metadata().is_some() {
        return Err(OciError::Listener);
    }

    let rules = Rules::read(section, arch)?;
    let answered = |answer| vec![plain(RETURN, answer)];
    let mut bodies = Bodies::new(answered(rules.default));
    if let (true, Some((&highest, _))) = (options.enosys_for_newer, rules.by_number.last_key_value())
        && ![ALLOW, LOG, TRACE].contains(&(rules.default & 0xffff_0000))
    {
        bodies.set(highest + 1..=u32::MAX, answered(ENOSYS));
    }
    if arch == Arch::X86_64 {
        bodies.set(X32_BIT..=u32::MAX, answered(KILL_PROCESS));
    }
    for (&number, call) in &rules.by_number {
        bodies.set(number..=number, emit::body(&call.rules, rules.default));
    }
    let program = bodies.program(arch.audit_value());
    if program.len() > LONGEST {
        return Err(OciError::TooLong);
    }

    let passes = |name: &str| {
        let answer = match arch.number(name).and_then(|number| rules.by_number.get(&number)) {
            None => Some(rules.default),
            Some(call) => call
                .rules
                .iter()
                .find(|rule| rule.tests.is_empty())
                .map(|rule| rule.answer),
        };
        answer.is_some_and(|answer| [ALLOW, LOG].contains(&answer))
    };
    Ok(Translation {
        program,
        closed: closed(section, arch),
        lets_filters_follow: passes("seccomp") && passes("prctl"),
        ignored: rules.ignored,
    })
}

fn closed(section: &LinuxSeccomp, arch: Arch) -> Vec<OciArch> {
    let own = match arch {
        Arch::X86_64 => OciArch::ScmpArchX86_64,
        Arch::Aarch64 => OciArch::ScmpArchAarch64,
    };
    let listed = section.architectures().iter().flatten().copied();
    listed
        .filter(|listed| ![own, OciArch::ScmpArchNative].contains(listed))
        .collect()
}
