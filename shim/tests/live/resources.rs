//! What a container may use: limits, statistics, the freezer, its cgroups.

use std::time::Duration;

use containerd_shim::protos::api::Status;
use containerd_shim::protos::cgroups::metrics::Metrics as V1;
use containerd_shim::protos::cgroups_v2::metrics::Metrics as V2;
use containerd_shim::protos::protobuf::Message;
use libtest_mimic::Trial;
use serde_json::json;

use crate::common::bundle::Exec;
use crate::common::{Bench, Outcome, contains, equal, holds, host, until};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_paused_container_does_nothing_until_it_is_resumed", pause),
        trial("a_paused_container_can_be_killed", kill_paused),
        trial("an_exec_that_is_killed_ends_no_pause", kill_paused_exec),
        trial("an_update_lifts_none_of_the_limits_of_a_sandbox", update_bounded),
        trial("limits_are_set_at_create_and_by_update", update),
        trial("stats_count_cpu_memory_and_processes", stats),
        trial(
            "the_cgroups_parents_that_the_shim_made_go_with_the_last_container",
            parents,
        ),
    ]
}

fn control(path: &str, controller: &str, files: (&str, &str)) -> Outcome<String> {
    host::control(controller, path, files)
}

async fn pause(bench: &mut Bench) -> Outcome {
    let mut bundle = bench.script("a", "echo ready; while :; do sleep 0.01; done")?;
    let shim = bench.shim(&bundle).await?;
    let pid = shim.run(&bundle).await?;
    bundle.stdout.until("ready").await?;
    shim.pause(&bundle.id).await?;
    let used = || {
        host::proc(pid, "stat")
            .split(' ')
            .skip(13)
            .take(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let switches = || host::status(pid, "voluntary_ctxt_switches");
    let before = (used(), switches());
    tokio::time::sleep(Duration::from_millis(150)).await;
    equal(
        (used(), switches()),
        before.clone(),
        "CPU time and switches of a paused process",
    )?;
    let state = control(&bundle.cgroup(), "freezer", ("freezer.state", "cgroup.freeze"))?;
    holds(["FROZEN", "1"].contains(&state.as_str()), || state.clone())?;
    shim.resume(&bundle.id).await?;
    until("it to go on", || (used(), switches()) != before).await?;
    shim.kill_and_delete(&bundle.id).await?;
    let words = bench.events.words(&bundle.id);
    holds(
        words.contains(&"paused".into()) && words.contains(&"resumed".into()),
        || format!("{words:?}"),
    )
}

async fn kill_paused(bench: &mut Bench) -> Outcome {
    let first = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&first).await?;
    for (name, all) in [("b", false), ("c", true)] {
        let bundle = bench.script(name, "sleep 60")?;
        shim.run(&bundle).await?;
        shim.pause(&bundle.id).await?;
        shim.kill(&bundle.id, "", 9, all).await?;
        equal(shim.end(&bundle.id, "").await?, 137, "status")?;
        bench.nothing_of(&bundle)?;
    }
    Ok(())
}

async fn kill_paused_exec(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let exec = Exec::new(bench, &bundle, "e", &["sleep", "60"])?;
    shim.exec(&bundle.id, &exec).await?;
    shim.pause(&bundle.id).await?;
    shim.kill(&bundle.id, "e", 9, false).await?;
    equal(
        shim.state(&bundle.id, "").await?.status.enum_value(),
        Ok(Status::PAUSED),
        "status",
    )?;
    let state = control(&bundle.cgroup(), "freezer", ("freezer.state", "cgroup.freeze"))?;
    holds(["FROZEN", "1"].contains(&state.as_str()), || state.clone())?;
    shim.resume(&bundle.id).await?;
    equal(shim.end(&bundle.id, "e").await?, 137, "status of the exec")?;
    equal(
        shim.state(&bundle.id, "").await?.status.enum_value(),
        Ok(Status::RUNNING),
        "status after resume",
    )?;
    shim.kill_and_delete(&bundle.id).await
}

async fn update_bounded(bench: &mut Bench) -> Outcome {
    let edit = |spec: &mut serde_json::Value| {
        spec["linux"]["resources"]["memory"] = json!({"limit": 64 << 20});
        spec["linux"]["resources"]["pids"] = json!({"limit": 20});
    };
    let bundle = bench.script("a", "sleep 60")?.edited(edit);
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let path = bundle.cgroup();
    let pids = |path: &str| control(path, "pids", ("pids.max", "pids.max"));
    // Absent where the kernel does not account swap.
    let swap = || {
        let v1 = host::cgroup("memory", &path).join("memory.memsw.limit_in_bytes");
        if host::is_v1() && !v1.exists() {
            return Ok("none".to_owned());
        }
        control(
            &path,
            "memory",
            ("memory.memsw.limit_in_bytes", "memory.swap.max"),
        )
    };
    let oom = || control(&path, "memory", ("memory.oom_control", "memory.oom.group"));
    let (swap_before, oom_before) = (swap()?, oom()?);
    // What names no limit of processes leaves it.
    shim.update(&bundle.id, r#"{"cpu": {"quota": 20000, "period": 100000}}"#)
        .await?;
    equal(pids(&path)?.as_str(), "20", "processes")?;
    let lifting = json!({
        "pids": {"limit": -1},
        "memory": {"limit": 64 << 20, "swap": -1, "disableOOMKiller": true},
        "devices": [{"allow": true, "type": "b", "access": "rwm"}],
        "unified": {"memory.swap.max": "max", "pids.max": "max"},
    });
    shim.update(&bundle.id, &lifting.to_string()).await?;
    shim.update(&bundle.id, r#"{"memory": {"swap": -1}}"#).await?;
    let most: Option<u64> = pids(&path)?.parse().ok();
    holds(most.is_some_and(|most| most > 0), || {
        format!("processes: {most:?}")
    })?;
    equal(swap()?, swap_before, "swap")?;
    equal(oom()?, oom_before, "the OOM killer")?;
    if host::is_v1() {
        let allowed = control(&path, "devices", ("devices.list", ""))?;
        holds(!allowed.contains("b *:* rwm"), || allowed.clone())?;
    }
    shim.kill_and_delete(&bundle.id).await?;
    // By the pod's own spec, the update is what it says.
    let exact = bench.script("exact", "sleep 60")?.by_spec().edited(edit);
    shim.run(&exact).await?;
    shim.update(&exact.id, r#"{"pids": {"limit": -1}}"#).await?;
    equal(pids(&exact.cgroup())?.as_str(), "max", "processes by the spec")?;
    shim.kill_and_delete(&exact.id).await
}

async fn update(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?.edited(|spec| {
        let resources = &mut spec["linux"]["resources"];
        resources["memory"] = json!({"limit": 64 << 20});
        resources["pids"] = json!({"limit": 20});
        resources["cpu"] = json!({"quota": 50_000, "period": 100_000, "shares": 512});
    });
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let path = bundle.cgroup();
    let memory = || control(&path, "memory", ("memory.limit_in_bytes", "memory.max"));
    let quota = || control(&path, "cpu", ("cpu.cfs_quota_us", "cpu.max"));
    let pids = || control(&path, "pids", ("pids.max", "pids.max"));
    equal(memory()?.as_str(), (64 << 20).to_string(), "memory")?;
    equal(quota()?.split(' ').next(), Some("50000"), "quota")?;
    equal(pids()?.as_str(), "20", "processes")?;
    for memory_limit in [128 << 20, 32 << 20] {
        // Both ways: memory and swap fit in one order only when raised, and in the other when lowered.
        let resources = json!({
            "memory": {"limit": memory_limit, "swap": memory_limit},
            "cpu": {"quota": 20_000, "period": 100_000},
            "pids": {"limit": 10},
        });
        shim.update(&bundle.id, &resources.to_string()).await?;
        equal(
            memory()?.as_str(),
            memory_limit.to_string(),
            "memory after update",
        )?;
    }
    equal(quota()?.split(' ').next(), Some("20000"), "quota after update")?;
    equal(pids()?.as_str(), "10", "processes after update")?;
    let error = shim
        .update(&bundle.id, "{")
        .await
        .err()
        .ok_or("half a document was taken")?;
    contains(&error.sentence, "the resources to set")?;
    shim.kill_and_delete(&bundle.id).await
}

async fn stats(bench: &mut Bench) -> Outcome {
    let mut bundle = bench
        .script(
            "a",
            "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; sleep 60",
        )?
        .edited(|spec| {
            spec["linux"]["resources"]["memory"] = json!({"limit": 64 << 20});
            spec["linux"]["resources"]["pids"] = json!({"limit": 20});
        });
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bundle.stdout.until("done").await?;
    let any = shim.stats(&bundle.id).await?;
    let (cpu_ns, memory, limit, processes, most) = if host::is_v1() {
        equal(any.type_url.as_str(), "io.containerd.cgroups.v1.Metrics", "type")?;
        let all = V1::parse_from_bytes(&any.value)?;
        let memory = &all.memory.usage;
        (
            all.cpu.usage.total,
            memory.usage,
            memory.limit,
            all.pids.current,
            all.pids.limit,
        )
    } else {
        equal(any.type_url.as_str(), "io.containerd.cgroups.v2.Metrics", "type")?;
        let all = V2::parse_from_bytes(&any.value)?;
        let cpu = all.cpu.usage_usec * 1000;
        (
            cpu,
            all.memory.usage,
            all.memory.usage_limit,
            all.pids.current,
            all.pids.limit,
        )
    };
    holds(cpu_ns > 10_000_000, || format!("CPU: {cpu_ns} ns"))?;
    holds(memory > 64 << 10 && memory <= 64 << 20, || {
        format!("memory: {memory} bytes")
    })?;
    equal((limit, most), (64 << 20, 20), "limits of memory and processes")?;
    holds(processes >= 1, || format!("{processes} processes"))?;
    shim.kill_and_delete(&bundle.id).await
}

async fn parents(bench: &mut Bench) -> Outcome {
    let path = |name: &str| format!("/{}/made/deep/{name}", bench.tag());
    let (one, two) = (path("one"), path("two"));
    let made = host::cgroup("memory", &format!("/{}/made", bench.tag()));
    let first = bench
        .script("one", "sleep 60")?
        .edited(|spec| spec["linux"]["cgroupsPath"] = json!(one));
    let shim = bench.shim(&first).await?;
    shim.run(&first).await?;
    holds(made.exists(), || "no cgroup was made".into())?;
    shim.kill_and_delete(&first.id).await?;
    holds(!made.exists(), || format!("{} is left", made.display()))?;
    let second = bench
        .script("two", "sleep 60")?
        .edited(|spec| spec["linux"]["cgroupsPath"] = json!(two));
    shim.run(&second).await?;
    shim.kill_and_delete(&second.id).await?;
    holds(!made.exists(), || format!("{} is left", made.display()))
}
