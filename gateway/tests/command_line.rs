//! The command line as its users meet it. Nothing here needs an image or root.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

/// A call that sees no setting of whoever runs the tests.
fn sandglass() -> (Command, tempfile::TempDir) {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::cargo_bin("sandglass").unwrap();
    command.env_clear();
    // The tests may run as root, whose default settings file may exist: an empty one is named instead.
    let config = home.path().join("empty.toml");
    std::fs::write(&config, "").unwrap();
    command.env("SANDGLASS_CONFIG", config);
    command.env("SANDGLASS_STATE", home.path().join("state"));
    command.env("SANDGLASS_STORE", home.path().join("store"));
    command.current_dir(home.path());
    (command, home)
}

/// Runs with `--json` and gives the report and the exit status; stdout must hold one JSON document only.
fn report(args: &[&str], prepare: impl FnOnce(&mut Command, &std::path::Path)) -> (Value, i32) {
    let (mut command, home) = sandglass();
    prepare(&mut command, home.path());
    let output = command.args(args).output().unwrap();
    let value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {:?}", String::from_utf8_lossy(&output.stdout)));
    (value, output.status.code().unwrap())
}

fn assert_refused((report, exit): (Value, i32), code: &str) -> Value {
    assert_eq!(report["status"], "refused", "{report}");
    assert_eq!(report["error"]["code"], code, "{report}");
    assert_eq!(exit, 125);
    assert_eq!(report["schema"], 1);
    assert_eq!(report["isolation"], Value::Null);
    for field in ["message", "hint"] {
        assert!(!report["error"][field].as_str().unwrap().is_empty(), "{report}");
    }
    report
}

fn script(command: &mut Command, home: &std::path::Path) {
    std::fs::write(home.join("x.py"), "print(1)").unwrap();
    command.current_dir(home);
}

#[test]
fn help_teaches_with_examples_exit_codes_and_settings() {
    let (mut c, _home) = sandglass();
    c.args(["run", "--help"])
        .assert()
        .success()
        .stdout(contains("sandglass run --input data.csv --out results chart.py"))
        .stdout(
            contains("124")
                .and(contains("130"))
                .and(contains("137"))
                .and(contains("125")),
        )
        .stdout(contains("SANDGLASS_TIMEOUT"))
        .stdout(contains("/out"));
    let (mut c, _home) = sandglass();
    c.arg("--help")
        .assert()
        .success()
        .stdout(contains("sandglass image build").and(contains("sandglass doctor")));
}

#[test]
fn help_shows_every_flag_of_the_contract() {
    let (mut c, _home) = sandglass();
    let mut assert = c.args(["run", "-h"]).assert().success();
    for flag in [
        "--driver",
        "--language",
        "--input",
        "--out",
        "--person",
        "--run-id",
        "--timeout",
        "--memory",
        "--cpus",
        "--scratch",
        "--pids",
        "--json",
        "--waive",
        "--image",
        "--config",
        "--log-format",
        "--log-level",
    ] {
        assert = assert.stdout(contains(flag));
    }
}

#[test]
fn a_bad_flag_ends_with_125_and_says_which() {
    let (mut c, _home) = sandglass();
    c.args(["run", "--tiemout", "5s", "x.py"])
        .assert()
        .code(125)
        .stderr(contains("--tiemout"))
        .stdout("");
    let (mut c, _home) = sandglass();
    c.arg("rum").assert().code(125).stderr(contains("rum"));
    let (mut c, _home) = sandglass();
    c.assert().code(125).stderr(contains("Usage"));
}

#[test]
fn a_bad_flag_with_json_still_brings_a_report() {
    let r = assert_refused(
        report(&["run", "--json", "--tiemout", "5s", "x.py"], script),
        "bad_flag",
    );
    assert!(r["error"]["message"].as_str().unwrap().contains("--tiemout"));
    assert_refused(report(&["run", "--json"], script), "bad_flag");
    assert_refused(report(&["run", "x.py", "--nope", "--json"], script), "bad_flag");
}

