//! Each way for a script to end is told as what it was, and nothing of it is left.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod common;

use std::time::{Duration, Instant};

use common::{Outer, is_anywhere, job, perl, run, run_with, shell};
use sandglass_run::Language;
use sandglass_run::protocol::{FailureCode, Job};

#[test]
fn every_exit_status_comes_back_as_it_was() {
    for code in 0..=255 {
        let outcome = run(&shell(&format!("exit {code}")));
        let exit = outcome.exit();
        assert_eq!(
            (exit.code, exit.signal, exit.timed_out),
            (Some(code), None, false)
        );
        assert!(outcome.success);
    }
}

#[test]
fn a_signal_of_its_own_comes_back_as_a_signal() {
    for signal in [1, 2, 3, 6, 8, 9, 11, 13, 14, 15, 24, 34, 64] {
        let outcome = run(&shell(&format!("kill -{signal} $$; sleep 10")));
        let exit = outcome.exit();
        assert_eq!(
            (exit.code, exit.signal, exit.timed_out),
            (None, Some(signal), false)
        );
    }
}

#[test]
fn the_wall_clock_kills_a_family_that_hides_and_still_collects() {
    let hidden = "86401.25";
    let script = format!(
        r#"
        $SIG{{TERM}} = $SIG{{HUP}} = $SIG{{INT}} = 'IGNORE';
        use POSIX ();
        if (!fork) {{ POSIX::setsid(); if (!fork) {{ exec 'sleep', '{hidden}' }} exit 0 }}
        open my $f, '>', '/out/kept' or die; print $f 'kept'; close $f;
        $| = 1; print 'started';
        1 while 1;
        "#
    );
    let outcome = run(&Job {
        wall_ms: 700,
        ..perl(&script)
    });
    let exit = outcome.exit();
    assert_eq!((exit.code, exit.signal, exit.timed_out), (None, Some(9), true));
    assert!((700..1_000).contains(&exit.run_ms), "{} ms", exit.run_ms);
    assert_eq!(exit.killed_leftovers, 1);
    assert_eq!(outcome.text(), "started");
    assert_eq!(outcome.artifacts[0].1, b"kept");
    assert!(!is_anywhere(hidden));
}

#[test]
fn the_wall_clock_is_kept_to_the_millisecond_or_so() {
    for wall_ms in [50, 200, 333] {
        let outcome = run(&Job {
            wall_ms,
            ..shell("while :; do :; done")
        });
        assert!(outcome.exit().timed_out);
        let late = outcome.exit().run_ms - wall_ms;
        // Other tests share the processors.
        assert!(late < 250, "{late} ms late");
    }
}

#[test]
fn a_stopped_script_meets_the_wall_clock_too() {
    let outcome = run(&Job {
        wall_ms: 300,
        ..shell("kill -STOP $$")
    });
    assert!(outcome.exit().timed_out);
}

#[test]
fn what_a_script_leaves_behind_is_killed_and_holds_nothing_up() {
    let left = "86402.25";
    let start = Instant::now();
    // It holds the script's output open and ignores what can be ignored.
    let outcome = run(&shell(&format!(
        "trap '' TERM HUP; setsid sleep {left} & echo done; exit 7"
    )));
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(
        (outcome.exit().code, outcome.exit().killed_leftovers),
        (Some(7), 1)
    );
    assert_eq!(outcome.text(), "done\n");
    assert!(!is_anywhere(left));
}

#[test]
fn orphans_are_reaped_while_the_script_runs() {
    let script = "for i in $(seq 50); do (setsid true &) ; done; sleep 0.3; grep -l '^State:.Z' /proc/[0-9]*/status; true";
    let outcome = run(&shell(script));
    assert_eq!(outcome.text(), "", "no zombie is left");
    assert_eq!(outcome.exit().killed_leftovers, 0);
}

#[test]
fn a_fork_bomb_ends_at_the_wall_clock() {
    // As many as the user may have: nothing else bounds them in this test.
    let script = "use POSIX (); setrlimit(0); 1; while (1) { fork }";
    let script = script.replace("setrlimit(0); 1; ", "my $n = 0; ");
    let bomb = format!("ulimit -u 200; exec perl -e '{script}'");
    let outcome = run(&Job {
        wall_ms: 500,
        ..shell(&bomb)
    });
    assert!(outcome.exit().timed_out);
    assert!(outcome.success);
}

#[test]
fn signals_from_inside_do_not_reach_the_runner() {
    let outcome = run(&perl(
        "for my $s (1..64) { kill $s, 1 } sleep 1 if 0; print 'alive'",
    ));
    assert_eq!((outcome.text(), outcome.exit().code), ("alive", Some(0)));
    assert!(outcome.success);
}

#[test]
fn the_end_of_the_outer_side_kills_everything() {
    let word = "86403.25";
    let mut outer = Outer::start();
    outer.stage(&shell(&format!("setsid sleep {word} & sleep {word}")), &[]);
    outer.ready();
    outer.go();
    let seen = Instant::now();
    while !is_anywhere(word) {
        assert!(
            seen.elapsed() < Duration::from_secs(10),
            "the script never started"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    outer.to = None;
    assert!(outer.ends_within(Duration::from_secs(5)));
    assert!(!is_anywhere(word));
}

#[test]
fn the_end_of_the_outer_side_ends_a_runner_that_waits() {
    let mut outer = Outer::start();
    outer.to = None;
    assert!(outer.ends_within(Duration::from_secs(5)));
    let mut outer = Outer::start();
    outer.stage(&shell("true"), &[]);
    outer.ready();
    outer.to = None;
    assert!(outer.ends_within(Duration::from_secs(5)));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let outcome = run(&job(Language::Exec, &["no-such-program"]));
    let failed = outcome.failed.as_ref().unwrap();
    assert_eq!(failed.code, FailureCode::ProgramMissing);
    assert!(failed.message.contains("no-such-program"));
    assert!(outcome.exit.is_none() && !outcome.success);
}

#[test]
fn a_program_that_cannot_be_executed_is_told_apart() {
    // Scratch is not executable, whatever the mode says.
    let outcome = run_with(&job(Language::Exec, &["/work/tool"]), &[("tool", b"#!/bin/sh\n")]);
    assert_eq!(outcome.failed.unwrap().code, FailureCode::Spawn);
}

#[test]
fn usage_is_measured() {
    let outcome = run(&perl(
        "my $x = 'x' x 50_000_000; my $t = times; 1 while times - $t < 0.3",
    ));
    let usage = outcome.exit().usage;
    assert!((250..2_000).contains(&usage.cpu_ms), "{} ms", usage.cpu_ms);
    assert!(usage.max_rss_bytes > 50_000_000, "{} bytes", usage.max_rss_bytes);
}
