//! Results as text, JSON and JUnit.

use std::fmt::Write as _;
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde::Serialize;

use crate::families::FAMILIES;
use crate::verdict::Verdict;

/// The result of one case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseResult {
    /// Its name.
    pub name: String,
    /// What must hold.
    pub says: String,
    /// Families of hostile behaviour that it covers.
    pub families: Vec<u8>,
    /// How it ended.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it took.
    pub seconds: f64,
}

/// The results of a run of the suite.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// `cases` or `controls`.
    pub what: &'static str,
    /// Every case that was selected.
    pub cases: Vec<CaseResult>,
    /// Where skips and the permitted list do not agree.
    pub disagreements: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

/// How many of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Skipped.
    pub skipped: usize,
    /// No question for what is under test.
    pub not_applicable: usize,
    /// Failed as the list of permitted failures says.
    pub as_listed: usize,
}

impl Summary {
    /// How many of each.
    pub fn counts(&self) -> Counts {
        let count = |of: fn(&Verdict) -> bool| self.cases.iter().filter(|case| of(&case.verdict)).count();
        Counts {
            passed: count(|v| matches!(v, Verdict::Passed)),
            failed: count(|v| matches!(v, Verdict::Failed { .. })),
            skipped: count(|v| matches!(v, Verdict::Skipped { .. })),
            not_applicable: count(|v| matches!(v, Verdict::NotApplicable { .. })),
            as_listed: count(|v| matches!(v, Verdict::FailedAsListed { .. })),
        }
    }

    /// Whether the whole is good: nothing failed but what is listed, something ran, and the skips are those of the list.
    pub fn good(&self) -> bool {
        let counts = self.counts();
        counts.failed == 0 && counts.passed > 0 && self.disagreements.is_empty()
    }

