//! Requests that are wrong: each is answered with a status and one sentence, and leaves nothing.

use containerd_shim::protos::api::CheckpointTaskRequest;
use containerd_shim::protos::ttrpc::context::with_timeout;
use libtest_mimic::Trial;

use crate::common::bundle::Exec;
use crate::common::{Bench, Bundle, Code, Outcome, Refused, Shim, contains, equal, holds};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("every_call_of_an_unknown_id_is_answered_not_found", unknown_id),
        trial("an_id_that_is_there_is_not_made_again", duplicate),
        trial("calls_out_of_their_order_are_failed_preconditions", out_of_order),
        trial("kill_after_the_end_is_not_found", kill_after_end),
        trial("a_second_delete_finds_nothing", delete_twice),
        trial("an_id_is_a_plain_name", ids),
        trial("checkpoints_are_not_offered", checkpoints),
        trial("a_signal_that_is_none_is_refused", signal_numbers),
    ]
}

/// A refusal is one sentence on one line.
pub fn refusal<T: std::fmt::Debug>(answer: Result<T, Refused>, code: Code, part: &str) -> Outcome {
    match answer {
        Ok(answer) => Err(format!("answered {answer:?} where {code:?} with {part:?} was expected").into()),
        Err(refused) => {
            equal(refused.code, code, &format!("status of {:?}", refused.sentence))?;
            contains(&refused.sentence, part)?;
            holds(
                refused.sentence.lines().count() == 1
                    && refused.sentence.len() > 8
                    && refused.sentence.len() < 600,
                || format!("not one sentence: {:?}", refused.sentence),
            )
        }
    }
}

pub async fn gone(bench: &Bench, shim: &Shim, bundle: &Bundle) -> Outcome {
    bench.nothing_of(bundle)?;
    refusal(shim.state(&bundle.id, "").await, Code::NOT_FOUND, &bundle.id)?;
    equal(bench.events.words(&bundle.id), Vec::<String>::new(), "events")
}

/// A shim, and an idle container in it.
pub async fn running(bench: &Bench) -> Outcome<(Shim, Bundle)> {
    let bundle = bench.bundle("idle", &["sleep", "60"])?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    Ok((shim, bundle))
}

async fn unknown_id(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    let exec = Exec::new(bench, &idle, "e", &["true"])?;
    for id in ["no-such", "", "../x"] {
        let code = Code::NOT_FOUND;
        refusal(shim.state(id, "").await, code, "not found")?;
        refusal(shim.start_process(id, "").await, code, "not found")?;
        refusal(shim.wait(id, "").await, code, "not found")?;
        refusal(shim.kill(id, "", 9, false).await, code, "not found")?;
        refusal(shim.delete(id, "").await, code, "not found")?;
        refusal(shim.pids(id).await, code, "not found")?;
        refusal(shim.pause(id).await, code, "not found")?;
        refusal(shim.resume(id).await, code, "not found")?;
        refusal(shim.stats(id).await, code, "not found")?;
        refusal(shim.update(id, "{}").await, code, "not found")?;
        refusal(shim.close_stdin(id, "").await, code, "not found")?;
        refusal(shim.resize(id, "", 80, 24).await, code, "not found")?;
        refusal(shim.add_exec(id, &exec).await, code, "not found")?;
    }
    for exec in ["no-such", "../x"] {
        let (id, code) = (idle.id.as_str(), Code::NOT_FOUND);
        refusal(shim.state(id, exec).await, code, "not found")?;
        refusal(shim.start_process(id, exec).await, code, "not found")?;
        refusal(shim.wait(id, exec).await, code, "not found")?;
        refusal(shim.kill(id, exec, 9, false).await, code, "not found")?;
        refusal(shim.delete(id, exec).await, code, "not found")?;
        refusal(shim.close_stdin(id, exec).await, code, "not found")?;
        refusal(shim.resize(id, exec, 80, 24).await, code, "not found")?;
    }
    shim.kill_and_delete(&idle.id).await
}

