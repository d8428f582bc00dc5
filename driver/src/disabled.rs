//! The driver that refuses: for a place where nothing may run.

use sandglass_run::{Report, Request, Waiver};
use sandglass_sandbox::Finding;

use crate::Cancel;
use crate::driver::Driver;
use crate::events::Events;
use crate::refusal::Refusal;

/// Refuses every run, before anything else happens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disabled;

const MESSAGE: &str = "Running code is disabled here: the driver is `disabled`.";
const HINT: &str = "Choose another driver with --driver or SANDGLASS_DRIVER, or ask whoever disabled it.";

impl Driver for Disabled {
    fn name(&self) -> &'static str {
        "disabled"
    }

    fn takes_runs(&self) -> Result<(), Refusal> {
        Err(Refusal::new("driver_disabled", MESSAGE, HINT))
    }

    async fn run(&self, request: Request, _: &mut dyn Events, _: &Cancel) -> Report {
        Report::refused(
            request.run_id,
            Refusal::new("driver_disabled", MESSAGE, HINT).into(),
        )
    }

    async fn doctor(&self, _: &[Waiver]) -> Vec<Finding> {
        vec![Finding {
            layer: "driver".into(),
            ok: false,
            waived: false,
            found: "disabled".into(),
            mend: HINT.into(),
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Quiet;
    use sandglass_run::{Language, Limits, Status};

    #[test]
    fn every_run_is_refused_with_its_own_code_even_a_bad_one() {
        let request = Request {
            run_id: "r".parse().unwrap(),
            person: "p".parse().unwrap(),
            language: Language::Python,
            script: vec![],
            script_name: "../x".into(),
            args: vec![],
            inputs: vec![],
            limits: Limits::default(),
            waivers: vec![],
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let report = runtime.block_on(Disabled.run(request, &mut Quiet(None), &Cancel::new()));
        assert_eq!(report.status, Status::Refused);
        assert_eq!(Disabled.takes_runs().unwrap_err().code, "driver_disabled");
        assert_eq!(report.error.unwrap().code, "driver_disabled");
        assert_eq!(report.isolation, None);
    }

    #[test]
    fn its_doctor_never_says_that_a_run_would_be_accepted() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(
            runtime
                .block_on(Disabled.doctor(&[]))
                .iter()
                .any(Finding::hinders)
        );
    }
}
