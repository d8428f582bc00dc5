//! Where one stack keeps its things, seen from the host and from inside.
//!
//! Inside, everything lies where it lies on a node: containerd's defaults are `/var/lib/containerd` and
//! `/run/containerd`. On the host those are two folders of this stack alone, so that several stacks and a containerd of
//! the host's own do not meet.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::Servers;

/// containerd's root, inside.
pub const ROOT: &str = "/var/lib/containerd";
/// containerd's state, inside.
pub const STATE: &str = "/run/containerd";
/// What the stack writes for its servers, inside.
pub const SETTINGS: &str = "/run/sandglass-stack";
/// Our shim under its other name, inside.
pub const SHIMS: &str = "/run/sandglass-stack/shims";
/// containerd's socket, inside.
pub const SOCKET: &str = "/run/containerd/containerd.sock";

/// The folders of one stack on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// What the stack is called: `sg-` and six characters. Its control groups are called so as well.
    pub name: String,
    /// Sockets, FIFOs, bundles, settings: short, since the path of a socket holds 107 bytes.
    pub short: PathBuf,
    /// containerd's root, and room for the commands' temporary files: on the file system of the seed.
    pub roomy: PathBuf,
}

impl Place {
    /// The places of the stack `name`.
    pub fn new(name: &str, servers: &Servers) -> Self {
        Self {
            name: name.to_owned(),
            short: Path::new("/run").join(name),
            roomy: servers.root.join("live").join(name),
        }
    }

    /// containerd's state, on the host.
    pub fn state(&self) -> PathBuf {
        self.short.join("containerd")
    }

    /// What the stack writes for its servers, on the host.
    pub fn settings(&self) -> PathBuf {
        self.short.join("settings")
    }

    /// containerd's root, on the host.
    pub fn root(&self) -> PathBuf {
        self.roomy.join("root")
    }

    /// `TMPDIR` of commands.
    pub fn scratch(&self) -> PathBuf {
        self.roomy.join("tmp")
    }

    /// containerd's log, the same path on the host and inside.
    pub fn log(&self) -> PathBuf {
        self.roomy.join("containerd.log")
    }

    /// containerd's socket, as a process of the host reaches it.
    pub fn socket(&self) -> PathBuf {
        self.state().join("containerd.sock")
    }

    /// Maps a path that a server inside names (`/run/containerd/s/…`) to the host's. `None` where the host has none.
    pub fn outside(&self, inside: &Path) -> Option<PathBuf> {
        [
            (STATE, self.state()),
            (ROOT, self.root()),
            (SETTINGS, self.settings()),
        ]
        .into_iter()
        .find_map(|(prefix, folder)| inside.strip_prefix(prefix).ok().map(|rest| folder.join(rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        let servers = Servers {
            root: "/a/rather/long/path/of/a/checkout/somewhere/target/stack".into(),
        };
        Place::new("sg-ab12cd", &servers)
    }

    #[test]
    fn a_socket_path_fits_wherever_the_checkout_lies() {
        // A shim's socket is named by 64 hex digits below the state.
        let shim = place().state().join("s").join("0".repeat(64));
        assert!(shim.as_os_str().len() < 107, "{}", shim.display());
        assert!(place().socket().as_os_str().len() < 107);
    }

    #[test]
    fn a_path_inside_is_found_on_the_host() {
        let found = place().outside(Path::new("/run/containerd/s/abc")).unwrap();
        assert_eq!(found, Path::new("/run/sg-ab12cd/containerd/s/abc"));
        assert_eq!(place().outside(Path::new("/run/containerdx/s")), None);
    }
}
