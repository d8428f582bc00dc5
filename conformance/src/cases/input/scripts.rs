//! Bad scripts.

use super::{mkfifo, script};
use crate::case::Case;
use crate::context::Context;
use crate::invoke::write;
use crate::verdict::{Stop, check, same};
use crate::view::Status;
use nix::sys::signal::Signal;
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "input/script-missing",
            &[],
            "a missing script is named",
            script_missing,
        ),
        Case::code(
            "input/script-empty",
            &[],
            "an empty script is refused",
            script_empty,
        ),
        Case::code(
            "input/script-not-utf8",
            &[],
            "a script that is no text is refused",
            script_not_utf8,
        ),
        Case::code(
            "input/script-10-mib",
            &[],
            "a script of 1 MiB runs, one of 10 MiB is refused",
            script_large,
        ),
        Case::code(
            "input/script-is-no-file",
            &[36],
            "a directory, an endless device: refused, and nothing hangs",
            script_no_file,
        ),
        Case::code(
            "input/script-is-a-pipe",
            &[],
            "a pipe as script is read, and waiting for it can be cancelled",
            script_pipe,
        ),
        Case::code(
            "input/script-from-stdin",
            &[],
            "a script from standard input",
            script_stdin,
        ),
        Case::code(
            "input/unknown-language",
            &[],
            "an unknown language is refused, with those that are known",
            unknown_language,
        ),
    ]
}

fn script_missing(c: &Context<'_>) -> Result<(), Stop> {
    c.run_file(c.dir.join("nothing-here.py"))
        .go()?
        .refused(None, "nothing-here.py")
}

fn script_empty(c: &Context<'_>) -> Result<(), Stop> {
    write(&c.dir.join("empty.py"), b"")?;
    c.run_file(c.dir.join("empty.py")).go()?.refused(None, "empty")
}

fn script_not_utf8(c: &Context<'_>) -> Result<(), Stop> {
    write(&c.dir.join("latin.py"), b"print('caf\xe9')\n")?;
    c.run_file(c.dir.join("latin.py")).go()?.refused(None, "utf-8")
}

fn script_large(c: &Context<'_>) -> Result<(), Stop> {
    let mut text = b"print('ran')\n".to_vec();
    while text.len() < 1 << 20 {
        text.extend_from_slice(b"# filler filler filler filler filler filler filler filler filler\n");
    }
    write(&c.dir.join("large.py"), &text)?;
    same(
        "output",
        &"ran\n",
        &c.run_file(c.dir.join("large.py")).go()?.succeeded()?,
    )?;
    let larger = text.repeat(10);
    write(&c.dir.join("larger.py"), &larger)?;
    c.run_file(c.dir.join("larger.py")).go()?.refused(None, "allowed")
}

fn script_no_file(c: &Context<'_>) -> Result<(), Stop> {
    let soon = Duration::from_secs(10);
    c.run_file(c.subdir("dir.py")?)
        .patience(soon)
        .go()?
        .refused(None, "dir.py")?;
    c.run_file("/dev/zero")
        .flag("--language", "python")
        .patience(soon)
        .go()?
        .refused(None, "/dev/zero|allowed")
}

/// A pipe with a writer is a script like any other; one without is waited for, as every program does, and the wait can
/// be cancelled.
fn script_pipe(c: &Context<'_>) -> Result<(), Stop> {
    let path = c.dir.join("pipe.py");
    mkfifo(&path)?;
    let writer = std::thread::spawn({
        let path = path.clone();
        move || std::fs::write(path, "print('from a pipe')\n")
    });
    let ended = c.run_file(&path).patience(Duration::from_secs(20)).go()?;
    // The writer has written, or nobody ever opened the pipe: then it is let go by opening it here.
    if !writer.is_finished() {
        drop(std::fs::OpenOptions::new().read(true).write(true).open(&path)?);
    }
    let _ = writer.join();
    let report = ended.report()?;
    if report.status != Status::Refused {
        same("output", &"from a pipe\n", &ended.succeeded()?)?;
    }
    let waiting = c.run_file(&path).patience(Duration::from_secs(20)).start()?;
    std::thread::sleep(Duration::from_millis(500));
    if waiting.gone() {
        return waiting.wait()?.refused(None, "pipe.py");
    }
    waiting.signal(Signal::SIGINT)?;
    let ended = waiting.wait()?;
    check(
        ended.code == Some(130) || ended.signal == Some(Signal::SIGINT as i32),
        "a cancelled wait",
        format!("exit {:?}, signal {:?}", ended.code, ended.signal),
    )
}

fn script_stdin(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .run_file("-")
        .flag("--language", "python")
        .stdin(b"print('from stdin')\n")
        .go()?;
    same("output", &"from stdin\n", &ended.succeeded()?)?;
    c.run_file("-")
        .flag("--language", "python")
        .stdin(b"")
        .go()?
        .refused(None, "empty")?;
    c.run_file("-")
        .flag("--language", "python")
        .stdin(b"\xff\xfe")
        .go()?
        .refused(None, "utf-8")
}

fn unknown_language(c: &Context<'_>) -> Result<(), Stop> {
    let path = script(c)?;
    for language in ["cobol", "", "Python", "python;id"] {
        c.run_file(&path)
            .flag("--language", language)
            .go()?
            .refused(None, "language")?;
    }
    write(&c.dir.join("script.unknown"), b"print('ran')\n")?;
    let ended = c.run_file(c.dir.join("script.unknown")).go()?;
    ended.refused(None, "language")?;
    ended.refused(None, "node")
}
