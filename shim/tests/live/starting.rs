//! The program as containerd calls it: `start` in both forms, `delete`, `-info`, `-v`, and what it lays down.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

use containerd_shim::protos::api::DeleteResponse;
use containerd_shim::protos::protobuf::Message;
use containerd_shim::protos::types::introspection::RuntimeInfo;
use libtest_mimic::Trial;
use tokio::io::AsyncWriteExt;

use crate::common::bundle::options;
use crate::common::shim::{Form, PROGRAM, bootstrap, call};
use crate::common::{Bench, Outcome, Shim, contains, equal, holds, host, until};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "start_with_flags_answers_in_json_as_containerd_2_0_to_2_2_want_it",
            flags,
        ),
        trial("the_socket_is_closed_to_others_and_nothing_is_abstract", closed),
        trial("the_state_of_a_container_is_closed_to_others", state_closed),
        trial("start_refuses_a_socket_path_that_is_too_long", long_socket),
        trial(
            "start_refuses_options_that_cannot_be_used_and_leaves_no_shim",
            start_options,
        ),
        trial(
            "a_cgroup_for_the_shim_that_is_not_there_leaves_no_shim",
            shim_cgroup,
        ),
        trial(
            "a_shim_that_was_killed_is_replaced_at_its_old_address",
            stale_socket,
        ),
        trial(
            "delete_of_a_bundle_where_nothing_was_made_answers",
            delete_nothing,
        ),
        trial("delete_outside_of_the_bundle_is_refused", delete_elsewhere),
        trial("info_and_version_are_told_without_a_bundle", info),
        trial("the_environment_of_containerd_reaches_no_container", environment),
    ]
}

async fn flags(bench: &mut Bench) -> Outcome {
    // There the directory of the sockets is fixed.
    let dir = Path::new("/run/containerd/s");
    let missing: Vec<&Path> = [dir, Path::new("/run/containerd")]
        .into_iter()
        .filter(|dir| !dir.exists())
        .collect();
    let mut bundle = bench.script("a", "echo here")?;
    let shim = Shim::start_as(bench, &bundle, Form::Flags).await?;
    holds(shim.socket().starts_with(dir), || {
        format!("the socket is {}", shim.address)
    })?;
    let mode = std::fs::metadata(shim.socket())?.permissions().mode();
    equal(mode & 0o777, 0o600, "mode of the socket")?;
    shim.run(&bundle).await?;
    equal(bundle.stdout.text().await?.as_str(), "here\n", "output")?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")?;
    shim.shut_down().await?;
    for dir in missing {
        let _ = std::fs::remove_dir(dir);
    }
    Ok(())
}

async fn closed(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&bundle).await?;
    let found = std::fs::metadata(shim.socket())?;
    holds(found.file_type().is_socket(), || {
        format!("{} is no socket", shim.address)
    })?;
    equal(found.permissions().mode() & 0o777, 0o600, "mode of the socket")?;
    let dir = std::fs::metadata(bench.sockets())?.permissions().mode();
    equal(dir & 0o777, 0o700, "mode of the directory that was made for it")?;
    shim.run(&bundle).await?;
    let own: Vec<String> = host::proc(shim.pid, "net/unix")
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7))
        .filter(|name| name.contains(bench.tag()))
        .map(str::to_owned)
        .collect();
    holds(own.contains(&shim.socket().display().to_string()), || {
        format!("the socket is not among {own:?}")
    })?;
    holds(own.iter().all(|name| !name.starts_with('@')), || {
        format!("abstract sockets: {own:?}")
    })?;
    shim.kill_and_delete(&bundle.id).await
}

async fn state_closed(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "sleep 60")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let state = bundle.dir.join("sandglass");
    equal(
        std::fs::metadata(&state)?.permissions().mode() & 0o777,
        0o700,
        "mode of the state directory",
    )?;
    // What is in it is no more open than that, whoever may come to enter it.
    holds(!host::files(&state).is_empty(), || "no state is there".into())?;
    shim.kill_and_delete(&bundle.id).await
}

async fn refused_start(bench: &Bench, name: &str, sockets: &Path, toml: Option<&str>) -> Outcome<String> {
    let bundle = bench.script(name, "true")?;
    bundle.write()?;
    let input = bootstrap(bench, &bundle.id, sockets, toml.map(options))?;
    let output = call(bench, &bundle.id, &bundle.dir, &[], "start", &input).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    holds(!output.status.success(), || {
        format!("start answered {:?}", String::from_utf8_lossy(&output.stdout))
    })?;
    equal(output.stdout.len(), 0, "bytes of an answer")?;
    equal(said.trim().lines().count(), 1, &format!("lines of {said:?}"))?;
    // One that was started and is not wanted is killed, which takes the kernel a moment.
    until("the end of the shim that was refused", || {
        host::processes(bench.tag()).is_empty()
    })
    .await
    .map_err(|_| format!("left: {:?}", host::processes(bench.tag())))?;
    bench.nothing_of(&bundle)?;
    Ok(said)
}

async fn long_socket(bench: &mut Bench) -> Outcome {
    let sockets = bench.dir().join("x".repeat(60));
    let said = refused_start(bench, "a", &sockets, None).await?;
    contains(&said, "longer than")
}

async fn start_options(bench: &mut Bench) -> Outcome {
    let sockets = bench.sockets();
    contains(
        &refused_start(bench, "a", &sockets, Some("hardening = \"none\"")).await?,
        "sandbox",
    )?;
    contains(
        &refused_start(bench, "b", &sockets, Some("hardning = \"spec\"")).await?,
        "known keys",
    )
}

