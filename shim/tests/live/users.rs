//! A container with a user namespace, which a spec may ask for: its root is nobody on the host.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::common::bench::reap;
use crate::common::bundle::Exec;
use crate::common::host::field_of;
use crate::common::{Bench, Bundle, Code, Outcome, Shim, contains, equal, holds, host, until};
use crate::faults::{deleted, workers};
use crate::requests::refusal;
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_process_and_its_execs_are_in_one_user_namespace",
            both_are_in_it,
        ),
        trial("a_container_joins_the_user_namespace_of_its_pod", pod),
        trial("an_exec_with_a_terminal_is_in_the_user_namespace_too", terminal),
        trial("what_is_roots_on_disk_is_the_mapped_roots", files),
        trial(
            "a_path_that_only_the_host_can_walk_is_a_volume_in_a_user_namespace",
            closed_path,
        ),
        trial(
            "a_user_namespace_that_cannot_be_made_is_refused_with_the_reason",
            refused,
        ),
        trial(
            "a_worker_that_went_into_a_user_namespace_ends_with_its_shim",
            ends_with_the_shim,
        ),
    ]
}

/// Ids inside start here on the host.
const FIRST: u32 = 300_000;
/// So many there are.
const COUNT: u32 = 1000;
const MAP: &str = "0 300000 1000";

fn mapping() -> Value {
    json!([{"containerID": 0, "hostID": FIRST, "size": COUNT}])
}

/// A container by its spec, with a new user namespace, which says what it is.
fn bundle(bench: &Bench, name: &str) -> Outcome<Bundle> {
    let mut bundle = bench.script(name, SAY)?.by_spec();
    let linux = &mut bundle.spec["linux"];
    (linux["uidMappings"], linux["gidMappings"]) = (mapping(), mapping());
    if let Some(namespaces) = linux["namespaces"].as_array_mut() {
        namespaces.push(json!({"type": "user"}));
    }
    let range = format!("0:{FIRST}:{COUNT}");
    bundle.mounts[0]
        .options
        .extend([format!("uidmap={range}"), format!("gidmap={range}")]);
    // As containerd leaves a bundle to the mapped root.
    std::os::unix::fs::chown(&bundle.dir, None, Some(FIRST))?;
    std::fs::set_permissions(&bundle.dir, PermissionsExt::from_mode(0o710))?;
    Ok(bundle)
}

const SAY: &str = "echo map $(cat /proc/self/uid_map); echo to its own > /dev/stdout; cat /proc/self/status; \
                   stat -c 'owner %u' /bin/busybox; echo done; exec sleep 60";

fn is_root_inside(said: &str) -> Outcome {
    contains(said, &format!("map {MAP}\n"))?;
    contains(said, "to its own\n")?;
    contains(said, "owner 0\n")?;
    equal(field_of(said, "Uid").as_str(), "0 0 0 0", "uid inside")?;
    equal(field_of(said, "Groups").as_str(), "", "groups")
}

fn is_nobody_outside(pid: u32) -> Outcome {
    equal(
        host::status(pid, "Uid"),
        [FIRST.to_string().as_str(); 4].join(" "),
        "uid outside",
    )?;
    equal(
        host::status(pid, "Gid"),
        [FIRST.to_string().as_str(); 4].join(" "),
        "gid outside",
    )
}

async fn both_are_in_it(bench: &mut Bench) -> Outcome {
    let mut bundle = bundle(bench, "u")?;
    let shim = bench.shim(&bundle).await?;
    let pid = shim.run(&bundle).await?;
    is_root_inside(&bundle.stdout.until("done").await?)?;
    is_nobody_outside(pid)?;
    let mut exec = Exec::new(bench, &bundle, "e", &["sh", "-c", SAY])?;
    let joined = shim.exec(&bundle.id, &exec).await?;
    is_root_inside(&exec.stdout.until("done").await?)?;
    is_nobody_outside(joined)?;
    for namespace in ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"] {
        let of = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/{namespace}"));
        equal(of(joined)?, of(pid)?, namespace)?;
    }
    shim.kill_and_delete(&bundle.id).await
}

async fn terminal(bench: &mut Bench) -> Outcome {
    let mut bundle = bundle(bench, "u")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bundle.stdout.until("done").await?;
    let script = "echo map $(cat /proc/self/uid_map); stat -c 'owner %u' $(tty); echo done; exec sleep 60";
    let mut exec = Exec::new(bench, &bundle, "e", &["sh", "-c", script])?.with_terminal();
    let joined = shim.exec(&bundle.id, &exec).await?;
    let said = exec.stdout.until("done").await?;
    contains(&said, &format!("map {MAP}"))?;
    contains(&said, "owner 0")?;
    is_nobody_outside(joined)?;
    shim.kill_and_delete(&bundle.id).await
}

