//! The suite that tries to break a sandbox, and proves that it can fail.
//!
//! It knows the command line under test and nothing of what is behind it: `sandglass run --json … SCRIPT`. One prober
//! runs inside, in the place of the attacker; the suite judges from outside what came of each attempt, and what is left
//! on the host. With `--runtime` it plays that command line itself, each run a container (`runtime/`): the same cases, no
//! copies. See the README beside this crate.
#![forbid(unsafe_code)]

mod asked;
mod case;
mod cases;
mod context;
mod control;
mod ended;
mod families;
mod host;
mod invoke;
mod judge;
mod leak;
mod nothing;
mod output;
mod permitted;
mod pods;
mod runtime;
mod suite;
mod verdict;
mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use globset::Glob;

use crate::case::{Body, Case, Need};
use crate::context::{Canary, Config};
use crate::control::Unconfined;
use crate::leak::{Scope, Watch};
use crate::output::Summary;
use crate::permitted::Permitted;
use crate::runtime::events::Recorder;
use crate::runtime::{Handler, Role, Runtime};

/// Where containerd, its CRI, runtimes and the suite in kubelet's place keep what belongs to live containers: a stack has it
/// where a node has it.
const OF_CONTAINERS: [&str; 10] = [
    "/run/containerd/fifo",
    "/run/containerd/s",
    "/run/containerd/io.containerd.runtime.v2.task/default",
    "/run/containerd/io.containerd.runtime.v2.task/k8s.io",
    "/run/containerd/io.containerd.grpc.v1.cri/containers",
    "/run/containerd/io.containerd.grpc.v1.cri/sandboxes",
    "/run/containerd/runc/default",
    "/run/containerd/runc/k8s.io",
    "/run/cdi",
    "/var/lib/kubelet/pods",
];

/// Runs named cases against a driver through its command line, and judges them from outside.
///
/// Exit status: 0 when no case failed, at least one passed, and the skips are those of the list; 1 otherwise; 2 when the
/// suite itself cannot run.
#[derive(Debug, Parser)]
#[command(name = "sandglass-conformance", version, max_term_width = 110)]
struct Cli {
    /// The command line under test
    #[arg(long, value_name = "PATH", default_value = "sandglass")]
    sandglass: PathBuf,
    /// Its driver
    #[arg(long, value_name = "NAME", default_value = "local")]
    driver: String,
    /// Controls that every run does without, by name; cases about them are skipped
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    waive: Vec<String>,
    /// A further word for every `sandglass run`, such as --extra=--image=NAME; may be given several times
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    extra: Vec<String>,
    /// Run the cases through a container runtime in place of the command line: in a stack, as root
    #[arg(long, value_enum, conflicts_with_all = ["validate", "user", "waive", "extra"])]
    runtime: Option<Server>,
    /// With --runtime: the handler under test
    #[arg(long, value_enum, default_value_t = Handler::Sandglass, requires = "runtime")]
    handler: Handler,
    /// With --runtime: what scripts are in their container
    #[arg(long = "as", value_enum, default_value_t = Role::Runner, requires = "runtime")]
    role: Role,
    /// With --runtime: the sandbox image, by a name that the server has
    #[arg(
        long,
        value_name = "NAME",
        default_value = "localhost/sandglass:1",
        requires = "runtime"
    )]
    runtime_image: String,
    /// Say that the suite runs as an ordinary user, not as root
    #[arg(long)]
    user: bool,
    /// Only cases whose name matches, such as 'kernel/*'; may be given several times
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
    /// Cases at once; with one, the host is compared after each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Print the cases and what they stand for, and run nothing
    #[arg(long)]
    list: bool,
    /// Run the controls in place of the cases: each probe unconfined, where it must succeed (needs root)
    #[arg(long)]
    validate: bool,
    /// The root of the image, for --validate
    #[arg(long, value_name = "DIR", required_if_eq("validate", "true"))]
    rootfs: Option<PathBuf>,
    /// A list of permitted skips and failures; may be given several times
    #[arg(long, value_name = "FILE")]
    permit: Vec<PathBuf>,
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write results as JUnit's XML too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Whose traces count as left behind: everything new on this host, or only what is ours
    #[arg(long, value_enum, default_value_t = HostScope::Whole)]
    host_scope: HostScope,
    /// Runs of endurance/runs
    #[arg(long, value_name = "N", default_value_t = 300)]
    endurance: u32,
    /// Let cases change a setting of this host for a moment and put it back (core_pattern)
    #[arg(long)]
    touch_host: bool,
    /// Keep the suite's directory
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Server {
    Containerd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HostScope {
    Whole,
    Own,
}

fn main() -> ExitCode {
    // The suite itself in the part of a driver: through a runtime, and for its own validation.
    if let Some(settings) = std::env::var_os(runtime::PLAYED)
        && std::env::args_os().nth(1).is_some_and(|word| word == "run")
    {
        return runtime::main(&settings.to_string_lossy());
    }
    if let Some(rootfs) = std::env::var_os(nothing::ROOTFS)
        && std::env::args_os().nth(1).is_some_and(|word| word == "run")
    {
        return nothing::main(Path::new(&rootfs));
    }
    match suite_main(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("sandglass-conformance: {message}");
            ExitCode::from(2)
        }
    }
}

