//! The life of a container: every call of the Task API where it is right.

use std::time::Duration;

use containerd_shim::protos::api::Status;
use containerd_shim::protos::protobuf::Message;
use containerd_shim::protos::shim::oci::ProcessDetails;
use libtest_mimic::Trial;
use serde_json::json;

use crate::common::bundle::Exec;
use crate::common::{Bench, Outcome, Shim, contains, equal, holds, host};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("what_a_process_writes_and_how_it_ends_arrive", exit_codes),
        trial("a_signal_that_ends_a_process_shows_in_its_status", signals),
        trial("each_phase_of_a_container_has_its_state", states),
        trial("an_exec_has_output_and_an_exit_of_its_own", exec),
        trial("an_exec_can_be_signalled_alone", exec_signalled),
        trial("kill_all_ends_everything_that_left_the_first_process", kill_all),
        trial("pids_lists_every_process_and_names_the_execs", pids),
        trial("connect_tells_both_pids", connect),
        trial("a_shim_shuts_down_only_when_it_is_empty", shutdown),
        trial("two_containers_of_a_pod_share_a_shim_and_its_namespaces", pod),
    ]
}

async fn exit_codes(bench: &mut Bench) -> Outcome {
    let mut bundle = bench.script("a", "echo out; echo err >&2; exit 7")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    equal(shim.end(&bundle.id, "").await?, 7, "status")?;
    equal(bundle.stdout.text().await?.as_str(), "out\n", "stdout")?;
    equal(bundle.stderr.text().await?.as_str(), "err\n", "stderr")?;
    bench.nothing_of(&bundle)
}

async fn signals(bench: &mut Bench) -> Outcome {
    // As PID 1 of its namespace a process takes only signals that it handles, or KILL from outside.
    let first = bench.script(
        "a",
        "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done",
    )?;
    let shim = bench.shim(&first).await?;
    for (name, signal, status) in [("b", 9, 137), ("c", 15, 3)] {
        let mut bundle = bench.bundle(name, &[])?;
        bundle.spec["process"]["args"] = first.spec["process"]["args"].clone();
        shim.run(&bundle).await?;
        bundle.stdout.until("ready").await?;
        shim.kill(&bundle.id, "", signal, false).await?;
        equal(
            shim.end(&bundle.id, "").await?,
            status,
            &format!("status after signal {signal}"),
        )?;
        bench.nothing_of(&bundle)?;
    }
    Ok(())
}

async fn states(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["sleep", "60"])?;
    let shim = bench.shim(&bundle).await?;
    let pid = shim.create(&bundle).await?;
    let created = shim.state(&bundle.id, "").await?;
    equal(
        created.status.enum_value(),
        Ok(Status::CREATED),
        "status after create",
    )?;
    equal(created.pid, pid, "pid")?;
    equal(
        created.bundle.as_str(),
        bundle.dir.display().to_string(),
        "bundle",
    )?;
    equal(
        created.stdout.as_str(),
        bundle.stdout.path.display().to_string(),
        "stdout",
    )?;
    holds(host::proc(pid, "cgroup").contains(&bundle.cgroup()), || {
        "the pid is not the container's".into()
    })?;
    shim.start_process(&bundle.id, "").await?;
    let running = shim.state(&bundle.id, "").await?;
    equal(
        running.status.enum_value(),
        Ok(Status::RUNNING),
        "status after start",
    )?;
    equal(host::proc(pid, "cmdline").trim_end(), "sleep 60", "what runs")?;
    shim.pause(&bundle.id).await?;
    let paused = shim.state(&bundle.id, "").await?;
    equal(
        paused.status.enum_value(),
        Ok(Status::PAUSED),
        "status after pause",
    )?;
    shim.resume(&bundle.id).await?;
    let resumed = shim.state(&bundle.id, "").await?;
    equal(
        resumed.status.enum_value(),
        Ok(Status::RUNNING),
        "status after resume",
    )?;
    shim.kill(&bundle.id, "", 9, false).await?;
    shim.wait(&bundle.id, "").await?;
    let stopped = shim.state(&bundle.id, "").await?;
    equal(
        stopped.status.enum_value(),
        Ok(Status::STOPPED),
        "status at the end",
    )?;
    equal(
        (stopped.exit_status, stopped.pid),
        (137, pid),
        "exit and pid at the end",
    )?;
    holds(stopped.exited_at.is_some(), || "no time of the exit".into())?;
    equal(shim.end(&bundle.id, "").await?, 137, "status")
}