/// A directory of the test with a file in it, both root's.
fn volume(bench: &Bench) -> Outcome<std::path::PathBuf> {
    let dir = bench.dir().join("volume");
    std::fs::create_dir(&dir)?;
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755))?;
    std::fs::write(dir.join("file"), "text")?;
    Ok(dir)
}

fn mount(bundle: &mut Bundle, mount: Value) {
    if let Some(mounts) = bundle.spec["mounts"].as_array_mut() {
        mounts.push(mount);
    }
}

async fn say(bench: &Bench, shim: &Shim, bundle: &mut Bundle, script: &str) -> Outcome<String> {
    shim.run(bundle).await?;
    bundle.stdout.until("done").await?;
    let mut exec = Exec::new(bench, bundle, "say", &["sh", "-c", script])?;
    shim.exec(&bundle.id, &exec).await?;
    let said = exec.stdout.text().await?;
    shim.kill_and_delete(&bundle.id).await?;
    Ok(said)
}

async fn files(bench: &mut Bench) -> Outcome {
    let mut bundle = bundle(bench, "u")?;
    let dir = volume(bench)?;
    let bind = |at: &str, mapped: Value| {
        let mut bind = json!({"destination": at, "type": "bind", "source": dir, "options": ["rbind"]});
        if let (Some(bind), Value::Object(mapped)) = (bind.as_object_mut(), mapped) {
            bind.extend(mapped);
        }
        bind
    };
    mount(
        &mut bundle,
        bind(
            "/run/mapped",
            json!({"uidMappings": mapping(), "gidMappings": mapping()}),
        ),
    );
    mount(
        &mut bundle,
        bind("/run/same", json!({"options": ["rbind", "idmap"]})),
    );
    mount(&mut bundle, bind("/run/plain", json!({})));
    let shim = bench.shim(&bundle).await?;
    let script = "cd /run; stat -c '%n %u' mapped/file same/file plain/file; echo a > mapped/new; chown 7:7 mapped/new; \
                  echo b 2>/dev/null > plain/new || echo refused";
    let said = say(bench, &shim, &mut bundle, script).await?;
    equal(
        said.as_str(),
        "mapped/file 0\nsame/file 0\nplain/file 65534\nrefused\n",
        "owners",
    )?;
    let made = std::fs::metadata(dir.join("new"))?;
    equal(
        (made.uid(), made.gid()),
        (7, 7),
        "what the container made, on the host",
    )
}

async fn closed_path(bench: &mut Bench) -> Outcome {
    let mut bundle = bundle(bench, "u")?;
    let closed = bench.dir().join("closed");
    std::fs::create_dir(&closed)?;
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700))?;
    let open = closed.join("open");
    std::fs::create_dir(&open)?;
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755))?;
    std::fs::write(open.join("file"), "text")?;
    std::fs::set_permissions(open.join("file"), PermissionsExt::from_mode(0o644))?;
    mount(
        &mut bundle,
        json!({"destination": "/run/v", "type": "bind", "source": open, "options": ["rbind", "ro"]}),
    );
    let shim = bench.shim(&bundle).await?;
    let said = say(
        bench,
        &shim,
        &mut bundle,
        "cat /run/v/file; echo; touch /run/v/x 2>&1",
    )
    .await?;
    contains(&said, "text\n")?;
    contains(&said, "Read-only file system")
}

/// As the containers of a pod join those of its pause container.
async fn pod(bench: &mut Bench) -> Outcome {
    let mut first = bundle(bench, "u")?;
    let shim = bench.shim(&first).await?;
    let pid = shim.run(&first).await?;
    first.stdout.until("done").await?;
    let joining = |name: &str, first_id: u32| {
        let mut second = bundle(bench, name)?;
        let mapping = json!([{"containerID": 0, "hostID": first_id, "size": COUNT}]);
        let linux = &mut second.spec["linux"];
        (linux["uidMappings"], linux["gidMappings"]) = (mapping.clone(), mapping);
        linux["namespaces"] = json!([
            {"type": "pid", "path": format!("/proc/{pid}/ns/pid")},
            {"type": "ipc", "path": format!("/proc/{pid}/ns/ipc")},
            {"type": "uts", "path": format!("/proc/{pid}/ns/uts")},
            // The host's, which belongs to another user namespace; with a sysfs of its own it could not be mounted.
            {"type": "network", "path": "/proc/self/ns/net"},
            {"type": "mount"},
            {"type": "user", "path": format!("/proc/{pid}/ns/user")},
        ]);
        if let Some(mounts) = second.spec["mounts"].as_array_mut() {
            mounts.retain(|mount| mount["destination"] != "/sys");
        }
        Outcome::Ok(second)
    };
    let mut second = joining("v", FIRST)?;
    let joined = shim.run(&second).await?;
    is_root_inside(&second.stdout.until("done").await?)?;
    is_nobody_outside(joined)?;
    let exec = Exec::new(bench, &second, "e", &["sleep", "60"])?;
    let execed = shim.exec(&second.id, &exec).await?;
    for (namespace, whose) in [
        ("user", pid),
        ("ipc", pid),
        ("uts", pid),
        ("net", std::process::id()),
    ] {
        let of = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/{namespace}"));
        equal(of(joined)?, of(whose)?, namespace)?;
        equal(of(execed)?, of(whose)?, namespace)?;
    }
    let other = joining("w", FIRST + 1)?;
    refusal(
        shim.create(&other).await,
        Code::UNKNOWN,
        "are not those of the user namespace",
    )?;
    bench.nothing_of(&other)?;
    shim.kill_and_delete(&second.id).await?;
    shim.kill_and_delete(&first.id).await
}

