//! How a run ended, from what every part said about it. A function on values.

use sandglass_run::protocol::{Exit, Failed, FailureCode};
use sandglass_run::{RunError, Status};

use crate::admission::capitalised;
use crate::refusal::Refusal;

/// Why the conversation with the runner is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// All is said: `End` came.
    Said,
    /// The person cancelled, and we killed the sandbox.
    Cancelled,
    /// The wall clock and the grace behind it were over, and we killed the sandbox.
    WallClock,
    /// A phase other than the script's own took longer than it may, and we killed the sandbox.
    Stalled(&'static str),
    /// We refused before the script started.
    Refused(Refusal),
    /// The runner gave up.
    Failed(Failed),
    /// The runner broke the protocol: what came cannot be trusted.
    Broken(String),
    /// The channel closed before all was said.
    Vanished,
}

/// Everything that bears on how a run ended.
#[derive(Debug)]
pub struct Facts<'a> {
    /// Why the conversation is over.
    pub stop: &'a Stop,
    /// Whether the script's process was there.
    pub started: bool,
    /// What the runner said about the script's end.
    pub exit: Option<&'a Exit>,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: u64,
    /// How the runner itself ended, in words: for the case that nothing else is known.
    pub runner_end: &'a str,
}

/// The part of a report that says how it ended.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// The script's own exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended the script by its own doing.
    pub signal: Option<i32>,
    /// Set when it was refused or lost.
    pub error: Option<RunError>,
}

/// Decides how a run ended.
///
/// The order is the promise: that *we* ended it (cancelled, wall clock) comes before the kernel's OOM killer,
/// whose SIGKILL looks the same, and that comes before the script's own exit or signal. A run in which the
/// kernel killed any process for want of memory is out of memory even if the script itself went on: what it
/// says about its results was said without the part that was killed.
pub fn decide(facts: &Facts<'_>) -> Outcome {
    let known = |status| Outcome {
        status,
        exit_code: None,
        signal: None,
        error: None,
    };
    let with_error = |status, code: &str, message: String, hint: &str| Outcome {
        error: Some(RunError {
            code: code.into(),
            message,
            hint: hint.into(),
        }),
        ..known(status)
    };
    match facts.stop {
        Stop::Cancelled => return known(Status::Cancelled),
        Stop::WallClock => return known(Status::TimedOut),
        Stop::Refused(r) => return with_error(Status::Refused, r.code, r.message.clone(), &r.hint),
        _ => {}
    }
    if facts.exit.is_some_and(|e| e.timed_out) {
        return match facts.stop {
            Stop::Said => known(Status::TimedOut),
            // The reason is known; what is not is whether all artifacts came, and that is said beside it.
            stop => Outcome {
                error: Some(lost(stop, facts)),
                ..known(Status::TimedOut)
            },
        };
    }
    if facts.oom_kills > 0 {
        return known(Status::OutOfMemory);
    }
    match (facts.stop, facts.exit) {
        (Stop::Said, Some(exit)) => Outcome {
            status: if exit.code == Some(0) {
                Status::Succeeded
            } else {
                Status::Failed
            },
            exit_code: exit.code,
            signal: exit.signal,
            error: None,
        },
        (Stop::Failed(f), None) if !facts.started => {
            let (code, hint) = not_started(f.code);
            let message = format!("The script was not started: {}.", f.message.trim_end_matches('.'));
            with_error(Status::Refused, code, message, hint)
        }
        (Stop::Stalled(phase), None) if !facts.started => with_error(
            Status::Refused,
            "stalled",
            format!("The script was not started: {phase} took too long, so the sandbox was killed."),
            "Try again; if it stays like this, look at the load of the host.",
        ),
        (stop, _) => Outcome {
            error: Some(lost(stop, facts)),
            ..known(Status::Lost)
        },
    }
}

