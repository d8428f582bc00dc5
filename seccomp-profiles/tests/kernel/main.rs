//! The compiled profile in a real kernel: each check runs in a child of this program that installs the filters.
//!
//! A check that is refused also runs without filters, as a control, wherever that needs no privilege: what fails
//! anyway proves nothing.

// The allowance for tests covers only functions with #[test], not what they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use sandglass_seccomp::{Arch, oci};

mod checks;
#[cfg(target_arch = "x86_64")]
mod foreign;

/// First argument of the children: install the filters, or do not.
const CONFINED: &str = "--confined-child";
const CONTROL: &str = "--control-child";
/// As [`CONFINED`], with a translated OCI section installed before.
const STACKED: &str = "--stacked-child";
/// Second argument of a child that is to become another program.
const EXEC: &str = "exec";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some(CONTROL) => child(&args[2..], || Ok(())),
        Some(CONFINED) => child(&args[2..], install),
        Some(STACKED) => child(&args[2..], || install_section().and_then(|()| install())),
        _ => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

fn child(args: &[String], install: fn() -> io::Result<()>) -> ExitCode {
    if let Err(error) = install() {
        eprintln!("installing: {error}");
        return ExitCode::from(101);
    }
    if args[0] == EXEC {
        eprintln!("{}: {}", args[1], Command::new(&args[1]).args(&args[2..]).exec());
        return ExitCode::from(102);
    }
    match checks::by_name(&args[0]).and_then(|check| (check.call)()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.raw_os_error().map_or(103, |errno| errno as u8))
        }
    }
}

fn install() -> io::Result<()> {
    let mut programs = sandglass_seccomp::strict().iter();
    programs.try_for_each(|program| seccompiler::apply_filter(program).map_err(io::Error::other))
}

fn install_section() -> io::Result<()> {
    let section = serde_json::from_str(include_str!("../fixtures/docker-default.json"))?;
    let translation =
        oci::translate(&section, Arch::NATIVE, oci::Options::default()).map_err(io::Error::other)?;
    seccompiler::apply_filter(&translation.program).map_err(io::Error::other)
}

fn run(mode: &str, args: &[&str]) -> io::Result<Output> {
    Command::new(std::env::current_exe()?)
        .arg(mode)
        .args(args)
        .output()
}

fn text(output: &Output) -> String {
    format!(
        "{}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = checks::ALL
        .iter()
        .map(|check| Trial::test(check.name, move || run_check(check)))
        .collect();
    for (name, program, args) in checks::PROGRAMS {
        // Shown as ignored where the interpreter is not installed; the conformance suite runs the image's own.
        let missing = !on_path(program);
        let trial = Trial::test(name, move || {
            let output = run(CONFINED, &[&[EXEC, program], args.as_slice()].concat())?;
            if output.status.success() {
                Ok(())
            } else {
                Err(Failed::from(text(&output)))
            }
        });
        trials.push(trial.with_ignored_flag(missing));
    }
    trials.push(Trial::test(
        "a_translated_section_and_our_profile_hold_together",
        || {
            for name in [
                "threads_start_and_meet",
                "commands_and_pipelines_run",
                "tcp_sockets_are_refused",
            ] {
                let check = checks::by_name(name)?;
                let output = run(STACKED, &[name])?;
                if output.status.code() != Some(check.wanted) {
                    return Err(format!("{name}: {}", text(&output)).into());
                }
            }
            Ok(())
        },
    ));
    #[cfg(target_arch = "x86_64")]
    trials.extend([
        Trial::test("i386_through_int_80_ends_the_process", foreign::int_80),
        Trial::test("x32_numbers_answer_enosys", foreign::x32),
    ]);
    trials
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

fn run_check(check: &checks::Check) -> Result<(), Failed> {
    if check.control {
        let control = run(CONTROL, &[check.name])?;
        if !control.status.success() {
            return Err(format!("the control, without filters, failed: {}", text(&control)).into());
        }
    }
    let confined = run(CONFINED, &[check.name])?;
    if confined.status.code() == Some(check.wanted) {
        return Ok(());
    }
    Err(format!("wanted exit status {}, got {}", check.wanted, text(&confined)).into())
}

/// Runs a program of our own making, with and without filters: (control, confined).
#[cfg(target_arch = "x86_64")]
fn run_both(path: &str) -> io::Result<(Outcome, Outcome)> {
    let outcome = |mode| -> io::Result<Outcome> {
        let output = run(mode, &[EXEC, path])?;
        Ok(Outcome {
            code: output.status.code(),
            signal: output.status.signal(),
        })
    };
    Ok((outcome(CONTROL)?, outcome(CONFINED)?))
}

/// How a program ended.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
struct Outcome {
    code: Option<i32>,
    signal: Option<i32>,
}
