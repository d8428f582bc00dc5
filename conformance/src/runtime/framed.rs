//! A run whose container's first process is the image's runner: the outer side of the protocol is the driver's own.

use std::io::Write as _;

use sandglass_driver::channel::Channel;
use sandglass_driver::client::{Clocks, Staging, Told, converse};
use sandglass_driver::events::{Store, store_in};
use sandglass_driver::outcome::{Facts, Stop, decide};
use sandglass_driver::outdir::StoreError;
use sandglass_driver::phase::Phases;
use sandglass_driver::{Cancel, Events, OutDir};
use sandglass_run::protocol::Observed;
use sandglass_run::report::REPORT_SCHEMA;
use sandglass_run::{Input, InputSource, Isolation, Report, RunError, RunId, Status, Stream, Usage};

use super::attach::Attached;
use super::ctr::Container;
use super::events::Listener;
use super::group::{Gauge, limit_pids};
use super::plan::Plan;
use super::{Handler, refused};

/// Where the image has its runner.
const RUNNER: &str = "/usr/libexec/sandglass-runner";

/// Carries the run out.
///
/// # Errors
/// When nothing can be said about it.
pub fn run(mut plan: Plan, container: &Container<'_>, cancel: &Cancel) -> Result<Report, String> {
    let out = plan
        .out
        .as_deref()
        .map(OutDir::open)
        .transpose()
        .map_err(|refusal| refusal.to_string())?;
    let listener = Listener::new(container.runtime());
    let gauge = Gauge::start(container.id());
    let started = container.run(&[RUNNER])?.and_then(|attached| {
        if container.runtime().handler != Handler::Sandglass {
            limit_pids(container.id(), container.limits().pids)?;
        }
        Ok(attached)
    });
    let attached = match started {
        Ok(attached) => attached,
        Err(said) => {
            container.remove();
            return Ok(refused(&plan, &said));
        }
    };
    let mut telling = Telling {
        out: out.as_ref(),
        said_at_once: !plan.json,
    };
    let (stop, told, said) = talk(attached, &mut plan, &mut telling, cancel)?;
    if stop != Stop::Said {
        container.kill();
    }
    let heard = listener.until_exit(container.id(), container.id());
    container.remove();
    let end = Ending {
        stop,
        told,
        out_of_memory: heard.as_ref().is_ok_and(|heard| heard.out_of_memory),
        runner_end: format!(
            "the container ended with {:?}; {said}",
            heard.as_ref().map(|heard| heard.exited)
        ),
    };
    let mut report = end.report(plan.id, gauge.peak());
    if let Err(message) = heard {
        report.status = Status::Lost;
        report.error = Some(RunError {
            code: "event_missing".into(),
            message,
            hint: "See the shim's log.".into(),
        });
    }
    Ok(report)
}

/// The conversation with the runner, and what it said besides.
fn talk(
    attached: Attached,
    plan: &mut Plan,
    telling: &mut Telling<'_>,
    cancel: &Cancel,
) -> Result<(Stop, Told, String), String> {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    tokio.block_on(async {
        let (stdin, stdout, stderr) = (attached.stdin, attached.stdout, attached.stderr);
        let mut channel =
            Channel::new(stdin.into(), stdout.into(), Some(stderr.into())).map_err(|e| e.to_string())?;
        let clocks = (cancel, Clocks::default(), &mut Phases::start());
        let check = |observed: &Observed| Ok(receipt(observed));
        let (stop, told) = converse(&mut channel, staging(plan), check, telling, clocks).await;
        Ok((stop, told, channel.diagnostics()))
    })
}

/// The plan as the runner's job.
fn staging(plan: &mut Plan) -> Staging {
    let inputs: Vec<Input> = std::mem::take(&mut plan.inputs)
        .into_iter()
        .map(|(name, bytes)| Input {
            name,
            source: InputSource::Bytes(bytes),
        })
        .collect();
    let script = (plan.script.0.clone(), std::mem::take(&mut plan.script.1));
    Staging::new(
        (plan.language, std::mem::take(&mut plan.args)),
        &plan.limits,
        Some(plan.limits.memory_bytes),
        Some(script),
        inputs,
    )
}

/// What the runner saw. What it cannot see is not claimed: cases look for themselves.
fn receipt(observed: &Observed) -> Isolation {
    let either = |is: bool, yes: &str, no: &str| if is { yes.to_owned() } else { no.to_owned() };
    Isolation {
        driver: "containerd".to_owned(),
        runtime: String::new(),
        image: String::new(),
        uid: observed.uid().unwrap_or(u32::MAX),
        capabilities: either(observed.has_no_capabilities(), "none", "some"),
        no_new_privileges: observed.no_new_privs,
        seccomp_profile: either(observed.seccomp_mode == 2, "unknown", "none"),
        landlock_abi: None,
        user_namespace: observed
            .uid_map
            .first()
            .is_some_and(|range| range.count < u32::MAX),
        network: either(observed.interfaces == ["lo"], "none", "some"),
        root_read_only: observed.root_read_only,
        waived: Vec::new(),
    }
}

/// Passes on what a run tells while it lives.
struct Telling<'a> {
    out: Option<&'a OutDir>,
    said_at_once: bool,
}

impl Events for Telling<'_> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        if self.said_at_once {
            // Nobody reads any more: the run goes on all the same.
            let _ = match stream {
                Stream::Stdout => std::io::stdout()
                    .write_all(bytes)
                    .and_then(|()| std::io::stdout().flush()),
                Stream::Stderr => std::io::stderr().write_all(bytes),
            };
        }
    }

    fn dropped(&mut self, _: Stream, _: u64) {}

    fn artifact(&mut self, path: &str, _: u64) -> Result<Option<Box<dyn Store>>, StoreError> {
        store_in(self.out, path)
    }
}

/// Everything that is known when a run is over.
struct Ending {
    stop: Stop,
    told: Told,
    out_of_memory: bool,
    runner_end: String,
}

impl Ending {
    fn report(self, run_id: RunId, peak: Option<u64>) -> Report {
        let told = self.told;
        let outcome = decide(&Facts {
            stop: &self.stop,
            started: told.started,
            exit: told.exit.as_ref(),
            oom_kills: self.out_of_memory.into(),
            runner_end: &self.runner_end,
        });
        Report {
            schema: REPORT_SCHEMA,
            run_id,
            status: outcome.status,
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            stdout: told.stdout.finish(),
            stderr: told.stderr.finish(),
            artifacts: told.artifacts,
            skipped: told.skipped,
            timings_ms: Default::default(),
            usage: Usage {
                memory_peak_bytes: peak,
                ..Usage::default()
            },
            isolation: told.isolation,
            error: outcome.error,
        }
    }
}
