//! The cap of one person, and the ids of runs.

use super::{SLEEPER, sleeper, stop};
use crate::case::Case;
use crate::context::Context;
use crate::verdict::{Stop, check, same};
use crate::view::Status;
use nix::sys::signal::Signal;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "driver/cap",
            &[64],
            "three runs of a person at once, and no fourth",
            cap,
        )
        .alone(),
        Case::code(
            "driver/cap-of-others",
            &[64],
            "the cap of one person is not that of another",
            cap_of_others,
        )
        .alone(),
        Case::code(
            "driver/cap-under-a-rush",
            &[64],
            "of ten runs started at once three are let in",
            cap_rush,
        )
        .alone(),
        Case::code(
            "driver/cap-after-kill-9",
            &[64, 65],
            "a killed command line frees its slot",
            cap_after_kill,
        )
        .alone(),
        Case::code(
            "driver/same-id-twice",
            &[64],
            "the id of a live run is not taken again",
            same_id,
        )
        .alone(),
    ]
}

fn cap(c: &Context<'_>) -> Result<(), Stop> {
    let person = c.person();
    let mut lives = Vec::new();
    for _ in 0..3 {
        lives.push(sleeper(c, &person)?);
    }
    c.python("pass\n")?
        .flag("--person", &person)
        .go()?
        .refused(Some("over_cap"), "3")?;
    if let Some(live) = lives.pop() {
        stop(live)?;
    }
    c.python("pass\n")?.flag("--person", &person).go()?.succeeded()?;
    lives.into_iter().try_for_each(stop)
}

fn cap_of_others(c: &Context<'_>) -> Result<(), Stop> {
    let person = c.person();
    let lives = (0..3)
        .map(|_| sleeper(c, &person))
        .collect::<Result<Vec<_>, _>>()?;
    c.python("pass\n")?
        .flag("--person", format!("{person}-other"))
        .go()?
        .succeeded()?;
    lives.into_iter().try_for_each(stop)
}

fn cap_rush(c: &Context<'_>) -> Result<(), Stop> {
    let person = c.person();
    let lives = (0..10)
        .map(|_| {
            c.python("import time\ntime.sleep(4)\n")?
                .flag("--person", &person)
                .start()
        })
        .collect::<Result<Vec<_>, _>>()?;
    let (mut ran, mut over) = (0, 0);
    for live in lives {
        let ended = live.wait()?;
        match ended.report()? {
            r if r.status == Status::Succeeded => ran += 1,
            r if r.error.as_ref().is_some_and(|e| e.code == "over_cap") => over += 1,
            r => {
                return Err(Stop::failed(
                    "success or over_cap",
                    format!("{:?} {:?}", r.status, r.error),
                ));
            }
        }
    }
    same("let in and refused", &(3, 7), &(ran, over))
}

fn cap_after_kill(c: &Context<'_>) -> Result<(), Stop> {
    let person = c.person();
    let lives = (0..3)
        .map(|_| sleeper(c, &person))
        .collect::<Result<Vec<_>, _>>()?;
    for live in &lives {
        live.signal(Signal::SIGKILL)?;
    }
    drop(lives);
    let again = (0..3)
        .map(|_| sleeper(c, &person))
        .collect::<Result<Vec<_>, _>>()?;
    again.into_iter().try_for_each(stop)
}

fn same_id(c: &Context<'_>) -> Result<(), Stop> {
    let id = c.run_id();
    let live = c.python(SLEEPER)?.plain().flag("--run-id", &id).start()?;
    live.wait_for("started")?;
    c.script("other.py", "print('ran')\n")?
        .flag("--run-id", &id)
        .flag("--person", "somebody-else")
        .go()?
        .refused(None, &id)?;
    check(!live.gone(), "the first run is alive", "it is not")?;
    stop(live)
}