async fn shim_cgroup(bench: &mut Bench) -> Outcome {
    let toml = format!("shim_cgroup = \"/{}/no-such\"", bench.tag());
    contains(
        &refused_start(bench, "a", &bench.sockets(), Some(&toml)).await?,
        "cgroup",
    )?;
    equal(host::files(&bench.sockets()), Vec::<String>::new(), "sockets")?;
    // And one that is there holds the shim.
    let path = host::hierarchies()
        .into_iter()
        .map(|(_, place)| place.join(bench.tag()).join("shim"));
    let made: Vec<_> = path.filter(|path| std::fs::create_dir(path).is_ok()).collect();
    if host::is_v1() {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let from = host::cgroup("cpuset", "/").join(file);
            for level in [bench.tag().to_owned(), format!("{}/shim", bench.tag())] {
                std::fs::write(host::cgroup("cpuset", &level).join(file), std::fs::read(&from)?)?;
            }
        }
    }
    let bundle = bench.script("b", "true")?;
    bundle.write()?;
    let toml = format!("shim_cgroup = \"/{}/shim\"", bench.tag());
    let input = bootstrap(bench, &bundle.id, &bench.sockets(), Some(options(&toml)))?;
    let output = call(bench, &bundle.id, &bundle.dir, &[], "start", &input).await?;
    holds(output.status.success(), || {
        String::from_utf8_lossy(&output.stderr).into_owned()
    })?;
    let answer = containerd_shim::protos::bootstrap_api::BootstrapResult::parse_from_bytes(&output.stdout)?;
    let shim = Shim::connect(bench, &answer.address).await?;
    contains(&host::proc(shim.pid, "cgroup"), &format!("/{}/shim", bench.tag()))?;
    shim.shut_down().await?;
    for path in made {
        std::fs::remove_dir(path)?;
    }
    Ok(())
}

async fn stale_socket(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "true")?;
    let first = bench.shim(&bundle).await?;
    host::kill(first.pid);
    first.gone().await?;
    holds(first.socket().exists(), || {
        "the socket went with a shim that was killed".into()
    })?;
    let second = bench.shim(&bundle).await?;
    equal(&second.address, &first.address, "address")?;
    holds(second.pid != first.pid, || "the same shim".into())?;
    shim_works(&second, &bundle).await
}

async fn shim_works(shim: &Shim, bundle: &crate::common::Bundle) -> Outcome {
    shim.run(bundle).await?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")
}

async fn delete_nothing(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "true")?;
    bundle.write()?;
    for _ in 0..2 {
        let output = bench.delete_action(&bundle).await?;
        holds(output.status.success(), || {
            String::from_utf8_lossy(&output.stderr).into_owned()
        })?;
        equal(
            DeleteResponse::parse_from_bytes(&output.stdout)?.exit_status,
            137,
            "status",
        )?;
    }
    Ok(())
}

async fn delete_elsewhere(bench: &mut Bench) -> Outcome {
    let bundle = bench.script("a", "true")?;
    let output = call(bench, &bundle.id, bench.dir(), &[], "delete", &[]).await?;
    holds(!output.status.success(), || "it was done".into())?;
    contains(&String::from_utf8_lossy(&output.stderr), "not the bundle")
}

async fn info(_: &mut Bench) -> Outcome {
    let run = async |args: &[&str], input: &[u8]| -> Outcome<std::process::Output> {
        let _held = crate::common::bench::no_reaping().await;
        let mut child = tokio::process::Command::new(PROGRAM)
            .args(args)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or("no stdin")?;
        let _ = stdin.write_all(input).await;
        drop(stdin);
        Ok(child.wait_with_output().await?)
    };
    let output = run(&["-info"], &[]).await?;
    holds(output.status.success() && output.stderr.is_empty(), || {
        "info failed or said more".into()
    })?;
    let info = RuntimeInfo::parse_from_bytes(&output.stdout)?;
    equal(info.name.as_str(), "io.containerd.sandglass.v1", "name")?;
    let features: serde_json::Value = serde_json::from_slice(&info.features.value)?;
    equal(
        features["linux"]["seccomp"]["enabled"].as_bool(),
        Some(true),
        "seccomp",
    )?;
    // The options of a handler with a mistake in them are told of when containerd starts.
    let output = run(&["-info"], &options("hardning = 1").write_to_bytes()?).await?;
    holds(!output.status.success(), || {
        "options with an unknown key were taken".into()
    })?;
    contains(&String::from_utf8_lossy(&output.stderr), "known keys")?;
    let output = run(&["-v"], &[]).await?;
    contains(&String::from_utf8_lossy(&output.stdout), "Version:")?;
    let output = run(&["-no-such-flag"], &[]).await?;
    holds(!output.status.success(), || "an unknown flag was taken".into())
}

async fn environment(bench: &mut Bench) -> Outcome {
    let mut bundle = bench.script("a", "env | sort; tr '\\0' '\\n' < /proc/self/environ | sort")?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let text = bundle.stdout.text().await?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")?;
    for line in text.lines() {
        let name = line.split('=').next().unwrap_or_default();
        holds(
            ["HOME", "HOSTNAME", "OLDPWD", "PATH", "PWD", "SHLVL", "_"].contains(&name),
            || format!("{line:?} came in"),
        )?;
    }
    contains(&text, "PATH=/bin\n")
}
