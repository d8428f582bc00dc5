//! The last steps, taken in the container's own process: Landlock, descriptors, our filters, `execve`.
//!
//! By now the container library has entered the namespaces, put the root in place, dropped every capability, set
//! `no_new_privs` and taken the identity. It calls [`Executor::validate`] before it reports the container as created,
//! so that an error there reaches the caller, and [`Executor::exec`] once it is started. A process that joins a
//! container later takes the same steps.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use caps::{CapSet, CapsHashSet};
use libcontainer::oci_spec::runtime::Spec;
use libcontainer::workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError};

use crate::filters::Filters;
use crate::{confine, passwd, sys};

/// Prefix of the status line that carries the Landlock ABI in force.
pub(crate) const LANDLOCK: &str = "landlock ";
/// Prefix of the status line that carries an error.
pub(crate) const ERROR: &str = "error ";

/// What is executed in the end.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// argv.
    pub args: Vec<String>,
    /// The environment, `NAME=value`.
    pub env: Vec<String>,
    /// The working directory, where that is not the container library's to enter: it may have to be made first.
    pub directory: Option<PathBuf>,
}

impl Program {
    pub(crate) fn new(args: Vec<String>, env: Vec<String>) -> Self {
        Self {
            args,
            env,
            directory: None,
        }
    }

    /// PID 1 of a run: it makes the script's environment itself.
    pub(crate) fn of_a_run(args: Vec<String>) -> Self {
        Self::new(
            args,
            vec![
                "PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
                "HOME=/".to_owned(),
            ],
        )
    }

    fn variable(&self, name: &str) -> Option<&str> {
        // The last one wins, as in a shell that is given both.
        self.env
            .iter()
            .rev()
            .find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
    }

    /// Enters the working directory, as the user that the program will be. What is missing of it is made.
    fn enter_directory(&self) -> Result<(), String> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        std::fs::create_dir_all(directory)
            .and_then(|()| std::env::set_current_dir(directory))
            // A path that the kernel cannot tell from the root lies outside of it.
            .and_then(|()| std::env::current_dir())
            .and_then(|here| match here.is_absolute() {
                true => Ok(()),
                false => Err(std::io::Error::other("it is not in the container")),
            })
            .map_err(|error| format!("process.cwd is {directory:?}, which cannot be entered: {error}"))
    }

    /// The file to execute: as named where the name has a slash, else the first in PATH that can be executed.
    fn file(&self) -> Result<PathBuf, String> {
        let name = self
            .args
            .first()
            .filter(|name| !name.is_empty())
            .ok_or("process.args names no program")?;
        let executable = |path: &PathBuf| {
            std::fs::metadata(path)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        if name.contains('/') {
            let path = PathBuf::from(name);
            return match std::fs::metadata(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(format!(
                    "exec: \"{name}\": stat {name}: no such file or directory"
                )),
                Ok(_) if !executable(&path) => Err(format!("exec: \"{name}\": permission denied")),
                _ => Ok(path),
            };
        }
        let path = self.variable("PATH").unwrap_or_default();
        path.split(':')
            .map(|dir| PathBuf::from(if dir.is_empty() { "." } else { dir }).join(name))
            .find(executable)
            .ok_or_else(|| format!("exec: \"{name}\": executable file not found in $PATH"))
    }

    /// What `execve` gets; with the HOME of the user, for an environment that has none.
    fn environment(&self, home_of_the_user: impl FnOnce() -> String) -> Result<Vec<CString>, String> {
        let home = self
            .variable("HOME")
            .is_none()
            .then(|| format!("HOME={}", home_of_the_user()));
        let all = self.env.iter().cloned().chain(home);
        all.map(CString::new)
            .collect::<Result<_, _>>()
            .map_err(|_| "process.env holds a NUL byte".to_owned())
    }
}

/// Capability sets to end with, where the container library had to leave more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capabilities {
    /// Effective.
    pub effective: CapsHashSet,
    /// Permitted.
    pub permitted: CapsHashSet,
}

