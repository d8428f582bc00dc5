//! What a request brings along is wrong: the bundle, the spec, the root, options, streams, the program.

use std::os::unix::fs::PermissionsExt;

use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::ttrpc::context::with_timeout;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::common::bundle::{Exec, mount};
use crate::common::{Bench, Bundle, Code, Outcome, Shim, equal, root};
use crate::requests::{gone, refusal, running};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_bundle_that_is_not_one_is_refused", bundles),
        trial("a_spec_that_is_not_one_is_refused", specs),
        trial("a_root_that_is_not_there_is_refused", roots),
        trial("options_that_cannot_be_used_are_refused", options),
        trial("streams_that_are_no_fifos_are_refused", stdio),
        trial("a_program_that_cannot_run_is_named", programs),
        trial(
            "an_exec_that_cannot_run_is_named_and_the_container_lives",
            exec_programs,
        ),
        trial(
            "a_working_directory_that_is_not_there_is_named",
            working_directory,
        ),
    ]
}

/// Create is refused, nothing is left of it, and the id is free: a right request with it is done.
async fn refused(bench: &Bench, shim: &Shim, bundle: &Bundle, code: Code, part: &str) -> Outcome {
    refusal(shim.create(bundle).await, code, part)?;
    gone(bench, shim, bundle).await
}

/// What cannot be executed, and what is said of it.
const PROGRAMS: [(&str, &str); 4] = [
    (
        "no-such-program",
        "exec: \"no-such-program\": executable file not found in $PATH",
    ),
    (
        "/bin/no-such",
        "exec: \"/bin/no-such\": stat /bin/no-such: no such file or directory",
    ),
    ("/etc/plain", "exec: \"/etc/plain\": permission denied"),
    ("/etc", "exec: \"/etc\": permission denied"),
];

async fn bundles(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    let bundle = bench.bundle("a", &["true"])?;
    for path in ["", "relative", "/no/such/bundle", "/etc/passwd"] {
        let mut request = bundle.request();
        request.bundle = path.to_owned();
        refusal(shim.create_as(&request).await, Code::INVALID_ARGUMENT, "bundle")?;
    }
    // No config.json: it was not written yet.
    refusal(
        shim.create_as(&bundle.request()).await,
        Code::INVALID_ARGUMENT,
        "config.json: No such file",
    )?;
    gone(bench, &shim, &bundle).await?;
    shim.kill_and_delete(&idle.id).await
}

async fn specs(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    let bundle = bench.bundle("a", &["true"])?;
    for (body, part) in [
        ("", "not an OCI spec"),
        ("{", "not an OCI spec"),
        ("[]", "ociVersion"),
        ("\u{0}\u{1}", "not an OCI spec"),
        ("{\"ociVersion\": 7}", "not an OCI spec"),
        ("{\"ociVersion\": \"1.2.0\"}", "process"),
    ] {
        std::fs::write(bundle.dir.join("config.json"), body)?;
        refusal(
            shim.create_as(&bundle.request()).await,
            Code::INVALID_ARGUMENT,
            part,
        )?;
        gone(bench, &shim, &bundle).await?;
    }
    type Edit = fn(&mut Value);
    let edits: [(&str, Edit, &str); 5] = [
        ("version", |spec| spec["ociVersion"] = json!("2.0.0"), "2.0.0"),
        (
            "version-none",
            |spec| spec["ociVersion"] = json!("new"),
            "ociVersion",
        ),
        (
            "namespace",
            |spec| spec["linux"]["namespaces"][0]["type"] = json!("vault"),
            "vault",
        ),
        (
            "capability",
            |spec| spec["process"]["capabilities"]["bounding"] = json!(["CAP_FLY"]),
            "CAP_FLY",
        ),
        ("args", |spec| spec["process"]["args"] = json!([]), "process.args"),
    ];
    for (name, edit, part) in edits {
        for by_spec in [false, true] {
            let mut bundle = bench.bundle(&format!("{name}-{by_spec}"), &["true"])?;
            if by_spec {
                bundle = bundle.by_spec();
            }
            let bundle = bundle.edited(edit);
            refused(bench, &shim, &bundle, Code::INVALID_ARGUMENT, part).await?;
        }
    }
    let bundle = bench
        .bundle("terminal", &["true"])?
        .edited(|spec| spec["process"]["terminal"] = json!(true));
    refused(bench, &shim, &bundle, Code::INVALID_ARGUMENT, "terminal").await?;
    shim.kill_and_delete(&idle.id).await
}

