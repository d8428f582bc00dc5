//! The stack from the command line.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Parser, Subcommand};
use sandglass_stack::{
    Config, Expected, Ingredients, Outcome, Outcomes, Result, Servers, Stack, StackError, critest,
};

/// A containerd of its own, with CRI, CNI and test images, in namespaces of its own.
#[derive(Debug, Parser)]
#[command(name = "sandglass-stack", version)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Bring a stack up, run a command (or a shell) inside, and end everything with it.
    Up(Up),
    /// Make the test images.
    Images {
        /// A busybox whose shell starts other programs, for critest.
        #[arg(long)]
        busybox: PathBuf,
        /// A static busybox, for everybody else.
        #[arg(long)]
        busybox_static: PathBuf,
        /// The program that runs inside the images.
        #[arg(long)]
        guest: PathBuf,
        /// The store that holds the sandbox image; without one, that image is left out.
        #[arg(long)]
        store: Option<PathBuf>,
        /// Where to put them.
        #[arg(long)]
        out: PathBuf,
    },
    /// Run critest with one handler after another, and compare each with the first.
    Critest(Critest),
    #[command(hide = true)]
    Supervise { order: String },
}

#[derive(Debug, Args)]
struct Critest {
    #[command(flatten)]
    servers: Parts,
    /// A handler; the first is the baseline.
    #[arg(long = "handler", default_values_t = ["runc".to_owned()])]
    handlers: Vec<String>,
    /// HANDLER=FILE: where this one differs from the baseline by design.
    #[arg(long = "expected", value_parser = expected)]
    expected: Vec<(String, PathBuf)>,
    /// The baseline must pass as many, or it says nothing.
    #[arg(long, default_value_t = 1)]
    at_least: usize,
    /// Only specs whose name matches, for work on one of them.
    #[arg(long)]
    focus: Option<String>,
    /// Where logs and reports go.
    #[arg(long, default_value = "target/critest")]
    out: PathBuf,
}

fn expected(text: &str) -> std::result::Result<(String, PathBuf), String> {
    let (handler, file) = text.split_once('=').ok_or("HANDLER=FILE is wanted")?;
    Ok((handler.to_owned(), file.into()))
}

#[derive(Debug, Args)]
struct Up {
    #[command(flatten)]
    parts: Parts,
    /// Keep a copy of containerd's log here.
    #[arg(long)]
    keep_log: Option<PathBuf>,
    /// The command; without one, a shell.
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Debug, Args)]
struct Parts {
    /// What `make stack` made.
    #[arg(long, env = "SANDGLASS_STACK", default_value = "target/stack")]
    servers: PathBuf,
    /// The shim, for the handlers `sandglass` and `sandglass-spec`; by default the checkout's release build, if there.
    #[arg(long)]
    shim: Option<PathBuf>,
    /// A crun, for a handler of that name.
    #[arg(long)]
    crun: Option<PathBuf>,
    /// A youki, for a handler of that name.
    #[arg(long)]
    youki: Option<PathBuf>,
    /// containerd and shims log at debug level.
    #[arg(long)]
    debug: bool,
    /// An argument for containerd; may be given again.
    #[arg(long = "containerd-flag", allow_hyphen_values = true)]
    containerd_flags: Vec<String>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Action::Supervise { order } => return sandglass_stack::supervise(&order),
        Action::Up(up) => run(&up),
        Action::Critest(critest) => compare(&critest),
        Action::Images {
            busybox,
            busybox_static,
            guest,
            store,
            out,
        } => {
            let from = Ingredients {
                busybox,
                busybox_static,
                guest,
                store,
            };
            images(&from, &out)
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("sandglass-stack: {error}");
        ExitCode::from(125)
    })
}

fn images(from: &Ingredients, out: &std::path::Path) -> Result<ExitCode> {
    for name in sandglass_stack::make_images(from, out)?.names() {
        println!("{name}");
    }
    Ok(ExitCode::SUCCESS)
}

fn run(up: &Up) -> Result<ExitCode> {
    let mut config = config(&up.parts)?;
    config.keep_log = up
        .keep_log
        .as_ref()
        .map(std::path::absolute)
        .transpose()
        .map_err(StackError::doing("Finding the log"))?;
    // Ctrl-C is for the command; the stack goes down after it.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(StackError::doing("Catching signals"))?;
    }
    let stack = Stack::up(&config)?;
    let (program, arguments) = match up.command.split_first() {
        Some((program, arguments)) => (program.clone(), arguments.to_vec()),
        None => {
            greet(&config, &stack);
            (
                std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned()),
                Vec::new(),
            )
        }
    };
    let status = stack.command(&program).args(&arguments).status();
    let down = stack.down();
    let status = status.map_err(StackError::doing(format!("Starting {program}")))?;
    down?;
    Ok(ExitCode::from(u8::try_from(code(status)).unwrap_or(125)))
}

