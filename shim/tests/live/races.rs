//! Calls at once, twice and out of their order: each is answered, and nothing is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;

use crate::common::bundle::Exec;
use crate::common::{Bench, Bundle, Code, Outcome, Refused, Shim, equal, holds, until};
use crate::trial;

/// Seeds the random tests; a failure tells the seed it ran with.
const SEED: &str = "SANDGLASS_SEED";
/// Calls of one random test.
const STEPS: usize = 200;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("create_start_kill_and_delete_raced_leave_nothing", raced),
        trial("the_same_create_from_many_tasks_is_done_once", same_create),
        trial(
            "execs_raced_with_the_end_of_their_container_leave_nothing",
            execs_raced,
        ),
        trial("the_waits_of_many_tasks_are_all_answered", many_waits),
        trial("a_random_sequence_of_calls_leaves_nothing", random),
        trial("random_sequences_of_calls_at_once_leave_nothing", random_at_once),
    ]
}

/// A small generator: the tests need sequences that can be had again, no more.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn seeded() -> (Self, u64) {
        let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |now| now.as_nanos() as u64 | 1)
        });
        (Self(seed), seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A refusal that a call out of its order may be answered with.
fn orderly<T>(what: &str, answer: Result<T, Refused>) -> Outcome<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(refused) => {
            let known = [Code::NOT_FOUND, Code::ALREADY_EXISTS, Code::FAILED_PRECONDITION];
            holds(known.contains(&refused.code), || format!("{what}: {refused}"))?;
            Ok(None)
        }
    }
}

/// Ends a container in whatever state it is.
async fn clear(shim: &Shim, id: &str) -> Outcome {
    for _ in 0..100 {
        match shim.delete(id, "").await {
            Ok(_) => {}
            Err(refused) if refused.code == Code::NOT_FOUND => return Ok(()),
            Err(refused) if refused.code == Code::FAILED_PRECONDITION => {
                let _ = shim.kill(id, "", 9, true).await;
                let _ = shim.kill(id, "", 9, false).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(refused) => return Err(refused.into()),
        }
    }
    Err(format!("{id} cannot be deleted").into())
}

async fn raced(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    let (mut random, seed) = Random::seeded();
    for round in 0..15 {
        let bundle = bench.bundle(&format!("r{round}"), &["sleep", "60"])?;
        bundle.write()?;
        let mut pause = || Duration::from_millis(random.below(60) as u64);
        let (start_at, kill_at, delete_at, state_at) = (pause(), pause(), pause(), pause());
        let id = bundle.id.as_str();
        let told = |what: &str, failed: libtest_mimic::Failed| -> libtest_mimic::Failed {
            format!(
                "seed {seed}, round {round}, {what}: {}",
                failed.message().unwrap_or_default()
            )
            .into()
        };
        let (created, started, killed, deleted, state) = tokio::join!(
            async { orderly("create", shim.create_as(&bundle.request()).await) },
            async {
                tokio::time::sleep(start_at).await;
                shim.start_process(id, "").await
            },
            async {
                tokio::time::sleep(kill_at).await;
                orderly("kill", shim.kill(id, "", 9, false).await)
            },
            async {
                tokio::time::sleep(delete_at).await;
                orderly("delete", shim.delete(id, "").await)
            },
            async {
                tokio::time::sleep(state_at).await;
                orderly("state", shim.state(id, "").await)
            },
        );
        holds(
            created.map_err(|failed| told("create", failed))?.is_some(),
            || "the only create was refused".into(),
        )?;
        killed
            .and(deleted.map(drop))
            .and(state.map(drop))
            .map_err(|failed| told("calls", failed))?;
        // Killed while it started, it says that it could not.
        if let Err(refused) = started {
            let known = [Code::NOT_FOUND, Code::FAILED_PRECONDITION, Code::UNKNOWN];
            holds(known.contains(&refused.code), || format!("start: {refused}"))?;
        }
        clear(&shim, id).await.map_err(|failed| told("clear", failed))?;
        until("nothing to be left", || bench.left_of(&bundle).is_empty())
            .await
            .map_err(|_| format!("seed {seed}, round {round}: {:?}", bench.left_of(&bundle)))?;
        in_order(bench, id).await?;
    }
    Ok(())
}

/// Each event once and in its order, as far as it came to that.
async fn in_order(bench: &Bench, id: &str) -> Outcome {
    bench
        .events
        .wait_for("delete", id, |event| event.topic == "delete")
        .await?;
    let life = ["create", "start", "exit", "delete"];
    let words: Vec<String> = bench
        .events
        .words(id)
        .into_iter()
        .filter(|word| life.contains(&word.as_str()))
        .collect();
    let begun = words.iter().any(|word| word == "start");
    let expected: Vec<&str> = life
        .into_iter()
        .filter(|word| *word != "start" || begun)
        .collect();
    equal(words, expected, &format!("events of {id}"))
}

async fn same_create(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["sleep", "60"])?;
    let shim = bench.shim(&bundle).await?;
    let request = bundle.request();
    let answers = tokio::join!(
        shim.create_as(&request),
        shim.create_as(&request),
        shim.create_as(&request),
        shim.create_as(&request),
        shim.create_as(&request),
    );
    let answers = [answers.0, answers.1, answers.2, answers.3, answers.4];
    equal(
        answers.iter().filter(|answer| answer.is_ok()).count(),
        1,
        &format!("creates that were done: {answers:?}"),
    )?;
    for refused in answers.into_iter().filter_map(Result::err) {
        equal(refused.code, Code::ALREADY_EXISTS, "the others")?;
    }
    let starts = tokio::join!(
        shim.start_process(&bundle.id, ""),
        shim.start_process(&bundle.id, "")
    );
    equal(
        usize::from(starts.0.is_ok()) + usize::from(starts.1.is_ok()),
        1,
        "starts that were done",
    )?;
    shim.kill_and_delete(&bundle.id).await?;
    in_order(bench, &bundle.id).await
}

