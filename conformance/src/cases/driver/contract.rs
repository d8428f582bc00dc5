//! The contract of the command line: report, flags, settings, logs.

use crate::case::Case;
use crate::context::Context;
use crate::invoke::lossy;
use crate::verdict::{Stop, check, same};
use serde_json::Value;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "driver/report-shape",
            &[],
            "the report has the fields of the contract, and no others",
            report_shape,
        ),
        Case::code(
            "driver/report-of-a-bad-flag",
            &[],
            "a bad flag gives a report with --json",
            bad_flag,
        ),
        Case::code(
            "driver/json-is-all-of-stdout",
            &[44],
            "stdout is one report even with every log line on",
            logs,
        ),
        Case::code("driver/timings", &[], "the timings add up", timings),
        Case::code(
            "driver/plain-output",
            &[],
            "without --json the script's streams are the command line's",
            plain,
        ),
        Case::code(
            "driver/setting-from-environment",
            &[],
            "a bad setting from the environment is named",
            setting_from_environment,
        ),
        Case::code(
            "driver/doctor",
            &[],
            "doctor says that a run would be accepted, as JSON too",
            doctor,
        ),
    ]
}

fn report_shape(c: &Context<'_>) -> Result<(), Stop> {
    const TOP: &[&str] = &[
        "artifacts",
        "error",
        "exit_code",
        "isolation",
        "run_id",
        "schema",
        "signal",
        "skipped",
        "status",
        "stderr",
        "stdout",
        "timings_ms",
        "usage",
    ];
    let keys = |value: &Value| -> Vec<String> {
        value
            .as_object()
            .map(|o| o.keys().cloned().collect())
            .unwrap_or_default()
    };
    let text =
        "print('x')\nopen('/out/a.csv', 'w').write('a,b\\n')\nimport os\nos.symlink('a.csv', '/out/link')\n";
    let id = c.run_id();
    let ended = c.python(text)?.flag("--run-id", &id).go()?;
    ended.succeeded()?;
    let value: Value =
        serde_json::from_slice(&ended.stdout).map_err(|e| Stop::failed("JSON", e.to_string()))?;
    let has = |what: &str, value: &Value, wanted: &[&str]| {
        let mut found = keys(value);
        found.sort();
        same(
            what,
            &wanted.iter().map(|k| (*k).to_owned()).collect::<Vec<_>>(),
            &found,
        )
    };
    has("fields", &value, TOP)?;
    has(
        "fields of stdout",
        &value["stdout"],
        &["bytes_total", "text", "truncated"],
    )?;
    has(
        "fields of an artifact",
        &value["artifacts"][0],
        &["bytes", "media_type", "path", "sha256"],
    )?;
    has(
        "fields of what was skipped",
        &value["skipped"][0],
        &["path", "reason"],
    )?;
    has(
        "fields of timings_ms",
        &value["timings_ms"],
        &["collect", "create", "delete", "queued", "run", "stage", "total"],
    )?;
    has(
        "fields of usage",
        &value["usage"],
        &["cpu_ms", "memory_peak_bytes", "processes_peak"],
    )?;
    has(
        "fields of isolation",
        &value["isolation"],
        &[
            "capabilities",
            "driver",
            "image",
            "landlock_abi",
            "network",
            "no_new_privileges",
            "root_read_only",
            "runtime",
            "seccomp_profile",
            "uid",
            "user_namespace",
            "waived",
        ],
    )?;
    same("schema", &Value::from(1), &value["schema"])?;
    same("run_id", &Value::from(id), &value["run_id"])?;
    same(
        "skipped",
        &Value::from("symbolic_link"),
        &value["skipped"][0]["reason"],
    )?;
    same(
        "media type",
        &Value::from("text/csv"),
        &value["artifacts"][0]["media_type"],
    )?;
    let refused = c.run_file("/does/not/exist.py").go()?;
    let value: Value =
        serde_json::from_slice(&refused.stdout).map_err(|e| Stop::failed("JSON", e.to_string()))?;
    has("fields of a refusal", &value, TOP)?;
    has(
        "fields of its error",
        &value["error"],
        &["code", "hint", "message"],
    )
}

