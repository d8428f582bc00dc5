//! One trait, whichever way a run is carried out.

use sandglass_run::{Report, Request, Waiver};
use sandglass_sandbox::Finding;

use crate::Cancel;
use crate::events::Events;
use crate::refusal::Refusal;

/// A way to carry out runs. Nothing above it knows which one it is.
pub trait Driver {
    /// Its name, as settings and receipts have it.
    fn name(&self) -> &'static str;

    /// Whether it takes runs at all. Asked before a request is even put together.
    ///
    /// # Errors
    /// Why it takes none, ever.
    fn takes_runs(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Carries out one run. Every way for it to end is a report; when this returns, nothing of the run is left.
    ///
    /// When `cancel` is cancelled, the sandbox is killed and the report says `cancelled`.
    fn run(&self, request: Request, events: &mut dyn Events, cancel: &Cancel)
    -> impl Future<Output = Report>;

    /// What this driver needs and what is there: when none [hinders](Finding::hinders), a run with these
    /// waivers would be accepted.
    fn doctor(&self, waivers: &[Waiver]) -> impl Future<Output = Vec<Finding>>;
}