async fn execs_raced(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    let (mut random, seed) = Random::seeded();
    for round in 0..10 {
        let bundle = bench.bundle(&format!("r{round}"), &["sleep", "60"])?;
        shim.run(&bundle).await?;
        let ids = ["e1", "e2", "e3"];
        for id in ids {
            shim.add_exec(&bundle.id, &Exec::new(bench, &bundle, id, &["sleep", "60"])?)
                .await?;
        }
        let kill_at = Duration::from_millis(random.below(60) as u64);
        let (one, two, three, killed) = tokio::join!(
            shim.start_process(&bundle.id, "e1"),
            shim.start_process(&bundle.id, "e2"),
            shim.start_process(&bundle.id, "e3"),
            async {
                tokio::time::sleep(kill_at).await;
                shim.kill(&bundle.id, "", 9, false).await
            },
        );
        killed?;
        equal(shim.wait(&bundle.id, "").await?, 137, "status")?;
        for (id, started) in ids.into_iter().zip([one, two, three]) {
            if started.is_ok() {
                equal(
                    shim.wait(&bundle.id, id).await?,
                    137,
                    &format!("seed {seed}: status of {id}"),
                )?;
            }
            shim.delete(&bundle.id, id).await?;
        }
        shim.delete(&bundle.id, "").await?;
        bench.nothing_of(&bundle)?;
        // The container's exit is the last, also after execs that were on their way.
        bench
            .events
            .wait_for("delete", &bundle.id, |event| event.topic == "delete")
            .await?;
        let words = bench.events.words(&bundle.id);
        equal(
            &words[words.len() - 2..],
            &["exit".to_owned(), "delete".to_owned()],
            &format!("seed {seed}: {words:?}"),
        )?;
        for id in ids {
            let of = |word: &str| {
                words
                    .iter()
                    .filter(|found| **found == format!("{word}({id})"))
                    .count()
            };
            equal(
                of("exec-started"),
                of("exit"),
                &format!("seed {seed}: starts and exits of {id} in {words:?}"),
            )?;
        }
    }
    Ok(())
}

