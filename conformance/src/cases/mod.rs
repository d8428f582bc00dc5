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

    /// What is left to others is said by each case, so it could become most of them unnoticed.
    #[test]
    fn most_cases_are_questions_for_a_runtime_in_each_role() {
        use crate::context::Config;
        use crate::runtime::{Handler, Role, Runtime};
        let asked = |role: Option<Role>| {
            let config = Config {
                runtime: role.map(|role| Runtime {
                    handler: Handler::Sandglass,
                    role,
                    image: String::new(),
                    events: "/".into(),
                }),
                ..Config::default()
            };
            let for_others = |case: &&crate::case::Case| {
                case.needs
                    .iter()
                    .any(|need| config.is_for_others(*need).is_some())
            };
            let (others, own): (Vec<_>, Vec<_>) =
                super::all().into_iter().partition(|case| for_others(&case));
            (own.len(), others)
        };
        let (_, others) = asked(None);
        assert!(others.iter().all(|case| case.name.starts_with("pods/")));
        for (role, least) in [(Role::Runner, 420), (Role::First, 380), (Role::Exec, 360)] {
            let (own, others) = asked(Some(role));
            assert!(own >= least, "{role:?}: {own} cases");
            let kernel = others
                .iter()
                .filter(|case| case.name.starts_with("kernel/"))
                .count();
            assert!(
                kernel <= 2,
                "{role:?} leaves {kernel} cases of the kernel to others"
            );
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