fn suite_main(cli: &Cli) -> Result<bool, String> {
    let cases = select(cases::all(), &cli.filter)?;
    if cli.list {
        print!("{}", list(&cases));
        return Ok(!cases.is_empty());
    }
    let root = nix::unistd::geteuid().is_root();
    if root == cli.user {
        return Err(format!(
            "it runs as {}, and --user says the opposite: leave it out for root, give it for anyone else",
            if root { "root" } else { "an ordinary user" }
        ));
    }
    if cli.validate && !root {
        return Err("--validate needs root: controls show what root can do unconfined".to_owned());
    }
    let mut permitted = Permitted::default();
    for path in &cli.permit {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        permitted.extend(Permitted::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?);
    }
    // Orphans of a killed command line become children of ours, so that they cannot hide.
    nix::sys::prctl::set_child_subreaper(true).map_err(|e| format!("cannot become a reaper: {e}"))?;
    let temp = tempfile::Builder::new()
        .prefix("sandglass-conformance-")
        .tempdir()
        .map_err(|e| format!("cannot make a directory: {e}"))?;
    let started = Instant::now();
    let summary = in_dir(cli, &cases, &permitted, temp.path(), started);
    if cli.keep {
        eprintln!("kept: {}", temp.keep().display());
    }
    let summary = summary?;
    match cli.format {
        Format::Text => print!("{}", summary.text()),
        Format::Json => println!("{}", summary.json().map_err(|e| e.to_string())?),
    }
    if let Some(path) = &cli.junit {
        let xml = summary.junit().map_err(|e| e.to_string())?;
        std::fs::write(path, xml).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(summary.good())
}

fn in_dir(
    cli: &Cli,
    cases: &[Case],
    permitted: &Permitted,
    dir: &Path,
    started: Instant,
) -> Result<Summary, String> {
    use std::os::unix::fs::PermissionsExt as _;
    let say = |e: std::io::Error| format!("{}: {e}", dir.display());
    // Others may pass through, as a run with a uid of its own does, and may not list.
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711)).map_err(say)?;
    let tag = format!("conf{}", std::process::id());
    let runtime = cli.runtime.map(|Server::Containerd| Runtime {
        handler: cli.handler,
        role: cli.role,
        image: cli.runtime_image.clone(),
        events: dir.join("events"),
    });
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let config = Config {
        sandglass: match runtime {
            Some(_) => own.clone(),
            None => absolute(&cli.sandglass)?,
        },
        driver: cli.driver.clone(),
        waived: cli.waive.clone(),
        extra: cli.extra.clone(),
        user: cli.user,
        touch_host: cli.touch_host,
        endurance: cli.endurance,
        dir: dir.to_owned(),
        tag: tag.clone(),
        nothing: None,
        runtime,
        permitted: permitted.clone(),
    };
    std::fs::create_dir(config.state_dir()).map_err(say)?;
    std::fs::set_permissions(config.state_dir(), std::fs::Permissions::from_mode(0o711)).map_err(say)?;
    let canary = Canary::plant(&dir.join("canary"), &tag).map_err(say)?;
    let scope = match cli.host_scope {
        HostScope::Whole => Scope::Whole,
        HostScope::Own => Scope::Own { tag },
    };
    let mut state_dirs = vec![config.state_dir()];
    let _recorder = match &config.runtime {
        None => None,
        Some(runtime) => {
            state_dirs.extend(OF_CONTAINERS.map(PathBuf::from));
            Some(Recorder::start(&runtime.events)?)
        }
    };
    let watch = Watch::new(scope, state_dirs);
    let quiet = cli.format == Format::Json;
    let (what, results) = if cli.validate {
        let rootfs = cli.rootfs.as_deref().ok_or("--validate needs --rootfs")?;
        let unconfined = Unconfined::new(rootfs, dir).map_err(say)?;
        let nothing = Config {
            sandglass: own,
            nothing: Some(rootfs.to_owned()),
            ..config
        };
        let mut results = suite::validate(cases, &canary, &unconfined, &watch, quiet);
        results.extend(suite::against_nothing(cases, &nothing, &canary, &watch, quiet));
        ("controls", results)
    } else {
        warm_up(&config, &canary)?;
        if cases.iter().any(|case| case.needs.contains(&Need::Pods))
            && config.is_for_others(Need::Pods).is_none()
        {
            warm_up_pods(&config, &canary)?;
        }
        (
            "cases",
            suite::run(cases, &config, &canary, &watch, usize::from(cli.jobs), quiet),
        )
    };
    let disagreements = permitted.disagreements(results.iter().map(|r| (r.name.as_str(), &r.verdict)));
    Ok(Summary {
        what,
        cases: results,
        disagreements,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// One run before the first picture of the host, so that directories which the driver makes once and keeps are not taken
/// for a leak; it also shows that the command line can be used at all.
fn warm_up(config: &Config, canary: &Canary) -> Result<(), String> {
    let context = context::Context::new(config, canary, "warm-up", usize::MAX).map_err(|e| e.to_string())?;
    let ended = context.probe(&["nothing"]);
    match ended {
        Ok(_) => Ok(()),
        Err(stop) => Err(format!(
            "a first run does not succeed, so no case was tried: {stop:?}"
        )),
    }
}

/// The same for pods: the first of them makes the node forward packets.
fn warm_up_pods(config: &Config, canary: &Canary) -> Result<(), String> {
    let context = context::Context::new(config, canary, "warm-up", usize::MAX).map_err(|e| e.to_string())?;
    let asked = pods::Pod::ordinary(&context).and_then(|pod| pod.ask(&context, Handler::Runc));
    match asked {
        Ok(Ok(())) => Ok(()),
        other => Err(format!(
            "a first pod cannot be made, so no case was tried: {other:?}"
        )),
    }
}

fn absolute(program: &Path) -> Result<PathBuf, String> {
    if program.components().count() == 1 {
        return Ok(program.to_owned());
    }
    std::path::absolute(program).map_err(|e| format!("{}: {e}", program.display()))
}

fn select(cases: Vec<Case>, globs: &[String]) -> Result<Vec<Case>, String> {
    if globs.is_empty() {
        return Ok(cases);
    }
    let mut matchers = Vec::new();
    for glob in globs {
        matchers.push(Glob::new(glob).map_err(|e| e.to_string())?.compile_matcher());
    }
    Ok(cases
        .into_iter()
        .filter(|case| matchers.iter().any(|matcher| matcher.is_match(&case.name)))
        .collect())
}

fn list(cases: &[Case]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for case in cases {
        let kind = match &case.body {
            Body::Probe(_) => "probe",
            Body::Code(_) => "code",
            Body::Work(_) => "work",
        };
        let families = case
            .families
            .iter()
            .map(u8::to_string)
            .collect::<Vec<_>>()
            .join(",");
        let _ = writeln!(text, "{:<46} {kind:<5} {families:<8} {}", case.name, case.says);
    }
    text
}