async fn duplicate(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    let mut again = bench.bundle("again", &["true"])?;
    again.id = idle.id.clone();
    refusal(shim.create(&again).await, Code::ALREADY_EXISTS, "exists already")?;
    // Another id in the same bundle would share its state.
    let mut other = bench.bundle("other", &["true"])?;
    other.dir = idle.dir.clone();
    refusal(
        shim.create_as(&other.request()).await,
        Code::ALREADY_EXISTS,
        "bundle",
    )?;
    equal(shim.state(&idle.id, "").await?.exit_status, 0, "the first")?;
    let exec = Exec::new(bench, &idle, "e", &["sleep", "60"])?;
    shim.exec(&idle.id, &exec).await?;
    refusal(
        shim.add_exec(&idle.id, &exec).await,
        Code::ALREADY_EXISTS,
        "exists already",
    )?;
    shim.kill_and_delete(&idle.id).await
}

async fn out_of_order(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    let code = Code::FAILED_PRECONDITION;
    refusal(shim.start_process(&idle.id, "").await, code, "started already")?;
    refusal(shim.delete(&idle.id, "").await, code, "kill it first")?;
    let exec = Exec::new(bench, &idle, "e", &["sleep", "60"])?;
    shim.add_exec(&idle.id, &exec).await?;
    refusal(shim.kill(&idle.id, "e", 9, false).await, code, "not been started")?;
    shim.start_process(&idle.id, "e").await?;
    refusal(shim.start_process(&idle.id, "e").await, code, "started already")?;
    refusal(shim.delete(&idle.id, "e").await, code, "running")?;
    let fresh = bench.bundle("fresh", &["true"])?;
    shim.create(&fresh).await?;
    let early = Exec::new(bench, &fresh, "early", &["true"])?;
    refusal(shim.add_exec(&fresh.id, &early).await, code, "not running")?;
    refusal(shim.pause(&fresh.id).await, code, "not running")?;
    refusal(shim.resume(&fresh.id).await, code, "not running")?;
    refusal(shim.delete(&fresh.id, "").await, code, "kill it first")?;
    // Killed before it began, it never begins.
    shim.kill(&fresh.id, "", 9, false).await?;
    equal(shim.wait(&fresh.id, "").await?, 137, "status")?;
    refusal(shim.start_process(&fresh.id, "").await, code, "stopped")?;
    shim.delete(&fresh.id, "").await?;
    bench.nothing_of(&fresh)?;
    let noted = Exec::new(bench, &idle, "noted", &["true"])?;
    shim.add_exec(&idle.id, &noted).await?;
    shim.pause(&idle.id).await?;
    let paused = Exec::new(bench, &idle, "paused", &["true"])?;
    refusal(shim.add_exec(&idle.id, &paused).await, code, "is paused")?;
    refusal(shim.pause(&idle.id).await, code, "paused already")?;
    refusal(shim.start_process(&idle.id, "noted").await, code, "is paused")?;
    shim.resume(&idle.id).await?;
    shim.kill(&idle.id, "", 9, false).await?;
    shim.wait(&idle.id, "").await?;
    let late = Exec::new(bench, &idle, "late", &["true"])?;
    refusal(shim.add_exec(&idle.id, &late).await, code, "not running")?;
    refusal(shim.start_process(&idle.id, "noted").await, code, "not running")?;
    refusal(shim.pause(&idle.id).await, code, "not running")?;
    shim.delete(&idle.id, "").await?;
    bench.nothing_of(&idle)
}

async fn kill_after_end(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    let exec = Exec::new(bench, &idle, "e", &["true"])?;
    shim.exec(&idle.id, &exec).await?;
    shim.wait(&idle.id, "e").await?;
    refusal(
        shim.kill(&idle.id, "e", 15, false).await,
        Code::NOT_FOUND,
        "already finished",
    )?;
    shim.kill(&idle.id, "", 9, false).await?;
    shim.wait(&idle.id, "").await?;
    for all in [false, true] {
        refusal(
            shim.kill(&idle.id, "", 15, all).await,
            Code::NOT_FOUND,
            "already finished",
        )?;
    }
    shim.delete(&idle.id, "").await?;
    Ok(())
}

