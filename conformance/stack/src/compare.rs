//! Two runs of critest on one machine, name by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::error::{Result, StackError};
use crate::outcomes::{Outcome, Outcomes};

/// The written list of where a handler differs from the baseline by design.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The specs that it does not pass.
    #[serde(default)]
    pub differs: Vec<Difference>,
}

/// One spec that a handler fails by design.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// Its whole name.
    pub name: String,
    /// What of the handler's design it contradicts.
    pub reason: String,
}

impl Expected {
    /// Reads a list.
    ///
    /// # Errors
    /// Where it is not TOML of this form, names a spec twice or gives no reason.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(StackError::at("Reading", path))?;
        Self::parse(&text).map_err(|why| StackError::Corrupt {
            path: path.display().to_string(),
            why,
        })
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let expected: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut names = BTreeSet::new();
        for Difference { name, reason } in &expected.differs {
            if reason.trim().is_empty() {
                return Err(format!("{name:?} has no reason"));
            }
            if !names.insert(name) {
                return Err(format!("{name:?} is named twice"));
            }
        }
        Ok(expected)
    }
}

/// What is wrong with `found` beside `baseline`, as sentences; none where nothing is.
///
/// Whatever the baseline passed must pass, but for what is listed; what is listed must be passed by the baseline and not
/// pass here, so that the list holds nothing that is not true.
pub fn compare(baseline: &Outcomes, found: &Outcomes, expected: &Expected) -> Vec<String> {
    let listed: BTreeMap<&str, &str> = expected
        .differs
        .iter()
        .map(|entry| (entry.name.as_str(), entry.reason.as_str()))
        .collect();
    let mut wrong = Vec::new();
    for (name, _) in baseline
        .0
        .iter()
        .filter(|(_, outcome)| **outcome == Outcome::Passed)
    {
        let here = found.0.get(name);
        if here != Some(&Outcome::Passed) && !listed.contains_key(name.as_str()) {
            let how = here.map_or_else(|| "is not there".to_owned(), ToString::to_string);
            wrong.push(format!("{how}, and the baseline passes: {name}"));
        }
    }
    for (name, reason) in listed {
        if !baseline.passed(name) {
            wrong.push(format!(
                "listed, and the baseline does not pass it, so the list proves nothing: {name}"
            ));
        } else if found.passed(name) {
            wrong.push(format!(
                "listed as failing by design ({reason}), and passes: {name}"
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Failed, Passed, Skipped};

    fn run(specs: &[(&str, Outcome)]) -> Outcomes {
        Outcomes(
            specs
                .iter()
                .map(|(name, outcome)| ((*name).to_owned(), *outcome))
                .collect(),
        )
    }

    fn listed(names: &[&str]) -> Expected {
        let differs = names.iter().map(|name| Difference {
            name: (*name).to_owned(),
            reason: "by design".to_owned(),
        });
        Expected {
            differs: differs.collect(),
        }
    }

    #[test]
    fn whatever_the_baseline_passes_must_pass() {
        let baseline = run(&[
            ("a", Passed),
            ("b", Passed),
            ("c", Failed),
            ("d", Passed),
            ("e", Skipped),
        ]);
        let found = run(&[("a", Passed), ("b", Failed), ("c", Failed), ("d", Skipped)]);
        let wrong = compare(&baseline, &found, &listed(&[]));
        assert_eq!(
            wrong,
            [
                "failed, and the baseline passes: b",
                "skipped, and the baseline passes: d"
            ]
        );
        assert!(compare(&baseline, &baseline, &listed(&[])).is_empty());
    }

    #[test]
    fn a_spec_that_vanished_is_not_a_pass() {
        let wrong = compare(&run(&[("a", Passed)]), &run(&[]), &listed(&[]));
        assert_eq!(wrong, ["is not there, and the baseline passes: a"]);
    }

    #[test]
    fn the_list_is_compared_both_ways() {
        let baseline = run(&[("a", Passed), ("b", Passed), ("c", Failed)]);
        let found = run(&[("a", Failed), ("b", Passed), ("c", Failed)]);
        assert!(compare(&baseline, &found, &listed(&["a"])).is_empty());
        let wrong = compare(&baseline, &found, &listed(&["a", "b", "c"]));
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(
            wrong[0].contains("and passes: b") && wrong[1].contains("proves nothing: c"),
            "{wrong:?}"
        );
    }

    #[test]
    fn a_list_without_reasons_is_refused() {
        let parse = |text| Expected::parse(text).unwrap_err();
        assert!(parse("[[differs]]\nname = 'a'\nreason = ' '").contains("no reason"));
        assert!(parse("[[differs]]\nname = 'a'\n").contains("reason"));
        let twice = "[[differs]]\nname = 'a'\nreason = 'x'\n[[differs]]\nname = 'a'\nreason = 'y'";
        assert!(parse(twice).contains("named twice"));
        assert!(parse("[[differ]]").contains("differ"));
    }
}