fn bad_flag(c: &Context<'_>) -> Result<(), Stop> {
    c.python("print('ran')\n")?
        .words(&["--no-such-flag"])
        .go()?
        .refused(None, "no-such-flag")?;
    c.python("print('ran')\n")?
        .words(&["--timeout"])
        .go()?
        .report()
        .map(drop)
}

fn logs(c: &Context<'_>) -> Result<(), Stop> {
    for format in ["text", "json"] {
        let ended = c
            .python("print('x')\n")?
            .flag("--log-level", "trace")
            .flag("--log-format", format)
            .go()?;
        same("stdout of the script", &"x\n", &ended.succeeded()?)?;
        if format == "json" {
            let not_json = ended
                .stderr
                .split(|b| *b == b'\n')
                .filter(|l| !l.is_empty())
                .find(|l| serde_json::from_slice::<Value>(l).is_err());
            check(
                not_json.is_none(),
                "every log line is JSON",
                lossy(not_json.unwrap_or_default()),
            )?;
        }
    }
    Ok(())
}

fn timings(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c.python("import time\ntime.sleep(0.3)\n")?.go()?;
    ended.succeeded()?;
    let t = &ended.report()?.timings_ms;
    let of = |name: &str| t.get(name).copied().unwrap_or(-1.0);
    let sum: f64 = ["queued", "create", "stage", "run", "collect", "delete"]
        .iter()
        .map(|n| of(n))
        .sum();
    check(
        of("run") >= 290.0 && of("run") < 5_000.0,
        "run is about 300 ms",
        format!("{t:?}"),
    )?;
    check(
        of("total") >= sum - 8.0 && of("total") <= ended.wall.as_secs_f64() * 1000.0 + 1.0,
        "total holds the phases and fits into the wall clock",
        format!("{t:?}, wall {:?}", ended.wall),
    )
}

fn plain(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .python(
            "import sys\nsys.stdout.write('to stdout\\n')\nsys.stderr.write('to stderr\\n')\nsys.exit(5)\n",
        )?
        .plain()
        .go()?;
    same("exit status", &Some(5), &ended.code)?;
    same("stdout", &"to stdout\n".to_owned(), &lossy(&ended.stdout))?;
    check(
        lossy(&ended.stderr).contains("to stderr\n"),
        "stderr of the script",
        lossy(&ended.stderr),
    )
}

fn setting_from_environment(c: &Context<'_>) -> Result<(), Stop> {
    for (name, value, about) in [
        ("SANDGLASS_TIMEOUT", "soon", "SANDGLASS_TIMEOUT"),
        ("SANDGLASS_MEMORY", "-1", "SANDGLASS_MEMORY"),
        ("SANDGLASS_ARTIFACTS", "many", "artifacts"),
        ("SANDGLASS_RUNS_PER_PERSON", "0", "runs_per_person"),
        ("SANDGLASS_OUTPUT", "1Ti", "output"),
    ] {
        let ended = c.python("print('ran')\n")?.env(name, value).go()?;
        ended.refused(None, about)?;
        ended.refused(None, value)?;
    }
    c.python("print('ran')\n")?
        .env("SANDGLASS_TIMEUOT", "5s")
        .go()?
        .refused(None, "SANDGLASS_TIMEOUT")?;
    c.python("pass\n")?
        .env("SANDGLASS_TIMEOUT", "soon")
        .flag("--timeout", "20s")
        .go()?
        .report()
        .map(drop)
}

fn doctor(c: &Context<'_>) -> Result<(), Stop> {
    let driver = c.config.driver.as_str();
    let text = c.command(&["doctor", "--driver", driver]).output()?;
    if c.config.waived.is_empty() {
        same("exit status", &Some(0), &text.status.code())?;
    }
    check(text.stdout.len() > 100, "findings", lossy(&text.stdout))?;
    let json = c.command(&["doctor", "--driver", driver, "--json"]).output()?;
    let value: Value =
        serde_json::from_slice(&json.stdout).map_err(|e| Stop::failed("one JSON document", e.to_string()))?;
    check(
        value.to_string().contains("landlock"),
        "findings about the layers",
        value.to_string(),
    )
}
