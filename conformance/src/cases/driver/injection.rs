//! Injection from outside: names, environment, arguments.

use crate::case::Case;
use crate::context::Context;
use crate::invoke::lossy;
use crate::judge::find_line;
use crate::verdict::{Stop, check, same};
use crate::view::Status;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "driver/hostile-run-id",
            &[63, 64],
            "a run id is a plain name",
            hostile_run_id,
        ),
        Case::code(
            "driver/hostile-person",
            &[63, 64],
            "a person's name is only a name",
            hostile_person,
        ),
        Case::code(
            "driver/environment",
            &[63],
            "nothing of the caller's environment gets in",
            environment,
        ),
        Case::code(
            "driver/environment-of-node",
            &[63],
            "nor into Node",
            environment_of_node,
        ),
        Case::code(
            "driver/listen-fds",
            &[63, 32],
            "LISTEN_FDS opens no way for descriptors",
            listen_fds,
        ),
        Case::code(
            "driver/arguments",
            &[63],
            "arguments arrive as they were given",
            arguments,
        ),
        Case::code(
            "driver/arguments-not-utf8",
            &[63],
            "or are refused",
            arguments_not_utf8,
        ),
        Case::code(
            "driver/hostile-image",
            &[63],
            "the name of an image is no path",
            hostile_image,
        ),
        Case::code(
            "driver/unknown-waiver",
            &[63],
            "what cannot be waived is named",
            unknown_waiver,
        ),
    ]
}

fn hostile_run_id(c: &Context<'_>) -> Result<(), Stop> {
    let long = "a".repeat(64);
    for id in [
        "../x",
        "a/b",
        "A",
        "a b",
        "",
        ".",
        "..",
        "-a",
        "a\nb",
        "a\u{1b}[2J",
        "å",
        &long,
    ] {
        c.python("print('ran')\n")?
            .flag("--run-id", id)
            .go()?
            .refused(None, "run-id|run id|run_id")?;
    }
    Ok(())
}

/// A name that means something to a file system, a terminal or a log is either refused or harmless.
fn hostile_person(c: &Context<'_>) -> Result<(), Stop> {
    let long = "a".repeat(5000);
    for person in [
        "../../etc",
        "/etc/passwd",
        ".",
        "..",
        "a\nb",
        "a\u{1b}[2J",
        "名前",
        " ",
        &long,
    ] {
        let ended = c.python("print('ran')\n")?.flag("--person", person).go()?;
        let report = ended.report()?;
        check(
            report.status == Status::Succeeded && ended.code == Some(0)
                || report.status == Status::Refused && ended.code == Some(125),
            "succeeded or refused",
            format!("{person:?}: {:?} {:?}", report.status, report.error),
        )?;
        check(
            !ended.stderr.contains(&0x1b),
            "no escape sequence of a name on stderr",
            lossy(&ended.stderr),
        )?;
    }
    c.python("print('ran')\n")?
        .flag("--person", "")
        .go()?
        .refused(None, "person")
}

const HOSTILE_ENVIRONMENT: &[(&str, &str)] = &[
    ("LD_PRELOAD", "/does/not/exist.so"),
    ("LD_LIBRARY_PATH", "/tmp"),
    ("LD_AUDIT", "/does/not/exist.so"),
    ("PYTHONPATH", "/tmp"),
    ("PYTHONSTARTUP", "/tmp/x"),
    ("PYTHONHOME", "/tmp"),
    ("PYTHONINSPECT", "1"),
    ("BASH_ENV", "/tmp/x"),
    ("ENV", "/tmp/x"),
    ("NODE_OPTIONS", "--require=/tmp/x"),
    ("NODE_PATH", "/tmp"),
    ("AWS_SECRET_ACCESS_KEY", "secret-of-the-host"),
    ("HTTP_PROXY", "http://secret-of-the-host"),
    ("IFS", "x"),
    ("GLIBC_TUNABLES", "glibc.malloc.check=3"),
    ("PROMPT", "a\nb"),
];

fn with_hostile_environment(invocation: crate::invoke::Invocation) -> crate::invoke::Invocation {
    HOSTILE_ENVIRONMENT
        .iter()
        .fold(invocation, |invocation, (name, value)| {
            invocation.env(name, value)
        })
}

fn environment(c: &Context<'_>) -> Result<(), Stop> {
    let ended = with_hostile_environment(c.prober(&["environment"])?).go()?;
    let stdout = ended.succeeded()?;
    let line = find_line("environment", stdout).map_err(|e| Stop::failed("a line", e))?;
    clean(&line.detail)
}

