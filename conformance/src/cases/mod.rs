//! Every case, in the order in which they run.

mod artifacts;
mod driver;
mod files;
mod input;
mod isolation;
mod kernel;
mod limits;
mod outcomes;
mod pods;
mod processes;
mod work;

use crate::case::{Case, Need};

/// All of them.
pub fn all() -> Vec<Case> {
    [
        kernel::cases(),
        files::cases(),
        needing(&[Need::Runner], artifacts::cases()),
        processes::cases(),
        limits::cases(),
        outcomes::cases(),
        isolation::cases(),
        needing(&[Need::Driver], driver::cases()),
        needing(&[Need::Driver], input::cases()),
        work::cases(),
        pods::cases(),
    ]
    .concat()
}

/// A group of cases that all need this.
fn needing(needs: &[Need], cases: Vec<Case>) -> Vec<Case> {
    cases.into_iter().map(|case| case.needs(needs)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_case_has_a_name_of_its_own_and_says_what_must_hold() {
        let cases = super::all();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len(), "a name is there twice");
        for case in &cases {
            let (group, rest) = case.name.split_once('/').expect("group/name");
            assert!(
                !group.is_empty() && !rest.is_empty() && !rest.contains('/'),
                "{}",
                case.name
            );
            assert!(case.says.len() > 5, "{} says nothing", case.name);
        }
    }

    #[test]
    fn every_probe_of_a_case_exists_in_the_prober() {
        for case in super::all() {
            if let crate::case::Body::Probe(probe) = &case.body {
                let function = format!("@probe\ndef {}(", probe.args[0].replace('-', "_"));
                assert!(
                    crate::context::PROBER.contains(&function),
                    "{}: no probe {}",
                    case.name,
                    probe.args[0]
                );
            }
        }
    }
}
