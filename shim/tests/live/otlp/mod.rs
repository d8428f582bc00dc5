//! Spans for a collector on the node, in a build with the feature `otlp`.

mod collector;

use std::time::{Duration, Instant};

use containerd_shim::protos::bootstrap_api::BootstrapResult;
use containerd_shim::protos::protobuf::Message;
use containerd_shim::protos::ttrpc::context::with_duration;
use libtest_mimic::Trial;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;

use crate::common::bundle::{Exec, options};
use crate::common::shim::{NAMESPACE, bootstrap, call};
use crate::common::{Bench, Bundle, Outcome, Shim, contains, equal, holds, host};
use crate::trial;
use collector::Collector;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "otlp_each_call_is_a_span_below_its_callers_with_its_phases_below",
            spans,
        ),
        trial("otlp_spans_are_sent_whatever_the_level_of_the_log", quiet),
        trial("otlp_spans_tell_nothing_that_the_pod_wrote", nothing_of_the_pod),
        trial(
            "otlp_spans_of_a_trace_that_is_not_sampled_are_not_sent",
            unsampled,
        ),
        trial(
            "otlp_without_the_option_nothing_is_sent_and_no_thread_is_there",
            off,
        ),
        trial("otlp_an_endpoint_that_cannot_be_is_refused", refused),
        trial("otlp_a_collector_that_is_away_costs_its_spans_and_no_more", away),
        trial("otlp_a_collector_that_never_answers_holds_nothing_up", silent),
        trial(
            "otlp_a_collector_that_refuses_costs_its_spans_and_no_more",
            refusing,
        ),
    ]
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
/// The end of a shim may be later than without a collector by less than that.
const SECOND: Duration = Duration::from_secs(1);

fn to(bundle: &mut Bundle, address: impl std::fmt::Display) {
    bundle.options = format!("otlp_endpoint = \"http://{address}\"");
}

/// Creates a container as a caller does that has a trace.
async fn create_traced(shim: &Shim, bundle: &Bundle, flags: &str) -> Outcome {
    bundle.write()?;
    let mut context = with_duration(Duration::from_secs(30));
    context.add("traceparent".into(), format!("00-{TRACE}-{CALLER}-{flags}"));
    shim.task.create(context, &bundle.request()).await?;
    Ok(())
}

/// Shuts the shim down: how long that takes.
async fn end(shim: &Shim) -> Outcome<Duration> {
    let began = Instant::now();
    shim.shut_down().await?;
    Ok(began.elapsed())
}

fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default())
        .map(|name| name.trim().to_owned())
        .collect()
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn one<'a>(spans: &'a [Span], name: &str) -> Outcome<&'a Span> {
    let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
    match found[..] {
        [span] => Ok(span),
        _ => {
            let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
            Err(format!("{} spans {name:?} in {names:?}", found.len()).into())
        }
    }
}

