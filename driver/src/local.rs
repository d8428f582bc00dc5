//! The embedded driver: sandboxes made by this process, without a daemon or a container engine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sandglass_image::{Held, Image};
use sandglass_run::report::REPORT_SCHEMA;
use sandglass_run::{Language, Limits, Report, Request, RunError, Usage, Waiver};
use sandglass_sandbox::{Ended, Finding, Launch, Sandbox, SandboxError};

use crate::Cancel;
use crate::admission::{admit, host_capacity};
use crate::channel::Channel;
use crate::client::{Clocks, Staging, Told, converse};
use crate::driver::Driver;
use crate::events::{Events, Quiet};
use crate::images::Images;
use crate::outcome::{Facts, Stop, decide};
use crate::phase::{Phase, Phases};
use crate::receipt::{Required, check};
use crate::refusal::Refusal;
use crate::slots::{self, Slot};
use crate::state::StateRoot;

/// Its name, as settings and receipts have it.
pub const LOCAL: &str = "local";

/// The embedded driver.
#[derive(Debug, Clone)]
pub struct Local {
    /// The directory for live runs; see [`crate::state::default_path`].
    pub state_root: PathBuf,
    /// Which image runs get.
    pub images: Images,
    /// Runs at once for a person.
    pub runs_per_person: u32,
}

/// What admission gives a run.
struct Admitted {
    image: Image,
    /// Both are held until the run is over.
    _image: Held,
    _slot: Slot,
}

impl Local {
    /// Everything that can be refused before a sandbox is made.
    fn admit(&self, request: &Request) -> Result<Admitted, Refusal> {
        admit(request, &host_capacity())?;
        let state = StateRoot::open(&self.state_root)?;
        let (image, held) = self.images.hold()?;
        let slot = slots::take(&state, request.person.as_str(), self.runs_per_person)?;
        match sandglass_sandbox::reap(&self.state_root) {
            Ok(reaped) if reaped.is_empty() => {}
            Ok(reaped) => tracing::info!(runs = reaped.join(" "), "took away what killed runs had left"),
            // What another run left does not keep this one from being sealed.
            Err(error) => tracing::warn!(%error, "what a killed run left could not be taken away"),
        }
        Ok(Admitted {
            image,
            _image: held,
            _slot: slot,
        })
    }

    async fn carry_out(
        &self,
        mut request: Request,
        events: &mut dyn Events,
        cancel: &Cancel,
        phases: &mut Phases,
    ) -> Report {
        phases.enter(Phase::Queued);
        let admitted = match phases.scope(|| self.admit(&request)) {
            Ok(admitted) => admitted,
            Err(refusal) => return refused(request, refusal),
        };
        if cancel.is_cancelled() {
            return Ending {
                stop: Stop::Cancelled,
                told: Told::default(),
                ended: Ok(Ended::default()),
                said: String::new(),
            }
            .report(request);
        }

        if let Err(refusal) = events.admitted() {
            return refused(request, refusal);
        }

        phases.enter(Phase::Create);
        let launched = phases.scope(|| launch(&request, &self.state_root, &admitted.image.rootfs));
        let (sandbox, mut channel) = match launched {
            Ok(launched) => launched,
            Err(refusal) => return refused(request, refusal),
        };
        tracing::debug!(phases = ?sandbox.observed().phases, "the sandbox stands");

        let staging = staging(&mut request);
        let required = Required {
            limits: &request.limits,
            waivers: &request.waivers,
            privileged: rustix::process::geteuid().is_root(),
            driver: self.name(),
            image: &admitted.image.digest,
            profile: (sandglass_sandbox::PROFILE_NAME, sandglass_sandbox::filter_count()),
        };
        let check = |inside: &_| check(inside, sandbox.observed(), &required);
        let (stop, told) = converse(
            &mut channel,
            staging,
            check,
            events,
            (cancel, Clocks::default(), phases),
        )
        .await;

        phases.enter(Phase::Delete);
        let said = channel.diagnostics();
        drop(channel);
        let ended = phases.scope(|| sandbox.finish());
        phases.leave();
        if !said.is_empty() {
            tracing::debug!(said, "the runner's own diagnostics");
        }
        Ending {
            stop,
            told,
            ended,
            said,
        }
        .report(request)
    }

