//! Killed command lines, second instances, and many runs.

use super::SLEEPER;
use crate::case::Case;
use crate::context::Context;
use crate::host::our_processes;
use crate::invoke::lossy;
use crate::verdict::{Stop, check, same};
use crate::view::Status;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "driver/kill-9",
            &[65],
            "the sandbox dies with its command line",
            kill_nine,
        )
        .alone(),
        Case::code(
            "driver/kill-9-at-any-moment",
            &[65],
            "whenever that is",
            kill_any_moment,
        )
        .alone(),
        Case::code(
            "driver/live-run-is-not-reaped",
            &[65],
            "a second instance never cleans up the live run of the first",
            not_reaped,
        )
        .alone(),
        Case::code(
            "endurance/runs",
            &[65],
            "nothing is left after many runs",
            endurance,
        )
        .alone(),
        Case::code(
            "endurance/descriptors-of-the-driver",
            &[32],
            "runs at once do not disturb each other",
            at_once,
        )
        .alone(),
    ]
}

/// Waits until no process below the suite is left. Its own children were waited for, so these are orphans.
fn all_gone(within: Duration) -> Result<(), Stop> {
    let deadline = Instant::now() + within;
    loop {
        let left = our_processes();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Stop::failed(
                format!("every process is gone within {within:?}"),
                format!("{left:?}"),
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The next run, or doctor, takes away what is no process: cgroups, records, mounts. The look at the host after the case
/// sees whether it did.
fn sweep(c: &Context<'_>) -> Result<(), Stop> {
    c.python("pass\n")?.go()?.succeeded().map(drop)
}

fn kill_nine(c: &Context<'_>) -> Result<(), Stop> {
    let live = c.python(&format!("import os, signal\nif os.fork() == 0:\n    os.setsid()\n    signal.signal(15, signal.SIG_IGN)\n{SLEEPER}"))?.plain().start()?;
    live.wait_for("started")?;
    check(
        our_processes()
            .iter()
            .filter(|p| p.name.starts_with("python"))
            .count()
            >= 2,
        "the script's processes are seen",
        "they are not",
    )?;
    live.signal(Signal::SIGKILL)?;
    drop(live);
    all_gone(Duration::from_secs(3))?;
    sweep(c)
}

fn kill_any_moment(c: &Context<'_>) -> Result<(), Stop> {
    for millis in [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 25, 30, 40, 60, 80, 120,
    ] {
        let live = c.python("import time\ntime.sleep(0.05)\n")?.start()?;
        std::thread::sleep(Duration::from_millis(millis));
        if !live.gone() {
            let _ = live.signal(Signal::SIGKILL);
        }
        drop(live);
        all_gone(Duration::from_secs(3))?;
    }
    sweep(c)
}

fn not_reaped(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import time\nprint('started', flush=True)\ntime.sleep(3)\nprint('done')\n";
    let first = c.python(text)?.plain().start()?;
    first.wait_for("started")?;
    for _ in 0..3 {
        c.script("other.py", "pass\n")?.go()?.succeeded()?;
    }
    let doctor = c.command(&["doctor", "--driver", &c.config.driver]).output()?;
    check(
        !first.gone(),
        "the first run is alive after others came and went",
        lossy(&doctor.stdout),
    )?;
    let ended = first.wait()?;
    same("exit status of the first run", &Some(0), &ended.code)?;
    check(
        lossy(&ended.stdout).contains("done"),
        "it ran to its end",
        lossy(&ended.stdout),
    )
}

fn endurance(c: &Context<'_>) -> Result<(), Stop> {
    for n in 0..c.config.endurance {
        // Every tenth ends in another way than by itself.
        let text = match n % 10 {
            3 => "import os\nos.abort()\n",
            6 => "import os\nif os.fork() == 0:\n    os.setsid()\n    import time\n    time.sleep(60)\n",
            9 => {
                "import os\nopen('/out/x', 'w').write('x')\nos.symlink('/', '/out/l')\nos.mkfifo('/out/f')\n"
            }
            _ => "pass\n",
        };
        let ended = c.python(text)?.go()?;
        let report = ended.report()?;
        check(
            matches!(report.status, Status::Succeeded | Status::Failed),
            format!("run {n} runs"),
            format!("{:?} {:?}", report.status, report.error),
        )?;
    }
    Ok(())
}

fn at_once(c: &Context<'_>) -> Result<(), Stop> {
    let lives = (0..12)
        .map(|n| {
            c.python("import sys\nprint(sys.argv[1])\n")?
                .arg(n.to_string())
                .flag("--person", format!("{}-{n}", c.person()))
                .start()
        })
        .collect::<Result<Vec<_>, _>>()?;
    for (n, live) in lives.into_iter().enumerate() {
        same("output", &format!("{n}\n").as_str(), &live.wait()?.succeeded()?)?;
    }
    Ok(())
}
