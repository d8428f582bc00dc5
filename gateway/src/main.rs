//! The `sandglass` command line: runs code that nobody has read, each run in a sandbox made for it alone.
//!
//! [`cli`] has the words, [`mod@settings`] where a value comes from, [`config`] what it means; [`run`], [`doctor`] and
//! [`image`] are the commands. [`terminal`] and [`outlet`] stand between a script's output and a person's terminal.
#![forbid(unsafe_code)]

mod cli;
mod config;
mod console;
mod doctor;
mod image;
mod inputs;
mod logs;
mod outlet;
mod progress;
mod run;
mod settings;
mod signals;
mod style;
mod summary;
mod terminal;

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use sandglass_driver::Refusal;

use cli::{Cli, Command};
use settings::{Key, Settings};

fn main() -> ExitCode {
    // Before anything else: the sandbox's worker must be a process with one thread and nothing open.
    if sandglass_sandbox::is_worker() {
        return sandglass_sandbox::worker_main();
    }
    match Cli::try_parse() {
        Ok(cli) => obey(&cli),
        Err(error) => bad_words(&error),
    }
}

fn obey(cli: &Cli) -> ExitCode {
    let settings = match settings(cli) {
        Ok(settings) => settings,
        Err(refusal) => {
            return refuse(
                refusal,
                matches!(cli.command, Command::Run(_)),
                cli.command.json(),
            );
        }
    };
    let done = match &cli.command {
        Command::Run(args) => return run::run(args, &settings),
        Command::Doctor(args) => doctor::doctor(args, &settings),
        Command::Image(args) => image::image(args, &settings),
    };
    done.unwrap_or_else(|refusal| refuse(refusal, false, cli.command.json()))
}

/// The layers of settings, and logging, which is the first to use them.
fn settings(cli: &Cli) -> Result<Settings, Refusal> {
    let env = |name: &str| std::env::var_os(name);
    settings::check_variables(std::env::vars_os())?;
    let mut flags = match &cli.command {
        Command::Run(args) => run::flags(args)?,
        Command::Doctor(args) => vec![
            (Key::Driver, args.driver.clone()),
            (Key::Waive, cli::several(&args.waive)),
            (Key::Image, args.image.clone()),
        ],
        Command::Image(_) => Vec::new(),
    };
    flags.push((Key::LogFormat, cli.global.log_format.clone()));
    flags.push((Key::LogLevel, cli.global.log_level.clone()));
    let named = cli
        .global
        .config
        .clone()
        .or_else(|| env("SANDGLASS_CONFIG").filter(|v| !v.is_empty()).map(Into::into));
    let defaults = settings::default_files(rustix::process::geteuid().is_root(), env);
    let file = settings::read_file(named.as_deref(), &defaults)?;
    let file = file.as_ref().map(|(path, text)| (path.as_path(), text.as_str()));
    let settings = Settings::new(flags, env, file)?;
    logs::start(&settings)?;
    Ok(settings)
}

/// Words that clap does not take: help and version are answers, the rest is refused.
fn bad_words(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let words: Vec<_> = std::env::args_os()
        .skip(1)
        .take_while(|word| word != OsStr::new("--"))
        .collect();
    let has = |word: &str| words.iter().any(|w| w == OsStr::new(word));
    if has("--json") {
        let text = error.render().to_string();
        // The first paragraph is the message; usage and tips follow it.
        let message = text.split("\n\n").next().unwrap_or_default();
        let message = message
            .trim_start_matches("error: ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let refusal = Refusal::new("bad_flag", format!("{message}."), "See `sandglass --help`.");
        return refuse(refusal, has("run"), true);
    }
    let _ = error.print();
    ExitCode::from(sandglass_run::report::EXIT_REFUSED)
}

/// Refuses before any command began: a report for `run`, an error for the others.
fn refuse(refusal: Refusal, is_run: bool, json: bool) -> ExitCode {
    if is_run {
        return run::refuse(refusal, None, json);
    }
    if json {
        let error = sandglass_run::RunError::from(refusal);
        let _ = run::print_json(&serde_json::json!({ "error": error }));
    } else {
        run::say_error(&refusal);
    }
    ExitCode::from(sandglass_run::report::EXIT_REFUSED)
}
