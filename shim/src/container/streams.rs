//! The streams of a process, from both sides.

use std::path::{Path, PathBuf};

use containerd_shim::asynchronous::io::Stdio;
use sandglass_sandbox::container::Places;

use crate::error::Result;
use crate::io::{self, Ours, Theirs};
use crate::process::Process;
use crate::terminal::Console;

/// The streams of a process that is being made.
pub(super) struct Streams {
    pub(super) theirs: Theirs,
    ours: Ours,
    console: Option<Console>,
}

impl Streams {
    pub(super) fn open(stdio: &Stdio, bundle: &Path, socket: &str, uid: u32) -> Result<Self> {
        if stdio.terminal {
            let console = Console::listen(&Places::of(bundle).state, socket)?;
            return Ok(Self {
                theirs: io::nowhere()?,
                ours: Ours::default(),
                console: Some(console),
            });
        }
        let (theirs, ours) = io::pipes(stdio, uid)?;
        Ok(Self {
            theirs,
            ours,
            console: None,
        })
    }

    pub(super) fn console_path(&self) -> Option<PathBuf> {
        self.console.as_ref().map(|console| console.path().to_owned())
    }

    /// Once the process stands: its streams begin to flow.
    pub(super) async fn connect(self, process: &Process) -> Result<()> {
        // With a copy of ours open, the end of a stream would never be seen.
        drop(self.theirs);
        let tasks = process.io();
        match self.console {
            Some(console) => {
                let pty = io::copy_terminal(&tasks, &process.stdio, console.receive().await?)?;
                process.has_terminal(pty);
            }
            None => io::copy(&tasks, &process.stdio, self.ours)?,
        }
        Ok(())
    }
}
