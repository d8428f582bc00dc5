//! Runs cases and controls, with a look at the host after each.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::case::{Body, Case, Probe, Work};
use crate::context::{Canary, Config, Context};
use crate::control::{Unconfined, judge_control};
use crate::judge::{describe, find_line, judge, words};
use crate::leak::Watch;
use crate::nothing::{MUST_FAIL, MUST_PASS};
use crate::output::{CaseResult, line};
use crate::verdict::{Stop, Verdict, check};

/// Runs the cases, `jobs` at once; those that must be alone come last. With one job the host is compared after every
/// case, with more only when all of them have ended.
pub fn run(
    cases: &[Case],
    config: &Config,
    canary: &Canary,
    watch: &Watch,
    jobs: usize,
    quiet: bool,
) -> Vec<CaseResult> {
    let before = watch.look();
    let (together, alone): (Vec<_>, Vec<_>) = cases
        .iter()
        .enumerate()
        .partition(|(_, case)| jobs > 1 && !case.alone);
    let mut results: Vec<(usize, CaseResult)> = Vec::new();
    if !together.is_empty() {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while let Some((number, case)) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let result = timed(case, || one(case, config, canary, *number));
                        let result = known(result, config);
                        say(&result, quiet);
                        if let Ok(mut done) = done.lock() {
                            done.push((*number, result));
                        }
                    }
                });
            }
        });
        results.extend(done.into_inner().unwrap_or_default());
        let left = watch.compare(&before);
        let whole = CaseResult {
            name: "leak/after-the-parallel-cases".to_owned(),
            says: "nothing is left on the host".to_owned(),
            families: vec![65],
            verdict: leak_verdict(&left),
            seconds: 0.0,
        };
        say(&whole, quiet);
        results.push((usize::MAX - 1, whole));
    }
    for (number, case) in alone {
        let result = timed(case, || {
            let before = watch.look();
            let verdict = one(case, config, canary, number);
            let left = watch.compare(&before);
            match verdict {
                Verdict::Failed { expected, observed } if !left.is_empty() => Verdict::Failed {
                    expected,
                    observed: format!("{observed}; left on the host: {}", left.join("; ")),
                },
                failed @ Verdict::Failed { .. } => failed,
                _ if !left.is_empty() => leak_verdict(&left),
                verdict => verdict,
            }
        });
        let result = known(result, config);
        say(&result, quiet);
        results.push((number, result));
    }
    let left = watch.compare(&before);
    if !cases.is_empty() {
        let end = CaseResult {
            name: "leak/at-the-end".to_owned(),
            says: "nothing is left on the host".to_owned(),
            families: vec![65],
            verdict: leak_verdict(&left),
            seconds: 0.0,
        };
        say(&end, quiet);
        results.push((usize::MAX, end));
    }
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs the control of every probe.
pub fn validate(
    cases: &[Case],
    canary: &Canary,
    unconfined: &Unconfined,
    watch: &Watch,
    quiet: bool,
) -> Vec<CaseResult> {
    let mut results = Vec::new();
    for case in cases {
        let Body::Probe(probe) = &case.body else { continue };
        let result = timed(case, || {
            let before = watch.look();
            let verdict = match unconfined.probe(&probe.args, &probe.control, canary) {
                Ok(line) if is_unsupported(&line) => Verdict::Skipped {
                    reason: "not-on-this-machine".to_owned(),
                },
                Ok(line) => judge_control(probe, &line),
                Err(observed) => Verdict::Failed {
                    expected: "the control can be run".to_owned(),
                    observed,
                },
            };
            let left = watch.compare(&before);
            if left.is_empty() {
                verdict
            } else {
                leak_verdict(&left)
            }
        });
        say(&result, quiet);
        results.push(result);
    }
    results
}

/// Runs the cases that are code against a driver that confines nothing: the hostile ones must fail on it.
pub fn against_nothing(
    cases: &[Case],
    config: &Config,
    canary: &Canary,
    watch: &Watch,
    quiet: bool,
) -> Vec<CaseResult> {
    let mut results = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let name = case.name.as_str();
        let (must_fail, must_pass) = (MUST_FAIL.contains(&name), MUST_PASS.contains(&name));
        if !must_fail && !must_pass {
            continue;
        }
        let result = timed(case, || {
            let before = watch.look();
            let verdict = turned(one(case, config, canary, number), must_fail);
            let left = watch.compare(&before);
            if left.is_empty() {
                verdict
            } else {
                leak_verdict(&left)
            }
        });
        say(&result, quiet);
        results.push(result);
    }
    results
}

