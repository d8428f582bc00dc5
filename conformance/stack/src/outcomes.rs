//! What a run of critest said, by the name of each spec.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::error::{Result, StackError};

/// How a spec ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It did not: failed, panicked, timed out, was interrupted.
    Failed,
    /// It was not run, by our choice or its own.
    Skipped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

/// One run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes(pub BTreeMap<String, Outcome>);

/// Ginkgo's JSON report, as much of it as is wanted.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    spec_reports: Vec<Spec>,
    #[serde(default)]
    special_suite_failure_reasons: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
}

impl Outcomes {
    /// Reads Ginkgo's JSON report.
    ///
    /// # Errors
    /// Where it is not one, where the run as a whole did not work, and where two specs have one name.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(StackError::at("Reading", path))?;
        Self::parse(&text).map_err(|why| StackError::Corrupt {
            path: path.display().to_string(),
            why,
        })
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let suites: Vec<Suite> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut outcomes = BTreeMap::new();
        for suite in suites {
            // A failed spec is no such reason; an interruption or a timeout of the whole is.
            for reason in suite.special_suite_failure_reasons.unwrap_or_default() {
                if !reason.contains("Detected") {
                    return Err(format!("the run was not whole: {reason}"));
                }
            }
            for spec in suite.spec_reports {
                if spec.leaf_node_type != "It" {
                    if !matches!(spec.state.as_str(), "passed" | "skipped" | "") {
                        return Err(format!("{} of the run {}", spec.leaf_node_type, spec.state));
                    }
                    continue;
                }
                let name = spec.name();
                if outcomes.insert(name.clone(), spec.outcome()).is_some() {
                    return Err(format!("two specs are called {name:?}"));
                }
            }
        }
        Ok(Self(outcomes))
    }

    /// How many ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.0.values().filter(|found| **found == outcome).count()
    }

    /// Whether this spec passed.
    pub fn passed(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Outcome::Passed)
    }
}

impl Spec {
    fn name(&self) -> String {
        let mut words: Vec<&str> = self
            .container_hierarchy_texts
            .iter()
            .flatten()
            .map(String::as_str)
            .collect();
        words.push(&self.leaf_node_text);
        words.join(" ")
    }

    fn outcome(&self) -> Outcome {
        match self.state.as_str() {
            "passed" => Outcome::Passed,
            "skipped" | "pending" => Outcome::Skipped,
            _ => Outcome::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(specs: &str) -> String {
        format!(r#"[{{"SuiteSucceeded":false,"SpecialSuiteFailureReasons":null,"SpecReports":[{specs}]}}]"#)
    }

    fn spec(kind: &str, name: &str, state: &str) -> String {
        format!(
            r#"{{"ContainerHierarchyTexts":["[k8s.io] A","b"],"LeafNodeType":"{kind}","LeafNodeText":"{name}","State":"{state}"}}"#
        )
    }

    #[test]
    fn specs_are_read_by_name_and_whatever_is_not_passed_or_skipped_failed() {
        let states = [
            "passed",
            "failed",
            "skipped",
            "panicked",
            "timedout",
            "interrupted",
        ];
        let specs: Vec<_> = states.iter().map(|state| spec("It", state, state)).collect();
        let outcomes = Outcomes::parse(&report(&specs.join(","))).unwrap();
        assert!(outcomes.passed("[k8s.io] A b passed"));
        assert_eq!(outcomes.0["[k8s.io] A b skipped"], Outcome::Skipped);
        assert_eq!(outcomes.count(Outcome::Failed), 4);
        assert!(!outcomes.passed("[k8s.io] A b nowhere"));
    }

    #[test]
    fn a_run_that_was_not_whole_is_no_result() {
        let timed_out = r#"[{"SpecialSuiteFailureReasons":["Suite Timeout Elapsed"],"SpecReports":[]}]"#;
        assert!(Outcomes::parse(timed_out).unwrap_err().contains("Timeout"));
        let before = report(&spec("BeforeSuite", "", "failed"));
        assert!(Outcomes::parse(&before).unwrap_err().contains("BeforeSuite"));
    }

    #[test]
    fn two_specs_of_one_name_cannot_be_compared() {
        let twice = report(&[spec("It", "x", "passed"), spec("It", "x", "failed")].join(","));
        assert!(Outcomes::parse(&twice).unwrap_err().contains("two specs"));
    }
}