async fn exec(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&bundle).await?;
    let init = shim.run(&bundle).await?;
    let mut exec = Exec::new(bench, &bundle, "e", &["sh", "-c", "echo here; exit 5"])?;
    shim.add_exec(&bundle.id, &exec).await?;
    let noted = shim.state(&bundle.id, "e").await?;
    equal(
        noted.status.enum_value(),
        Ok(Status::CREATED),
        "status of a noted exec",
    )?;
    equal(
        (noted.exec_id.as_str(), noted.pid),
        ("e", 0),
        "id and pid of a noted exec",
    )?;
    let pid = shim.start_process(&bundle.id, "e").await?;
    holds(pid != init && pid != 0, || format!("pid of the exec: {pid}"))?;
    equal(exec.stdout.text().await?.as_str(), "here\n", "output")?;
    equal(shim.end(&bundle.id, "e").await?, 5, "status")?;
    // Its id is free again, also for one that never begins.
    let mut second = Exec::new(bench, &bundle, "e2", &["true"])?;
    second.id = "e".into();
    shim.add_exec(&bundle.id, &second).await?;
    shim.delete(&bundle.id, "e").await?;
    let state = shim.state(&bundle.id, "").await?;
    equal(state.status.enum_value(), Ok(Status::RUNNING), "the container")?;
    shim.kill_and_delete(&bundle.id).await?;
    bench.nothing_of(&bundle)
}

async fn exec_signalled(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    for (id, signal, status) in [("term", 15, 143), ("kill", 9, 137), ("real-time", 40, 168)] {
        let exec = Exec::new(bench, &bundle, id, &["sleep", "60"])?;
        shim.exec(&bundle.id, &exec).await?;
        shim.kill(&bundle.id, id, signal, false).await?;
        equal(
            shim.end(&bundle.id, id).await?,
            status,
            &format!("status after {signal}"),
        )?;
    }
    let state = shim.state(&bundle.id, "").await?;
    equal(state.status.enum_value(), Ok(Status::RUNNING), "the container")?;
    shim.kill_and_delete(&bundle.id).await
}

async fn kill_all(bench: &mut Bench) -> Outcome {
    let mut bundle = bench
        .script("a", "(setsid sleep 60 &) ; sleep 60 & echo ready; exec sleep 60")?
        // Without a PID namespace of its own nothing but the shim ends the others.
        .by_spec()
        .edited(|spec| {
            if let Some(namespaces) = spec["linux"]["namespaces"].as_array_mut() {
                namespaces.retain(|namespace| namespace["type"] != "pid");
            }
        });
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bundle.stdout.until("ready").await?;
    let inside = shim.pids(&bundle.id).await?.len();
    equal(inside, 3, "processes")?;
    shim.kill(&bundle.id, "", 9, true).await?;
    equal(shim.end(&bundle.id, "").await?, 137, "status")?;
    bench.nothing_of(&bundle)?;
    // And at the first process's end, nobody asks.
    let mut bundle = bench
        .script("b", "(setsid sleep 60 &) ; echo ready; exit 4")?
        .by_spec()
        .edited(|spec| {
            if let Some(namespaces) = spec["linux"]["namespaces"].as_array_mut() {
                namespaces.retain(|namespace| namespace["type"] != "pid");
            }
        });
    shim.run(&bundle).await?;
    bundle.stdout.until("ready").await?;
    equal(shim.end(&bundle.id, "").await?, 4, "status")?;
    bench.nothing_of(&bundle)
}