    /// A run of `true`, sealed as any other: the only finding that cannot be wrong about all of them together.
    async fn trial(&self, waivers: &[Waiver]) -> Finding {
        let request = || {
            Ok::<_, sandglass_run::id::IdError>(Request {
                run_id: format!("doctor-{}", std::process::id()).parse()?,
                person: "sandglass-doctor".parse()?,
                language: Language::Exec,
                script: Vec::new(),
                script_name: String::new(),
                args: vec!["true".into()],
                inputs: Vec::new(),
                limits: Limits {
                    wall: Duration::from_secs(10),
                    ..Limits::default()
                },
                waivers: waivers.to_vec(),
            })
        };
        let mut finding = Finding {
            layer: "trial_run".into(),
            ok: false,
            waived: false,
            found: String::new(),
            mend: String::new(),
        };
        match request() {
            Err(error) => finding.found = error.to_string(),
            Ok(request) => {
                let report = self.run(request, &mut Quiet(None), &Cancel::new()).await;
                finding.ok = report.exit_code() == 0;
                match report.error {
                    Some(error) => (finding.found, finding.mend) = (error.message, error.hint),
                    None => finding.found = format!("{:?} in {} ms", report.status, report.timings_ms.total),
                }
            }
        }
        finding
    }
}

impl Driver for Local {
    fn name(&self) -> &'static str {
        LOCAL
    }

    async fn run(&self, request: Request, events: &mut dyn Events, cancel: &Cancel) -> Report {
        let mut phases = Phases::start();
        let mut report = self.carry_out(request, events, cancel, &mut phases).await;
        phases.leave();
        report.timings_ms = phases.timings();
        report
    }

    async fn doctor(&self, waivers: &[Waiver]) -> Vec<Finding> {
        let state = StateRoot::open(&self.state_root).map(|state| {
            slots::sweep(&state);
            state.path().display().to_string()
        });
        let mut findings = look(state, &self.images, waivers);
        // Where something is missing already, a trial would only say it again.
        if !findings.iter().any(Finding::hinders) {
            findings.push(self.trial(waivers).await);
        }
        findings
    }
}

/// What `doctor` finds where there is no place for the state of runs, and so no [`Local`] driver: all that can be
/// looked at without one.
pub fn findings_without_state(why: Refusal, images: &Images, waivers: &[Waiver]) -> Vec<Finding> {
    look(Err(why), images, waivers)
}

fn look(state: Result<String, Refusal>, images: &Images, waivers: &[Waiver]) -> Vec<Finding> {
    let mut findings = sandglass_sandbox::probe_host();
    for finding in &mut findings {
        // What is named is not applied, even where it could be.
        finding.waived = waivers.iter().any(|waiver| waiver.as_str() == finding.layer);
    }
    findings.push(found("state_directory", state));
    findings.push(found("image", images.resolve().map(|image| image.digest)));
    findings
}

fn found(layer: &str, result: Result<String, Refusal>) -> Finding {
    let (ok, (found, mend)) = match result {
        Ok(found) => (true, (found, String::new())),
        Err(refusal) => (false, (refusal.message, refusal.hint)),
    };
    Finding {
        layer: layer.to_owned(),
        ok,
        waived: false,
        found,
        mend,
    }
}

fn refused(request: Request, refusal: Refusal) -> Report {
    tracing::debug!(code = refusal.code, "refused");
    Report::refused(request.run_id, refusal.into())
}

fn launch(request: &Request, state_root: &Path, rootfs: &Path) -> Result<(Sandbox, Channel), Refusal> {
    let refused = |error: SandboxError| Refusal::new(error.code(), error.to_string(), error.hint());
    let mut sandbox = Sandbox::launch(&Launch {
        run_id: request.run_id.as_str().to_owned(),
        rootfs: rootfs.to_owned(),
        args: vec![sandglass_sandbox::RUNNER.to_owned()],
        limits: request.limits.clone(),
        waived: request.waivers.clone(),
        state_root: state_root.to_owned(),
    })
    .map_err(refused)?;
    let broken = |reason: &str| Refusal::new("sandbox_failed", reason, "Run `sandglass doctor`.");
    let Some((to_runner, from_runner)) = sandbox.channel() else {
        return Err(broken("The sandbox has no channel to its runner."));
    };
    let stderr = sandbox.stderr();
    let channel = Channel::new(to_runner, from_runner, stderr)
        .map_err(|e| broken(&format!("The channel to the runner cannot be used: {e}.")))?;
    Ok((sandbox, channel))
}

