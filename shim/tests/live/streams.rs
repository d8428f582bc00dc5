//! Streams: output complete, input to its end, terminals.

use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::common::bundle::Exec;
use crate::common::{Bench, Outcome, contains, equal, holds, host};
use crate::trial;

/// Bytes of an output that fits no pipe.
const LONG: usize = 1 << 20;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_long_output_is_complete", long_output),
        trial(
            "a_long_output_of_a_process_that_ended_waits_for_its_reader",
            late_reader,
        ),
        trial("input_reaches_the_process_and_ends_with_close_io", input),
        trial("input_of_an_exec_ends_with_close_io", exec_input),
        trial("a_long_input_comes_back_whole", long_input),
        trial("a_process_without_streams_has_null_devices", no_streams),
        trial("a_terminal_is_one_and_takes_its_size", terminal),
        trial("an_exec_has_a_terminal_of_its_own", exec_terminal),
        trial("a_process_can_open_its_streams_by_name", by_name),
        trial("a_terminal_works_in_a_bundle_with_a_long_path", long_path),
        trial("a_reader_that_goes_and_comes_back_loses_no_process", reader_gone),
        trial("a_writer_that_goes_and_comes_back_ends_no_input", writer_gone),
        trial(
            "an_orphan_that_holds_the_output_open_does_not_hold_up_delete_for_ever",
            orphan_holds_output,
        ),
    ]
}

async fn long_output(bench: &mut Bench) -> Outcome {
    let script = format!("head -c {LONG} /dev/zero | tr '\\0' x; printf end");
    let mut bundle = bench.script("a", &script)?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let body = bundle.stdout.read().await?;
    equal(body.len(), LONG + 3, "bytes")?;
    holds(
        body.ends_with(b"xend") && body[..LONG].iter().all(|byte| *byte == b'x'),
        || "the bytes changed".into(),
    )?;
    let mut exec_body = Exec::new(bench, &bundle, "e", &["sh", "-c", &script])?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")?;
    let long = bench.script("b", "sleep 60")?;
    shim.run(&long).await?;
    shim.exec(&long.id, &exec_body).await?;
    equal(exec_body.stdout.read().await?.len(), LONG + 3, "bytes of an exec")?;
    equal(shim.end(&long.id, "e").await?, 0, "status of the exec")?;
    shim.kill_and_delete(&long.id).await
}

async fn late_reader(bench: &mut Bench) -> Outcome {
    // More than the FIFO holds, less than FIFO, copier and pipe hold together: the process ends before anyone reads.
    let mut bundle = bench.script("a", "head -c 100000 /dev/zero; printf end")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    equal(shim.wait(&bundle.id, "").await?, 0, "status")?;
    let id = bundle.id.clone();
    // The delete waits for the reader.
    let (deleted, read) = tokio::join!(shim.delete(&id, ""), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        bundle.stdout.read().await
    });
    deleted?;
    equal(read?.len(), 100_003, "bytes")
}

async fn input(bench: &mut Bench) -> Outcome {
    let mut bundle = bench.script("a", "cat; echo end")?.with_stdin(bench)?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bundle.input()?.write(b"first\n").await?;
    bundle.stdout.until("first\n").await?;
    // The writer is gone, and that is not the end: containerd may be restarted.
    bundle.input()?.write(b"second\n").await?;
    bundle.stdout.until("second\n").await?;
    shim.close_stdin(&bundle.id, "").await?;
    equal(
        bundle.stdout.text().await?.as_str(),
        "end\n",
        "what came after the end of the input",
    )?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")
}

async fn exec_input(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let mut exec = Exec::new(bench, &bundle, "e", &["sh", "-c", "cat; exit 9"])?.with_stdin(bench)?;
    shim.exec(&bundle.id, &exec).await?;
    exec.stdin.as_ref().ok_or("no input")?.write(b"hello").await?;
    shim.close_stdin(&bundle.id, "e").await?;
    equal(exec.stdout.text().await?.as_str(), "hello", "output")?;
    equal(shim.end(&bundle.id, "e").await?, 9, "status")?;
    // Closed before it begins: it finds the end at once.
    let mut exec = Exec::new(bench, &bundle, "f", &["sh", "-c", "cat; exit 8"])?.with_stdin(bench)?;
    shim.add_exec(&bundle.id, &exec).await?;
    shim.close_stdin(&bundle.id, "f").await?;
    shim.start_process(&bundle.id, "f").await?;
    equal(exec.stdout.text().await?.as_str(), "", "output")?;
    equal(shim.end(&bundle.id, "f").await?, 8, "status")?;
    shim.kill_and_delete(&bundle.id).await
}