async fn pids(bench: &mut Bench) -> Outcome {
    let mut bundle = bench.script("a", "sleep 60 & echo ready; sleep 61; true")?;
    let shim = bench.shim(&bundle).await?;
    let init = shim.run(&bundle).await?;
    let exec = Exec::new(bench, &bundle, "named", &["sleep", "60"])?;
    let exec = shim.exec(&bundle.id, &exec).await?;
    bundle.stdout.until("ready").await?;
    let mut found = Vec::new();
    for _ in 0..100 {
        found = shim.pids(&bundle.id).await?;
        if found.len() == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    equal(found.len(), 4, &format!("processes {found:?}"))?;
    for (pid, info) in &found {
        holds(host::proc(pid, "cgroup").contains(&bundle.cgroup()), || {
            format!("{pid} is not inside")
        })?;
        let name = info
            .as_ref()
            .map(|any| ProcessDetails::parse_from_bytes(&any.value))
            .transpose()?;
        let name = name.map(|details| details.exec_id);
        equal(
            name.as_deref(),
            (*pid == exec).then_some("named"),
            "the name of a process",
        )?;
    }
    holds(found.iter().any(|(pid, _)| *pid == init), || {
        "the first process is missing".into()
    })?;
    shim.kill_and_delete(&bundle.id).await
}

async fn connect(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&bundle).await?;
    equal(
        shim.pids_of(&bundle.id).await?.1,
        0,
        "the pid of a container that is not there",
    )?;
    let pid = shim.run(&bundle).await?;
    let (own, task) = shim.pids_of(&bundle.id).await?;
    equal((own, task), (shim.pid, pid), "pids")?;
    contains(&host::proc(own, "cmdline"), "containerd-shim-sandglass-v1")?;
    // containerd was restarted: another connection finds everything.
    let again = Shim::connect(bench, &shim.address).await?;
    equal(
        again.state(&bundle.id, "").await?.pid,
        pid,
        "pid over another connection",
    )?;
    again.kill_and_delete(&bundle.id).await
}

async fn shutdown(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    shim.ask_to_shut_down(false).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    equal(
        shim.state(&bundle.id, "").await?.status.enum_value(),
        Ok(Status::RUNNING),
        "the container",
    )?;
    shim.kill_and_delete(&bundle.id).await?;
    holds(shim.socket().exists(), || {
        "the socket went before the shim".into()
    })?;
    shim.shut_down().await?;
    holds(!shim.socket().exists(), || "the socket is left".into())?;
    // What happened last is told before it goes.
    equal(
        bench.events.words(&bundle.id),
        ["create", "start", "exit", "delete"],
        "events",
    )
}

async fn pod(bench: &mut Bench) -> Outcome {
    let pod = |spec: &mut serde_json::Value| {
        spec["annotations"] = json!({"io.kubernetes.cri.sandbox-id": "the-pod"});
    };
    let pause = bench
        .bundle("pause", &["sleep", "60"])?
        .edited(pod)
        .edited(|spec| {
            spec["annotations"]["io.kubernetes.cri.container-type"] = json!("sandbox");
            spec["process"]["user"] = json!({"uid": 0, "gid": 0});
        });
    let first = bench.shim(&pause).await?;
    let pid = first.run(&pause).await?;
    let mut main = bench
        .script("main", "hostname; readlink /proc/self/ns/ipc")?
        .edited(pod)
        .edited(|spec| {
            spec["annotations"]["io.kubernetes.cri.container-type"] = json!("container");
            spec["linux"]["namespaces"] = json!([
                {"type": "pid"}, {"type": "mount"},
                {"type": "ipc", "path": format!("/proc/{pid}/ns/ipc")},
                {"type": "uts", "path": format!("/proc/{pid}/ns/uts")},
                {"type": "network", "path": format!("/proc/{pid}/ns/net")},
            ]);
        });
    let second = bench.shim(&main).await?;
    equal(&second.address, &first.address, "address")?;
    equal(second.pid, first.pid, "shim")?;
    let ipc = std::fs::read_link(format!("/proc/{pid}/ns/ipc"))?;
    second.run(&main).await?;
    let text = main.stdout.text().await?;
    equal(
        text.as_str(),
        format!("pod\n{}\n", ipc.display()),
        "host name and IPC namespace",
    )?;
    equal(second.end(&main.id, "").await?, 0, "status")?;
    second.ask_to_shut_down(false).await?;
    equal(
        first.state(&pause.id, "").await?.status.enum_value(),
        Ok(Status::RUNNING),
        "the pod's sandbox",
    )?;
    first.kill_and_delete(&pause.id).await
}
