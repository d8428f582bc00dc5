//! Memory, disk, inodes and processor time.

use crate::case::{Case, Need, Want};
use crate::context::Context;
use crate::judge::Expect;
use crate::verdict::{Stop, check, same};
use crate::view::Status;
use nix::libc::ENOSPC;
use serde_json::Value;

/// The cases.
pub fn cases() -> Vec<Case> {
    let mut all = vec![
        Case::code("limits/memory-private", &[41], "private memory is limited", |c| {
            over_memory(c, "touch")
        })
        .needs(&[Need::Memory]),
        Case::code("limits/memory-shared", &[41], "shared memory is", |c| {
            over_memory(c, "shared")
        })
        .needs(&[Need::Memory]),
        Case::code(
            "limits/memory-locked",
            &[41],
            "locked memory is, or refused",
            memory_locked,
        )
        .needs(&[Need::Memory]),
        Case::code(
            "limits/memory-of-pipes",
            &[41],
            "memory of the kernel is",
            memory_of_pipes,
        )
        .needs(&[Need::Memory]),
        Case::code(
            "limits/scratch-counts-as-memory",
            &[41],
            "files in scratch count as memory",
            scratch_is_memory,
        )
        .needs(&[Need::Memory]),
        Case::code(
            "limits/memory-beside-a-run",
            &[41],
            "a run beside one without memory does not notice",
            memory_beside,
        )
        .needs(&[Need::Memory])
        .alone(),
        Case::refused(
            "limits/processor",
            &[43],
            "spin 8 2",
            "eight busy processes share the quota of a fifth of a processor",
        )
        .flags(&["--cpus", "0.2"])
        .expect(Expect::Detail(a_fifth_of_a_processor))
        .want(Want::Fails)
        .needs(&[Need::Cpu])
        .alone(),
        Case::code(
            "limits/more-processor",
            &[43],
            "a larger quota is a larger quota",
            more_processor,
        )
        .needs(&[Need::Cpu])
        .alone(),
    ];
    for (name, dir) in [
        ("work", "/work"),
        ("out", "/out"),
        ("tmp", "/tmp"),
        ("shm", "/dev/shm"),
    ] {
        all.push(
            Case::refused(
                format!("limits/fill-{name}"),
                &[41],
                &format!("fill {dir} 200"),
                format!("a full {dir} is ENOSPC, and no lack of memory"),
            )
            .exactly(&[ENOSPC]),
        );
        all.push(
            Case::refused(
                format!("limits/inodes-{name}"),
                &[42],
                &format!("fill-inodes {dir} 100000"),
                format!("{dir} takes a bounded number of files"),
            )
            .exactly(&[ENOSPC]),
        );
    }
    all
}

fn over_memory(c: &Context<'_>, how: &str) -> Result<(), Stop> {
    let ended = c
        .prober(&["allocate", "300", how])?
        .flag("--memory", "128Mi")
        .go()?;
    ended.ended(Status::OutOfMemory, 137).map(drop)
}

/// Refused by the limit of locked memory, or counted like any other.
fn memory_locked(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .prober(&["allocate", "300", "locked"])?
        .flag("--memory", "128Mi")
        .go()?;
    let report = ended.report()?;
    let refused =
        report.status == Status::Succeeded && report.stdout.text().is_some_and(|t| t.contains("\"blocked\""));
    check(
        refused || report.status == Status::OutOfMemory,
        "refused, or out of memory",
        format!("{:?} {:?}", report.status, report.stdout.text()),
    )
}

/// The kernel's memory counts, or runs into a limit of descriptors before.
fn memory_of_pipes(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c.prober(&["pipes", "400"])?.flag("--memory", "96Mi").go()?;
    let report = ended.report()?;
    let refused =
        report.status == Status::Succeeded && report.stdout.text().is_some_and(|t| t.contains("\"blocked\""));
    check(
        refused || report.status == Status::OutOfMemory,
        "refused, or out of memory",
        format!("{:?} {:?}", report.status, report.stdout.text()),
    )?;
    let peak = report.usage.memory_peak_bytes.unwrap_or(u64::MAX);
    check(
        peak <= 128 << 20,
        "a peak near the limit of 96 MiB",
        format!("{peak} bytes"),
    )
}

fn scratch_is_memory(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .prober(&["fill", "/work", "300"])?
        .flag("--memory", "128Mi")
        .flag("--scratch", "400Mi")
        .go()?;
    ended.ended(Status::OutOfMemory, 137).map(drop)
}

fn memory_beside(c: &Context<'_>) -> Result<(), Stop> {
    let hungry = c
        .prober(&["allocate", "300", "touch"])?
        .flag("--memory", "128Mi")
        .start()?;
    let beside = c.script("beside.py", "held = b'x' * (64 << 20)\nprint(len(held))\n")?;
    let ended = beside.go()?;
    same("output of the other run", &"67108864\n", &ended.succeeded()?)?;
    hungry.wait()?.ended(Status::OutOfMemory, 137).map(drop)
}

fn cpu_share(detail: &Value) -> Result<f64, String> {
    detail
        .get("cpu")
        .and_then(Value::as_f64)
        .ok_or_else(|| "no figure".to_owned())
}

fn a_fifth_of_a_processor(detail: &Value) -> Result<(), String> {
    let share = cpu_share(detail)?;
    if share > 0.02 && share < 0.3 {
        Ok(())
    } else {
        Err(format!("it got {share:.2} processors"))
    }
}

fn more_processor(c: &Context<'_>) -> Result<(), Stop> {
    let share = |cpus: &str| {
        let (line, _) = c.probe_with(&["spin", "1", "1.5"], &["--cpus", cpus])?;
        cpu_share(&line.detail).map_err(|e| Stop::failed("a figure", e))
    };
    let (small, large) = (share("0.2")?, share("0.8")?);
    check(
        small < 0.3,
        "at most 0.3 of a processor with --cpus 0.2",
        format!("{small:.2}"),
    )?;
    check(
        large > small * 1.5,
        "clearly more with --cpus 0.8",
        format!("{large:.2} against {small:.2}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_that_gets_a_whole_processor_is_found() {
        assert!(a_fifth_of_a_processor(&json!({"cpu": 0.2})).is_ok());
        assert!(a_fifth_of_a_processor(&json!({"cpu": 0.99})).is_err());
        assert!(
            a_fifth_of_a_processor(&json!({"cpu": 0.0})).is_err(),
            "a probe that did not run proves nothing"
        );
        assert!(a_fifth_of_a_processor(&json!({})).is_err());
    }
}