fn environment_of_node(c: &Context<'_>) -> Result<(), Stop> {
    let ended = with_hostile_environment(c.node("console.log(JSON.stringify(process.env))")?).go()?;
    let detail: Value =
        serde_json::from_str(ended.succeeded()?).map_err(|e| Stop::failed("JSON", e.to_string()))?;
    clean(&detail)
}

fn clean(detail: &Value) -> Result<(), Stop> {
    let inside = detail
        .as_object()
        .ok_or_else(|| Stop::failed("an object", detail.to_string()))?;
    for (name, value) in HOSTILE_ENVIRONMENT {
        check(
            inside.get(*name).and_then(Value::as_str) != Some(*value),
            format!("{name} does not get in"),
            "it does",
        )?;
    }
    let strangers: Vec<_> = inside
        .keys()
        .filter(|k| k.starts_with("SANDGLASS") || k.starts_with("CARGO") || *k == "SHELL")
        .collect();
    check(
        strangers.is_empty(),
        "nothing else of the caller",
        format!("{strangers:?}"),
    )?;
    for (name, value) in [
        ("HOME", "/work"),
        ("TZ", "UTC"),
        ("MPLBACKEND", "Agg"),
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ] {
        same(name, &Some(value), &inside.get(name).and_then(Value::as_str))?;
    }
    let language = inside
        .get("LANG")
        .or(inside.get("LC_ALL"))
        .and_then(Value::as_str)
        .unwrap_or_default();
    check(
        language.to_uppercase().contains("UTF-8"),
        "a UTF-8 locale",
        language,
    )
}

fn listen_fds(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .prober(&["inherited-descriptors", "self"])?
        .env("LISTEN_FDS", "8")
        .env("LISTEN_PID", "1")
        .env("LISTEN_FDNAMES", "a:b")
        .go()?;
    let stdout = ended.succeeded()?;
    let line = find_line("inherited-descriptors", stdout).map_err(|e| Stop::failed("a line", e))?;
    check(
        line.outcome == crate::judge::Outcome::Blocked,
        "nothing but 0, 1 and 2",
        crate::judge::describe(&line),
    )
}

fn arguments(c: &Context<'_>) -> Result<(), Stop> {
    let hostile = [
        "",
        "-",
        "--",
        "--json",
        "-rf",
        "$(id)",
        "`id`",
        ";id",
        "a b",
        "'",
        "\"",
        "\\",
        "a\nb",
        "a\tb",
        "沙漏",
        "*",
        "~",
        "\u{1b}[2J",
        "--timeout=1",
    ];
    let mut args = vec!["arguments"];
    args.extend(hostile);
    let (line, _) = c.probe(&args)?;
    same("arguments", &Value::from(hostile.to_vec()), &line.detail)?;
    let many: Vec<String> = (0..500).map(|n| format!("argument-{n}")).collect();
    let mut args = vec!["arguments"];
    args.extend(many.iter().map(String::as_str));
    let (line, _) = c.probe(&args)?;
    same("500 arguments", &Value::from(many), &line.detail)
}

fn arguments_not_utf8(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .python("import os, sys\nprint(os.fsencode(sys.argv[1]))\n")?
        .arg(OsString::from_vec(vec![0x61, 0xff]))
        .go()?;
    let report = ended.report()?;
    if report.status == Status::Succeeded {
        return same("the argument", &Some("b'a\\xff'\n"), &report.stdout.text());
    }
    ended.refused(None, "argument|utf-8")
}

fn hostile_image(c: &Context<'_>) -> Result<(), Stop> {
    let none = "sha256:".to_owned() + &"0".repeat(64);
    for image in [
        "../../../etc",
        "/",
        "",
        "nope",
        "sha256:zz",
        &none,
        "a\nb",
        "nope;id",
    ] {
        c.python("print('ran')\n")?
            .flag("--image", image)
            .go()?
            .refused(None, "image")?;
    }
    Ok(())
}

fn unknown_waiver(c: &Context<'_>) -> Result<(), Stop> {
    for waiver in ["nonsense", "seccomp", "user_namespace", "memory;pids", "network"] {
        c.python("print('ran')\n")?
            .flag("--waive", waiver)
            .go()?
            .refused(None, "waive")?;
    }
    Ok(())
}
