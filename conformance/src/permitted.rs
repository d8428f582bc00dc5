//! The list of skips that are permitted, compared both ways: a skip that is not on it fails the suite, and so does an
//! entry that no longer happens.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::verdict::Verdict;

/// The list, as it is in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permitted {
    #[serde(default)]
    skip: Vec<Entry>,
}

/// One permitted skip.
#[derive(Debug, Deserialize)]
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
        if let Some(entry) = list.skip.iter().find(|entry| entry.because.trim().len() < 10) {
            return Err(format!(
                "the entry for {} does not say why it is permitted",
                entry.case
            ));
        }
        Ok(list)
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
                None => {}
                Some(Verdict::Skipped { reason }) if *reason == entry.reason => {}
                Some(_) => found.push(format!(
                    "the list permits that {} is skipped ({}), but it was not: take the entry out",
                    entry.case, entry.reason
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
        ] {
            for entry in Permitted::parse(text).unwrap().skip {
                assert!(
                    cases.iter().any(|case| case.name == entry.case),
                    "{} does not exist",
                    entry.case
                );
            }
        }
    }
}