/// Turns the request into the job, and takes script and inputs out of it.
fn staging(request: &mut Request) -> Staging {
    let script = (request.language != Language::Exec).then(|| {
        (
            std::mem::take(&mut request.script_name),
            std::mem::take(&mut request.script),
        )
    });
    let memory = !request.waivers.contains(&Waiver::Memory);
    Staging::new(
        (request.language, std::mem::take(&mut request.args)),
        &request.limits,
        memory.then_some(request.limits.memory_bytes),
        script,
        std::mem::take(&mut request.inputs),
    )
}

/// Everything that is known when a run is over.
struct Ending {
    stop: Stop,
    told: Told,
    ended: Result<Ended, SandboxError>,
    said: String,
}

impl Ending {
    fn report(self, request: Request) -> Report {
        let Self {
            stop,
            told,
            ended,
            said,
        } = self;
        let (mut ended, error) = match ended {
            Ok(ended) => (ended, None),
            Err(error) => (Ended::default(), Some(error)),
        };
        let left = error.or(ended.left.take().map(|what| SandboxError::Left { what }));
        if let Some(error) = &left {
            tracing::error!(%error, "something of the run is left");
        }
        let outcome = decide(&Facts {
            stop: &stop,
            started: told.started,
            exit: told.exit.as_ref(),
            oom_kills: ended.counted.oom_kills,
            runner_end: &runner_end(&ended, &said),
        });
        let left = left.map(|e| RunError {
            code: e.code().into(),
            message: e.to_string(),
            hint: e.hint(),
        });
        let exit_usage = told.exit.as_ref().map(|exit| exit.usage);
        let peak = ended.counted.processes_peak.and_then(|n| u32::try_from(n).ok());
        let ran = told.started;
        Report {
            schema: REPORT_SCHEMA,
            run_id: request.run_id,
            status: outcome.status,
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            stdout: told.stdout.finish(),
            stderr: told.stderr.finish(),
            artifacts: told.artifacts,
            skipped: told.skipped,
            timings_ms: Default::default(),
            usage: Usage {
                cpu_ms: ran.then_some(ended.cpu_ms),
                // Without a memory cgroup the largest process is all that can be known.
                memory_peak_bytes: ended
                    .counted
                    .memory_peak_bytes
                    .or(exit_usage.map(|u| u.max_rss_bytes)),
                processes_peak: peak.or(exit_usage.and_then(|u| u.processes_peak)),
            },
            isolation: told.isolation,
            error: outcome.error.or(left),
        }
    }
}

/// How the runner itself ended, in words.
fn runner_end(ended: &Ended, said: &str) -> String {
    let how = match (ended.code, ended.signal) {
        (Some(code), _) => format!("the runner left with code {code}"),
        (None, Some(signal)) => format!("the runner was ended by signal {signal}"),
        (None, None) => "how the runner ended is not known".to_owned(),
    };
    if said.is_empty() {
        how
    } else {
        format!("{how}; it said: {said}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_place_for_state_doctor_still_looks_at_everything_else() {
        let why = Refusal::new("state_dir", "There is no place.", "Set one.");
        let findings = findings_without_state(why, &Images::default(), &[Waiver::Cpu]);
        let of = |layer: &str| findings.iter().find(|finding| finding.layer == layer).unwrap();
        let state = of("state_directory");
        assert!(state.hinders() && state.found == "There is no place." && state.mend == "Set one.");
        assert!(of("cpu").waived && !of("cpu").hinders() && !of("memory").waived);
        assert!(findings.iter().any(|finding| finding.layer == "image"));
        assert!(findings.iter().all(|finding| finding.layer != "trial_run"));
    }
}