async fn long_input(bench: &mut Bench) -> Outcome {
    let mut bundle = bench.script("a", "cat | wc -c")?.with_stdin(bench)?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bundle.input()?.write(&vec![7; LONG]).await?;
    shim.close_stdin(&bundle.id, "").await?;
    equal(bundle.stdout.text().await?.trim(), LONG.to_string(), "bytes")?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")
}

async fn no_streams(bench: &mut Bench) -> Outcome {
    let script = "echo $(for fd in 0 1 2; do readlink /proc/$$/fd/$fd; done) > /tmp/fds; exec sleep 60";
    let bundle = bench.script("a", script)?;
    let shim = bench.shim(&bundle).await?;
    bundle.write()?;
    let mut request = bundle.request();
    (request.stdout, request.stderr) = (String::new(), String::new());
    shim.create_as(&request).await?;
    shim.start_process(&bundle.id, "").await?;
    let look = "until [ -s /tmp/fds ]; do sleep 0.01; done; cat /tmp/fds";
    let mut exec = Exec::new(bench, &bundle, "e", &["sh", "-c", look])?;
    shim.exec(&bundle.id, &exec).await?;
    equal(
        exec.stdout.text().await?.as_str(),
        "/dev/null /dev/null /dev/null\n",
        "streams of the first process",
    )?;
    shim.end(&bundle.id, "e").await?;
    shim.kill_and_delete(&bundle.id).await
}

async fn terminal(bench: &mut Bench) -> Outcome {
    let script = "tty; test -t 0 && test -t 1 && test -t 2 && echo is-tty; read go; stty size; exit 6";
    let mut bundle = bench
        .script("a", script)?
        .with_stdin(bench)?
        .with_terminal()
        .edited(|spec| {
            spec["process"]["consoleSize"] = json!({"height": 11, "width": 22});
        });
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let text = bundle.stdout.until("is-tty").await?;
    contains(&text, "/dev/pts/0")?;
    shim.resize(&bundle.id, "", 123, 45).await?;
    bundle.input()?.write(b"go\n").await?;
    bundle.stdout.until("45 123").await?;
    equal(shim.end(&bundle.id, "").await?, 6, "status")?;
    bench.nothing_of(&bundle)
}

async fn exec_terminal(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let none = shim
        .resize(&bundle.id, "", 80, 24)
        .await
        .err()
        .ok_or("a terminal that is not there was resized")?;
    contains(&none.sentence, "has no terminal")?;
    let script = "test -t 0 && test -t 1 && test -t 2 && echo is-tty; read go; stty size; exit 6";
    let mut exec = Exec::new(bench, &bundle, "e", &["sh", "-c", script])?
        .with_stdin(bench)?
        .with_terminal();
    shim.exec(&bundle.id, &exec).await?;
    exec.stdout.until("is-tty").await?;
    shim.resize(&bundle.id, "e", 99, 33).await?;
    exec.stdin.as_ref().ok_or("no input")?.write(b"go\n").await?;
    exec.stdout.until("33 99").await?;
    equal(shim.end(&bundle.id, "e").await?, 6, "status")?;
    // The keys of a terminal are signals: control and C.
    let mut exec = Exec::new(
        bench,
        &bundle,
        "f",
        &[
            "sh",
            "-c",
            "trap 'exit 44' INT; echo ready; while :; do sleep 0.01; done",
        ],
    )?
    .with_stdin(bench)?
    .with_terminal();
    shim.exec(&bundle.id, &exec).await?;
    exec.stdout.until("ready").await?;
    exec.stdin.as_ref().ok_or("no input")?.write(&[3]).await?;
    equal(shim.end(&bundle.id, "f").await?, 44, "status after control and C")?;
    shim.kill_and_delete(&bundle.id).await
}

