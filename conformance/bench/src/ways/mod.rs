//! The ways to run a command on the image's root, from nothing around it to everything.

pub mod bare;
pub mod bwrap;
pub mod oci;
pub mod sandglass;

use std::time::Duration;

use serde::Serialize;

use crate::error::Result;
use crate::workload::Workload;

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    /// fork and exec on the same root, nothing around it.
    Bare,
    /// `bwrap --unshare-all`.
    Bwrap,
    /// `crun run`, which makes, starts and deletes in one process.
    CrunRun,
    /// `crun create`, `start`, `delete`.
    Crun,
    /// `runc run`.
    RuncRun,
    /// `runc create`, `start`, `delete`.
    Runc,
    /// Ours, entered by a process that is there already.
    Library,
    /// Ours, a process for each run.
    Sandglass,
}

impl Name {
    /// How tables call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Bare => "bare exec",
            Self::Bwrap => "bwrap --unshare-all",
            Self::CrunRun => "crun run",
            Self::Crun => "crun create+start+delete",
            Self::RuncRun => "runc run",
            Self::Runc => "runc create+start+delete",
            Self::Library => "sandglass, library",
            Self::Sandglass => "sandglass run",
        }
    }
}

/// A way to run a workload once.
pub trait Way {
    /// Its name.
    fn name(&self) -> Name;

    /// Whether it can run this.
    fn takes(&self, workload: Workload) -> bool {
        let _ = workload;
        true
    }

    /// Runs it once and says how long that took, from nothing to nothing left.
    ///
    /// # Errors
    /// It did not succeed.
    fn run(&mut self, workload: Workload) -> Result<Duration>;
}
