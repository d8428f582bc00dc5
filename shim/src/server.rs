//! The server at a socket, as the action `start` sees it: whether it answers, who it is, who else may speak to it.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use containerd_shim::Error;
use rustix::process::{Pid, Signal, kill_process};

/// Longest name of a socket, in bytes: the kernel's bound without the NUL at its end, less one as containerd counts.
const LONGEST_NAME: usize = 106;

/// A server that answers.
#[derive(Debug)]
pub struct Server(Pid);

fn path(address: &str) -> &Path {
    Path::new(address.strip_prefix("unix://").unwrap_or(address))
}

/// Takes away a socket, and nothing that is not one.
pub fn remove_socket(address: &str) {
    let path = path(address);
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        let _ = std::fs::remove_file(path);
    }
}

/// Checks that a socket can have that name, which shows in the server only, where nobody hears of it.
///
/// # Errors
/// The name is too long.
pub fn fits(address: &str) -> Result<(), Error> {
    let length = path(address).as_os_str().len();
    if length <= LONGEST_NAME {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "the shim's socket {address} has a name of {length} bytes, longer than the {LONGEST_NAME} that one can have: give containerd a state directory with a shorter path"
    )))
}

impl Server {
    /// Finds the server at an address.
    ///
    /// # Errors
    /// Nobody answers there.
    pub fn at(address: &str) -> std::io::Result<Self> {
        let stream = UnixStream::connect(path(address))?;
        Ok(Self(rustix::net::sockopt::socket_peercred(&stream)?.pid))
    }

    /// Puts it into a cgroup, by its path below the hierarchies. An empty path is none.
    ///
    /// # Errors
    /// The cgroup is not there.
    pub fn enter(&self, cgroup: &str) -> Result<(), Error> {
        if cgroup.is_empty() {
            return Ok(());
        }
        let pid = u32::try_from(self.0.as_raw_nonzero().get()).unwrap_or(0);
        containerd_shim::cgroup::add_task_to_cgroup(cgroup, pid)
    }

    /// Closes its socket to everybody but root.
    ///
    /// # Errors
    /// The file system's.
    pub fn close_to_others(&self, address: &str) -> std::io::Result<()> {
        std::fs::set_permissions(path(address), PermissionsExt::from_mode(0o600))
    }

    /// Ends it.
    pub fn kill(&self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_socket_can_have_is_refused_with_the_mend() {
        assert!(fits(&format!("unix:///{}", "x".repeat(105))).is_ok());
        let error = fits(&format!("unix:///{}", "x".repeat(106)))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("107 bytes") && error.contains("shorter path"),
            "{error}"
        );
    }

    #[test]
    fn nobody_answers_where_nobody_is() {
        assert!(Server::at("unix:///no/such/socket").is_err());
    }
}
