//! The script's own end: exit codes, signals, exceptions.

use super::{GRANDCHILD, died_of};
use crate::case::{Case, Need};
use crate::context::Context;
use crate::verdict::{Stop, check, same};
use crate::view::Status;
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "outcomes/exit-codes",
            &[45],
            "each exit code comes back as it is",
            exit_codes,
        ),
        Case::code(
            "outcomes/signals",
            &[45],
            "a signal of its own is told by number, and is no exit code",
            signals,
        )
        .needs(&[Need::Runner]),
        Case::code("outcomes/abort", &[45, 46], "an abort is signal 6", abort).needs(&[Need::Runner]),
        Case::code("outcomes/segfault", &[45, 46], "a fault is signal 11", segfault).needs(&[Need::Runner]),
        Case::code(
            "outcomes/broken-pipe",
            &[45],
            "SIGPIPE is signal 13, and kills nobody else",
            broken_pipe,
        )
        .needs(&[Need::Runner]),
        Case::code(
            "outcomes/own-kill-is-not-out-of-memory",
            &[45, 41],
            "a SIGKILL of its own is no lack of memory",
            own_kill,
        )
        .needs(&[Need::Runner]),
        Case::code(
            "outcomes/exception",
            &[],
            "an exception is exit code 1 with its traceback on stderr",
            exception,
        ),
        Case::code(
            "outcomes/refusal-is-an-exception",
            &[],
            "a refused call is an exception that a script can print",
            refusal,
        ),
        Case::code(
            "outcomes/node-exit",
            &[45],
            "Node's exit codes come back as they are",
            node_exit,
        )
        .needs(&[Need::Runner]),
        Case::code(
            "outcomes/stdin-is-empty",
            &[],
            "the script's standard input is at its end",
            stdin_is_empty,
        ),
        Case::code(
            "outcomes/working-directory",
            &[],
            "the script starts in /work",
            working_directory,
        ),
        Case::code(
            "outcomes/leftover-child",
            &[40],
            "a child that outlives the script delays nothing",
            leftover_child,
        )
        .needs(&[Need::Runner]),
    ]
}

fn exit_codes(c: &Context<'_>) -> Result<(), Stop> {
    for code in [
        0, 1, 2, 3, 42, 77, 99, 124, 125, 126, 127, 128, 129, 130, 137, 143, 200, 254, 255,
    ] {
        let ended = c.python(&format!("import os\nos._exit({code})\n"))?.go()?;
        let status = if code == 0 {
            Status::Succeeded
        } else {
            Status::Failed
        };
        let report = ended.ended(status, code)?;
        same("exit code in the report", &Some(code), &report.exit_code)?;
        same("signal in the report", &None, &report.signal)?;
        same("error in the report", &None, &report.error)?;
    }
    Ok(())
}

fn signals(c: &Context<'_>) -> Result<(), Stop> {
    for signal in [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 24, 31, 34, 64] {
        let text = format!(
            "import os, signal\nif {signal} not in (9,): signal.signal({signal}, signal.SIG_DFL)\nos.kill(os.getpid(), {signal})\n"
        );
        died_of(&c.python(&text)?.go()?, signal)?;
    }
    Ok(())
}

fn abort(c: &Context<'_>) -> Result<(), Stop> {
    died_of(&c.python("import os\nos.abort()\n")?.go()?, 6)
}

fn segfault(c: &Context<'_>) -> Result<(), Stop> {
    died_of(&c.python("import ctypes\nctypes.string_at(0)\n")?.go()?, 11)
}

fn broken_pipe(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import os, signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nr, w = os.pipe()\nos.close(r)\nos.write(w, b'x')\n";
    died_of(&c.python(text)?.go()?, 13)?;
    let piped = c
        .python(
            "import subprocess\nprint(subprocess.run('yes | head -n 1', shell=True, stdout=-1).stdout)\n",
        )?
        .go()?;
    same(
        "output of a pipe whose reader leaves",
        &"b'y\\n'\n",
        &piped.succeeded()?,
    )
}

fn own_kill(c: &Context<'_>) -> Result<(), Stop> {
    died_of(&c.python("import os\nos.kill(os.getpid(), 9)\n")?.go()?, 9)
}

fn exception(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .python("print('before')\nraise ValueError('said by the script')\n")?
        .go()?;
    let report = ended.ended(Status::Failed, 1)?;
    let stderr = report.stderr.text().unwrap_or_default();
    check(
        stderr.contains("Traceback") && stderr.contains("ValueError: said by the script"),
        "a traceback",
        stderr,
    )?;
    same("stdout", &Some("before\n"), &report.stdout.text())
}

fn refusal(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import socket\ntry:\n    socket.socket(socket.AF_INET)\nexcept OSError as e:\n    print('refused', e.errno)\n";
    let ended = c.python(text)?.go()?;
    let stdout = ended.succeeded()?;
    check(
        stdout.starts_with("refused "),
        "an exception that is printed",
        stdout,
    )
}

fn node_exit(c: &Context<'_>) -> Result<(), Stop> {
    for (text, code) in [
        ("process.exit(0)", 0),
        ("process.exit(7)", 7),
        ("throw new Error('x')", 1),
        ("process.exitCode = 9", 9),
    ] {
        let status = if code == 0 {
            Status::Succeeded
        } else {
            Status::Failed
        };
        c.node(text)?.go()?.ended(status, code)?;
    }
    died_of(
        &c.node("process.kill(process.pid, 'SIGKILL'); setTimeout(() => {}, 10000)")?
            .go()?,
        9,
    )
}

fn stdin_is_empty(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .python("import sys\nprint(repr(sys.stdin.read()))\n")?
        .stdin(b"not for the script")
        .go()?;
    same("what the script reads", &"''\n", &ended.succeeded()?)
}

fn working_directory(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .python("import os\nprint(os.getcwd())\nopen('here', 'w').close()\n")?
        .go()?;
    same("working directory", &"/work\n", &ended.succeeded()?)
}

fn leftover_child(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .python(&format!("{GRANDCHILD}print('script ends', flush=True)\n"))?
        .flag("--timeout", "30s")
        .go()?;
    let stdout = ended.succeeded()?;
    check(
        stdout.contains("script ends") && stdout.contains("grandchild"),
        "the output of both",
        stdout,
    )?;
    check(
        ended.wall < Duration::from_secs(10),
        "an end as soon as the script has ended",
        format!("{:?}", ended.wall),
    )
}
