//! What goes wrong around a shim: it is killed, its workers are, the disk is full.

use std::time::Duration;

use containerd_shim::protos::api::DeleteResponse;
use containerd_shim::protos::protobuf::Message;
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use time::OffsetDateTime;

use crate::common::bundle::Exec;
use crate::common::{Bench, Bundle, Code, Outcome, Refused, Shim, contains, equal, holds, host, until};
use crate::requests::refusal;
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("after_a_killed_shim_delete_takes_everything_away", shim_killed),
        trial(
            "after_a_shim_killed_with_a_created_or_paused_container_delete_takes_everything_away",
            shim_killed_early,
        ),
        trial(
            "after_a_shim_killed_during_create_delete_takes_everything_away",
            shim_killed_during_create,
        ),
        trial(
            "a_worker_killed_at_any_moment_of_create_leaves_nothing_and_the_next_create_works",
            worker_killed,
        ),
        trial(
            "a_worker_killed_at_any_moment_of_exec_leaves_nothing_in_the_container",
            worker_killed_in_exec,
        ),
        trial(
            "a_container_that_was_killed_before_its_start_is_told_as_that",
            killed_before_start,
        ),
        trial(
            "a_shim_that_is_asked_to_end_during_its_only_create_ends_after_it",
            shut_down_during_create,
        ),
        trial(
            "a_limit_that_is_too_low_to_start_is_an_error_and_leaves_nothing",
            too_low,
        ),
        trial(
            "a_container_that_floods_its_log_and_its_output_holds_up_no_other",
            flood,
        ),
    ]
}

/// Containers outlive their shim; `delete` then takes this one away, and everything with it.
pub async fn deleted(bench: &Bench, bundle: &Bundle) -> Outcome<u32> {
    let output = bench.delete_action(bundle).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    holds(output.status.success(), || format!("delete: {said}"))?;
    let answer = DeleteResponse::parse_from_bytes(&output.stdout)?;
    equal(answer.exit_status, 137, "status")?;
    // containerd tells its clients of this end, and of no other.
    let age = OffsetDateTime::now_utc().unix_timestamp() - answer.exited_at.seconds;
    holds((0..60).contains(&age), || format!("it ended {age} s ago"))?;
    bench.nothing_of(bundle)?;
    Ok(answer.pid)
}

async fn shim_killed(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "setsid sleep 60 & sleep 61 & exec sleep 62")?;
    let shim = bench.shim(&bundle).await?;
    let pid = shim.run(&bundle).await?;
    let exec = Exec::new(bench, &bundle, "e", &["sleep", "60"])?;
    shim.exec(&bundle.id, &exec).await?;
    host::kill(shim.pid);
    shim.gone().await?;
    // Its containers outlive it: containerd decides what becomes of them.
    contains(&host::proc(pid, "cgroup"), &bundle.cgroup())?;
    equal(deleted(bench, &bundle).await?, pid, "pid")?;
    holds(!shim.socket().exists(), || "the socket is left".into())?;
    // Again, as when containerd itself was killed in between.
    equal(deleted(bench, &bundle).await?, 0, "pid of what is gone")
}

async fn shim_killed_early(bench: &mut Bench) -> Outcome {
    let created = bench.bundle("created", &["sleep", "60"])?;
    let shim = bench.shim(&created).await?;
    shim.create(&created).await?;
    let paused = bench.bundle("paused", &["sleep", "60"])?;
    shim.run(&paused).await?;
    shim.pause(&paused.id).await?;
    let ended = bench.bundle("ended", &["true"])?;
    shim.run(&ended).await?;
    shim.wait(&ended.id, "").await?;
    host::kill(shim.pid);
    shim.gone().await?;
    deleted(bench, &created).await?;
    deleted(bench, &paused).await?;
    deleted(bench, &ended).await?;
    let _ = std::fs::remove_file(shim.socket());
    Ok(())
}

/// Longest time that making a container takes here, from the worker's birth on, measured.
async fn create_takes(bench: &Bench, shim: &Shim, name: &str) -> Outcome<Duration> {
    let bundle = bench.bundle(name, &["sleep", "60"])?;
    let begun = std::time::Instant::now();
    shim.create(&bundle).await?;
    let took = begun.elapsed();
    shim.kill_and_delete(&bundle.id).await?;
    Ok(took)
}

