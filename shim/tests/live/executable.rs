//! The shim's own program cannot be opened for writing from inside (CVE-2019-5736).
//!
//! A container's process is a copy of the shim's worker until its program is executed, and an image can have the kernel
//! execute `/proc/self/exe` in the program's place. Whoever is root inside then reaches the shim's file through `/proc`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use libtest_mimic::Trial;

use crate::common::bench::reap;
use crate::common::bundle::Exec;
use crate::common::shim::PROGRAM;
use crate::common::{Bench, Outcome, contains, equal, holds, host, root, until};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "the_shims_program_cannot_be_written_through_an_image_that_executes_it",
            through_entry,
        ),
        trial(
            "the_shims_program_cannot_be_written_while_processes_begin",
            while_they_begin,
        ),
    ]
}

/// What changes when somebody writes a file.
fn file(path: &Path) -> Outcome<(u64, SystemTime, u64)> {
    let found = std::fs::metadata(path)?;
    Ok((found.len(), found.modified()?, found.ino()))
}

async fn through_entry(bench: &mut Bench) -> Outcome {
    // A copy of its own, so that in the end nobody executes it: a file that somebody executes is busy anyway.
    let program = bench.dir().join("containerd-shim-sandglass-v1");
    std::fs::copy(PROGRAM, &program)?;
    bench.program = program.clone();
    let before = file(&program)?;
    // The interpreter of this entry is the shim's program, which waits for its input.
    let entry = bench.bundle("a", &["/usr/self"])?.by_spec().with_stdin(bench)?;
    let shim = bench.shim(&entry).await?;
    let pid = shim.run(&entry).await?;
    let own = std::fs::metadata(format!("/proc/{pid}/exe"))?;
    equal(own.ino(), before.2, "the program that runs as the entry")?;
    let mut attack = Exec::new(
        bench,
        &entry,
        "attack",
        &[root::PROBE, "overwrite", "1", "/dev/null"],
    )?;
    shim.exec(&entry.id, &attack).await?;
    let said = attack.stdout.until("held").await?;
    contains(&said, "while: ")?;
    holds(!said.contains("OPENED"), || said.clone())?;
    shim.kill_and_delete(&entry.id).await?;

    // An exec that is the program, and ends, while PID 1 and the attack live on.
    let mut idle = bench.bundle("b", &["sleep", "60"])?.by_spec();
    idle.mounts.clear();
    let rootfs = idle.dir.join("rootfs");
    root::make(&rootfs)?;
    shim.run(&idle).await?;
    let victim = Exec::new(bench, &idle, "victim", &["/usr/self"])?.with_stdin(bench)?;
    let pid = shim.exec(&idle.id, &victim).await?;
    let inside = host::status(pid, "NSpid");
    let inside = inside.split(' ').next_back().unwrap_or_default();
    let mut attack = Exec::new(
        bench,
        &idle,
        "attack",
        &[root::PROBE, "overwrite", inside, "/home/said"],
    )?;
    shim.exec(&idle.id, &attack).await?;
    let first = attack.stdout.until("held").await?;
    holds(!first.contains("OPENED"), || first.clone())?;
    // The shim itself is gone as well: only the mount through which the file was reached is in the way now.
    host::kill(shim.pid);
    shim.gone().await?;
    host::kill(pid);
    // Nobody copies its output any more; so it writes that into a file as well.
    let log = || std::fs::read_to_string(rootfs.join("home/said")).unwrap_or_default();
    until("the end of the attack", || {
        // The victim is an orphan of the shim, and so ours.
        reap();
        log().contains("all tried")
    })
    .await?;
    contains(&log(), "after: Read-only file system")?;
    holds(!log().contains("OPENED"), log)?;
    let output = bench.delete_action(&idle).await?;
    holds(output.status.success(), || {
        String::from_utf8_lossy(&output.stderr).into_owned()
    })?;
    std::fs::remove_file(shim.socket())?;
    equal(
        file(&program)?,
        before,
        "size, time and inode of the shim's program",
    )
}

async fn while_they_begin(bench: &mut Bench) -> Outcome {
    let before = file(Path::new(PROGRAM))?;
    let idle = bench.bundle("a", &["sleep", "60"])?.by_spec();
    let shim = bench.shim(&idle).await?;
    shim.run(&idle).await?;
    let mut attack = Exec::new(bench, &idle, "attack", &[root::PROBE, "overwrite-all"])?;
    shim.exec(&idle.id, &attack).await?;
    attack.stdout.until("ready").await?;
    for round in 0..25 {
        let id = format!("e{round}");
        // One of them is the program itself, in the place of the entry, and ends at once.
        let exec = Exec::new(
            bench,
            &idle,
            &id,
            &[if round % 5 == 0 { "/usr/self" } else { "true" }],
        )?;
        shim.exec(&idle.id, &exec).await?;
        shim.end(&idle.id, &id).await?;
    }
    shim.kill(&idle.id, "attack", 15, false).await?;
    let said = attack.stdout.text().await?;
    shim.end(&idle.id, "attack").await?;
    holds(said.contains("reached"), || {
        format!("the attack never reached a file that is not the image's: {said}")
    })?;
    holds(!said.contains("OPENED"), || said.clone())?;
    shim.kill_and_delete(&idle.id).await?;
    equal(
        file(Path::new(PROGRAM))?,
        before,
        "size, time and inode of the shim's program",
    )
}