/// The error of a run about whose end nothing, or not enough, is known.
fn lost(stop: &Stop, facts: &Facts<'_>) -> RunError {
    let (code, what) = match stop {
        Stop::Failed(f) => (
            "runner_failed",
            format!("the runner gave up: {}", f.message.trim_end_matches('.')),
        ),
        Stop::Broken(why) => (
            "protocol_broken",
            format!("the runner broke the protocol: {}", why.trim_end_matches('.')),
        ),
        Stop::Stalled(phase) => (
            "stalled",
            format!("{phase} took too long, so the sandbox was killed"),
        ),
        _ => ("sandbox_vanished", "the sandbox vanished".to_owned()),
    };
    let when = match (facts.started, facts.exit) {
        (_, Some(Exit { code: Some(code), .. })) => {
            format!("after the script had ended with exit code {code}, before all of /out was collected")
        }
        (
            _,
            Some(Exit {
                signal: Some(signal), ..
            }),
        ) => {
            format!("after the script had ended by signal {signal}, before all of /out was collected")
        }
        (_, Some(_)) => "after the script had ended, before all of /out was collected".to_owned(),
        (true, None) => "while the script was running".to_owned(),
        (false, None) => "before the script was started".to_owned(),
    };
    RunError {
        code: code.into(),
        message: format!(
            "{} {when} ({}).",
            capitalised(&what),
            facts.runner_end.trim_end_matches('.')
        ),
        hint: "Nothing of it is left; run it again, and look at the log with --log-level debug.".into(),
    }
}

