//! Every case, in the order in which they run.

mod artifacts;
mod driver;
mod files;
mod input;
mod isolation;
mod kernel;
mod limits;
mod outcomes;
mod processes;
mod work;

use crate::case::Case;

/// All of them.
pub fn all() -> Vec<Case> {
    [
        kernel::cases(),
        files::cases(),
        artifacts::cases(),
        processes::cases(),
        limits::cases(),
        outcomes::cases(),
        isolation::cases(),
        driver::cases(),
        input::cases(),
        work::cases(),
    ]
    .concat()
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
