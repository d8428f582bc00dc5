//! Events: each one, once, in the order in which it happened.

use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::json;

use crate::common::bundle::Exec;
use crate::common::{Bench, Outcome, equal, holds, until};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("the_events_of_a_container_come_in_its_order", order),
        trial("an_end_at_once_is_told_after_the_start", early_exits),
        trial(
            "the_exits_of_execs_are_told_before_that_of_their_container",
            execs_first,
        ),
        trial(
            "a_kill_for_want_of_memory_is_told_before_the_exit",
            oom_before_exit,
        ),
        trial(
            "a_kill_for_want_of_memory_of_an_exec_is_told_while_the_container_lives",
            oom_of_exec,
        ),
        trial("events_wait_in_order_while_containerd_is_away", away),
    ]
}

async fn order(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "exit 3")?;
    let shim = bench.shim(&bundle).await?;
    let pid = shim.run(&bundle).await?;
    shim.end(&bundle.id, "").await?;
    bench
        .events
        .wait_for("delete", &bundle.id, |event| event.topic == "delete")
        .await?;
    equal(
        bench.events.words(&bundle.id),
        ["create", "start", "exit", "delete"],
        "events",
    )?;
    for event in bench.events.of(&bundle.id) {
        equal(event.namespace.as_str(), "sgt", "namespace")?;
        if event.topic == "exit" {
            equal(
                (event.process.as_str(), event.status, event.pid),
                (bundle.id.as_str(), 3, pid),
                "the exit",
            )?;
        }
    }
    Ok(())
}

async fn early_exits(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    for round in 0..20 {
        let bundle = bench.bundle(&format!("r{round}"), &["true"])?;
        shim.run(&bundle).await?;
        shim.end(&bundle.id, "").await?;
        bench
            .events
            .wait_for("delete", &bundle.id, |event| event.topic == "delete")
            .await?;
        equal(
            bench.events.words(&bundle.id),
            ["create", "start", "exit", "delete"],
            "events",
        )?;
    }
    let bundle = bench.script("holds", "sleep 60")?;
    shim.run(&bundle).await?;
    for round in 0..20 {
        let id = format!("e{round}");
        let exec = Exec::new(bench, &bundle, &id, &["true"])?;
        shim.exec(&bundle.id, &exec).await?;
        equal(shim.end(&bundle.id, &id).await?, 0, "status")?;
        bench
            .events
            .wait_for("exit of the exec", &bundle.id, |event| {
                event.topic == "exit" && event.process == id
            })
            .await?;
        let words = bench.events.words(&bundle.id);
        let expected = ["exec-added", "exec-started", "exit"].map(|word| format!("{word}({id})"));
        equal(&words[words.len() - 3..], &expected, "events of an exec")?;
    }
    shim.kill_and_delete(&bundle.id).await
}

async fn execs_first(bench: &mut Bench) -> Outcome {
    let first = bench.script("first", "sleep 60")?;
    let shim = bench.shim(&first).await?;
    for round in 0..5 {
        let bundle = bench.script(&format!("r{round}"), "sleep 60")?;
        shim.run(&bundle).await?;
        for id in ["e1", "e2", "e3"] {
            let exec = Exec::new(bench, &bundle, id, &["sleep", "60"])?;
            shim.exec(&bundle.id, &exec).await?;
        }
        shim.kill(&bundle.id, "", 9, false).await?;
        shim.wait(&bundle.id, "").await?;
        bench
            .events
            .wait_for("exit", &bundle.id, |event| event.process == bundle.id)
            .await?;
        let exits: Vec<String> = bench
            .events
            .of(&bundle.id)
            .into_iter()
            .filter(|event| event.topic == "exit")
            .map(|event| event.process)
            .collect();
        equal(exits.len(), 4, &format!("exits {exits:?}"))?;
        equal(
            exits.last().map(String::as_str),
            Some(bundle.id.as_str()),
            "the last exit",
        )?;
        for id in ["e1", "e2", "e3"] {
            equal(shim.end(&bundle.id, id).await?, 137, "status of an exec")?;
        }
        equal(shim.end(&bundle.id, "").await?, 137, "status")?;
    }
    Ok(())
}

/// Takes memory until there is none.
const EAT: &str = "x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done";

async fn oom_before_exit(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", EAT)?.edited(|spec| {
        spec["linux"]["resources"]["memory"] = json!({"limit": 16 << 20, "swap": 16 << 20});
    });
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    equal(shim.end(&bundle.id, "").await?, 137, "status")?;
    bench
        .events
        .wait_for("delete", &bundle.id, |event| event.topic == "delete")
        .await?;
    equal(
        bench.events.words(&bundle.id),
        ["create", "start", "oom", "exit", "delete"],
        "events",
    )
}

async fn oom_of_exec(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?.edited(|spec| {
        spec["linux"]["resources"]["memory"] = json!({"limit": 16 << 20, "swap": 16 << 20});
    });
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let exec = Exec::new(bench, &bundle, "e", &["sh", "-c", EAT])?;
    shim.exec(&bundle.id, &exec).await?;
    equal(shim.end(&bundle.id, "e").await?, 137, "status")?;
    bench
        .events
        .wait_for("oom", &bundle.id, |event| event.topic == "oom")
        .await?;
    let words = bench.events.words(&bundle.id);
    let place = |word: &str| words.iter().position(|found| found == word);
    holds(place("oom") < place("exit(e)"), || {
        format!("the exit was told first: {words:?}")
    })?;
    shim.kill_and_delete(&bundle.id).await
}

async fn away(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bench
        .events
        .wait_for("start", &bundle.id, |event| event.topic == "start")
        .await?;
    let before = bench.events.count();
    bench.events.go_away().await?;
    let mut expected = vec!["create".to_owned(), "start".to_owned()];
    for id in ["e1", "e2", "e3", "e4"] {
        let exec = Exec::new(bench, &bundle, id, &["true"])?;
        // Nobody listens, and no call is held up for it.
        shim.exec(&bundle.id, &exec).await?;
        equal(shim.end(&bundle.id, id).await?, 0, "status")?;
        expected.extend(["exec-added", "exec-started", "exit"].map(|word| format!("{word}({id})")));
    }
    shim.kill_and_delete(&bundle.id).await?;
    expected.extend(["exit", "delete"].map(str::to_owned));
    tokio::time::sleep(Duration::from_secs(3)).await;
    equal(bench.events.count(), before, "events while nobody listens")?;
    bench.events.come_back().await?;
    until("all events", || {
        bench.events.words(&bundle.id).len() >= expected.len()
    })
    .await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    equal(bench.events.words(&bundle.id), expected, "events")
}