async fn shim_killed_during_create(bench: &mut Bench) -> Outcome {
    let mut took = Duration::from_millis(40);
    for step in 0..12_u32 {
        let bundle = bench.bundle(&format!("a{step}"), &["sleep", "60"])?;
        let shim = bench.shim(&bundle).await?;
        if step == 0 {
            took = create_takes(bench, &shim, "measured").await?;
        }
        let (answer, ()) = tokio::join!(shim.create(&bundle), async {
            tokio::time::sleep(took * step / 10).await;
            host::kill(shim.pid);
        });
        drop(answer);
        shim.gone().await?;
        // The worker may be in the middle of its work, and what it makes after a look would be left.
        deleted(bench, &bundle).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.nothing_of(&bundle)?;
        let _ = std::fs::remove_file(shim.socket());
    }
    Ok(())
}

/// The workers of a shim, by what they are called; a process that is being made is a copy of one, called alike.
pub fn workers(shim: u32) -> Vec<u32> {
    host::children(shim)
        .into_iter()
        .map(|(pid, _)| pid)
        .filter(|pid| host::proc(pid, "cmdline").contains("sandbox-container"))
        .collect()
}

/// Waits for a worker, a while more, and kills it. `false` where none came.
async fn kill_worker(shim: u32, known: &[u32], after: Duration) -> bool {
    let deadline = std::time::Instant::now() + Duration::from_secs(2);
    loop {
        if let Some(worker) = workers(shim).into_iter().find(|pid| !known.contains(pid)) {
            tokio::time::sleep(after).await;
            let there = host::proc(worker, "cmdline").contains("sandbox-container");
            host::kill(worker);
            return there;
        }
        if std::time::Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

async fn worker_killed(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    let took = create_takes(bench, &shim, "measured").await?;
    let (mut failed, mut made) = (0, 0);
    const STEPS: u32 = 30;
    for step in 0..STEPS {
        let name = format!("a{step}");
        // The cgroup above is not there, and must not be left either.
        let above = bench.cgroup(&format!("above-{name}"));
        let bundle = bench
            .bundle(&name, &["sleep", "60"])?
            .edited(|spec| spec["linux"]["cgroupsPath"] = serde_json::json!(format!("{above}/{name}")));
        let pid = shim.pid;
        let killer = tokio::spawn(async move { kill_worker(pid, &[], took * step / (STEPS * 2)).await });
        let answer = shim.create(&bundle).await;
        killer.await?;
        match answer {
            Ok(_) => {
                made += 1;
                // Killed when all was done, or the container's own process was what was taken for the worker.
                let _ = shim.kill(&bundle.id, "", 9, false).await;
                shim.end(&bundle.id, "").await?;
            }
            Err(refused) => {
                failed += 1;
                equal(refused.code, Code::UNKNOWN, &refused.sentence)?;
                let known = ["making the sandbox: ", "starting a worker: "];
                holds(
                    known.iter().any(|begins| refused.sentence.starts_with(begins)),
                    || refused.sentence.clone(),
                )?;
                refusal(shim.state(&bundle.id, "").await, Code::NOT_FOUND, "not found")?;
                equal(bench.events.words(&bundle.id), Vec::<String>::new(), "events")?;
                until("the end of what the worker left", || {
                    bench.left_of(&bundle).is_empty()
                })
                .await
                .map_err(|_| format!("step {step}: left {:?}", bench.left_of(&bundle)))?;
                // The same id, in the same bundle.
                shim.run(&bundle).await?;
                shim.kill_and_delete(&bundle.id).await?;
            }
        }
        bench.nothing_of(&bundle)?;
        let left: Vec<_> = host::hierarchies()
            .into_iter()
            .map(|(_, place)| place.join(above.trim_start_matches('/')))
            .filter(|path| path.exists())
            .collect();
        holds(left.is_empty(), || format!("step {step}: left {left:?}"))?;
    }
    holds(failed >= STEPS / 5, || {
        format!("{failed} creates failed and {made} did not: nothing was shown")
    })
}

async fn worker_killed_in_exec(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["sleep", "60"])?;
    let shim = bench.shim(&bundle).await?;
    let init = shim.run(&bundle).await?;
    let begun = std::time::Instant::now();
    let exec = Exec::new(bench, &bundle, "measured", &["true"])?;
    shim.exec(&bundle.id, &exec).await?;
    let took = begun.elapsed();
    let (mut failed, mut made) = (0, 0);
    const STEPS: u32 = 30;
    for step in 0..STEPS {
        let id = format!("e{step}");
        let exec = Exec::new(bench, &bundle, &id, &["sleep", "60"])?;
        shim.add_exec(&bundle.id, &exec).await?;
        let pid = shim.pid;
        let killer = tokio::spawn(async move { kill_worker(pid, &[], took * step / (STEPS * 2)).await });
        let answer = shim.start_process(&bundle.id, &id).await;
        killer.await?;
        match answer {
            Ok(_) => {
                made += 1;
                let _ = shim.kill(&bundle.id, &id, 9, false).await;
                shim.end(&bundle.id, &id).await?;
            }
            Err(refused) => {
                failed += 1;
                equal(refused.code, Code::UNKNOWN, &refused.sentence)?;
                shim.delete(&bundle.id, &id).await?;
            }
        }
        // A process that nobody knows of would run on in the container, and hold its streams.
        let alone = || {
            let inside: Vec<u32> = host::pids()
                .into_iter()
                .filter(|pid| host::proc(pid, "cgroup").contains(&bundle.cgroup()))
                .collect();
            inside == [init]
        };
        until("the end of what the worker left", alone)
            .await
            .map_err(|_| format!("step {step}: children {:?}", host::children(shim.pid)))?;
        let words = bench.events.words(&bundle.id);
        holds(!words.contains(&"exit".to_owned()), || {
            format!("the container ended: {words:?}")
        })?;
    }
    shim.kill_and_delete(&bundle.id).await?;
    holds(failed >= STEPS / 5, || {
        format!("{failed} execs failed and {made} did not: nothing was shown")
    })
}

async fn killed_before_start(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["sleep", "60"])?;
    let shim = bench.shim(&bundle).await?;
    let pid = shim.create(&bundle).await?;
    // By somebody else, such as the kernel.
    host::kill(pid);
    equal(shim.wait(&bundle.id, "").await?, 137, "status")?;
    refusal(
        shim.start_process(&bundle.id, "").await,
        Code::FAILED_PRECONDITION,
        "stopped",
    )?;
    equal(shim.end(&bundle.id, "").await?, 137, "status")?;
    bench.nothing_of(&bundle)
}