#[test]
fn a_json_that_belongs_to_the_script_is_not_ours() {
    let (mut c, home) = sandglass();
    script(&mut c, home.path());
    c.args(["run", "--nope", "x.py", "--", "--json"])
        .assert()
        .code(125)
        .stdout("");
}

#[test]
fn a_bad_value_names_setting_value_source_and_what_is_allowed() {
    for (flag, variable, value, allowed) in [
        ("--timeout", "SANDGLASS_TIMEOUT", "soon", "60s"),
        ("--memory", "SANDGLASS_MEMORY", "lots", "512Mi"),
        ("--cpus", "SANDGLASS_CPUS", "many", "0.5"),
        ("--scratch", "SANDGLASS_SCRATCH", "1.5Gi", "512Mi"),
        ("--pids", "SANDGLASS_PIDS", "-4", "whole numbers"),
        ("--driver", "SANDGLASS_DRIVER", "dokcer", "local"),
        ("--language", "SANDGLASS_LANGUAGE", "cobol", "python or node"),
        ("--waive", "SANDGLASS_WAIVE", "everything", "memory, pids"),
        ("--run-id", "SANDGLASS_RUN_ID", "Ä", "a-z"),
        ("--person", "SANDGLASS_PERSON", "a/b", "a-z"),
    ] {
        let setting = format!("{flag}={value}");
        let r = assert_refused(
            report(&["run", "--json", &setting, "x.py"], script),
            "bad_setting",
        );
        let message = r["error"]["message"].as_str().unwrap();
        assert!(message.contains(value) && message.contains(allowed), "{message}");
        assert!(message.contains(&format!("from {flag}")), "{message}");
        let from_env = report(&["run", "--json", "x.py"], |c, home| {
            script(c, home);
            c.env(variable, value);
        });
        let r = assert_refused(from_env, "bad_setting");
        assert!(
            r["error"]["message"]
                .as_str()
                .unwrap()
                .contains(&format!("variable {variable}")),
            "{r}"
        );
    }
}

#[test]
fn the_file_is_a_source_of_settings_and_a_flag_wins_over_it() {
    let with_file = |text: &'static str| {
        move |c: &mut Command, home: &std::path::Path| {
            script(c, home);
            std::fs::write(home.join("s.toml"), text).unwrap();
            c.args(["--config", "s.toml"]);
        }
    };
    let (r, _) = report(&["run", "--json", "x.py"], with_file("timeout = 'soon'"));
    let message = r["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("from the file s.toml") && message.contains("soon"),
        "{message}"
    );
    let (r, _) = report(
        &["run", "--json", "--timeout", "never", "x.py"],
        with_file("timeout = 'soon'"),
    );
    assert!(r["error"]["message"].as_str().unwrap().contains("never"));
    let r = assert_refused(
        report(&["run", "--json", "x.py"], with_file("timeuot = 3")),
        "bad_setting",
    );
    assert!(r["error"]["message"].as_str().unwrap().contains("timeuot"));
    assert_refused(
        report(&["run", "--json", "x.py"], with_file("driver = 'disabled'")),
        "driver_disabled",
    );
}

#[test]
fn limits_that_are_zero_absurd_or_beyond_the_host_are_refused_by_name() {
    for (flag, value) in [
        ("--timeout", "0s"),
        ("--timeout", "99999h"),
        ("--memory", "0"),
        ("--memory", "1000Ti"),
        ("--cpus", "0"),
        ("--cpus", "4096"),
        ("--scratch", "0"),
        ("--pids", "0"),
        ("--pids", "4000000000"),
    ] {
        let r = assert_refused(
            report(&["run", "--json", flag, value, "x.py"], script),
            "limit_not_allowed",
        );
        let message = r["error"]["message"].as_str().unwrap().to_lowercase();
        assert!(
            message.contains(&flag[2..]) && message.contains("it must be from"),
            "{message}"
        );
    }
}

