//! A report as a client reads it: what can be read is written the same, and never looks better than it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandglass_run::{Report, Status};

fuzz_target!(|input: &[u8]| {
    let Ok(report) = serde_json::from_slice::<Report>(input) else {
        return;
    };
    assert_eq!(report.exit_code() == 0, report.status == Status::Succeeded);
    let written = serde_json::to_vec(&report).expect("what was read can be written");
    let again: Report = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(again, report);
});