/// The code and the hint for a runner that did not start the script.
fn not_started(code: FailureCode) -> (&'static str, &'static str) {
    const DEFECT: &str = "Run `sandglass doctor`; if it finds nothing, this is a defect worth reporting.";
    match code {
        FailureCode::StagingNoSpace => (
            "inputs_no_space",
            "Give the run more room with --scratch, or smaller inputs.",
        ),
        FailureCode::Staging => ("staging_failed", DEFECT),
        FailureCode::ProgramMissing => (
            "program_missing",
            "Check the image with `sandglass image verify`, or name another with --image.",
        ),
        FailureCode::Spawn => (
            "spawn_failed",
            "Give the run more with --pids or --memory; its limits may be too tight to start at all.",
        ),
        FailureCode::NotPid1 | FailureCode::Protocol | FailureCode::ProcessesLeft | FailureCode::Internal => {
            ("runner_failed", DEFECT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandglass_run::protocol::ExitUsage;

    fn exit(code: Option<i32>, signal: Option<i32>, timed_out: bool) -> Exit {
        let usage = ExitUsage {
            cpu_ms: 0,
            max_rss_bytes: 0,
            processes_peak: None,
        };
        Exit {
            code,
            signal,
            timed_out,
            run_ms: 1,
            usage,
            killed_leftovers: 0,
        }
    }

    fn outcome(stop: Stop, started: bool, exit: Option<Exit>, oom_kills: u64) -> Outcome {
        decide(&Facts {
            stop: &stop,
            started,
            exit: exit.as_ref(),
            oom_kills,
            runner_end: "killed by signal 9",
        })
    }

    #[test]
    fn an_exit_code_and_a_signal_of_its_own_are_told_as_they_were() {
        for code in 0..=255 {
            let o = outcome(Stop::Said, true, Some(exit(Some(code), None, false)), 0);
            assert_eq!((o.exit_code, o.signal, o.error), (Some(code), None, None));
            assert_eq!(
                o.status,
                if code == 0 {
                    Status::Succeeded
                } else {
                    Status::Failed
                }
            );
        }
        for signal in 1..=64 {
            let o = outcome(Stop::Said, true, Some(exit(None, Some(signal), false)), 0);
            assert_eq!(
                (o.status, o.exit_code, o.signal),
                (Status::Failed, None, Some(signal))
            );
        }
    }

    #[test]
    fn what_we_killed_is_never_called_out_of_memory() {
        for oom in [0, 3] {
            let killed = || Some(exit(None, Some(9), true));
            assert_eq!(outcome(Stop::Said, true, killed(), oom).status, Status::TimedOut);
            assert_eq!(outcome(Stop::WallClock, true, None, oom).status, Status::TimedOut);
            assert_eq!(
                outcome(Stop::Cancelled, true, None, oom).status,
                Status::Cancelled
            );
            assert_eq!(
                outcome(Stop::Cancelled, true, killed(), oom).status,
                Status::Cancelled
            );
        }
    }

    #[test]
    fn the_kernels_oom_comes_before_the_scripts_own_end() {
        for end in [
            Some(exit(None, Some(9), false)),
            Some(exit(Some(1), None, false)),
            None,
        ] {
            let o = outcome(Stop::Said, true, end, 1);
            assert_eq!(
                (o.status, o.exit_code, o.signal, o.error),
                (Status::OutOfMemory, None, None, None)
            );
        }
        assert_eq!(outcome(Stop::Vanished, true, None, 1).status, Status::OutOfMemory);
        let killed = outcome(Stop::Said, true, Some(exit(None, Some(9), false)), 0);
        assert_eq!(
            killed.status,
            Status::Failed,
            "a SIGKILL without an OOM is the script's own"
        );
    }

    #[test]
    fn a_sandbox_that_vanished_is_lost_and_says_when() {
        let o = outcome(Stop::Vanished, true, None, 0);
        let e = o.error.unwrap();
        assert_eq!((o.status, e.code.as_str()), (Status::Lost, "sandbox_vanished"));
        assert!(
            e.message.contains("while the script was running") && e.message.contains("signal 9"),
            "{e:?}"
        );
        let o = outcome(Stop::Vanished, false, None, 0);
        assert!(o.error.unwrap().message.contains("before the script was started"));
    }

    #[test]
    fn a_success_whose_artifacts_did_not_all_come_is_no_success() {
        for stop in [
            Stop::Vanished,
            Stop::Broken("order".into()),
            Stop::Stalled("collecting"),
        ] {
            let o = outcome(stop, true, Some(exit(Some(0), None, false)), 0);
            assert_eq!(o.status, Status::Lost);
            assert!(o.error.unwrap().message.contains("exit code 0"));
        }
    }

    #[test]
    fn a_runner_that_gave_up_before_the_start_is_a_refusal_with_a_reason() {
        for (code, word) in [
            (FailureCode::StagingNoSpace, "inputs_no_space"),
            (FailureCode::ProgramMissing, "program_missing"),
            (FailureCode::Spawn, "spawn_failed"),
            (FailureCode::Internal, "runner_failed"),
        ] {
            let o = outcome(
                Stop::Failed(Failed {
                    code,
                    message: "no".into(),
                }),
                false,
                None,
                0,
            );
            assert_eq!(
                (o.status, o.error.unwrap().code.as_str()),
                (Status::Refused, word)
            );
        }
        let failed = Failed {
            code: FailureCode::ProcessesLeft,
            message: "no".into(),
        };
        assert_eq!(outcome(Stop::Failed(failed), true, None, 0).status, Status::Lost);
    }

    #[test]
    fn refusals_of_our_own_pass_as_they_are() {
        let o = outcome(
            Stop::Refused(Refusal::new("control_missing", "m.", "h.")),
            false,
            None,
            0,
        );
        let e = o.error.unwrap();
        assert_eq!(
            (o.status, e.code.as_str(), e.hint.as_str()),
            (Status::Refused, "control_missing", "h.")
        );
        assert_eq!(
            outcome(Stop::Stalled("staging"), false, None, 0).status,
            Status::Refused
        );
    }

    #[test]
    fn a_time_out_whose_artifacts_did_not_all_come_says_so() {
        let o = outcome(Stop::Vanished, true, Some(exit(None, Some(9), true)), 0);
        assert_eq!(o.status, Status::TimedOut);
        assert!(o.error.is_some());
    }
}
