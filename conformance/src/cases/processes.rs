//! Processes: too many, refusing to die, attacking PID 1, dumping core.

use std::time::Duration;

use nix::libc::{EACCES, EAGAIN, EINVAL, ENOSYS, EPERM};
use serde_json::Value;

use crate::case::{Case, Need, Want};
use crate::context::Context;
use crate::judge::Expect;
use crate::verdict::{Stop, check};
use crate::view::Status;

/// Every case about processes.
pub fn cases() -> Vec<Case> {
    let mut all = vec![
        Case::refused(
            "processes/forks",
            &[39],
            "fork-many 400",
            "the 129th process is refused with EAGAIN",
        )
        .exactly(&[EAGAIN])
        .needs(&[Need::Pids]),
        Case::refused(
            "processes/threads",
            &[39],
            "thread-many 400",
            "threads count as well",
        )
        .exactly(&[EAGAIN])
        .needs(&[Need::Pids]),
        Case::code(
            "processes/fork-bomb",
            &[39],
            "a bomb that never ends is ended by the wall clock",
            fork_bomb,
        )
        .alone(),
        Case::code(
            "processes/fork-bomb-with-sessions",
            &[39, 40],
            "even if each process leads a session",
            session_bomb,
        )
        .alone(),
        Case::code(
            "processes/fork-bomb-beside-a-run",
            &[39],
            "a run beside a bomb does not notice",
            bomb_beside,
        )
        .alone(),
        Case::code(
            "processes/kill-everyone",
            &[45],
            "kill(-1) hits the script's own processes only",
            kill_everyone,
        )
        .needs(&[Need::Runner]),
        Case::refused(
            "processes/kill-init-9",
            &[45],
            "kill-process 1 9",
            "PID 1 takes no SIGKILL from inside",
        )
        .expect(Expect::NothingOr(init_lives))
        .want(Want::Works),
        Case::refused(
            "processes/kill-init-15",
            &[45],
            "kill-process 1 15",
            "nor SIGTERM",
        )
        .expect(Expect::NothingOr(init_lives))
        .want(Want::Works),
        Case::refused("processes/stop-init", &[45], "kill-process 1 19", "nor SIGSTOP")
            .expect(Expect::NothingOr(init_lives))
            .want(Want::Works),
        Case::refused("processes/segv-init", &[45], "kill-process 1 11", "nor SIGSEGV")
            .expect(Expect::NothingOr(init_lives))
            .want(Want::Works),
        Case::refused(
            "processes/core-limit",
            &[46],
            "limits",
            "no core file, and no crash reaches the host's handler",
        )
        .expect(Expect::Detail(core_limit))
        .want(Want::Fails),
        Case::code(
            "processes/core-handler",
            &[46],
            "a crash does not start the program of core_pattern",
            core_handler,
        )
        .needs(&[Need::Root, Need::TouchHost])
        .alone(),
        Case::refused(
            "processes/timers-work",
            &[47],
            "timers-work",
            "alarms and timers work",
        )
        .expect(Expect::Works)
        .want(Want::Works),
        Case::refused(
            "processes/signal-state",
            &[],
            "status exec",
            "no signal is blocked or ignored when the script starts",
        )
        .expect(Expect::Detail(signal_state))
        .want(Want::Works),
        Case::refused(
            "processes/clock-offsets",
            &[47],
            "clock-namespace",
            "no offsets of clocks are set",
        ),
        Case::refused(
            "processes/oom-score",
            &[50],
            "lower-oom-score",
            "the score of the out-of-memory killer is not lowered",
        )
        .exactly(&[EACCES, EPERM])
        .absent(&[(EACCES, "the-control-lacks-cap-sys-resource")]),
    ];
    for (what, says) in [
        ("fifo", "no real-time scheduling"),
        ("rr", "no real-time scheduling"),
        ("deadline", "no deadline scheduling"),
        ("nice", "no higher priority"),
        ("ionice", "no real-time input and output"),
    ] {
        let case = Case::refused(
            format!("processes/priority-{what}"),
            &[43],
            &format!("priority {what}"),
            says,
        )
        .exactly(&[EPERM, EACCES, ENOSYS, EINVAL]);
        // Without real-time bandwidth for its group, even root is refused.
        all.push(match what {
            "fifo" | "rr" | "deadline" => case.absent(&[(EPERM, "the-control-has-no-real-time-bandwidth")]),
            _ => case,
        });
    }
    for name in [
        "RLIMIT_NOFILE",
        "RLIMIT_NPROC",
        "RLIMIT_CORE",
        "RLIMIT_MEMLOCK",
        "RLIMIT_MSGQUEUE",
        "RLIMIT_RTPRIO",
    ] {
        all.push(
            Case::refused(
                format!(
                    "processes/raise-{}",
                    name.trim_start_matches("RLIMIT_").to_lowercase()
                ),
                &[41, 43],
                &format!("raise-limit {name}"),
                format!("{name} is not raised"),
            )
            .exactly(&[EPERM, EACCES, ENOSYS])
            .control_args(&["plant"])
            .absent(&[(EPERM, "the-control-lacks-cap-sys-resource")]),
        );
    }
    all
}

/// Every process forks for ever, so that killing them one by one never ends.
const BOMB: &str = "import os
print('started', flush=True)
while True:
    try:
        if os.fork() == 0 and SESSION: os.setsid()
    except OSError:
        pass
";

