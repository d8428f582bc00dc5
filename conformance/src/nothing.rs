//! A driver that confines nothing, in place of the command line under test: the control of the cases that are code.
//!
//! It speaks the same words and gives a report that says that all is well, and makes the mistakes that drivers make: it
//! follows links out of `/out`, keeps every byte of output, takes any name, hands on its own environment and its own
//! descriptors, tells no lack of time or memory apart, counts nobody's runs. Everything still happens in throw-away
//! namespaces on a throw-away root. A hostile case that passes against it proves nothing.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use serde_json::{Value, json};

use crate::asked::Asked;
use crate::control::{Job, Unconfined};

/// Set when this program is to play the driver: the root of the image.
pub const ROOTFS: &str = "CONFORMANCE_NOTHING";

/// Cases that are code and must fail against nothing. The others show what works, or compare two runs of the driver, or
/// would harm the host if nothing confined them (bombs, floods without end, lack of memory).
pub const MUST_FAIL: &[&str] = &[
    "files/out-links",
    "files/out-device",
    "files/out-deep",
    "files/out-many",
    "files/out-hostile-names",
    "files/out-modes",
    "files/out-long-path",
    "limits/output-keeps-both-ends",
    "limits/output-utf8-is-not-split",
    "limits/output-not-utf8",
    "limits/output-to-every-descriptor",
    "outcomes/timeout-busy",
    "outcomes/timeout-sleep",
    "outcomes/timeout-stopped",
    "outcomes/timeout-ignoring",
    "outcomes/timeout-keeps-artifacts",
    "outcomes/timeout-node",
    "outcomes/cancel-int",
    "outcomes/cancel-term",
    "outcomes/refusal-is-an-exception",
    "isolation/receipt",
    "isolation/host-name",
    "isolation/session",
    "isolation/host-ids",
    "isolation/after-many-descriptors",
    "driver/disabled",
    "driver/disabled-comes-first",
    "driver/unknown",
    "driver/not-available",
    "driver/cap",
    "driver/cap-under-a-rush",
    "driver/same-id-twice",
    "driver/hostile-run-id",
    "driver/environment",
    "driver/environment-of-node",
    "driver/hostile-image",
    "driver/unknown-waiver",
    "driver/report-shape",
    "driver/report-of-a-bad-flag",
    "driver/setting-from-environment",
    "input/script-missing",
    "input/script-empty",
    "input/script-not-utf8",
    "input/unknown-language",
    "input/missing",
    "input/duplicate-name",
    "input/hostile-name",
    "input/out-not-a-directory",
    "input/out-holds-the-name",
    "input/out-holds-a-link",
    "input/limits",
    "input/config-file",
    "input/image-missing",
    "input/store-corrupt",
    "input/state-not-writable",
    "work/node-refusals",
];

/// Cases that must pass against nothing: they show that it is a driver at all, so that the failures above are not those of
/// a command line that does not work.
pub const MUST_PASS: &[&str] = &[
    "files/out-plain-names",
    "outcomes/exit-codes",
    "outcomes/exception",
    "outcomes/stdin-is-empty",
    "outcomes/working-directory",
    "driver/arguments",
    "input/case-clash",
    "input/empty-and-binary",
    "work/python-tables",
    "work/node-workers",
];

/// Plays `run`; nothing else is asked of it.
pub fn main(rootfs: &Path) -> ExitCode {
    match play(rootfs) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("the driver that confines nothing: {error}");
            ExitCode::from(1)
        }
    }
}

