//! The last steps, taken in the container's own process: Landlock, descriptors, our filters, `execve`.
//!
//! By now the container library has entered the namespaces, put the root in place, dropped every capability, set
//! `no_new_privs` and taken the identity. It calls [`Executor::validate`] before it reports the container as created,
//! so that an error there reaches the caller, and [`Executor::exec`] once it is started.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use libcontainer::oci_spec::runtime::Spec;
use libcontainer::workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError};

use crate::{confine, sys};

/// Prefix of the status line that carries the Landlock ABI in force.
pub(crate) const LANDLOCK: &str = "landlock ";
/// Prefix of the status line that carries an error.
pub(crate) const ERROR: &str = "error ";

/// What the container library calls back.
#[derive(Clone)]
pub(crate) struct Confinement {
    /// argv of PID 1.
    pub args: Vec<String>,
    /// The worker, to see whether it is still there.
    pub worker: Arc<OwnedFd>,
    /// Cgroups to enter before anything else of the image runs.
    pub entrances: Arc<Vec<OwnedFd>>,
    /// Apply Landlock; false only when waived.
    pub landlock: bool,
    /// Write end of a pipe: a line for each fact, then end of file when `execve` has taken place.
    pub status: Arc<OwnedFd>,
}

impl Confinement {
    fn report(&self, line: &str) {
        if let Ok(status) = self.status.try_clone() {
            let _ = writeln!(File::from(status), "{line}");
        }
    }

    fn confine(&self) -> Result<(), String> {
        // When the worker dies, however it dies, so does this process, and with it everything in the namespace. Set
        // here and no sooner, since a change of identity clears it; whether the worker died before is asked after.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .map_err(|error| format!("parent-death signal: {error}"))?;
        let mut worker = [rustix::event::PollFd::new(
            &*self.worker,
            rustix::event::PollFlags::IN,
        )];
        let gone = rustix::event::poll(
            &mut worker,
            Some(&rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .map_err(|error| format!("looking for the worker: {error}"))?;
        if gone > 0 {
            return Err("the worker is gone".to_owned());
        }
        crate::cgroup::enter(&self.entrances).map_err(|error| format!("entering the cgroup: {error}"))?;
        if self.landlock {
            let abi = confine::restrict_self().map_err(|error| format!("landlock: {error}"))?;
            self.report(&format!("{LANDLOCK}{abi}"));
        }
        Ok(())
    }

    fn replace_self(&self) -> Result<std::convert::Infallible, String> {
        let args = self
            .args
            .iter()
            .map(|arg| CString::new(arg.as_str()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        let program = args.first().ok_or("no program to run")?;
        let env = [c"PATH=/usr/local/bin:/usr/bin:/bin".to_owned()];
        sys::cloexec_from_three().map_err(|error| format!("closing descriptors: {error}"))?;
        crate::filters::install().map_err(|error| format!("seccomp: {error}"))?;
        // From here on the filters hold: nothing but execve, and on failure a write and an exit.
        nix::unistd::execve(program, &args, &env)
            .map_err(|error| format!("running {}: {error}", self.args[0]))
    }
}

impl Executor for Confinement {
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        self.confine()
            .map_err(ExecutorValidationError::ArgValidationError)
    }

    fn setup_envs(&self, _: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        // PID 1 gets its environment from `execve`, not from this process.
        Ok(())
    }

    fn exec(&self, _: &Spec) -> Result<(), ExecutorError> {
        match self.replace_self() {
            Ok(never) => match never {},
            Err(reason) => {
                self.report(&format!("{ERROR}{reason}"));
                Err(ExecutorError::Other(reason))
            }
        }
    }
}