/// What the container library calls back.
#[derive(Clone)]
pub(crate) struct Confinement {
    /// What is executed.
    pub program: Program,
    /// A process that this one shall not outlive.
    pub lifeline: Option<Arc<OwnedFd>>,
    /// Cgroups to enter before anything else of the image runs.
    pub entrances: Arc<Vec<OwnedFd>>,
    /// Landlock; `None` only when waived, or where the spec alone decides.
    pub landlock: Option<Arc<confine::Policy>>,
    /// The filters.
    pub filters: Arc<Filters>,
    /// Set between the filters and `execve`.
    pub capabilities: Option<Capabilities>,
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
        if let Some(lifeline) = &self.lifeline {
            hold_on_to(lifeline)?;
        }
        crate::cgroup::enter(&self.entrances).map_err(|error| format!("entering the cgroup: {error}"))?;
        self.program.enter_directory()?;
        if let Some(policy) = &self.landlock {
            let abi = confine::restrict_self(policy).map_err(|error| format!("landlock: {error}"))?;
            self.report(&format!("{LANDLOCK}{abi}"));
        }
        self.program.file().map(drop)
    }

    fn replace_self(&self) -> Result<std::convert::Infallible, String> {
        let file = self.program.file()?;
        let path = CString::new(file.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        let args = self
            .program
            .args
            .iter()
            .map(|arg| CString::new(arg.as_str()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| "process.args holds a NUL byte".to_owned())?;
        let env = self.program.environment(|| {
            let uid = rustix::process::geteuid().as_raw();
            passwd::home_of(uid, passwd::read("/etc/passwd".as_ref()))
        })?;
        sys::cloexec_from_three().map_err(|error| format!("closing descriptors: {error}"))?;
        self.filters
            .install()
            .map_err(|error| format!("seccomp: {error}"))?;
        if let Some(capabilities) = &self.capabilities {
            capabilities
                .take()
                .map_err(|error| format!("capabilities: {error}"))?;
        }
        // From here on the filters hold: nothing but execve, and on failure a write and an exit.
        nix::unistd::execve(&path, &args, &env)
            .map_err(|error| format!("exec: \"{}\": {}", self.program.args[0], error.desc()))
    }
}

impl Capabilities {
    fn take(&self) -> Result<(), caps::errors::CapsError> {
        caps::set(None, CapSet::Effective, &self.effective)?;
        caps::set(None, CapSet::Permitted, &self.permitted)
    }
}

/// When that process dies, however it dies, so does this one, and with it everything in the namespace. Set here and no
/// sooner, since a change of identity clears it; whether it died before is asked after.
fn hold_on_to(lifeline: &OwnedFd) -> Result<(), String> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| format!("parent-death signal: {error}"))?;
    let mut watched = [rustix::event::PollFd::new(lifeline, rustix::event::PollFlags::IN)];
    let now = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let gone = rustix::event::poll(&mut watched, Some(&now))
        .map_err(|error| format!("looking for the worker: {error}"))?;
    if gone > 0 {
        Err("the worker is gone".to_owned())
    } else {
        Ok(())
    }
}

impl Executor for Confinement {
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        self.confine()
            .map_err(ExecutorValidationError::ArgValidationError)
    }

    fn setup_envs(&self, _: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        // The program gets its environment from `execve`, not from this process.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn program(args: &[&str], env: &[&str]) -> Program {
        let own = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        Program::new(own(args), own(env))
    }

    #[test]
    fn a_name_without_a_slash_is_looked_for_in_the_containers_path() {
        assert_eq!(
            program(&["sh"], &["PATH=/nowhere:/bin"]).file().unwrap(),
            PathBuf::from("/bin/sh")
        );
        let error = program(&["sh"], &["PATH=/nowhere"]).file().unwrap_err();
        assert_eq!(error, "exec: \"sh\": executable file not found in $PATH");
        assert!(
            program(&["sh"], &[]).file().is_err(),
            "our own PATH is not the container's"
        );
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_told_from_one_that_is_not_there() {
        let error = program(&["/etc/passwd"], &[]).file().unwrap_err();
        assert!(error.contains("permission denied"), "{error}");
        let error = program(&["/no/such"], &[]).file().unwrap_err();
        assert!(error.contains("no such file"), "{error}");
        assert!(program(&[], &[]).file().is_err());
        assert!(program(&[""], &[]).file().is_err());
    }

    #[test]
    fn home_is_added_only_where_there_is_none() {
        let with = program(&["x"], &["HOME=/a"]);
        let home = || "/b".to_owned();
        assert_eq!(
            with.environment(home).unwrap(),
            [CString::new("HOME=/a").unwrap()]
        );
        let without = program(&["x"], &["HOMER=/a"]);
        assert_eq!(without.environment(home).unwrap().len(), 2);
    }
}
