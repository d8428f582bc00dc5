//! Bubblewrap: every namespace unshared, the same view, no filters, no limits, nothing watched.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Name, Way};
use crate::error::Result;
use crate::timed::timed;
use crate::view::{FONT_CACHE_LINKS, SCRATCH, View};
use crate::workload::Workload;

/// `bwrap --unshare-all`.
#[derive(Debug, Clone)]
pub struct Bwrap {
    program: PathBuf,
    view: View,
}

impl Bwrap {
    /// The program and what it shall show.
    pub fn new(program: &Path, view: &View) -> Self {
        Self {
            program: program.to_owned(),
            view: view.clone(),
        }
    }

    /// The whole command line.
    pub fn command(&self, workload: Workload) -> Command {
        let mut command = Command::new(&self.program);
        command.args([
            "--unshare-all",
            "--die-with-parent",
            "--uid",
            "65534",
            "--gid",
            "65534",
        ]);
        command.arg("--ro-bind").arg(&self.view.rootfs).arg("/");
        command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm"]);
        for scratch in SCRATCH {
            command.args(["--tmpfs", scratch]);
        }
        if let Some((name, _)) = workload.script() {
            let inside = format!("/work/{name}");
            command
                .arg("--ro-bind")
                .arg(self.view.scripts.join(name))
                .arg(inside);
        }
        command.args(["--dir", FONT_CACHE_LINKS]);
        for (name, target) in &self.view.font_caches {
            command.args(["--symlink", target, &format!("{FONT_CACHE_LINKS}/{name}")]);
        }
        command.arg("--clearenv");
        for (name, value) in self.view.environment() {
            command.args(["--setenv", name, &value]);
        }
        command.args(["--chdir", "/work", "--"]).args(workload.argv());
        command
    }
}

impl Way for Bwrap {
    fn name(&self) -> Name {
        Name::Bwrap
    }

    fn run(&mut self, workload: Workload) -> Result<Duration> {
        timed(&mut self.command(workload))
    }
}
