//! Lack of memory and of disk.

use super::timed_out;
use crate::case::{Case, Need};
use crate::context::Context;
use crate::verdict::{Stop, check, same};
use crate::view::Status;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "outcomes/out-of-memory",
            &[41],
            "the kernel's lack of memory is told as such",
            out_of_memory,
        )
        .needs(&[Need::Memory]),
        Case::code(
            "outcomes/out-of-memory-node",
            &[41],
            "in Node as well",
            out_of_memory_node,
        )
        .needs(&[Need::Memory]),
        Case::code(
            "outcomes/timeout-near-the-limit",
            &[41],
            "a timeout next to the memory limit is a timeout",
            timeout_near_limit,
        ),
        Case::code(
            "outcomes/full-scratch",
            &[41],
            "a full disk is ENOSPC and an ordinary failure",
            full_scratch,
        ),
    ]
}

fn out_of_memory(c: &Context<'_>) -> Result<(), Stop> {
    let text = "print('started', flush=True)\nheld = []\nwhile True: held.append(bytearray(8 << 20))\n";
    let ended = c.python(text)?.flag("--memory", "128Mi").go()?;
    let report = ended.ended(Status::OutOfMemory, 137)?;
    same("output until then", &Some("started\n"), &report.stdout.text())?;
    let peak = report.usage.memory_peak_bytes.unwrap_or(0);
    check(
        (64 << 20..=160 << 20).contains(&peak),
        "a peak near the limit of 128 MiB",
        format!("{peak} bytes"),
    )
}

fn out_of_memory_node(c: &Context<'_>) -> Result<(), Stop> {
    let text = "const held = []; for (;;) held.push(Buffer.alloc(8 << 20, 1));";
    c.node(text)?
        .flag("--memory", "192Mi")
        .go()?
        .ended(Status::OutOfMemory, 137)
        .map(drop)
}

fn timeout_near_limit(c: &Context<'_>) -> Result<(), Stop> {
    let text = "held = b'x' * (64 << 20)\nwhile True: pass\n";
    timed_out(
        &c.python(text)?
            .flag("--timeout", "1s")
            .flag("--memory", "128Mi")
            .go()?,
    )
}

fn full_scratch(c: &Context<'_>) -> Result<(), Stop> {
    let text = "f = open('/tmp/full', 'wb')\nwhile True: f.write(b'x' * (1 << 20))\n";
    let ended = c.python(text)?.flag("--scratch", "8Mi").go()?;
    let report = ended.ended(Status::Failed, 1)?;
    let stderr = report.stderr.text().unwrap_or_default();
    check(
        stderr.contains("No space left on device"),
        "ENOSPC in the traceback",
        stderr,
    )
}