    /// The last lines for a person.
    pub fn text(&self) -> String {
        let counts = self.counts();
        let mut text = String::new();
        let failed = self
            .cases
            .iter()
            .filter(|case| matches!(case.verdict, Verdict::Failed { .. }));
        for case in failed {
            text.push_str(&explain(case));
        }
        let reasons = self.cases.iter().filter_map(|case| match &case.verdict {
            Verdict::Skipped { reason } => Some((case.name.as_str(), reason.as_str())),
            _ => None,
        });
        for (index, (case, reason)) in reasons.enumerate() {
            if index == 0 {
                text.push_str("\nSkipped\n");
            }
            let _ = writeln!(text, "  {case:<44} {reason}");
        }
        for (index, line) in self.disagreements.iter().enumerate() {
            if index == 0 {
                text.push_str("\nThe list of what is permitted does not agree\n");
            }
            let _ = writeln!(text, "  {line}");
        }
        let _ = write!(
            text,
            "\n{} {}: {} passed, {} failed, {} skipped",
            self.cases.len(),
            self.what,
            counts.passed,
            counts.failed,
            counts.skipped,
        );
        for (count, what) in [
            (counts.as_listed, "failed as listed"),
            (counts.not_applicable, "for others"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        let _ = writeln!(text, " in {:.1} s", self.seconds);
        if self.cases.is_empty() {
            text.push_str("Nothing was selected, so nothing was shown.\n");
        }
        text
    }

    /// One JSON document.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// JUnit's XML, a suite for each group.
    pub fn junit(&self) -> Result<String, quick_junit::SerializeError> {
        let mut report = Report::new(format!("sandglass-conformance {}", self.what));
        report.set_time(Duration::from_secs_f64(self.seconds));
        let mut groups: Vec<&str> = self.cases.iter().map(|case| group(&case.name)).collect();
        groups.dedup();
        groups.sort_unstable();
        groups.dedup();
        for name in groups {
            let mut suite = TestSuite::new(name);
            for case in self.cases.iter().filter(|case| group(&case.name) == name) {
                let status = match &case.verdict {
                    Verdict::Passed => TestCaseStatus::success(),
                    Verdict::Failed { expected, observed } => {
                        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                        status
                            .set_message(format!("expected {expected}"))
                            .set_description(format!("observed {observed}"));
                        status
                    }
                    Verdict::Skipped { reason } => {
                        let mut status = TestCaseStatus::skipped();
                        status.set_message(reason.clone());
                        status
                    }
                    Verdict::NotApplicable { to } => {
                        let mut status = TestCaseStatus::skipped();
                        status.set_message(format!("n/a: {to}"));
                        status
                    }
                    Verdict::FailedAsListed { observed, .. } => {
                        let mut status = TestCaseStatus::skipped();
                        status.set_message(format!("failed as listed: {observed}"));
                        status
                    }
                };
                let mut test = TestCase::new(case.name.clone(), status);
                test.set_classname(format!("conformance.{name}"))
                    .set_time(Duration::from_secs_f64(case.seconds));
                suite.add_test_case(test);
            }
            report.add_test_suite(suite);
        }
        if !self.disagreements.is_empty() {
            let mut suite = TestSuite::new("permitted-skips");
            for line in &self.disagreements {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(line.clone());
                suite.add_test_case(TestCase::new(line.clone(), status));
            }
            report.add_test_suite(suite);
        }
        report.to_string()
    }
}

fn group(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// The line of a case as it ends.
pub fn line(case: &CaseResult) -> String {
    match &case.verdict {
        Verdict::Passed => format!("pass  {:<46} {:>6.2} s", case.name, case.seconds),
        Verdict::Failed { .. } => format!("FAIL  {:<46} {:>6.2} s", case.name, case.seconds),
        Verdict::Skipped { reason } => format!("skip  {:<46} {:>6.2} s  {reason}", case.name, case.seconds),
        Verdict::NotApplicable { to } => format!("n/a   {:<46} {:>8}  {to}", case.name, ""),
        Verdict::FailedAsListed { .. } => format!("known {:<46} {:>6.2} s", case.name, case.seconds),
    }
}

fn family(number: u8) -> String {
    let about = FAMILIES
        .iter()
        .find(|(n, _)| *n == number)
        .map_or("unknown", |(_, about)| about);
    format!("{number}, {about}")
}

fn explain(case: &CaseResult) -> String {
    let Verdict::Failed { expected, observed } = &case.verdict else {
        return String::new();
    };
    let families = if case.families.is_empty() {
        String::new()
    } else {
        format!(
            "\n  family    {}",
            case.families
                .iter()
                .map(|n| family(*n))
                .collect::<Vec<_>>()
                .join("; ")
        )
    };
    format!(
        "\nFAIL  {}{families}\n  what      {}\n  expected  {expected}\n  observed  {}\n",
        case.name,
        case.says,
        observed.replace('\n', "\n            ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, verdict: Verdict) -> CaseResult {
        CaseResult {
            name: name.into(),
            says: "it holds".into(),
            families: vec![7],
            verdict,
            seconds: 0.5,
        }
    }

    fn summary(cases: Vec<CaseResult>) -> Summary {
        Summary {
            what: "cases",
            cases,
            disagreements: Vec::new(),
            seconds: 1.0,
        }
    }

    fn failed() -> Verdict {
        Verdict::Failed {
            expected: "EPERM".into(),
            observed: "allowed <&>".into(),
        }
    }

    #[test]
    fn nothing_selected_and_nothing_but_skips_are_not_good() {
        assert!(!summary(vec![]).good());
        assert!(!summary(vec![result("a/b", Verdict::Skipped { reason: "x".into() })]).good());
        assert!(summary(vec![result("a/b", Verdict::Passed)]).good());
        assert!(!summary(vec![result("a/b", Verdict::Passed), result("a/c", failed())]).good());
        let mut disagreeing = summary(vec![result("a/b", Verdict::Passed)]);
        disagreeing.disagreements.push("x".into());
        assert!(!disagreeing.good());
    }

    #[test]
    fn a_failure_says_what_was_expected_and_what_was_seen_in_every_form() {
        let summary = summary(vec![
            result("a/b", failed()),
            result(
                "c/d",
                Verdict::Skipped {
                    reason: "no-x".into(),
                },
            ),
        ]);
        let text = summary.text();
        assert!(
            text.contains("expected  EPERM") && text.contains("observed  allowed"),
            "{text}"
        );
        assert!(text.contains("1 failed, 1 skipped"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&summary.json().unwrap()).unwrap();
        assert_eq!(json["cases"][0]["verdict"], "failed");
        assert_eq!(json["cases"][0]["observed"], "allowed <&>");
        let junit = summary.junit().unwrap();
        assert!(
            junit.contains("expected EPERM") && junit.contains("&lt;&amp;&gt;"),
            "{junit}"
        );
        assert!(junit.contains("skipped"), "{junit}");
    }
}