async fn roots(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    for by_spec in [false, true] {
        let of = |name: &str| {
            let bundle = bench.bundle(&format!("{name}-{by_spec}"), &["true"])?;
            Outcome::Ok(if by_spec { bundle.by_spec() } else { bundle })
        };
        let mut bundle = of("nothing")?;
        bundle.mounts.clear();
        std::fs::remove_dir(bundle.dir.join("rootfs"))?;
        refused(bench, &shim, &bundle, Code::UNKNOWN, "rootfs").await?;
        let mut bundle = of("source")?;
        bundle.mounts = vec![mount("bind", bench.dir().join("no-such"), &["rbind", "ro"])];
        refused(bench, &shim, &bundle, Code::UNKNOWN, "mounting the root").await?;
        let mut bundle = of("mapped")?;
        bundle.mounts = vec![mount("bind", root::shared()?, &["rbind", "uidmap=0:1000:1"])];
        refused(bench, &shim, &bundle, Code::UNKNOWN, "go together").await?;
        // The first of two is mounted and has to go again.
        let mut bundle = of("second")?;
        bundle.mounts.push(mount("no-such-fs", "none", &[]));
        refused(bench, &shim, &bundle, Code::UNKNOWN, "mounting the root").await?;
    }
    shim.kill_and_delete(&idle.id).await
}

