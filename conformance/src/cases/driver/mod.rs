//! The driver: disabled or missing, the cap of one person, killed command lines, injection from outside.

mod cap;
mod contract;
mod injection;
mod killed;
mod place;
mod refusing;

use crate::case::Case;
use crate::context::Context;
use crate::invoke::Live;
use crate::verdict::{Stop, same};
use nix::sys::signal::Signal;

/// Every case of this group.
pub fn cases() -> Vec<Case> {
    [
        refusing::cases(),
        cap::cases(),
        killed::cases(),
        place::cases(),
        injection::cases(),
        contract::cases(),
    ]
    .concat()
}

const SLEEPER: &str = "import time\nprint('started', flush=True)\ntime.sleep(600)\n";

fn sleeper(c: &Context<'_>, person: &str) -> Result<Live, Stop> {
    let live = c.python(SLEEPER)?.plain().flag("--person", person).start()?;
    live.wait_for("started")?;
    Ok(live)
}

fn stop(live: Live) -> Result<(), Stop> {
    live.signal(Signal::SIGTERM)?;
    same("exit status of a cancelled run", &Some(130), &live.wait()?.code)
}
