//! The list of skips and failures that are permitted, compared both ways: a skip or a failure that is not on it fails the
//! suite, and so does an entry that no longer happens.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::verdict::Verdict;

/// The list, as it is in the file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permitted {
    #[serde(default)]
    skip: Vec<Entry>,
    #[serde(default)]
    fail: Vec<Failure>,
}

/// One case that fails for what is under test: where that is weaker than a sandbox.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    /// The name of the case.
    case: String,
    /// In what way it is weaker, for people.
    because: String,
}

/// One permitted skip.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The name of the case.
    case: String,
    /// The word that the skip gives as its reason.
    reason: String,
    /// Why that is all right, for people.
    because: String,
}

impl Permitted {
    /// Reads the text of a list.
    pub fn parse(text: &str) -> Result<Self, String> {
        let list: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        let skips = list.skip.iter().map(|entry| (&entry.case, &entry.because));
        let fails = list.fail.iter().map(|entry| (&entry.case, &entry.because));
        for (case, because) in skips.chain(fails) {
            if because.trim().len() < 10 {
                return Err(format!("the entry for {case} does not say why it is permitted"));
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        if let Some(entry) = list.fail.iter().find(|entry| !seen.insert(&entry.case)) {
            return Err(format!("{} is listed twice", entry.case));
        }
        Ok(list)
    }

    /// Adds the entries of another list.
    pub fn extend(&mut self, other: Self) {
        self.skip.extend(other.skip);
        self.fail.extend(other.fail);
    }

    /// The verdict with the list in mind: a failure that is on it is one of those that are known.
    pub fn known(&self, case: &str, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Failed { expected, observed } if self.fail.iter().any(|entry| entry.case == case) => {
                Verdict::FailedAsListed { expected, observed }
            }
            other => other,
        }
    }

    /// What does not agree between the list and what happened, as sentences. Entries about cases that were not
    /// selected say nothing.
    pub fn disagreements<'a>(&self, results: impl Iterator<Item = (&'a str, &'a Verdict)>) -> Vec<String> {
        let results: BTreeMap<&str, &Verdict> = results.collect();
        let mut found = Vec::new();
        for (case, verdict) in &results {
            if let Verdict::Skipped { reason } = verdict
                && !self
                    .skip
                    .iter()
                    .any(|entry| entry.case == *case && entry.reason == *reason)
            {
                found.push(format!(
                    "{case} was skipped ({reason}), which the list does not permit"
                ));
            }
        }
        for entry in &self.skip {
            match results.get(entry.case.as_str()) {
                None | Some(Verdict::NotApplicable { .. }) => {}
                Some(Verdict::Skipped { reason }) if *reason == entry.reason => {}
                Some(_) => found.push(format!(
                    "the list permits that {} is skipped ({}), but it was not: take the entry out",
                    entry.case, entry.reason
                )),
            }
        }
        for entry in &self.fail {
            match results.get(entry.case.as_str()) {
                None | Some(Verdict::FailedAsListed { .. } | Verdict::NotApplicable { .. }) => {}
                Some(_) => found.push(format!(
                    "the list says that {} fails ({}), but it did not: take the entry out",
                    entry.case, entry.because
                )),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "[[skip]]\ncase = \"a/b\"\nreason = \"no-x\"\nbecause = \"this kernel has no x\"\n";

    fn skipped(reason: &str) -> Verdict {
        Verdict::Skipped {
            reason: reason.into(),
        }
    }

    #[test]
    fn the_list_is_compared_both_ways() {
        let list = Permitted::parse(LIST).unwrap();
        let of = |case: &'static str, verdict: Verdict| list.disagreements([(case, &verdict)].into_iter());
        assert!(of("a/b", skipped("no-x")).is_empty());
        assert_eq!(
            of("a/b", skipped("other")).len(),
            2,
            "not permitted so, and the entry did not happen"
        );
        assert_eq!(of("a/b", Verdict::Passed).len(), 1, "a stale entry");
        assert_eq!(of("c/d", skipped("no-x")).len(), 1, "not on the list");
        assert!(
            of("c/d", Verdict::Passed).is_empty(),
            "an entry about a case that was not selected"
        );
    }

    #[test]
    fn a_known_failure_is_none_and_one_that_passes_is_a_disagreement() {
        let list = Permitted::parse("[[fail]]\ncase = \"a/b\"\nbecause = \"it is weaker there\"\n").unwrap();
        let failed = || Verdict::Failed {
            expected: "x".into(),
            observed: "y".into(),
        };
        let of = |case: &'static str, verdict: Verdict| {
            let verdict = list.known(case, verdict);
            list.disagreements([(case, &verdict)].into_iter())
        };
        assert!(matches!(
            list.known("a/b", failed()),
            Verdict::FailedAsListed { .. }
        ));
        assert_eq!(
            list.known("c/d", failed()),
            failed(),
            "a failure that is not listed stays one"
        );
        assert!(of("a/b", failed()).is_empty());
        assert_eq!(of("a/b", Verdict::Passed).len(), 1, "a listed case that passes");
        assert_eq!(of("a/b", skipped("x")).len(), 2, "a listed case that was skipped");
        assert!(of("c/d", Verdict::Passed).is_empty());
        let twice = "[[fail]]\ncase = \"a/b\"\nbecause = \"it is weaker there\"\n".repeat(2);
        assert!(Permitted::parse(&twice).is_err());
    }

    #[test]
    fn an_entry_without_a_reason_for_people_is_refused() {
        assert!(Permitted::parse(&LIST.replace("this kernel has no x", "")).is_err());
        assert!(Permitted::parse("[[skip]]\ncase = \"a/b\"\n").is_err());
        assert!(Permitted::parse("").unwrap().skip.is_empty());
    }

    #[test]
    fn the_lists_of_this_suite_can_be_read_and_name_cases_that_exist() {
        let cases = crate::cases::all();
        for text in [
            include_str!("../permitted-skips/root.toml"),
            include_str!("../permitted-skips/user.toml"),
            include_str!("../permitted-skips/validate.toml"),
            include_str!("../permitted-skips/containerd.toml"),
            include_str!("../permitted-failures/runc.toml"),
        ] {
            let list = Permitted::parse(text).unwrap();
            let named = list.skip.iter().map(|entry| &entry.case);
            for name in named.chain(list.fail.iter().map(|entry| &entry.case)) {
                assert!(
                    cases.iter().any(|case| case.name == *name),
                    "{name} does not exist"
                );
            }
        }
    }
}