async fn many_waits(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["sleep", "60"])?;
    let shim = Arc::new(bench.shim(&bundle).await?);
    shim.run(&bundle).await?;
    let waits: Vec<_> = (0..50)
        .map(|_| {
            let (shim, id) = (shim.clone(), bundle.id.clone());
            tokio::spawn(async move { shim.wait(&id, "").await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    shim.kill(&bundle.id, "", 9, false).await?;
    for wait in waits {
        equal(wait.await??, 137, "status")?;
    }
    // A wait after the end is answered at once, and one that is open when the container is deleted was answered.
    equal(shim.wait(&bundle.id, "").await?, 137, "status")?;
    shim.delete(&bundle.id, "").await?;
    Ok(())
}

/// The containers of a random test, each in a bundle that is made anew when the one before is gone.
struct Pool {
    bundles: BTreeMap<usize, Bundle>,
    made: usize,
}

async fn step(bench: &Bench, shim: &Shim, pool: &mut Pool, random: &mut Random) -> Outcome<String> {
    let which = random.below(3);
    let exec = ["x", "y"][random.below(2)];
    let choice = random.below(14);
    if !pool.bundles.contains_key(&which) {
        pool.made += 1;
        let bundle = bench.bundle(&format!("p{which}-{}", pool.made), &["sleep", "60"])?;
        bundle.write()?;
        pool.bundles.insert(which, bundle);
    }
    let bundle = pool.bundles.get(&which).ok_or("no bundle")?;
    let id = bundle.id.as_str();
    let answered =
        |name: &str, done: bool| format!("{name}({which}) {}", if done { "done" } else { "refused" });
    Ok(match choice {
        0 | 1 => answered(
            "create",
            orderly("create", shim.create_as(&bundle.request()).await)?.is_some(),
        ),
        2 | 3 => answered(
            "start",
            orderly("start", shim.start_process(id, "").await)?.is_some(),
        ),
        4 => answered(
            "kill",
            orderly("kill", shim.kill(id, "", 9, random.below(2) == 0).await)?.is_some(),
        ),
        5 | 6 => {
            let done = orderly("delete", shim.delete(id, "").await)?.is_some();
            if done {
                bench.nothing_of(bundle)?;
                holds(shim.state(id, "").await.is_err(), || {
                    "a deleted container has a state".into()
                })?;
                in_order(bench, id).await?;
            }
            answered("delete", done)
        }
        7 => {
            pool.made += 1;
            let mut asked = Exec::new(bench, bundle, &format!("n{}", pool.made), &["sleep", "60"])?;
            asked.id = exec.to_owned();
            answered(
                "exec",
                orderly("exec", shim.add_exec(id, &asked).await)?.is_some(),
            )
        }
        8 => answered(
            "start-exec",
            orderly("start-exec", shim.start_process(id, exec).await)?.is_some(),
        ),
        9 => answered(
            "kill-exec",
            orderly("kill-exec", shim.kill(id, exec, 9, false).await)?.is_some(),
        ),
        10 => answered(
            "delete-exec",
            orderly("delete-exec", shim.delete(id, exec).await)?.is_some(),
        ),
        11 => answered("pause", orderly("pause", shim.pause(id).await)?.is_some()),
        12 => answered("resume", orderly("resume", shim.resume(id).await)?.is_some()),
        _ => answered("pids", orderly("pids", shim.pids(id).await)?.is_some()),
    })
}

async fn walk(bench: &Bench, shim: &Shim, random: &mut Random, prefix: usize, steps: usize) -> Outcome {
    let seed = random.0;
    let mut pool = Pool {
        bundles: BTreeMap::new(),
        made: prefix,
    };
    let mut done = Vec::new();
    for _ in 0..steps {
        let answered = step(bench, shim, &mut pool, random).await.map_err(|failed| {
            let last: Vec<&String> = done.iter().rev().take(12).collect();
            format!(
                "seed {seed}: {} after {last:?} (newest first)",
                failed.message().unwrap_or_default()
            )
        })?;
        if answered.starts_with("delete(") && answered.ends_with("done") {
            let which = answered.as_bytes()["delete(".len()] - b'0';
            pool.bundles.remove(&usize::from(which));
        }
        done.push(answered);
    }
    for bundle in pool.bundles.values() {
        clear(shim, &bundle.id).await?;
        bench.nothing_of(bundle)?;
    }
    let worked = done.iter().filter(|answered| answered.ends_with("done")).count();
    holds(worked > steps / 10, || {
        format!("seed {seed}: only {worked} of {steps} calls were in their order")
    })
}

async fn random(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    let (mut random, _) = Random::seeded();
    walk(bench, &shim, &mut random, 0, STEPS).await
}

async fn random_at_once(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    let (random, _) = Random::seeded();
    let (mut a, mut b, mut c) = (
        random.clone(),
        Random(random.0 ^ 0x5555),
        Random(random.0 ^ 0x3333_3333),
    );
    let (one, two, three) = tokio::join!(
        walk(bench, &shim, &mut a, 10_000, STEPS / 2),
        walk(bench, &shim, &mut b, 20_000, STEPS / 2),
        walk(bench, &shim, &mut c, 30_000, STEPS / 2),
    );
    one.and(two).and(three)
}