async fn options(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    for (index, (toml, part)) in [
        ("hardening", "options"),
        ("hardening = 1", "options"),
        ("hardening = \"none\"", "sandbox"),
        ("hardning = \"spec\"", "known keys"),
        ("pids = 0", "1 to 4194304"),
        ("\u{1}", "options"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut bundle = bench.bundle(&format!("a{index}"), &["true"])?;
        bundle.options = toml.to_owned();
        refused(bench, &shim, &bundle, Code::INVALID_ARGUMENT, part).await?;
    }
    let bundle = bench.bundle("runc", &["true"])?;
    bundle.write()?;
    let mut request = bundle.request();
    for (kind, body, part) in [
        ("containerd.runc.v1.Options", vec![], "containerd.runc.v1.Options"),
        ("runtimeoptions.v1.Options", vec![26, 200], "decoded"),
    ] {
        request.options = Some(Any {
            type_url: kind.into(),
            value: body,
            ..Any::default()
        })
        .into();
        refusal(shim.create_as(&request).await, Code::INVALID_ARGUMENT, part)?;
        gone(bench, &shim, &bundle).await?;
    }
    shim.kill_and_delete(&idle.id).await
}

async fn stdio(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    let bundle = bench.bundle("a", &["true"])?;
    bundle.write()?;
    for address in ["binary:///bin/sh?x=1", "file:///tmp/x", "relative"] {
        let mut request = bundle.request();
        request.stdout = address.into();
        refusal(
            shim.create_as(&request).await,
            Code::INVALID_ARGUMENT,
            "FIFOs only",
        )?;
        gone(bench, &shim, &bundle).await?;
        let mut exec = Exec::new(bench, &idle, &format!("e{}", address.len()), &["true"])?;
        exec.stdout.path = address.into();
        refusal(
            shim.add_exec(&idle.id, &exec).await,
            Code::INVALID_ARGUMENT,
            "FIFOs only",
        )?;
    }
    // A FIFO that is not there is seen when the process stands.
    let mut request = bundle.request();
    request.stdout = bench.dir().join("no-such-fifo").display().to_string();
    refusal(shim.create_as(&request).await, Code::UNKNOWN, "no-such-fifo")?;
    gone(bench, &shim, &bundle).await?;
    let mut exec = Exec::new(bench, &idle, "e", &["sleep", "60"])?;
    exec.stdout.path = bench.dir().join("no-such-fifo");
    shim.add_exec(&idle.id, &exec).await?;
    refusal(
        shim.start_process(&idle.id, "e").await,
        Code::UNKNOWN,
        "no-such-fifo",
    )?;
    equal(shim.pids(&idle.id).await?.len(), 1, "processes in the container")?;
    shim.delete(&idle.id, "e").await?;
    shim.kill_and_delete(&idle.id).await
}

async fn programs(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    for by_spec in [false, true] {
        for (index, (program, says)) in PROGRAMS.into_iter().enumerate() {
            let mut bundle = bench.bundle(&format!("a{index}-{by_spec}"), &[program])?;
            if by_spec {
                bundle = bundle.by_spec();
            }
            refused(bench, &shim, &bundle, Code::UNKNOWN, says).await?;
        }
    }
    // A file that is executable and no program shows when the kernel looks at it, which is at start.
    let mut bundle = bench.bundle("format", &["/bad"])?.by_spec();
    bundle.mounts.clear();
    root::make(&bundle.dir.join("rootfs"))?;
    let bad = bundle.dir.join("rootfs/bad");
    std::fs::write(&bad, "\u{1}\u{2}\u{3}")?;
    std::fs::set_permissions(&bad, PermissionsExt::from_mode(0o755))?;
    shim.create(&bundle).await?;
    refusal(
        shim.start_process(&bundle.id, "").await,
        Code::UNKNOWN,
        "exec: \"/bad\": Exec format error",
    )?;
    shim.wait(&bundle.id, "").await?;
    shim.delete(&bundle.id, "").await?;
    bench.nothing_of(&bundle)?;
    let words = bench
        .events
        .wait_for("delete", &bundle.id, |event| event.topic == "delete")
        .await;
    words?;
    equal(
        bench.events.words(&bundle.id),
        ["create", "exit", "delete"],
        "events",
    )?;
    shim.kill_and_delete(&idle.id).await
}

async fn exec_programs(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    for (index, (program, says)) in PROGRAMS.into_iter().enumerate() {
        let id = format!("e{index}");
        let exec = Exec::new(bench, &idle, &id, &[program])?;
        shim.add_exec(&idle.id, &exec).await?;
        refusal(shim.start_process(&idle.id, &id).await, Code::UNKNOWN, says)?;
        shim.delete(&idle.id, &id).await?;
    }
    for body in ["", "{", "{\"args\": 7}"] {
        let mut request = Exec::new(bench, &idle, &format!("b{}", body.len()), &["true"])?.request(&idle.id);
        request.spec.as_mut().ok_or("no spec")?.value = body.as_bytes().to_vec();
        let answer = shim.task.exec(with_timeout(5_000_000_000), &request).await;
        refusal(
            answer.map_err(crate::common::shim::refused),
            Code::INVALID_ARGUMENT,
            "the exec's process",
        )?;
    }
    equal(shim.pids(&idle.id).await?.len(), 1, "processes in the container")?;
    let exec = Exec::new(bench, &idle, "right", &["true"])?;
    shim.exec(&idle.id, &exec).await?;
    equal(shim.end(&idle.id, "right").await?, 0, "status of a right exec")?;
    shim.kill_and_delete(&idle.id).await
}

async fn working_directory(bench: &mut Bench) -> Outcome {
    let (shim, idle) = running(bench).await?;
    let bundle = bench
        .bundle("a", &["true"])?
        .edited(|spec| spec["process"]["cwd"] = json!("/no/such"));
    refused(bench, &shim, &bundle, Code::UNKNOWN, "/no/such").await?;
    let exec = Exec::new(bench, &idle, "e", &["true"])?.edited(|process| process["cwd"] = json!("/no/such"));
    shim.add_exec(&idle.id, &exec).await?;
    refusal(shim.start_process(&idle.id, "e").await, Code::UNKNOWN, "/no/such")?;
    shim.delete(&idle.id, "e").await?;
    shim.kill_and_delete(&idle.id).await
}
