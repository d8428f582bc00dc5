//! A shim that lives long: what it holds does not grow, whatever went through it.

use std::collections::BTreeMap;

use libtest_mimic::Trial;

use crate::common::bundle::Exec;
use crate::common::{Bench, Outcome, Shim, equal, holds, host};
use crate::trial;

/// Names how often: the cycles of containers in one shim, and ten times as many execs.
pub const COUNT: &str = "SANDGLASS_ENDURANCE";
/// Cycles where nothing is said: what a run of all tests has time for. The number that the runtime promises is 1000.
const CYCLES: usize = 150;
/// KiB that a shim's own memory may grow by, after it has warmed up.
const GROWTH: u64 = 1024;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_shim_that_made_many_containers_holds_nothing_of_them", cycles),
        trial("a_shim_that_started_many_execs_is_as_small_as_before", execs),
        trial("a_hundred_containers_live_in_one_shim_and_go", hundred),
    ]
}

fn count() -> usize {
    std::env::var(COUNT)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(CYCLES)
}

/// What an idle shim holds.
fn held(shim: &Shim) -> BTreeMap<String, usize> {
    host::descriptors(shim.pid)
}

/// Memory that is nobody's but the shim's, in KiB.
fn own_memory(shim: &Shim) -> u64 {
    let text = host::proc(shim.pid, "smaps_rollup");
    let kib = |field: &str| {
        host::field_of(&text, field)
            .split(' ')
            .next()
            .and_then(|kib| kib.parse::<u64>().ok())
            .unwrap_or(0)
    };
    kib("Pss_Anon").max(kib("Anonymous"))
}

async fn idle(shim: &Shim, before: &BTreeMap<String, usize>) -> Outcome {
    host::no_more_descriptors(shim.pid, before).await?;
    equal(host::children(shim.pid), Vec::new(), "children")
}

async fn cycle(bench: &Bench, shim: &Shim, name: &str) -> Outcome {
    let bundle = bench.bundle(name, &["true"])?;
    shim.run(&bundle).await?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")?;
    bench.nothing_of(&bundle)?;
    // As containerd takes its own part away.
    std::fs::remove_file(&bundle.stdout.path)?;
    std::fs::remove_file(&bundle.stderr.path)?;
    Ok(std::fs::remove_dir_all(&bundle.dir)?)
}

async fn cycles(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    for round in 0..20 {
        cycle(bench, &shim, &format!("w{round}")).await?;
    }
    let (before, memory) = (held(&shim), own_memory(&shim));
    holds(memory > 0, || "the shim's memory cannot be read".into())?;
    let namespaces = mounts_of(&shim, bench);
    for round in 0..count() {
        cycle(bench, &shim, &format!("c{round}")).await?;
    }
    idle(&shim, &before).await?;
    equal(mounts_of(&shim, bench), namespaces, "mounts that the shim sees")?;
    let grown = own_memory(&shim).saturating_sub(memory);
    holds(grown < GROWTH, || {
        format!("{grown} KiB more after {} containers", count())
    })
}

fn mounts_of(shim: &Shim, bench: &Bench) -> usize {
    let table = host::proc(shim.pid, "mountinfo");
    table.lines().filter(|line| line.contains(bench.tag())).count()
}

async fn execs(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["sleep", "600"])?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let once = async |round: usize| -> Outcome {
        let id = format!("e{round}");
        let exec = Exec::new(bench, &bundle, &id, &["true"])?;
        shim.exec(&bundle.id, &exec).await?;
        equal(shim.end(&bundle.id, &id).await?, 0, "status")?;
        Ok(std::fs::remove_file(&exec.stdout.path)?)
    };
    for round in 0..50 {
        once(round).await?;
    }
    let (before, memory) = (held(&shim), own_memory(&shim));
    // Ten times as many as containers where a number is given.
    let rounds = if std::env::var_os(COUNT).is_some() {
        count() * 10
    } else {
        CYCLES * 2
    };
    for round in 0..rounds {
        once(1000 + round).await?;
    }
    host::no_more_descriptors(shim.pid, &before).await?;
    let grown = own_memory(&shim).saturating_sub(memory);
    holds(grown < GROWTH, || {
        format!("{grown} KiB more after {rounds} execs")
    })?;
    equal(
        host::files(&bundle.dir.join("sandglass"))
            .iter()
            .filter(|name| name.starts_with("exec-"))
            .count(),
        0,
        "files of execs",
    )?;
    shim.kill_and_delete(&bundle.id).await
}

async fn hundred(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    cycle(bench, &shim, "warm").await?;
    let before = held(&shim);
    let mut alive = Vec::new();
    for round in 0..100 {
        let bundle = bench.bundle(&format!("c{round}"), &["sleep", "600"])?;
        shim.run(&bundle).await?;
        alive.push(bundle);
    }
    let inside = host::processes(bench.tag()).len();
    holds(inside > 100, || {
        format!("{inside} processes of a hundred containers")
    })?;
    for bundle in &alive {
        shim.kill(&bundle.id, "", 9, false).await?;
    }
    for bundle in &alive {
        equal(shim.end(&bundle.id, "").await?, 137, "status")?;
        bench.nothing_of(bundle)?;
    }
    idle(&shim, &before).await
}