#[test]
fn a_bad_script_is_refused_with_its_own_code() {
    let with = |name: &'static str, text: Vec<u8>| {
        move |c: &mut Command, home: &std::path::Path| {
            std::fs::write(home.join(name), text).unwrap();
            c.current_dir(home);
        }
    };
    assert_refused(
        report(&["run", "--json", "missing.py"], |_, _| {}),
        "script_missing",
    );
    assert_refused(report(&["run", "--json", "."], |_, _| {}), "script_unreadable");
    assert_refused(
        report(&["run", "--json", "e.py"], with("e.py", vec![])),
        "script_empty",
    );
    assert_refused(
        report(&["run", "--json", "b.py"], with("b.py", vec![b'x', 0xff])),
        "script_not_utf8",
    );
    assert_refused(
        report(&["run", "--json", "l.py"], with("l.py", vec![b'#'; 10 << 20])),
        "script_too_large",
    );
    assert_refused(
        report(&["run", "--json", "x.rb"], with("x.rb", b"puts 1".to_vec())),
        "language_unknown",
    );
    assert_refused(
        report(&["run", "--json", "-"], |c, _| {
            c.write_stdin("print(1)");
        }),
        "language_unknown",
    );
}

#[test]
fn a_bad_input_is_refused_with_its_own_code() {
    let case = |arg: &str| {
        report(&["run", "--json", "--input", arg, "x.py"], |c, home| {
            script(c, home);
            std::fs::write(home.join("f"), "1").unwrap();
            std::fs::create_dir(home.join("d")).unwrap();
            std::os::unix::fs::symlink("f", home.join("l")).unwrap();
            std::fs::File::create(home.join("big"))
                .unwrap()
                .set_len(65 << 20)
                .unwrap();
        })
    };
    assert_refused(case("missing"), "input_missing");
    assert_refused(case("d"), "input_not_a_file");
    assert_refused(case("l"), "input_not_a_file");
    assert_refused(case("big"), "inputs_too_large");
    assert_refused(case("x.py=f"), "input_name_duplicate");
    assert_refused(case("..=f"), "input_name_invalid");
    assert_refused(case("a\nb=f"), "input_name_invalid");
    assert_refused(case("=f"), "input_name_invalid");
    let twice = report(
        &["run", "--json", "--input", "f", "--input", "f=g", "x.py"],
        |c, home| {
            script(c, home);
            std::fs::write(home.join("f"), "1").unwrap();
            std::fs::write(home.join("g"), "2").unwrap();
        },
    );
    assert_refused(twice, "input_name_duplicate");
}

#[test]
fn an_out_that_cannot_take_artifacts_is_refused() {
    for out in ["x.py", "missing/out", "x.py/out"] {
        assert_refused(
            report(&["run", "--json", "--out", out, "x.py"], script),
            "out_dir",
        );
    }
}

#[test]
fn a_state_directory_that_cannot_be_used_is_refused() {
    for state in ["relative", "/proc/sandglass", "/dev/null"] {
        let r = report(&["run", "--json", "x.py"], |c, home| {
            script(c, home);
            c.env("SANDGLASS_STATE", state);
        });
        let r = assert_refused(r, "state_dir");
        assert!(
            r["error"]["hint"].as_str().unwrap().contains("SANDGLASS_STATE"),
            "{r}"
        );
    }
}

