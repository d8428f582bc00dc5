//! What the runner does to itself before anything hostile runs.

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

use crate::error::{During, RunnerError};

/// Closes every descriptor that was left open by whoever started the runner, and takes away the handlers that
/// the Rust runtime installed: PID 1 gets no signal from inside that it has no handler for.
pub fn claim_descriptors() -> Result<(), RunnerError> {
    crate::spawn::close_inherited().during("Closing inherited descriptors")?;
    crate::spawn::default_signals();
    Ok(())
}

/// Makes the runner unreachable for processes of the same user, and sets what the script inherits.
pub fn harden() -> Result<(), RunnerError> {
    let pid = std::process::id();
    if pid != 1 {
        return Err(RunnerError::NotPid1 {
            pid: pid.cast_signed(),
        });
    }
    // Its files in /proc belong to root from here on, and nobody of its own user can trace it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).during("PR_SET_DUMPABLE")?;
    // At 1, and only at 1, the kernel neither writes a core file nor starts a `core_pattern` pipe.
    let hard = getrlimit(Resource::Core).maximum;
    if let Some(hard) = hard.filter(|hard| *hard < 1) {
        return Err(RunnerError::CoreLimit { hard });
    }
    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(1),
            maximum: Some(1),
        },
    )
    .during("Setting the core limit")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    Ok(())
}
