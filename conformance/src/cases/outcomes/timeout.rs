//! The wall clock.

use super::{GRANDCHILD, timed_out};
use crate::case::{Case, Need};
use crate::context::Context;
use crate::ended::Ended;
use crate::verdict::{Stop, same};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "outcomes/timeout-busy",
            &[40, 43],
            "the wall clock ends a busy loop",
            timeout_busy,
        )
        .needs(&[Need::Runner]),
        Case::code(
            "outcomes/timeout-sleep",
            &[40],
            "and a sleeping one",
            timeout_sleep,
        ),
        Case::code(
            "outcomes/timeout-ignoring",
            &[40],
            "and one that ignores every signal it can",
            timeout_ignoring,
        ),
        Case::code(
            "outcomes/timeout-stopped",
            &[47],
            "and one that has stopped itself",
            timeout_stopped,
        )
        .needs(&[Need::Child]),
        Case::code(
            "outcomes/timeout-grandchild",
            &[40],
            "and a grandchild in a session of its own that holds the output",
            timeout_grandchild,
        ),
        Case::code(
            "outcomes/timeout-keeps-artifacts",
            &[40],
            "what was in /out by then comes back",
            timeout_keeps,
        )
        .needs(&[Need::Runner]),
        Case::code(
            "outcomes/timeout-node",
            &[40],
            "the wall clock ends Node",
            timeout_node,
        ),
    ]
}

fn timeout_of(c: &Context<'_>, text: &str) -> Result<Ended, Stop> {
    let ended = c.python(text)?.flag("--timeout", "1s").go()?;
    timed_out(&ended)?;
    Ok(ended)
}

fn timeout_busy(c: &Context<'_>) -> Result<(), Stop> {
    let ended = timeout_of(c, "print('started')\nwhile True: pass\n")?;
    same(
        "output until then",
        &Some("started\n"),
        &ended.report()?.stdout.text(),
    )
}

fn timeout_sleep(c: &Context<'_>) -> Result<(), Stop> {
    timeout_of(c, "import time\ntime.sleep(600)\n").map(drop)
}

fn timeout_ignoring(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import signal, time\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: time.sleep(1)\n";
    timeout_of(c, text).map(drop)
}

fn timeout_stopped(c: &Context<'_>) -> Result<(), Stop> {
    timeout_of(
        c,
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('went on')\n",
    )
    .map(drop)
}

fn timeout_grandchild(c: &Context<'_>) -> Result<(), Stop> {
    let ended = timeout_of(c, &format!("{GRANDCHILD}time.sleep(600)\n"))?;
    same(
        "output of the grandchild",
        &Some("grandchild\n"),
        &ended.report()?.stdout.text(),
    )
}

fn timeout_keeps(c: &Context<'_>) -> Result<(), Stop> {
    let out = c.subdir("out")?;
    let text = "import time\nopen('/out/kept.txt', 'w').write('kept')\ntime.sleep(600)\n";
    let ended = c.python(text)?.flag("--timeout", "1s").flag("--out", &out).go()?;
    timed_out(&ended)?;
    let paths: Vec<_> = ended
        .report()?
        .artifacts
        .iter()
        .map(|a| a.path.as_str())
        .collect();
    same("artifacts", &vec!["kept.txt"], &paths)?;
    same(
        "content",
        &"kept".to_owned(),
        &std::fs::read_to_string(out.join("kept.txt"))?,
    )
}

fn timeout_node(c: &Context<'_>) -> Result<(), Stop> {
    timed_out(
        &c.node("setInterval(() => {}, 1000); for (;;);")?
            .flag("--timeout", "1s")
            .go()?,
    )
}