async fn spans(bench: &mut Bench) -> Outcome {
    let collector = Collector::start(200).await?;
    let mut bundle = bench.script("a", "echo here")?;
    to(&mut bundle, format_args!("{}/base/", collector.address));
    let shim = bench.shim(&bundle).await?;
    create_traced(&shim, &bundle, "01").await?;
    holds(threads(shim.pid).contains(&"otlp".to_owned()), || {
        "no thread sends".into()
    })?;
    shim.start_process(&bundle.id, "").await?;
    equal(bundle.stdout.text().await?.as_str(), "here\n", "output")?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")?;
    let log = bench.log();
    let took = end(&shim).await?;
    holds(took < SECOND, || format!("the end took {took:?}"))?;
    contains(&log, &format!("DEBUG create{{id=\"{}\"}}: close", bundle.id))?;
    // A program that ends so soon may have none; the line is there all the same, and begins as ever.
    let start = format!("INFO start{{id=\"{}\" exec=\"\"}}: ", bundle.id);
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&start)).collect();
    holds(lines.len() == 1 && lines[0].contains("isolation receipt"), || {
        log.clone()
    })?;
    for word in ["wait{", "connect{", "worker", "rpc.", "otlp", "WARN"] {
        // One line of the log has "a worker is done".
        let found = log.replace("a worker is done", "");
        holds(!found.contains(word), || format!("{word:?} is in the log: {log}"))?;
    }

    for head in collector.heads() {
        contains(&head, "POST /base/v1/traces HTTP/1.1\r\n")?;
        contains(&head, "\r\ncontent-type: application/x-protobuf\r\n")?;
        holds(!head.contains("planted"), || head.clone())?;
    }
    for resource in collector.resources() {
        let expected = [
            ("service.name", "containerd-shim-sandglass-v1"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("container.id", &bundle.id),
            ("containerd.pod.id", &bundle.id),
            ("containerd.namespace", NAMESPACE),
        ];
        equal(
            resource.len(),
            expected.len(),
            &format!("attributes of {resource:?}"),
        )?;
        for (key, value) in expected {
            equal(resource.get(key).map(String::as_str), Some(value), key)?;
        }
    }

    let spans = collector.spans();
    let create = one(&spans, "create")?;
    equal(hex(&create.trace_id).as_str(), TRACE, "trace of the create")?;
    equal(
        hex(&create.parent_span_id).as_str(),
        CALLER,
        "parent of the create",
    )?;
    for (name, method) in [
        ("create", "Create"),
        ("start", "Start"),
        ("wait", "Wait"),
        ("delete", "Delete"),
        ("shutdown", "Shutdown"),
    ] {
        let call = one(&spans, name)?;
        let has = collector::attributes(&call.attributes);
        equal(has.get("rpc.method").map(String::as_str), Some(method), name)?;
        equal(call.kind, SpanKind::Server as i32, "kind of a call")?;
        holds(call.end_time_unix_nano > call.start_time_unix_nano, || {
            format!("{name} took no time")
        })?;
        if name != "create" {
            equal(
                hex(&call.parent_span_id).as_str(),
                "",
                &format!("parent of {name}"),
            )?;
        }
        if name != "shutdown" {
            equal(has.get("id"), Some(&bundle.id), name)?;
        }
    }
    let worker = one(&spans, "worker")?;
    equal(&worker.parent_span_id, &create.span_id, "parent of the worker")?;
    equal(&worker.trace_id, &create.trace_id, "trace of the worker")?;
    let mut before = worker.start_time_unix_nano;
    for name in ["cgroup", "mount", "prepare", "create", "limit"] {
        let phase = one(&spans, &format!("worker.{name}"))?;
        equal(&phase.parent_span_id, &worker.span_id, name)?;
        equal(phase.kind, SpanKind::Internal as i32, "kind of a phase")?;
        holds(phase.start_time_unix_nano >= before, || {
            format!("{name} begins before what comes before it")
        })?;
        before = phase.end_time_unix_nano;
    }
    holds(before <= worker.end_time_unix_nano, || {
        "a phase ends after its worker".into()
    })
}

/// Without `-debug`, as nodes have it; and in a pod.
async fn quiet(bench: &mut Bench) -> Outcome {
    let collector = Collector::start(200).await?;
    let pod = bench.id("pod");
    let mut bundle = bench
        .script("a", "sleep 60")?
        .edited(|spec| spec["annotations"] = json!({"io.kubernetes.cri.sandbox-id": pod.as_str()}));
    to(&mut bundle, collector.address);
    bundle.write()?;
    let log = bundle.dir.join("log");
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU)?;
    bench.keep_log(&log)?;
    let input = bootstrap(
        bench,
        &bundle.id,
        &bench.sockets(),
        Some(options(&bundle.options)),
    )?;
    let output = call(bench, &bundle.id, &bundle.dir, &[], "start", &input).await?;
    let address = BootstrapResult::parse_from_bytes(&output.stdout)?.address;
    let shim = Shim::connect(bench, &address).await?;
    shim.run(&bundle).await?;
    shim.kill_and_delete(&bundle.id).await?;
    shim.shut_down().await?;
    let spans = collector.spans();
    for name in [
        "create",
        "worker",
        "worker.create",
        "start",
        "kill",
        "wait",
        "delete",
        "shutdown",
    ] {
        one(&spans, name)?;
    }
    for resource in collector.resources() {
        equal(resource.get("containerd.pod.id"), Some(&pod), "the pod")?;
        equal(resource.get("container.id"), Some(&bundle.id), "the container")?;
    }
    // The line is the one of a build without the feature: calls are told at the level DEBUG.
    let log = bench.log();
    contains(
        &log,
        &format!("  INFO isolation receipt container=\"{}\"", bundle.id),
    )?;
    holds(!log.contains("DEBUG") && !log.contains("create{"), || log.clone())
}

