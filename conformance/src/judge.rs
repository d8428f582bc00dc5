//! What a probe's answer is worth: pure functions on values.

use nix::errno::Errno;
use nix::libc::{EACCES, ENOSYS, EPERM, SIGSYS};
use serde::Deserialize;
use serde_json::Value;

/// The usual ways to refuse a call: not permitted, or not there at all.
pub const REFUSED: &[i32] = &[EPERM, EACCES, ENOSYS];

/// The line that the prober prints.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Which probe.
    pub probe: String,
    /// What came of it.
    pub outcome: Outcome,
    /// The error number of a refusal.
    pub errno: Option<i32>,
    /// What the probe has to say.
    pub detail: Value,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It succeeded.
    Allowed,
    /// It was refused.
    Blocked,
    /// It could not be made.
    Error,
}

/// What must come of an attempt in a sandbox.
#[derive(Clone, Copy)]
pub enum Expect {
    /// Refused with one of these numbers.
    Refused(&'static [i32]),
    /// Refused with one of these numbers, or the process that tried was ended: only for a foreign ABI.
    RefusedOrEnded(&'static [i32]),
    /// Nothing was found or reached, with or without a number.
    Nothing,
    /// Refused, with or without a number, or what was found is right.
    NothingOr(fn(&Value) -> Result<(), String>),
    /// It works.
    Works,
    /// The detail is right.
    Detail(fn(&Value) -> Result<(), String>),
}

/// Finds the one line of the prober in what a script printed.
pub fn find_line(probe: &str, stdout: &str) -> Result<Line, String> {
    let mut lines = stdout.lines().filter(|line| line.starts_with("{\"probe\""));
    let line = lines
        .next()
        .ok_or_else(|| format!("no line of the prober in {:?}", shortened(stdout)))?;
    if lines.next().is_some() {
        return Err("more than one line of the prober".to_owned());
    }
    let line: Line =
        serde_json::from_str(line).map_err(|e| format!("the prober's line is not right ({e}): {line}"))?;
    if line.probe != probe {
        return Err(format!("the line is about {:?}", line.probe));
    }
    Ok(line)
}

/// Judges an answer; the error is what was observed.
pub fn judge(expect: &Expect, line: &Line) -> Result<(), String> {
    let right = match expect {
        Expect::Refused(errnos) => refused_with(line, errnos),
        Expect::RefusedOrEnded(errnos) => {
            refused_with(line, errnos)
                || line.outcome == Outcome::Blocked && line.detail.get("signal") == Some(&Value::from(SIGSYS))
        }
        Expect::Nothing => line.outcome == Outcome::Blocked,
        Expect::NothingOr(_) if line.outcome == Outcome::Blocked => true,
        Expect::Works => line.outcome == Outcome::Allowed,
        Expect::Detail(looks_right) | Expect::NothingOr(looks_right) => {
            return if line.outcome == Outcome::Allowed {
                looks_right(&line.detail)
            } else {
                Err(describe(line))
            };
        }
    };
    if right { Ok(()) } else { Err(describe(line)) }
}

fn refused_with(line: &Line, errnos: &[i32]) -> bool {
    line.outcome == Outcome::Blocked && line.errno.is_some_and(|errno| errnos.contains(&errno))
}

/// An expectation in words.
pub fn words(expect: &Expect) -> String {
    match expect {
        Expect::Refused(errnos) => format!("refused with {}", names(errnos)),
        Expect::RefusedOrEnded(errnos) => format!("refused with {}, or ended by SIGSYS", names(errnos)),
        Expect::Nothing => "nothing found or reached".to_owned(),
        Expect::NothingOr(_) => "refused, or the right values".to_owned(),
        Expect::Works => "it works".to_owned(),
        Expect::Detail(_) => "the right values".to_owned(),
    }
}

/// An answer in words.
pub fn describe(line: &Line) -> String {
    let detail = match &line.detail {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let detail = shortened(&detail);
    match (line.outcome, line.errno) {
        (Outcome::Allowed, _) => format!("allowed: {detail}"),
        (Outcome::Blocked, Some(errno)) => format!("blocked with {} ({detail})", name(errno)),
        (Outcome::Blocked, None) => format!("blocked without an error number ({detail})"),
        (Outcome::Error, _) => format!("the probe could not be made: {detail}"),
    }
}

/// Error numbers by name.
pub fn names(errnos: &[i32]) -> String {
    errnos
        .iter()
        .map(|errno| name(*errno))
        .collect::<Vec<_>>()
        .join(" or ")
}

fn name(errno: i32) -> String {
    match Errno::from_raw(errno) {
        Errno::UnknownErrno => format!("error {errno}"),
        known => format!("{known:?}"),
    }
}

/// A text that fits on a screen.
pub fn shortened(text: &str) -> String {
    const MOST: usize = 600;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start}… ({} bytes)", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(outcome: Outcome, errno: Option<i32>, detail: Value) -> Line {
        Line {
            probe: "p".into(),
            outcome,
            errno,
            detail,
        }
    }

    #[test]
    fn only_the_right_number_is_a_refusal() {
        let enosys = Expect::Refused(&[ENOSYS]);
        assert!(judge(&enosys, &line(Outcome::Blocked, Some(ENOSYS), Value::Null)).is_ok());
        assert!(judge(&enosys, &line(Outcome::Blocked, Some(EPERM), Value::Null)).is_err());
        assert!(judge(&enosys, &line(Outcome::Blocked, None, Value::Null)).is_err());
        assert!(judge(&enosys, &line(Outcome::Allowed, None, Value::Null)).is_err());
        assert!(judge(&enosys, &line(Outcome::Error, Some(ENOSYS), Value::Null)).is_err());
    }

    #[test]
    fn a_kill_counts_only_for_a_foreign_abi_and_only_by_sigsys() {
        let ended = |signal: i32| line(Outcome::Blocked, None, json!({ "signal": signal }));
        assert!(judge(&Expect::RefusedOrEnded(REFUSED), &ended(SIGSYS)).is_ok());
        assert!(judge(&Expect::RefusedOrEnded(REFUSED), &ended(11)).is_err());
        assert!(judge(&Expect::Refused(REFUSED), &ended(SIGSYS)).is_err());
    }

    #[test]
    fn a_probe_that_could_not_be_made_never_passes() {
        let broken = line(Outcome::Error, None, json!("unsupported"));
        for expect in [
            Expect::Refused(REFUSED),
            Expect::RefusedOrEnded(REFUSED),
            Expect::Nothing,
            Expect::Works,
            Expect::Detail(|_| Ok(())),
            Expect::NothingOr(|_| Ok(())),
        ] {
            assert!(judge(&expect, &broken).is_err());
        }
    }

    #[test]
    fn what_may_be_refused_is_judged_where_it_was_not() {
        let only_one = Expect::NothingOr(|detail| match detail.as_i64() {
            Some(1) => Ok(()),
            _ => Err("another".to_owned()),
        });
        assert!(judge(&only_one, &line(Outcome::Blocked, Some(EPERM), Value::Null)).is_ok());
        assert!(judge(&only_one, &line(Outcome::Allowed, None, json!(1))).is_ok());
        assert!(judge(&only_one, &line(Outcome::Allowed, None, json!(2))).is_err());
    }

    #[test]
    fn exactly_one_line_about_the_right_probe_is_taken() {
        let good = r#"{"probe": "p", "outcome": "allowed", "errno": null, "detail": 1}"#;
        assert_eq!(
            find_line("p", &format!("noise\n{good}\n")).unwrap().outcome,
            Outcome::Allowed
        );
        assert!(find_line("p", "").is_err());
        assert!(find_line("p", &format!("{good}\n{good}\n")).is_err());
        assert!(find_line("q", good).is_err());
        assert!(
            find_line(
                "p",
                r#"{"probe": "p", "outcome": "fine", "errno": null, "detail": 1}"#
            )
            .is_err()
        );
    }
}