fn bomb(c: &Context<'_>, session: bool) -> Result<(), Stop> {
    let text = BOMB.replace("SESSION", if session { "True" } else { "False" });
    let ended = c.python(&text)?.flag("--timeout", "2s").go()?;
    ended.ended(Status::TimedOut, 124)?;
    check(
        ended.wall < Duration::from_secs(8),
        "an end soon after two seconds",
        format!("{:?}", ended.wall),
    )
}

fn fork_bomb(c: &Context<'_>) -> Result<(), Stop> {
    bomb(c, false)
}

fn session_bomb(c: &Context<'_>) -> Result<(), Stop> {
    bomb(c, true)
}

fn bomb_beside(c: &Context<'_>) -> Result<(), Stop> {
    let text = BOMB.replace("SESSION", "False");
    let bomb = c.python(&text)?.plain().flag("--timeout", "4s").start()?;
    bomb.wait_for("started")?;
    let beside = c.script(
        "beside.py",
        "import subprocess\nprint(subprocess.check_output(['echo', 'fine']).decode(), end='')\n",
    )?;
    let ended = beside.go()?;
    check(
        ended.succeeded()? == "fine\n",
        "the other run works",
        format!("{:?}", ended.report),
    )?;
    bomb.wait().map(drop)
}

fn kill_everyone(c: &Context<'_>) -> Result<(), Stop> {
    let out = c.subdir("out")?;
    let text = "import os, subprocess, time
child = subprocess.Popen(['sleep', '60'])
open('/out/kept', 'w').write('kept')
os.kill(-1, 9)
print('child', child.wait(), flush=True)
";
    let ended = c.python(text)?.flag("--out", &out).go()?;
    let stdout = ended.succeeded()?;
    check(
        stdout == "child -9\n",
        "the script's child is dead and PID 1 is not",
        stdout,
    )?;
    check(out.join("kept").exists(), "artifacts come back", "they do not")
}

fn init_lives(detail: &Value) -> Result<(), String> {
    match detail.as_str() {
        Some(name) if !name.is_empty() => Ok(()),
        other => Err(format!("PID 1 is {other:?}")),
    }
}

/// Signals 32 and 33, which the C library keeps to itself and lets nobody set.
const OF_THE_C_LIBRARY: u64 = 0x1_8000_0000;

/// A program that inherits a blocked SIGCHLD waits for ever for its children.
fn signal_state(detail: &Value) -> Result<(), String> {
    for name in ["SigBlk", "SigIgn"] {
        let text = detail.get(name).and_then(Value::as_str).unwrap_or("missing");
        let mask = u64::from_str_radix(text, 16).map_err(|e| format!("{name} is {text:?}: {e}"))?;
        if mask & !OF_THE_C_LIBRARY != 0 {
            return Err(format!("{name} is {text}"));
        }
    }
    Ok(())
}

/// At 0 a pipe in `core_pattern` still starts its program; at 1 it does not, and no file is large enough.
fn core_limit(detail: &Value) -> Result<(), String> {
    let limit = detail
        .get("RLIMIT_CORE")
        .and_then(Value::as_array)
        .ok_or("no RLIMIT_CORE")?;
    match (
        limit.first().and_then(Value::as_i64),
        limit.get(1).and_then(Value::as_i64),
    ) {
        (Some(1), Some(1)) => Ok(()),
        other => Err(format!("RLIMIT_CORE is {other:?}, not 1 and 1")),
    }
}

/// Puts a program of ours into `core_pattern`, shows by a crash outside that it is started, and that a crash inside does
/// not start it. The setting is put back whatever happens.
fn core_handler(c: &Context<'_>) -> Result<(), Stop> {
    const PATTERN: &str = "/proc/sys/kernel/core_pattern";
    struct PutBack(String);
    impl Drop for PutBack {
        fn drop(&mut self) {
            if let Err(error) = std::fs::write(PATTERN, &self.0) {
                eprintln!("{PATTERN} could not be put back to {:?}: {error}", self.0);
            }
        }
    }
    use std::os::unix::fs::PermissionsExt as _;
    let marker = c.dir.join("handler-was-here");
    let handler = c.dir.join("h");
    std::fs::write(
        &handler,
        format!("#!/bin/sh\necho \"$1\" >> {}\n", marker.display()),
    )?;
    std::fs::set_permissions(&handler, std::fs::Permissions::from_mode(0o755))?;
    let put_back = PutBack(std::fs::read_to_string(PATTERN)?);
    std::fs::write(PATTERN, format!("|{} %p", handler.display()))?;
    let came = |within: Duration| {
        let deadline = std::time::Instant::now() + within;
        while !marker.exists() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        marker.exists()
    };
    let outside = std::process::Command::new("sh")
        .args(["-c", "ulimit -c unlimited; kill -ABRT $$"])
        .status()?;
    let control = came(Duration::from_secs(5));
    check(
        control,
        "the control: a crash outside starts the handler",
        format!("it did not, {outside}"),
    )?;
    std::thread::sleep(Duration::from_millis(300));
    std::fs::remove_file(&marker)?;
    let ended = c.python("import os\nos.abort()\n")?.go()?;
    let reached = came(Duration::from_secs(1));
    drop(put_back);
    ended.ended(Status::Failed, 134)?;
    check(!reached, "the handler of the host is not started", "it was")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_core_limit_of_one_keeps_the_hosts_handler_away() {
        assert!(core_limit(&json!({"RLIMIT_CORE": [1, 1]})).is_ok());
        assert!(core_limit(&json!({"RLIMIT_CORE": [0, 0]})).is_err());
        assert!(core_limit(&json!({"RLIMIT_CORE": [0, -1]})).is_err());
        assert!(core_limit(&json!({})).is_err());
    }
}