async fn nothing_of_the_pod(bench: &mut Bench) -> Outcome {
    let collector = Collector::start(200).await?;
    let mut bundle = bench
        .script("a", "echo SECRET-SCRIPT; sleep 60")?
        .edited(|spec| spec["process"]["env"] = json!(["PATH=/bin", "TOKEN=SECRET-ENV"]));
    to(&mut bundle, collector.address);
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    bundle.stdout.until("SECRET-SCRIPT").await?;
    let exec = Exec::new(bench, &bundle, "x", &["/SECRET-PROGRAM", "SECRET-ARG"])?;
    shim.add_exec(&bundle.id, &exec).await?;
    let refused = shim.start_process(&bundle.id, "x").await.err();
    let sentence = refused.ok_or("a program that is not there was started")?.sentence;
    shim.delete(&bundle.id, "x").await?;
    shim.kill_and_delete(&bundle.id).await?;
    shim.shut_down().await?;
    let spans = collector.spans();
    let failed: Vec<&Span> = spans
        .iter()
        .filter(|span| span.status.as_ref().is_some_and(|status| status.code == 2))
        .collect();
    equal(failed.len(), 1, "spans that failed")?;
    equal(failed[0].name.as_str(), "start", "the one that failed")?;
    let has = collector::attributes(&failed[0].attributes);
    equal(has.get("exec").map(String::as_str), Some("x"), "its exec")?;
    equal(
        has.get("rpc.response.status_code").map(String::as_str),
        Some("UNKNOWN"),
        "its code",
    )?;
    one(&spans, "kill")?;
    one(&spans, "exec")?;
    let body = collector.body();
    holds(!body.contains("SECRET") && !body.contains(&sentence), || {
        format!("something that the pod wrote was sent: {body}")
    })
}

async fn unsampled(bench: &mut Bench) -> Outcome {
    let collector = Collector::start(200).await?;
    let mut bundle = bench.script("a", "true")?;
    to(&mut bundle, collector.address);
    let shim = bench.shim(&bundle).await?;
    create_traced(&shim, &bundle, "00").await?;
    shim.start_process(&bundle.id, "").await?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")?;
    shim.shut_down().await?;
    let spans = collector.spans();
    one(&spans, "start")?;
    let of_it = spans.iter().filter(|span| hex(&span.trace_id) == TRACE).count();
    let made = spans
        .iter()
        .filter(|span| span.name == "create" || span.name == "worker")
        .count();
    equal((of_it, made), (0, 0), "spans of the caller's trace")?;
    holds(!bench.log().contains("WARN"), || "they count as dropped".into())
}

async fn off(bench: &mut Bench) -> Outcome {
    for (name, options) in [("a", ""), ("b", "otlp_endpoint = \"\"")] {
        let mut bundle = bench.script(name, "sleep 60")?;
        bundle.options = options.into();
        let shim = bench.shim(&bundle).await?;
        shim.run(&bundle).await?;
        holds(!threads(shim.pid).contains(&"otlp".to_owned()), || {
            "a thread sends spans that nobody asked for".into()
        })?;
        shim.kill_and_delete(&bundle.id).await?;
        let took = end(&shim).await?;
        holds(took < SECOND, || format!("the end took {took:?}"))?;
    }
    let log = bench.log();
    holds(!log.contains("WARN") && !log.contains("spans"), || log.clone())
}

