//! Everything that was measured: what `--json` prints.

use sandglass_figures::Budget;
use serde::Serialize;

use crate::setup::Host;
use crate::{alive, latency, phases, throughput};

/// All sections; those that were left out are absent.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// What was measured, and on what.
    pub host: Option<Host>,
    /// Workloads by ways.
    pub latency: Option<latency::Table>,
    /// Where each millisecond goes.
    pub phases: Option<Vec<phases::Row>>,
    /// Runs per second.
    pub throughput: Option<Vec<throughput::Row>>,
    /// Memory of sandboxes that wait.
    pub memory: Option<Vec<alive::Memory>>,
    /// Latency beside them.
    pub alive: Option<Vec<alive::Beside>>,
    /// What is promised, and what was measured.
    pub budgets: Vec<Budget>,
}