#[test]
fn a_missing_image_says_how_to_build_one() {
    let r = assert_refused(report(&["run", "--json", "x.py"], script), "image_missing");
    assert!(
        r["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("sandglass image build"),
        "{r}"
    );
}

#[test]
fn a_run_that_is_refused_leaves_no_directory_for_artifacts() {
    for args in [
        &["--out", "results", "x.py"][..],
        &["--out", "results", "--timeout", "0s", "x.py"],
    ] {
        let (mut c, home) = sandglass();
        script(&mut c, home.path());
        c.arg("run")
            .args(args)
            .assert()
            .code(125)
            .stderr(contains("refused"));
        assert!(!home.path().join("results").exists(), "{args:?}");
    }
}

#[test]
fn an_unknown_variable_of_ours_is_refused_by_name() {
    let r = report(&["run", "--json", "x.py"], |c, home| {
        script(c, home);
        c.env("SANDGLASS_MEMROY", "1Gi");
    });
    let r = assert_refused(r, "bad_setting");
    let message = r["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("SANDGLASS_MEMROY") && message.contains("SANDGLASS_MEMORY"),
        "{message}"
    );
    for args in [&["doctor"][..], &["image", "list"]] {
        let (mut c, _home) = sandglass();
        c.env("SANDGLASS_MEMROY", "1Gi");
        c.args(args)
            .assert()
            .code(125)
            .stderr(contains("SANDGLASS_MEMORY"));
    }
}

#[test]
fn waive_may_come_several_times_and_each_name_counts() {
    for words in [
        &["--waive", "cpu", "--waive", "everything"][..],
        &["--waive", "everything", "--waive", "cpu"],
    ] {
        let args = [&["run", "--json"][..], words, &["x.py"]].concat();
        let r = assert_refused(report(&args, script), "bad_setting");
        assert!(r["error"]["message"].as_str().unwrap().contains("everything"));
    }
    let (value, _) = report(
        &["doctor", "--json", "--waive", "cpu", "--waive", "memory,landlock"],
        |_, _| {},
    );
    let waived: Vec<_> = value["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| f["waived"] == true)
        .map(|f| f["layer"].as_str().unwrap())
        .collect();
    assert_eq!(waived, ["landlock", "memory", "cpu"]);
}

#[test]
fn doctor_lists_a_missing_place_for_state_among_its_findings() {
    let bare = |args: &[&str]| {
        let (mut c, _home) = sandglass();
        // Root has a place without any variable; a bad one is found for everybody.
        c.env_remove("SANDGLASS_STATE")
            .env("XDG_RUNTIME_DIR", "not/absolute");
        if rustix::process::geteuid().is_root() {
            c.env("SANDGLASS_STATE", "not/absolute");
        }
        c.args(args).output().unwrap()
    };
    let text = bare(&["doctor"]);
    assert_eq!(text.status.code(), Some(1));
    let said = String::from_utf8(text.stdout).unwrap();
    assert!(
        said.contains("✗ state_directory") && said.contains("would be refused"),
        "{said}"
    );
    let json: Value = serde_json::from_slice(&bare(&["doctor", "--json"]).stdout).unwrap();
    let of = |layer: &str| {
        json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|f| f["layer"] == layer)
            .unwrap()
            .clone()
    };
    assert!(
        of("state_directory")["mend"]
            .as_str()
            .unwrap()
            .contains("SANDGLASS_STATE")
    );
    assert_eq!(
        (json["ready"].clone(), of("seccomp")["ok"].clone()),
        (false.into(), true.into())
    );
}

#[test]
fn removing_an_image_that_is_not_there_is_exit_status_1_and_says_what_to_do() {
    let (mut c, home) = sandglass();
    c.args(["image", "remove", "nope"])
        .assert()
        .code(1)
        .stderr(contains("no image \"nope\"").and(contains("sandglass image list")));
    assert!(!home.path().join("store").exists());
    let (value, exit) = report(&["image", "remove", "../x", "--json"], |_, _| {});
    assert_eq!(exit, 1);
    assert!(value["error"]["message"].as_str().unwrap().contains("../x"));
}

#[test]
fn disabled_refuses_before_anything_else_happens() {
    let r = report(
        &["run", "--json", "--driver", "disabled", "missing.py"],
        |c, home| {
            c.env("SANDGLASS_STATE", home.join("untouched"));
        },
    );
    assert_refused(r, "driver_disabled");
    let (mut c, home) = sandglass();
    c.args(["run", "--driver", "disabled", "--out", "results", "missing.py"])
        .assert()
        .code(125)
        .stdout("")
        .stderr(contains("driver_disabled").and(contains("--driver")));
    assert!(!home.path().join("results").exists() && !home.path().join("state").exists());
}

#[test]
fn a_run_id_that_was_given_stands_in_the_report_even_of_a_refusal() {
    let (r, _) = report(&["run", "--json", "--run-id", "my-run", "missing.py"], |_, _| {});
    assert_eq!(r["run_id"], "my-run");
}

#[test]
fn logs_go_to_stderr_as_json_when_asked_and_stdout_stays_one_report() {
    let (mut c, home) = sandglass();
    script(&mut c, home.path());
    let output = c
        .args([
            "run",
            "--json",
            "--log-format",
            "json",
            "--log-level",
            "debug",
            "x.py",
        ])
        .output()
        .unwrap();
    serde_json::from_slice::<Value>(&output.stdout).unwrap();
    let lines: Vec<Value> = String::from_utf8(output.stderr)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert!(!lines.is_empty());
    let (mut c, _home) = sandglass();
    c.args(["run", "--log-level", "loud", "x.py"])
        .assert()
        .code(125)
        .stderr(contains("loud").and(contains("debug")));
}

#[test]
fn doctor_of_the_disabled_driver_says_no_run_would_be_accepted() {
    let (mut c, _home) = sandglass();
    c.args(["doctor", "--driver", "disabled"])
        .assert()
        .code(1)
        .stdout(contains("would be refused"));
    let (value, exit) = report(&["doctor", "--driver", "disabled", "--json"], |_, _| {});
    assert_eq!((value["ready"].clone(), exit), (Value::Bool(false), 1));
}

#[test]
fn doctor_names_the_missing_image_with_its_mend_and_fails() {
    let (value, exit) = report(&["doctor", "--json"], |_, _| {});
    assert_eq!(exit, 1);
    let image = value["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|f| f["layer"] == "image")
        .unwrap();
    assert_eq!(image["ok"], false);
    assert!(image["mend"].as_str().unwrap().contains("sandglass image build"));
}

#[test]
fn a_bad_setting_of_another_command_is_an_error_object_with_json() {
    let (value, exit) = report(&["doctor", "--driver", "x", "--json"], |_, _| {});
    assert_eq!(exit, 125);
    assert_eq!(value["error"]["code"], "bad_setting");
}

#[test]
fn a_summary_without_a_terminal_has_no_colours() {
    let (mut c, _home) = sandglass();
    c.args(["run", "missing.py"])
        .assert()
        .code(125)
        .stderr(contains("\u{1b}").not());
}

#[test]
fn an_empty_store_lists_nothing_and_a_missing_image_is_exit_status_1() {
    let (mut c, _home) = sandglass();
    c.args(["image", "list"])
        .assert()
        .success()
        .stdout("")
        .stderr(contains("sandglass image build"));
    let (value, exit) = report(&["image", "list", "--json"], |_, _| {});
    assert_eq!((value["images"].as_array().unwrap().len(), exit), (0, 0));
    let (mut c, _home) = sandglass();
    c.args(["image", "digest"])
        .assert()
        .code(1)
        .stdout("")
        .stderr(contains("no image"));
    let (value, exit) = report(&["image", "verify", "nope", "--json"], |_, _| {});
    assert_eq!(exit, 1);
    assert!(value["error"]["message"].as_str().unwrap().contains("nope"));
}

#[test]
fn an_export_overwrites_nothing_and_leaves_no_half_archive() {
    let (mut c, home) = sandglass();
    std::fs::write(home.path().join("there.tar"), "precious").unwrap();
    c.args(["image", "export", "there.tar"])
        .assert()
        .code(1)
        .stderr(contains("there.tar"));
    assert_eq!(std::fs::read(home.path().join("there.tar")).unwrap(), b"precious");
    let (mut c, home) = sandglass();
    c.args(["image", "export", "new.tar"])
        .assert()
        .code(1)
        .stderr(contains("no image"));
    assert!(!home.path().join("new.tar").exists());
}