async fn refused(bench: &mut Bench) -> Outcome {
    let asked = bundle(bench, "u")?;
    let shim = bench.shim(&asked).await?;
    for (name, edit, sentence) in [
        (
            "a",
            (|spec: &mut Value| spec["linux"]["uidMappings"] = json!([])) as fn(&mut Value),
            "uidMappings and gidMappings go together",
        ),
        (
            "b",
            |spec| {
                spec["linux"]["uidMappings"] = json!([]);
                spec["linux"]["gidMappings"] = json!([]);
            },
            "give linux.uidMappings",
        ),
        (
            "c",
            |spec| {
                let mount = json!({"destination": "/run/x", "type": "bind", "source": "/proc", "options": ["rbind", "ridmap"]});
                if let Some(mounts) = spec["mounts"].as_array_mut() {
                    mounts.push(mount);
                }
            },
            "mounts[/run/x]: mapping the ids of /proc",
        ),
    ] {
        let mut wrong = bundle(bench, name)?;
        edit(&mut wrong.spec);
        wrong.write()?;
        refusal(shim.create(&wrong).await, Code::UNKNOWN, sentence)?;
        bench.nothing_of(&wrong)?;
    }
    Ok(())
}

/// Waits for the worker of an exec, stops it where it is the container's root and at work on the process, and kills the
/// shim. `None`, and nothing killed, where the worker was done before it could be stopped.
fn stop_inside(shim: u32) -> Option<u32> {
    let inside = format!("{FIRST} ");
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut worker = None;
    while Instant::now() < deadline {
        // What it starts is called alike, and is younger.
        let all = workers(shim);
        worker = worker.or_else(|| all.iter().min().copied());
        let Some(worker) = worker else { continue };
        if !all.contains(&worker) {
            return None;
        }
        if all.len() > 1 && host::status(worker, "Uid").starts_with(&inside) {
            let pid = i32::try_from(worker)
                .ok()
                .and_then(rustix::process::Pid::from_raw)?;
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).ok()?;
            while host::status(worker, "State").starts_with(['R', 'S', 'D']) && Instant::now() < deadline {
                std::thread::yield_now();
            }
            // Stopped, it cannot notice by itself that the shim is gone.
            let stopped = host::status(worker, "State").starts_with('T');
            if stopped {
                host::kill(shim);
            }
            return stopped.then_some(worker);
        }
    }
    None
}

async fn ends_with_the_shim(bench: &mut Bench) -> Outcome {
    let mut bundle = bundle(bench, "u")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bundle.stdout.until("done").await?;
    for attempt in 0..50 {
        let exec = Exec::new(bench, &bundle, &format!("e{attempt}"), &["sleep", "60"])?;
        shim.add_exec(&bundle.id, &exec).await?;
        let pid = shim.pid;
        let stopping = tokio::task::spawn_blocking(move || stop_inside(pid));
        let (answer, stopped) = tokio::join!(shim.start_process(&bundle.id, &exec.id), stopping);
        let Some(worker) = stopped? else {
            answer?;
            shim.kill(&bundle.id, &exec.id, 9, false).await?;
            shim.end(&bundle.id, &exec.id).await?;
            continue;
        };
        holds(answer.is_err(), || "the exec was made".into())?;
        shim.gone().await?;
        until("the end of the worker", || {
            reap();
            host::proc(worker, "cmdline").is_empty()
        })
        .await?;
        return deleted(bench, &bundle).await.map(drop);
    }
    Err("no worker could be stopped in the user namespace: nothing was shown".into())
}
