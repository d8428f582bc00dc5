//! The report's schema is made from the types, committed, and met by what the types write.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use sandglass_run::report::{REPORT_SCHEMA, report_schema};
use sandglass_run::{
    Artifact, Isolation, Output, Report, RunError, SkipReason, Skipped, Status, Timings, Usage,
};
use serde_json::{Value, json};

const COMMITTED: &str = include_str!("../report.schema.json");

fn validator() -> jsonschema::Validator {
    jsonschema::validator_for(&serde_json::from_str(COMMITTED).unwrap()).unwrap()
}

fn sample() -> Report {
    Report {
        schema: REPORT_SCHEMA,
        run_id: "run-1".parse().unwrap(),
        status: Status::Succeeded,
        exit_code: Some(0),
        signal: None,
        stdout: Output {
            content: b"hello\n".to_vec().into(),
            bytes_total: 6,
            truncated: false,
        },
        stderr: Output {
            content: vec![0xff].into(),
            bytes_total: 9,
            truncated: true,
        },
        artifacts: vec![Artifact {
            path: "charts/customers.png".into(),
            bytes: 512,
            sha256: "0".repeat(64),
            media_type: "image/png".into(),
        }],
        skipped: vec![Skipped {
            path: "link".into(),
            reason: SkipReason::SymbolicLink,
        }],
        timings_ms: Timings {
            create: 9,
            stage: 1,
            run: 812,
            collect: 2,
            delete: 5,
            total: 829,
            ..Timings::default()
        },
        usage: Usage {
            cpu_ms: Some(790),
            memory_peak_bytes: Some(98_566_144),
            processes_peak: None,
        },
        isolation: Some(Isolation {
            driver: "local".into(),
            runtime: "sandglass".into(),
            image: "sha256:0".into(),
            uid: 65_534,
            capabilities: "none".into(),
            no_new_privileges: true,
            seccomp_profile: "strict".into(),
            landlock_abi: Some(7),
            user_namespace: true,
            network: "none".into(),
            root_read_only: true,
            waived: vec![],
        }),
        error: None,
    }
}

fn refused() -> Report {
    let error = RunError {
        code: "driver_disabled".into(),
        message: "No.".into(),
        hint: "Enable one.".into(),
    };
    Report::refused("r".parse().unwrap(), error)
}

/// Write the file anew with `SANDGLASS_BLESS=1`.
#[test]
fn the_committed_schema_is_that_of_the_types() {
    let made = report_schema();
    if std::env::var_os("SANDGLASS_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&made).unwrap() + "\n";
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/report.schema.json"), text).unwrap();
    }
    let committed: Value = serde_json::from_str(COMMITTED).unwrap();
    assert!(
        made == committed,
        "run/report.schema.json is not that of the types: SANDGLASS_BLESS=1 writes it anew"
    );
}

#[test]
fn every_report_that_the_types_write_meets_the_schema() {
    let validator = validator();
    for report in [sample(), refused()] {
        let value = serde_json::to_value(&report).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| error.to_string())
            .collect();
        assert_eq!(errors, Vec::<String>::new(), "{value:#}");
        assert_eq!(serde_json::from_value::<Report>(value).unwrap(), report);
    }
}

#[test]
fn the_schema_refuses_what_is_no_report() {
    let validator = validator();
    let good = serde_json::to_value(sample()).unwrap();
    assert!(validator.is_valid(&good));
    let breakages: [(&str, Value); 9] = [
        ("/schema", json!(2)),
        ("/run_id", json!("../x")),
        ("/status", json!("fine")),
        ("/exit_code", json!(256)),
        ("/signal", json!(0)),
        ("/stdout", json!({"bytes_total": 0, "truncated": false})),
        ("/artifacts/0/sha256", json!("xyz")),
        ("/skipped/0/reason", json!("because")),
        ("/isolation/uid", json!("root")),
    ];
    for (pointer, value) in breakages {
        let mut broken = good.clone();
        *broken.pointer_mut(pointer).unwrap() = value;
        assert!(!validator.is_valid(&broken), "a wrong {pointer} must be refused");
    }
    let mut extra = good;
    extra["extra"] = json!(1);
    assert!(!validator.is_valid(&extra));
}

#[test]
fn the_report_has_the_documented_shape() {
    let value = serde_json::to_value(sample()).unwrap();
    let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let documented = [
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
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, documented);
    assert_eq!(
        value["stdout"],
        json!({"text": "hello\n", "bytes_total": 6, "truncated": false})
    );
    assert_eq!(
        value["stderr"],
        json!({"base64": "/w==", "bytes_total": 9, "truncated": true})
    );
}
