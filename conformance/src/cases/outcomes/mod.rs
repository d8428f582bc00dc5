//! Every way for a run to end, each told apart from the others.

mod cancel;
mod memory;
mod own;
mod timeout;

use crate::case::Case;
use crate::ended::Ended;
use crate::verdict::{Stop, check, same};
use crate::view::Status;
use std::time::Duration;

/// Every case of this group.
pub fn cases() -> Vec<Case> {
    let mut all = [own::cases(), timeout::cases(), memory::cases(), cancel::cases()].concat();
    for case in &mut all {
        // These measure how long something takes.
        case.alone = case.name.contains("timeout") || case.name.contains("cancel");
    }
    all
}

fn died_of(ended: &Ended, signal: i32) -> Result<(), Stop> {
    let report = ended.ended(Status::Failed, 128 + signal)?;
    same("signal in the report", &Some(signal), &report.signal)?;
    same("exit code in the report", &None, &report.exit_code)
}

/// How much longer than its wall clock a run may take until everything is gone and the result is there.
const GRACE: Duration = Duration::from_secs(4);

/// The run ended by its wall clock of one second, and the result came soon after.
fn timed_out(ended: &Ended) -> Result<(), Stop> {
    let report = ended.ended(Status::TimedOut, 124)?;
    check(
        ended.wall >= Duration::from_millis(900) && ended.wall < Duration::from_secs(1) + GRACE,
        format!("an end between 0.9 s and {:?}", Duration::from_secs(1) + GRACE),
        format!("it took {:?}", ended.wall),
    )?;
    same("exit code of a script that was killed", &None, &report.exit_code)?;
    same("error of a run that did start", &None, &report.error)
}

/// Twice forked, in a session of its own, deaf to SIGTERM, and holding both streams.
const GRANDCHILD: &str = "import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for n in range(1, 65):
            try: signal.signal(n, signal.SIG_IGN)
            except (OSError, ValueError): pass
        print('grandchild', flush=True)
        while True: time.sleep(1)
    os._exit(0)
os.wait()
time.sleep(0.3)
";