/// What the verdict of a case against nothing says about the case.
fn turned(verdict: Verdict, must_fail: bool) -> Verdict {
    match verdict {
        Verdict::Failed { .. } if must_fail => Verdict::Passed,
        Verdict::Passed if must_fail => Verdict::Failed {
            expected: "the case fails against a driver that confines nothing".to_owned(),
            observed: "it passed".to_owned(),
        },
        other => other,
    }
}

fn is_unsupported(line: &crate::judge::Line) -> bool {
    line.outcome == crate::judge::Outcome::Error
        && line
            .detail
            .as_str()
            .is_some_and(|text| text.starts_with("unsupported"))
}

fn leak_verdict(left: &[String]) -> Verdict {
    if left.is_empty() {
        return Verdict::Passed;
    }
    Verdict::Failed {
        expected: "nothing is left on the host".to_owned(),
        observed: left.join("\n"),
    }
}

fn timed(case: &Case, run: impl FnOnce() -> Verdict) -> CaseResult {
    let started = Instant::now();
    let verdict = run();
    CaseResult {
        name: case.name.clone(),
        says: case.says.clone(),
        families: case.families.to_vec(),
        verdict,
        seconds: started.elapsed().as_secs_f64(),
    }
}

/// The result with the list of permitted failures in mind.
fn known(result: CaseResult, config: &Config) -> CaseResult {
    CaseResult {
        verdict: config.permitted.known(&result.name, result.verdict),
        ..result
    }
}

fn say(result: &CaseResult, quiet: bool) {
    if !quiet {
        println!("{}", line(result));
    }
}

fn one(case: &Case, config: &Config, canary: &Canary, number: usize) -> Verdict {
    if let Some(to) = case.needs.iter().find_map(|need| config.is_for_others(*need)) {
        return Verdict::NotApplicable { to: to.to_owned() };
    }
    if let Some(reason) = case.needs.iter().find_map(|need| config.lacks(*need)) {
        return Verdict::Skipped {
            reason: reason.to_owned(),
        };
    }
    let context = match Context::new(config, canary, &case.name, number) {
        Ok(context) => context,
        Err(error) => return Verdict::from(Err(Stop::from(error))),
    };
    let verdict = Verdict::from(match &case.body {
        Body::Probe(probe) => run_probe(probe, &context),
        Body::Code(run) => run(&context),
        Body::Work(work) => run_work(work, &context),
    });
    // Large inputs and outputs of one case must not fill the disk for the next.
    let _ = std::fs::remove_dir_all(&context.dir);
    verdict
}

fn run_probe(probe: &Probe, context: &Context<'_>) -> Result<(), Stop> {
    let args = context.fill_in(&probe.args);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = context.prober(&args)?.words(probe.flags).go()?;
    let stdout = ended.succeeded()?;
    let name = args.first().copied().unwrap_or_default();
    let line = find_line(name, stdout).map_err(|e| Stop::failed("one line of the prober", e))?;
    if is_unsupported(&line) {
        return Err(Stop::Skipped("not-on-this-machine".to_owned()));
    }
    judge(&probe.expect, &line).map_err(|observed| {
        let shown = describe(&line);
        let observed = if observed == shown {
            shown
        } else {
            format!("{observed}; {shown}")
        };
        Stop::failed(words(&probe.expect), observed)
    })
}

fn run_work(work: &Work, context: &Context<'_>) -> Result<(), Stop> {
    let out = context.subdir("out")?;
    let ended = context
        .script(work.file, work.text)?
        .words(work.flags)
        .flag("--out", &out)
        .go()?;
    let stdout = ended.succeeded()?;
    let last = stdout.trim_end().lines().last().unwrap_or_default();
    let checks = last
        .strip_prefix("work ok: ")
        .and_then(|n| n.strip_suffix(" checks"))
        .and_then(|n| n.parse().ok());
    check(
        checks.is_some_and(|n: u32| n > 0),
        "the script ends with how many of its checks held",
        format!("its last line is {last:?}"),
    )?;
    let errors = ended.report()?.stderr.text().unwrap_or("(base64)");
    check(!errors.contains("font cache"), "no wait for a font cache", errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_case_that_passes_against_nothing_is_a_failure() {
        let failed = || Verdict::Failed {
            expected: String::new(),
            observed: String::new(),
        };
        assert_eq!(turned(failed(), true), Verdict::Passed);
        assert!(matches!(turned(Verdict::Passed, true), Verdict::Failed { .. }));
        assert_eq!(turned(Verdict::Passed, false), Verdict::Passed);
        assert!(matches!(turned(failed(), false), Verdict::Failed { .. }));
        let skipped = Verdict::Skipped { reason: "x".into() };
        assert_eq!(turned(skipped.clone(), true), skipped);
    }
}