async fn refused(bench: &mut Bench) -> Outcome {
    let mut bundle = bench.script("a", "true")?;
    let shim = bench.shim(&bundle).await?;
    for bad in [
        "https://127.0.0.1:4318",
        "http://collector:4318",
        "127.0.0.1:4318",
    ] {
        bundle.options = format!("otlp_endpoint = \"{bad}\"");
        let refused = shim.create(&bundle).await.err().ok_or("it was created")?;
        equal(refused.code, crate::common::Code::INVALID_ARGUMENT, "code")?;
        contains(&refused.sentence, &format!("`otlp_endpoint` is `{bad}`"))?;
        contains(&refused.sentence, "http://127.0.0.1:4318")?;
        bench.nothing_of(&bundle)?;
    }
    shim.shut_down().await
}

/// Two containers in one shim, and its end: how long that took, and what was logged at the level WARN.
async fn two_lives(bench: &Bench, address: impl std::fmt::Display) -> Outcome<(Duration, Vec<String>)> {
    let mut bundles = [bench.script("a", "echo here")?, bench.script("b", "echo here")?];
    let shim = bench.shim(&bundles[0]).await?;
    let mut before = None;
    for bundle in &mut bundles {
        to(bundle, &address);
        shim.run(bundle).await?;
        equal(bundle.stdout.text().await?.as_str(), "here\n", "output")?;
        equal(shim.end(&bundle.id, "").await?, 0, "status")?;
        // With the first, the connection for events is there to stay.
        before.get_or_insert_with(|| host::descriptors(shim.pid));
    }
    // Long enough for a batch to be sent, and to fail.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    equal(
        shim.state("none", "").await.is_err(),
        true,
        "an answer in between",
    )?;
    host::no_more_descriptors(shim.pid, &before.unwrap_or_default()).await?;
    let took = end(&shim).await?;
    let log = bench.log();
    let warnings = log.lines().filter(|line| line.contains("WARN"));
    Ok((took, warnings.map(str::to_owned).collect()))
}

/// What the one warning counts must be what there was.
fn one_warning(warnings: &[String], address: impl std::fmt::Display) -> Outcome {
    equal(warnings.len(), 1, &format!("warnings in {warnings:?}"))?;
    contains(
        &warnings[0],
        &format!("the collector at http://{address}/v1/traces did not take all spans"),
    )?;
    let number = |key: &str| {
        let word = warnings[0]
            .split_whitespace()
            .find_map(|word| word.strip_prefix(key));
        word.and_then(|number| number.parse::<usize>().ok()).unwrap_or(0)
    };
    // Each life has create, worker, five phases, start, wait and delete; then state and shutdown.
    equal(
        (number("dropped="), number("of=")),
        (22, 22),
        "dropped spans, and all",
    )
}

async fn away(bench: &mut Bench) -> Outcome {
    let address = Collector::start(200).await?.stop().await;
    let (took, warnings) = two_lives(bench, address).await?;
    holds(took < SECOND, || format!("the end took {took:?}"))?;
    one_warning(&warnings, address)
}

async fn silent(bench: &mut Bench) -> Outcome {
    // It connects, by the kernel's hand, and that is all.
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (took, warnings) = two_lives(bench, address).await?;
    // The end waits for the collector here, and no longer than it says.
    holds(took < SECOND + SECOND / 2, || format!("the end took {took:?}"))?;
    one_warning(&warnings, address)
}

async fn refusing(bench: &mut Bench) -> Outcome {
    let collector = Collector::start(503).await?;
    let (took, warnings) = two_lives(bench, collector.address).await?;
    holds(took < SECOND, || format!("the end took {took:?}"))?;
    holds(!collector.spans().is_empty(), || "nothing was sent".into())?;
    one_warning(&warnings, collector.address)
}
