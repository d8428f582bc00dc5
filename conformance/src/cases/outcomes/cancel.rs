//! Cancelling.

use super::GRANDCHILD;
use crate::case::Case;
use crate::context::Context;
use crate::verdict::{Stop, check, same};
use crate::view::Status;
use nix::sys::signal::Signal;
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "outcomes/cancel-int",
            &[],
            "SIGINT to the command line cancels",
            |c| cancel(c, Signal::SIGINT),
        ),
        Case::code(
            "outcomes/cancel-term",
            &[],
            "SIGTERM to the command line cancels",
            |c| cancel(c, Signal::SIGTERM),
        ),
        Case::code(
            "outcomes/cancel-shows-no-report-twice",
            &[],
            "a cancelled run with --json gives one report",
            cancel_json,
        ),
        Case::code(
            "outcomes/cancel-at-any-moment",
            &[],
            "a cancel leaves nothing, whenever it comes",
            cancel_any_moment,
        ),
        Case::code(
            "outcomes/cancel-a-stubborn-script",
            &[40],
            "a script that ignores signals is cancelled as well",
            cancel_stubborn,
        ),
    ]
}

fn cancel(c: &Context<'_>, signal: Signal) -> Result<(), Stop> {
    let live = c
        .python("import time\nprint('started', flush=True)\ntime.sleep(600)\n")?
        .plain()
        .start()?;
    live.wait_for("started")?;
    live.signal(signal)?;
    let ended = live.wait()?;
    same(
        "exit status of the command line",
        &(Some(130), None),
        &(ended.code, ended.signal),
    )?;
    check(
        ended.wall < Duration::from_secs(10),
        "an end soon after",
        format!("{:?}", ended.wall),
    )?;
    check(ended.pipes_closed, "nobody holds its output", "somebody does")
}

fn cancel_json(c: &Context<'_>) -> Result<(), Stop> {
    let live = c
        .python("import time\nprint('started', flush=True)\ntime.sleep(600)\n")?
        .start()?;
    std::thread::sleep(Duration::from_millis(1500));
    live.signal(Signal::SIGINT)?;
    let ended = live.wait()?;
    let report = ended.ended(Status::Cancelled, 130)?;
    same("output until then", &Some("started\n"), &report.stdout.text())
}

/// Whatever the moment, the command line says that it was cancelled or that it was ended by the signal before it could
/// say anything, or it has finished; what is left shows in the look at the host after the case.
fn cancel_any_moment(c: &Context<'_>) -> Result<(), Stop> {
    for millis in [
        0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150,
    ] {
        let live = c.python("import time\ntime.sleep(0.06)\n")?.start()?;
        std::thread::sleep(Duration::from_millis(millis));
        if live.gone() {
            live.wait()?;
            continue;
        }
        // It may end by itself between the look and the signal.
        let _ = live.signal(Signal::SIGINT);
        let ended = live.wait()?;
        let told = ended.report.as_ref().is_ok_and(|r| {
            r.status == Status::Cancelled && ended.code == Some(130)
                || r.status == Status::Succeeded && ended.code == Some(0)
        });
        check(
            told || ended.signal == Some(Signal::SIGINT as i32),
            "cancelled, finished, or ended by the signal itself",
            format!(
                "after {millis} ms: exit {:?}, signal {:?}, {:?}",
                ended.code, ended.signal, ended.report
            ),
        )?;
    }
    Ok(())
}

fn cancel_stubborn(c: &Context<'_>) -> Result<(), Stop> {
    let live = c
        .python(&format!(
            "{GRANDCHILD}print('started', flush=True)\nwhile True: time.sleep(1)\n"
        ))?
        .plain()
        .start()?;
    live.wait_for("started")?;
    live.signal(Signal::SIGTERM)?;
    let ended = live.wait()?;
    same("exit status of the command line", &Some(130), &ended.code)?;
    check(
        ended.wall < Duration::from_secs(10),
        "an end soon after",
        format!("{:?}", ended.wall),
    )
}