/// A create whose worker is made to stand still, with a delete that found nothing yet. What comes of `then`, which has
/// to let the worker go, and of the create.
async fn slow_create<T>(
    shim: &Shim,
    bundle: &Bundle,
    then: impl AsyncFn(u32) -> Outcome<T>,
) -> Outcome<(Result<u32, Refused>, T)> {
    for _ in 0..20 {
        let (answer, done) = tokio::join!(shim.create(bundle), async {
            let Some(worker) = stop_worker(shim.pid).await else {
                return Ok(None);
            };
            match shim.delete(&bundle.id, "").await {
                Err(refused) if refused.code == Code::NOT_FOUND => then(worker).await.map(Some),
                // It was done already, and what stands still is the container.
                _ => signal(worker, Signal::SIGCONT).map(|()| None),
            }
        });
        if let Some(done) = done? {
            return Ok((answer, done));
        }
        answer?;
        shim.kill_and_delete(&bundle.id).await?;
    }
    Err("no worker could be stopped in time".into())
}

/// Waits for a worker, and has it stand still.
async fn stop_worker(shim: u32) -> Option<u32> {
    let deadline = std::time::Instant::now() + Duration::from_secs(2);
    while std::time::Instant::now() < deadline {
        if let Some(worker) = workers(shim).into_iter().min() {
            signal(worker, Signal::SIGSTOP).ok()?;
            let stopped = until("a stop", || host::status(worker, "State").starts_with('T'));
            return stopped.await.ok().map(|()| worker);
        }
        tokio::task::yield_now().await;
    }
    None
}