async fn delete_twice(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    shim.kill(&idle.id, "", 9, false).await?;
    shim.wait(&idle.id, "").await?;
    // At once, and one after the other.
    let (one, two) = tokio::join!(shim.delete(&idle.id, ""), shim.delete(&idle.id, ""));
    holds(one.is_ok() || two.is_ok(), || format!("{one:?} {two:?}"))?;
    for answer in [one, two] {
        match answer {
            Ok(deleted) => equal(deleted.exit_status, 137, "status")?,
            Err(refused) => equal(refused.code, Code::NOT_FOUND, "the second")?,
        }
    }
    refusal(shim.delete(&idle.id, "").await, Code::NOT_FOUND, "not found")?;
    let words = bench
        .events
        .wait_for("delete", &idle.id, |event| event.topic == "delete")
        .await;
    words?;
    equal(
        bench
            .events
            .words(&idle.id)
            .iter()
            .filter(|word| *word == "delete")
            .count(),
        1,
        "delete events",
    )
}

async fn ids(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    let long = "x".repeat(77);
    for id in ["", "a/b", "..", ".", "a b", "a\n", "-a", "é", long.as_str()] {
        let mut bundle = bench
            .bundle(&format!("n{}", id.len()), &["true"])
            .or_else(|_| bench.bundle("n", &["true"]))?;
        bundle.id = id.to_owned();
        let answer = shim.create(&bundle).await;
        refusal(answer, Code::INVALID_ARGUMENT, "not a plain name")?;
        bench.nothing_of(&bundle)?;
        let _ = std::fs::remove_file(&bundle.stdout.path);
        let _ = std::fs::remove_file(&bundle.stderr.path);
        if !id.is_empty() {
            let mut exec = Exec::new(bench, &idle, &format!("x{}", id.len()), &["true"])?;
            exec.id = id.to_owned();
            refusal(
                shim.add_exec(&idle.id, &exec).await,
                Code::INVALID_ARGUMENT,
                "not a plain name",
            )?;
            let _ = std::fs::remove_file(&exec.stdout.path);
        }
    }
    // Without an id there is no exec; it would be the first process.
    let mut exec = Exec::new(bench, &idle, "e", &["true"])?;
    exec.id = String::new();
    refusal(
        shim.add_exec(&idle.id, &exec).await,
        Code::INVALID_ARGUMENT,
        "not a plain name",
    )?;
    shim.kill_and_delete(&idle.id).await
}

async fn checkpoints(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    let request = CheckpointTaskRequest {
        id: idle.id.clone(),
        path: bench.dir().join("checkpoint").display().to_string(),
        ..CheckpointTaskRequest::default()
    };
    let answer = shim.task.checkpoint(with_timeout(5_000_000_000), &request).await;
    refusal(
        answer.map_err(crate::common::shim::refused),
        Code::UNIMPLEMENTED,
        "checkpoint",
    )?;
    let bundle = bench.bundle("a", &["true"])?;
    bundle.write()?;
    let mut request = bundle.request();
    request.checkpoint = "/some/where".into();
    refusal(shim.create_as(&request).await, Code::UNIMPLEMENTED, "checkpoint")?;
    gone(bench, &shim, &bundle).await?;
    shim.kill_and_delete(&idle.id).await
}

async fn signal_numbers(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    for number in [65, 999, u32::MAX] {
        for all in [false, true] {
            refusal(
                shim.kill(&idle.id, "", number, all).await,
                Code::INVALID_ARGUMENT,
                &format!("signal {number}"),
            )?;
        }
    }
    shim.kill_and_delete(&idle.id).await
}