fn play(rootfs: &Path) -> std::io::Result<ExitCode> {
    let asked = Asked::read(std::env::args_os().skip(2));
    let temp = tempfile::Builder::new()
        .prefix("sandglass-conformance-nothing-")
        .tempdir()?;
    let (stage, collected) = (temp.path().join("stage"), temp.path().join("out"));
    std::fs::create_dir(&stage)?;
    std::fs::create_dir(&collected)?;
    let name = asked.script.file_name().unwrap_or_default().to_owned();
    let text = std::fs::read(&asked.script).unwrap_or_default();
    std::fs::write(stage.join(&name), text)?;
    for (name, from) in asked.inputs() {
        // The one mistake that is not made here: the last part of a name is as much as may be written to.
        if let Some(base) = Path::new(&name).file_name() {
            let _ = std::fs::copy(from, stage.join(base));
        }
    }
    let node = matches!(
        asked.script.extension().and_then(|e| e.to_str()),
        Some("js" | "mjs")
    );
    let mut argv: Vec<OsString> = vec![if node { "node".into() } else { "python3".into() }, name];
    argv.extend(asked.args.iter().cloned());
    let unconfined = Unconfined::new(rootfs, temp.path())?;
    // Links are followed, but those to directories at the top are not: one of them is the root of the host.
    let after = format!(
        "for f in out/* out/.[!.]* out/..?*; do [ -L \"$f\" ] && [ -d \"$f\" ] || timeout 2 cp -rL \"$f\" '{}'; done 2>/dev/null || true",
        collected.display()
    );
    let job = Job {
        stage: &stage,
        canary: None,
        planted: &[],
        host_network: false,
        before: "exec 9</etc/passwd",
        after: &after,
        environment: true,
        argv,
    };
    let mut command = unconfined.command(&job);
    let seconds = asked
        .text("--timeout")
        .and_then(|t| t.strip_suffix('s')?.parse().ok())
        .unwrap_or(4.0);
    let output = bounded(&mut command, seconds)?;
    let out = asked.flags.get("--out").map(PathBuf::from);
    let artifacts = take(&collected, out.as_deref());
    let code = output.status.code();
    if asked.json {
        let stream = |bytes: &[u8]| json!({"text": String::from_utf8_lossy(bytes), "bytes_total": bytes.len(), "truncated": false});
        let report = json!({
            "schema": 1, "run_id": "nothing", "exit_code": code, "signal": output.status.signal(),
            "status": if code == Some(0) { "succeeded" } else { "failed" },
            "stdout": stream(&output.stdout), "stderr": stream(&output.stderr),
            "artifacts": artifacts, "skipped": [], "timings_ms": {}, "usage": {}, "error": null,
            "isolation": {"driver": "local", "runtime": "nothing", "image": format!("sha256:{}", "0".repeat(64)),
                "uid": 65534, "capabilities": "none", "no_new_privileges": true, "seccomp_profile": "strict",
                "landlock_abi": 7, "user_namespace": true, "network": "none", "root_read_only": true, "waived": []},
        });
        println!("{report}");
    } else {
        use std::io::Write as _;
        std::io::stdout().write_all(&output.stdout)?;
        std::io::stderr().write_all(&output.stderr)?;
    }
    Ok(ExitCode::from(u8::try_from(code.unwrap_or(1)).unwrap_or(1)))
}

fn bounded(command: &mut Command, seconds: f64) -> std::io::Result<std::process::Output> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let clock = std::thread::spawn(move || {
        if ended
            .recv_timeout(std::time::Duration::from_secs_f64(seconds.clamp(0.1, 30.0)))
            .is_err()
        {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    });
    let output = child.wait_with_output();
    let _ = done.send(());
    let _ = clock.join();
    output
}

/// Copies whatever was collected, over whatever is there.
fn take(collected: &Path, out: Option<&Path>) -> Vec<Value> {
    if let Some(out) = out {
        let _ = Command::new("cp")
            .arg("-r")
            .arg(collected.join("."))
            .arg(out)
            .stderr(Stdio::null())
            .status();
    }
    let mut artifacts = Vec::new();
    crate::host::everything_below(collected, &mut |path| {
        let path_in = path
            .strip_prefix(collected)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned();
        if path.is_file() {
            artifacts.push(
                json!({"path": path_in, "bytes": path.metadata().map(|m| m.len()).unwrap_or(0),
                "sha256": digest(path), "media_type": "application/octet-stream"}),
            );
        }
    });
    artifacts
}

fn digest(path: &Path) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(std::fs::read(path).unwrap_or_default());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Body;

    #[test]
    fn every_case_that_must_fail_against_nothing_exists_and_is_no_probe() {
        let cases = crate::cases::all();
        for name in MUST_FAIL.iter().chain(MUST_PASS) {
            let case = cases.iter().find(|case| case.name == *name);
            let case = case.unwrap_or_else(|| panic!("{name} does not exist"));
            assert!(
                !matches!(case.body, Body::Probe(_)),
                "{name} has a control of its own"
            );
        }
    }
}