async fn reader_gone(bench: &mut Bench) -> Outcome {
    let script = "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); sleep 0.002; done; exit 2";
    let mut bundle = bench.script("a", script)?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bundle.stdout.until("line 10\n").await?;
    // The FIFO has no reader for a moment, as while containerd is restarted.
    let elsewhere = crate::common::fifo::Output::make(&bench.dir().join("elsewhere"))?;
    let gone = std::mem::replace(&mut bundle.stdout, elsewhere);
    let path = gone.path.clone();
    drop(gone);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut back = crate::common::fifo::Output::open(&path)?;
    let text = back.text().await?;
    equal(shim.end(&bundle.id, "").await?, 2, "status")?;
    let numbers: Vec<u32> = text
        .lines()
        .filter_map(|line| line.strip_prefix("line ")?.parse().ok())
        .collect();
    equal(numbers.last(), Some(&399), "the last line")?;
    let gaps = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    equal(gaps, 0, "gaps in what was written while nobody read and after")
}

async fn writer_gone(bench: &mut Bench) -> Outcome {
    let mut bundle = bench.script("a", "cat")?.with_stdin(bench)?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    for round in 0..20 {
        let mut writer = bundle.input()?.open().await?;
        writer.write_all(format!("round {round}\n").as_bytes()).await?;
        drop(writer);
        bundle.stdout.until(&format!("round {round}\n")).await?;
    }
    shim.close_stdin(&bundle.id, "").await?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")
}

async fn orphan_holds_output(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    shim.run(&first).await?;
    shim.end(&first.id, "").await?;
    let before = host::descriptors(shim.pid);
    let bundle = bench.script("a", "sleep 60")?;
    shim.run(&bundle).await?;
    // What it starts lives on in the container and holds the exec's output open.
    let exec = Exec::new(bench, &bundle, "e", &["sh", "-c", "sleep 59 & exit 3"])?;
    shim.exec(&bundle.id, &exec).await?;
    let begun = std::time::Instant::now();
    equal(shim.wait(&bundle.id, "e").await?, 3, "status")?;
    holds(begun.elapsed() < Duration::from_secs(5), || {
        "the exit waited for the output".into()
    })?;
    // Its delete waits ten seconds for more output; the container's end is the end of that.
    let pid = shim.pid;
    let (deleted, killed) = tokio::join!(shim.delete(&bundle.id, "e"), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        shim.kill(&bundle.id, "", 9, false).await
    });
    killed?;
    equal(deleted?.exit_status, 3, "status that delete tells")?;
    holds(begun.elapsed() < Duration::from_secs(8), || {
        "the delete waited for its time-out".into()
    })?;
    equal(shim.end(&bundle.id, "").await?, 137, "status")?;
    host::no_more_descriptors(pid, &before).await
}

async fn by_name(bench: &mut Bench) -> Outcome {
    let script = "echo out > /dev/stdout; echo err > /dev/stderr; exec sleep 60";
    let mut bundle = bench.script("a", script)?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bundle.stdout.until("out\n").await?;
    bundle.stderr.until("err\n").await?;
    // They belong to whoever is exec'ed, not to the container's user.
    let mut exec = Exec::new(bench, &bundle, "e", &["sh", "-c", "echo other > /dev/stdout"])?
        .edited(|process| process["user"] = json!({"uid": 1000, "gid": 1000}));
    shim.exec(&bundle.id, &exec).await?;
    equal(
        exec.stdout.text().await?.as_str(),
        "other\n",
        "output of another user",
    )?;
    equal(shim.end(&bundle.id, "e").await?, 0, "status")?;
    shim.kill_and_delete(&bundle.id).await
}

async fn long_path(bench: &mut Bench) -> Outcome {
    // As long as containerd's ids; with what is below it, longer than the name of a socket can be.
    let name = "x".repeat(76 - bench.id("").len());
    let mut bundle = bench
        .script(&name, "test -t 0 && echo is-tty; exec sleep 60")?
        .with_terminal();
    holds(bundle.dir.as_os_str().len() > 90, || {
        format!("{} is not long", bundle.dir.display())
    })?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bundle.stdout.until("is-tty").await?;
    let mut exec = Exec::new(
        bench,
        &bundle,
        &"e".repeat(76),
        &["sh", "-c", "test -t 0 && echo is-tty"],
    )?
    .with_terminal();
    shim.exec(&bundle.id, &exec).await?;
    exec.stdout.until("is-tty").await?;
    equal(shim.end(&bundle.id, &exec.id).await?, 0, "status")?;
    shim.kill_and_delete(&bundle.id).await
}
