//! What a stack is made of: where the servers lie, and which runtime handlers containerd shall know.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Result, StackError};
use crate::place::SHIMS;

/// What to do when a server is missing.
const BUILD: &str = "Run `make stack` to build what the stack is made of.";

/// Where the parts of a stack lie: the folder that `make stack` fills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Servers {
    /// The folder: `bin/`, `cni/` and `images/` are looked for in it; roots and seeds are made in it.
    pub root: PathBuf,
}

impl Servers {
    /// The parts below `root`, which `make stack` made (`target/stack` of the checkout).
    ///
    /// # Errors
    /// Where one of them is not there.
    pub fn at(root: impl Into<PathBuf>) -> Result<Self> {
        let root: PathBuf = root.into();
        let servers = Self {
            root: std::path::absolute(&root).map_err(StackError::at("Finding", &root))?,
        };
        for name in [
            "containerd",
            "ctr",
            "crictl",
            "containerd-shim-runc-v2",
            "runc",
            "sandglass-stack",
        ] {
            servers.expect(name, servers.program(name))?;
        }
        for name in ["bridge", "loopback", "host-local"] {
            servers.expect(name, servers.cni().join(name))?;
        }
        servers.expect("The test images", servers.images().join("images.json"))?;
        Ok(servers)
    }

    fn expect(&self, what: &str, path: PathBuf) -> Result<()> {
        if path.exists() {
            return Ok(());
        }
        Err(StackError::Missing {
            what: what.to_owned(),
            path: path.display().to_string(),
            hint: BUILD,
        })
    }

    /// The path of a program of the stack.
    pub fn program(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// The folder of the CNI plugins.
    pub fn cni(&self) -> PathBuf {
        self.root.join("cni")
    }

    /// The folder of the archives to import.
    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }
}

/// A runtime handler: what a RuntimeClass names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handler {
    /// The name.
    pub name: String,
    /// containerd's name of the runtime, from which it makes the name of the shim's binary.
    pub runtime_type: String,
    /// The options that the shim gets.
    #[serde(default)]
    pub options: BTreeMap<String, toml::Value>,
}

impl Handler {
    /// A handler of `name` without options.
    pub fn new(name: &str, runtime_type: &str) -> Self {
        Self {
            name: name.to_owned(),
            runtime_type: runtime_type.to_owned(),
            options: BTreeMap::new(),
        }
    }

    /// With one option more.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        self.options.insert(key.to_owned(), value.into());
        self
    }

    /// runc's own shim over the runtime at `binary`, which keeps its state in a folder named after the handler.
    pub fn runc(name: &str, binary: &Path) -> Self {
        Self::new(name, "io.containerd.runc.v2").with("BinaryName", binary.display().to_string())
    }

    /// Our shim, with `hardening` as it is written in its options.
    pub fn sandglass(name: &str, hardening: &str) -> Self {
        Self::new(name, "io.containerd.sandglass.v1").with("hardening", hardening)
    }

    /// Our shim under the name that says `hardening = "spec"`, without options: containerd's CRI plugin makes containers
    /// with a user namespace for no handler that has some, unless they are runc's.
    pub fn sandglass_spec(name: &str) -> Self {
        Self::new(name, "io.containerd.sandglass-spec.v1")
    }
}

/// What shall come up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The parts.
    pub servers: Servers,
    /// Our shim, to be found under its other name as well.
    pub shim: Option<PathBuf>,
    /// Folders in which containerd finds shims, before the stack's own `bin/`.
    pub path: Vec<PathBuf>,
    /// The handlers, the first being the default.
    pub handlers: Vec<Handler>,
    /// containerd logs at debug level, and tells shims to.
    pub debug: bool,
    /// A copy of containerd's log outlives the stack here.
    pub keep_log: Option<PathBuf>,
    /// Arguments for containerd besides ours.
    pub containerd_flags: Vec<String>,
    /// Start with the test images in place. Off only while they are imported for the first time.
    pub images: bool,
}

impl Config {
    /// Everything that can run here: `runc` (the default), ours in both modes where `shim` is the path of a
    /// `containerd-shim-sandglass-v1`, `crun` and `youki` where their paths are given, and `runsc` where it was built.
    pub fn new(servers: Servers, shim: Option<&Path>, others: &[(&str, &Path)]) -> Self {
        let mut handlers = vec![Handler::runc("runc", &servers.program("runc"))];
        let mut path = Vec::new();
        if let Some(folder) = shim.and_then(Path::parent) {
            path.extend([folder.to_owned(), SHIMS.into()]);
            handlers.push(Handler::sandglass("sandglass", "sandbox"));
            handlers.push(Handler::sandglass_spec("sandglass-spec"));
        }
        handlers.extend(others.iter().map(|(name, binary)| Handler::runc(name, binary)));
        if servers.program("containerd-shim-runsc-v1").exists() {
            handlers.push(Handler::new("runsc", "io.containerd.runsc.v1"));
        }
        Self {
            servers,
            shim: shim.map(Path::to_owned),
            path,
            handlers,
            debug: false,
            keep_log: None,
            containerd_flags: Vec::new(),
            images: true,
        }
    }

    /// `PATH` for containerd and for commands inside: shims first, then the stack's own programs, then the host's.
    pub fn search_path(&self, inherited: &str) -> String {
        self.path
            .iter()
            .cloned()
            .chain([self.servers.root.join("bin")])
            .map(|folder| folder.display().to_string())
            .chain([inherited.to_owned()])
            .collect::<Vec<_>>()
            .join(":")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Servers {
        Servers {
            root: "/nowhere/stack".into(),
        }
    }

    #[test]
    fn ours_is_a_handler_only_where_there_is_a_shim() {
        let names = |config: Config| config.handlers.into_iter().map(|h| h.name).collect::<Vec<_>>();
        assert_eq!(names(Config::new(servers(), None, &[])), ["runc"]);
        let shim = Path::new("/x/release/containerd-shim-sandglass-v1");
        assert_eq!(
            names(Config::new(
                servers(),
                Some(shim),
                &[("crun", Path::new("/usr/bin/crun"))]
            )),
            ["runc", "sandglass", "sandglass-spec", "crun"]
        );
    }

    #[test]
    fn our_shim_is_found_before_anything_else_of_its_name() {
        let config = Config::new(servers(), Some(Path::new("/x/shim")), &[]);
        assert_eq!(
            config.search_path("/usr/bin"),
            format!("/x:{SHIMS}:/nowhere/stack/bin:/usr/bin")
        );
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_makes_it() {
        let error = Servers::at("/nowhere/stack").unwrap_err().to_string();
        assert!(
            error.contains("containerd is not at /nowhere/stack/bin/containerd"),
            "{error}"
        );
        assert!(error.contains("make stack"), "{error}");
    }
}