/// The exit status that a shell would give.
fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

fn greet(config: &Config, stack: &Stack) {
    let handlers: Vec<_> = config
        .handlers
        .iter()
        .map(|handler| handler.name.as_str())
        .collect();
    // Ours where it is there, and as a sandbox wants it.
    let ours = config.handlers.iter().find(|handler| handler.name == "sandglass");
    let runtime = ours.map_or(String::new(), |handler| {
        format!("--runtime {} --user 65534:65534 ", handler.runtime_type)
    });
    eprintln!(
        "ctr and crictl talk to a containerd of this shell's own; it ends with the shell.\n\
         Runtime handlers: {}\n\
         Images: {} {}\n\
         containerd's log: {}\n\
         Try: ctr run --rm -t {runtime}{} demo sh",
        handlers.join(" "),
        sandglass_stack::BUSYBOX,
        sandglass_stack::SANDBOX,
        stack.place().log().display(),
        sandglass_stack::BUSYBOX,
    );
}

fn compare(asked: &Critest) -> Result<ExitCode> {
    let config = config(&asked.servers)?;
    let lists: Vec<(&str, Expected)> = asked
        .expected
        .iter()
        .map(|(handler, file)| Ok((handler.as_str(), Expected::read(file)?)))
        .collect::<Result<_>>()?;
    if let Some((handler, _)) = lists
        .iter()
        .find(|(handler, _)| !asked.handlers.iter().skip(1).any(|h| h == handler))
    {
        return Err(StackError::Setting(format!(
            "There is a list for {handler}, which is not compared."
        )));
    }
    let mut baseline: Option<Outcomes> = None;
    let mut wrong = 0;
    for handler in &asked.handlers {
        println!("critest, handler {handler} …");
        let (found, left) = critest::run(&config, handler, asked.focus.as_deref(), &asked.out)?;
        println!(
            "  {} passed, {} failed, {} skipped",
            found.count(Outcome::Passed),
            found.count(Outcome::Failed),
            found.count(Outcome::Skipped)
        );
        for what in &left {
            println!("  left behind: {what}");
        }
        wrong += left.len();
        let Some(baseline) = &baseline else {
            if found.count(Outcome::Passed) < asked.at_least {
                println!(
                    "  the baseline passes fewer than {}: it says nothing",
                    asked.at_least
                );
                wrong += 1;
            }
            for (name, _) in found.0.iter().filter(|(_, outcome)| **outcome == Outcome::Failed) {
                println!("  failed: {name}");
            }
            baseline = Some(found);
            continue;
        };
        let list = lists
            .iter()
            .find(|(of, _)| of == handler)
            .map(|(_, list)| list.clone())
            .unwrap_or_default();
        let differences = sandglass_stack::compare(baseline, &found, &list);
        for difference in &differences {
            println!("  {difference}");
        }
        if differences.is_empty() {
            println!(
                "  as {}, but for {} by design",
                asked.handlers[0],
                list.differs.len()
            );
        }
        wrong += differences.len();
    }
    Ok(if wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn config(up: &Parts) -> Result<Config> {
    let servers = Servers::at(&up.servers)?;
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(StackError::at("Finding", path));
    let shim = match &up.shim {
        Some(path) => {
            // containerd looks for it when it makes the first container.
            if !path.exists() {
                return Err(StackError::Missing {
                    what: "The shim".to_owned(),
                    path: path.display().to_string(),
                    hint: "Build it with `make shim`, or name another.",
                });
            }
            Some(absolute(path)?)
        }
        None => {
            let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
            let built = servers
                .root
                .with_file_name(triple)
                .join("release/containerd-shim-sandglass-v1");
            built.exists().then_some(built)
        }
    };
    let mut others = Vec::new();
    for (name, path) in [("crun", &up.crun), ("youki", &up.youki)] {
        if let Some(path) = path {
            others.push((name, absolute(path)?));
        }
    }
    let others: Vec<_> = others
        .iter()
        .map(|(name, path)| (*name, path.as_path()))
        .collect();
    let mut config = Config::new(servers, shim.as_deref(), &others);
    config.debug = up.debug;
    config.containerd_flags.clone_from(&up.containerd_flags);
    Ok(config)
}