fn signal(pid: u32, signal: Signal) -> Outcome {
    Ok(nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid.cast_signed()),
        signal,
    )?)
}

/// As containerd does whose client has given up a slow create: a delete, and one request to end.
async fn shut_down_during_create(bench: &mut Bench) -> Outcome {
    for (name, other, last) in [
        ("works", "late-a", Signal::SIGCONT),
        ("fails", "late-b", Signal::SIGKILL),
    ] {
        let bundle = bench.bundle(name, &["sleep", "60"])?;
        let other = bench.bundle(other, &["true"])?;
        let shim = bench.shim(&bundle).await?;
        let (answer, seen) = slow_create(&shim, &bundle, async |worker| {
            shim.ask_to_shut_down(false).await?;
            // It does not end before: whoever made something would be gone.
            tokio::time::sleep(Duration::from_millis(100)).await;
            equal(shim.pids_of("").await?.0, shim.pid, "the shim")?;
            refusal(
                shim.create(&other).await,
                Code::FAILED_PRECONDITION,
                "asked this shim to end",
            )?;
            signal(worker, last)?;
            Ok(bench.events.words(&bundle.id).len())
        })
        .await?;
        holds(answer.is_err(), || format!("it was made: {answer:?}"))?;
        shim.gone().await?;
        holds(!shim.socket().exists(), || "the socket is left".into())?;
        bench.nothing_of(&bundle)?;
        let words = bench.events.words(&bundle.id).split_off(seen);
        // A worker may have been killed when it had made everything.
        let whole = words == ["create", "exit", "delete"];
        let none = last == Signal::SIGKILL && words.is_empty();
        holds(whole || none, || format!("events: {words:?}"))?;
    }
    // The create works between the two.
    let bundle = bench.bundle("between", &["sleep", "60"])?;
    let shim = bench.shim(&bundle).await?;
    let (answer, ()) = slow_create(&shim, &bundle, async |worker| signal(worker, Signal::SIGCONT)).await?;
    answer?;
    shim.ask_to_shut_down(false).await?;
    shim.gone().await?;
    bench.nothing_of(&bundle)
}

async fn too_low(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    let bundle = bench.bundle("a", &["sleep", "60"])?.edited(|spec| {
        spec["linux"]["resources"]["memory"] = serde_json::json!({"limit": 4096, "swap": 4096});
    });
    // It may be made and not begin, or not be made; it is told either way.
    match shim.run(&bundle).await {
        Ok(_) => equal(shim.end(&bundle.id, "").await?, 137, "status")?,
        Err(refused) => {
            holds(refused.sentence.lines().count() == 1, || refused.sentence.clone())?;
            if shim.state(&bundle.id, "").await.is_ok() {
                let _ = shim.kill(&bundle.id, "", 9, true).await;
                shim.end(&bundle.id, "").await?;
            }
        }
    }
    bench.nothing_of(&bundle)
}

async fn flood(bench: &mut Bench) -> Outcome {
    // Nobody reads the flood; nobody reads the shim's log either, once it is full.
    let loud = bench.script("loud", "yes flood")?;
    let shim = bench.shim(&loud).await?;
    shim.run(&loud).await?;
    let quiet = bench.bundle("quiet", &["sleep", "60"])?;
    shim.run(&quiet).await?;
    let begun = std::time::Instant::now();
    for round in 0..30 {
        let id = format!("e{round}");
        let exec = Exec::new(bench, &quiet, &id, &["true"])?;
        shim.exec(&quiet.id, &exec).await?;
        equal(shim.end(&quiet.id, &id).await?, 0, "status")?;
    }
    holds(begun.elapsed() < Duration::from_secs(20), || {
        format!("30 execs took {:?}", begun.elapsed())
    })?;
    shim.kill_and_delete(&quiet.id).await?;
    shim.kill(&loud.id, "", 9, false).await?;
    shim.wait(&loud.id, "").await?;
    // Its delete waits for a reader, ten seconds at most, as containerd's own shim does.
    let begun = std::time::Instant::now();
    shim.delete(&loud.id, "").await?;
    holds(begun.elapsed() < Duration::from_secs(15), || {
        format!("delete took {:?}", begun.elapsed())
    })
}
