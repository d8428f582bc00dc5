//! Depth, count and size.

use super::{below, collect, names, only_good};
use crate::case::Case;
use crate::context::Context;
use crate::verdict::{Stop, check, same};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code("files/out-deep", &[35], "depth is bounded", deep),
        Case::code(
            "files/out-many",
            &[35],
            "the count is bounded, and all is told",
            many,
        ),
        Case::code(
            "files/out-swarm",
            &[35, 42],
            "so it is with as many files as the disk takes",
            swarm,
        )
        .alone(),
        Case::code(
            "files/out-sparse",
            &[35],
            "a file of a terabyte without content fills no disk",
            sparse,
        ),
        Case::code(
            "files/out-too-large",
            &[35],
            "what is too large in total is left out and told",
            too_large,
        ),
    ]
}

fn deep(c: &Context<'_>) -> Result<(), Stop> {
    let text =
        "d = ''\nfor n in range(200):\n    os.mkdir('d'); os.chdir('d')\nopen('deep.txt', 'w').write('x')\n";
    let (report, stored) = collect(c, text)?;
    same("stored", &names(&["0-good.txt"]), &stored)?;
    check(
        report.skipped.iter().any(|s| s.reason == "directory_too_deep"),
        "the depth is told",
        format!("{:?}", report.skipped),
    )
}

fn many(c: &Context<'_>) -> Result<(), Stop> {
    let (report, stored) = collect(c, "for n in range(150): open('f%03d' % n, 'w').write(str(n))\n")?;
    same("stored", &100, &stored.len())?;
    same(
        "told as too many",
        &51,
        &report.skipped.iter().filter(|s| s.reason == "too_many").count(),
    )
}

fn swarm(c: &Context<'_>) -> Result<(), Stop> {
    let text = "made = 0\ntry:\n    for n in range(1000000): os.close(os.open('s%07d' % n, os.O_CREAT | os.O_WRONLY)); made += 1\nexcept OSError as e: print(made, e.errno)\n";
    let out = c.subdir("out")?;
    let whole = format!("import os\nos.chdir('/out')\n{text}");
    let ended = c.python(&whole)?.flag("--out", &out).flag("--cpus", "1").go()?;
    let stdout = ended.succeeded()?;
    let made: u32 = stdout.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    check(
        stdout.trim().ends_with(" 28") && made < 1_000_000,
        "ENOSPC before a million files",
        stdout,
    )?;
    let report = ended.report()?;
    check(
        report.artifacts.len() <= 100 && report.skipped.len() <= 1_100,
        "bounded lists",
        format!("{} and {}", report.artifacts.len(), report.skipped.len()),
    )?;
    check(
        ended.stdout.len() < 1 << 20,
        "a report of less than 1 MiB",
        format!("{} bytes", ended.stdout.len()),
    )?;
    check(
        ended.peak_bytes < 96 << 20,
        "a small command line",
        format!("{} bytes", ended.peak_bytes),
    )
}

fn sparse(c: &Context<'_>) -> Result<(), Stop> {
    let (report, stored) = collect(
        c,
        "f = open('sparse', 'wb')\nf.truncate(1 << 40)\nf.close()\ng = open('zero', 'wb')\ng.truncate((1 << 62))\n",
    )?;
    only_good(
        &report,
        &stored,
        &[("sparse", "too_large"), ("zero", "too_large")],
    )
}

fn too_large(c: &Context<'_>) -> Result<(), Stop> {
    let out = c.subdir("out")?;
    let text = "import os\nfor n in range(4): open('/out/%d.bin' % n, 'wb').write(b'x' * (400 << 10))\n";
    let ended = c
        .python(text)?
        .flag("--out", &out)
        .env("SANDGLASS_ARTIFACTS_BYTES", "1Mi")
        .go()?;
    ended.succeeded()?;
    let report = ended.report()?;
    let total: u64 = report.artifacts.iter().map(|a| a.bytes).sum();
    check(
        total <= 1 << 20 && !report.artifacts.is_empty(),
        "at most 1 MiB in total",
        format!("{total}"),
    )?;
    check(
        report.skipped.iter().any(|s| s.reason == "too_large"),
        "the others are told",
        format!("{:?}", report.skipped),
    )?;
    same("files", &report.artifacts.len(), &below(&out, &out)?.len())
}
