//! `sandglass run`.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use sandglass_driver::{Cancel, Disabled, Driver, Local, OutDir, Refusal};
use sandglass_run::{OutputContent, Report, Request, RunId, Status};

use crate::cli::RunArgs;
use crate::config::{self, DriverName};
use crate::console::{Console, Shown};
use crate::inputs;
use crate::settings::{Key, Settings};
use crate::signals::Signals;
use crate::style::{Palette, colours_on_stderr, paint};
use crate::summary::{Context, summary};

/// What has lasted as long as this is being waited for.
const SETTLED: std::time::Duration = std::time::Duration::from_secs(1);

/// A driver, chosen by name.
enum Chosen {
    Local(Local),
    Disabled(Disabled),
}

/// Everything that a run needs, put together.
struct Ready {
    request: Request,
    driver: Chosen,
    out: Option<OutDir>,
}

/// The settings that have a flag.
pub fn flags(args: &RunArgs) -> Result<Vec<(Key, Option<String>)>, Refusal> {
    let out = match &args.out {
        None => None,
        Some(path) => Some(path.to_str().map(str::to_owned).ok_or_else(|| {
            Refusal::new(
                "bad_flag",
                "The path given with --out is not UTF-8.",
                "Name another directory.",
            )
        })?),
    };
    Ok(vec![
        (Key::Driver, args.driver.clone()),
        (Key::Language, args.language.clone()),
        (Key::Out, out),
        (Key::Person, args.person.clone()),
        (Key::RunId, args.run_id.clone()),
        (Key::Timeout, args.timeout.clone()),
        (Key::Memory, args.memory.clone()),
        (Key::Cpus, args.cpus.clone()),
        (Key::Scratch, args.scratch.clone()),
        (Key::Pids, args.pids.clone()),
        (Key::Waive, crate::cli::several(&args.waive)),
        (Key::Image, args.image.clone()),
    ])
}

/// Carries out `sandglass run`.
pub fn run(args: &RunArgs, settings: &Settings) -> ExitCode {
    let chosen_id = match config::run_id(settings) {
        Ok(id) => id,
        Err(refusal) => return refuse(refusal, None, args.json),
    };
    let run_id = chosen_id.unwrap_or_else(random_id);
    match ready(args, settings, run_id.clone()) {
        Ok(ready) => carry_out(ready, args),
        Err(refusal) => refuse(refusal, Some(run_id), args.json),
    }
}

/// Reports a refusal that came before a driver was asked.
pub fn refuse(refusal: Refusal, run_id: Option<RunId>, json: bool) -> ExitCode {
    let report = Report::refused(run_id.unwrap_or_else(random_id), refusal.into());
    tell(&report, &Context::default(), json)
}

fn ready(args: &RunArgs, settings: &Settings, run_id: RunId) -> Result<Ready, Refusal> {
    let driver = driver(settings)?;
    match &driver {
        Chosen::Local(local) => local.takes_runs()?,
        Chosen::Disabled(disabled) => disabled.takes_runs()?,
    }
    let limits = config::limits(settings)?;
    let waivers = config::waivers(settings)?;
    let person = config::person(settings)?;
    let language = config::language(settings)?;
    let script = inputs::script(&args.script, language)?;
    let inputs = inputs::inputs(&args.inputs)?;
    let script_args = args.args.iter().map(text_argument).collect::<Result<_, _>>()?;
    let out = config::out(settings)
        .map(|path| OutDir::look(&path))
        .transpose()?;
    let request = Request {
        run_id,
        person,
        language: script.language,
        script: script.text,
        script_name: script.name,
        args: script_args,
        inputs,
        limits,
        waivers,
    };
    Ok(Ready { request, driver, out })
}

fn driver(settings: &Settings) -> Result<Chosen, Refusal> {
    Ok(match config::driver(settings)? {
        DriverName::Disabled => Chosen::Disabled(Disabled),
        DriverName::Local => Chosen::Local(Local {
            state_root: config::state_root(settings)?,
            images: config::images(settings),
            runs_per_person: config::runs_per_person(settings)?,
        }),
    })
}

fn text_argument(arg: &OsString) -> Result<String, Refusal> {
    arg.to_str().map(str::to_owned).ok_or_else(|| {
        Refusal::new(
            "argument_invalid",
            format!("The argument {arg:?} is not UTF-8."),
            "Pass such data as an input.",
        )
    })
}

fn carry_out(ready: Ready, args: &RunArgs) -> ExitCode {
    let Ready { request, driver, out } = ready;
    let run_id = request.run_id.clone();
    let not_begun = |e: std::io::Error| {
        let refusal = Refusal::new(
            "internal",
            format!("The run could not be begun: {e}."),
            "Look at the limits of this process (ulimit -a).",
        );
        refuse(refusal, Some(run_id.clone()), args.json)
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => return not_begun(e),
    };
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let console = (!args.json).then(|| {
        Console::new(
            (stdout.as_fd(), stdout.is_terminal() && !args.raw),
            (stderr.as_fd(), stderr.is_terminal() && !args.raw),
        )
    });
    let mut shown = Shown {
        console: console.as_ref(),
        out: out.as_ref(),
        not_stored: Vec::new(),
    };
    let report = runtime.block_on(async {
        let signals = Signals::catch()?;
        let cancel = Cancel::new();
        let report = tokio::select! {
            biased;
            report = async {
                match &driver {
                    Chosen::Local(local) => local.run(request, &mut shown, &cancel).await,
                    Chosen::Disabled(disabled) => disabled.run(request, &mut shown, &cancel).await,
                }
            } => report,
            never = signals.cancel(&cancel) => match never {},
            never = write_on(console.as_ref()) => match never {},
            never = settle() => match never {},
        };
        signals.run_is_over();
        Ok(report)
    });
    let report = match report {
        Ok(report) => report,
        Err(e) => return not_begun(e),
    };
    for broken in console.iter().flat_map(Console::finish) {
        say(&broken);
    }
    if report.status == Status::Refused {
        out.iter().for_each(OutDir::unmake);
    }
    let path = out.as_ref().map(|out| out.path().display().to_string());
    tell(
        &report,
        &Context {
            out: path.as_deref(),
            not_stored: &shown.not_stored,
        },
        args.json,
    )
}

/// A run that takes its time is waited for with as little memory as that needs; a short one is not slowed down.
async fn settle() -> std::convert::Infallible {
    tokio::time::sleep(SETTLED).await;
    let _ = sandglass_sandbox::give_back_clean_pages();
    std::future::pending().await
}

async fn write_on(console: Option<&Console<'_>>) -> std::convert::Infallible {
    match console {
        Some(console) => console.write_on().await,
        None => std::future::pending().await,
    }
}

/// Prints the report or its summary, and gives the exit status.
fn tell(report: &Report, context: &Context<'_>, json: bool) -> ExitCode {
    if json {
        if let Err(e) = print_json(report) {
            say(&format!("The report could not be written to stdout: {e}."));
            return ExitCode::from(sandglass_run::report::EXIT_REFUSED);
        }
    } else {
        if std::io::stderr().is_terminal() {
            // Whatever colours or half a line the script left there, what follows is ours and can be read.
            let _ = std::io::stderr().write_all(clean_slate(report).as_bytes());
        }
        say(summary(report, context, &Palette::new(colours_on_stderr())).trim_end());
    }
    ExitCode::from(report.exit_code())
}

/// Ends the script's colours on a terminal, and its line where it did not end that itself.
fn clean_slate(report: &Report) -> &'static str {
    let open = |output: &sandglass_run::Output| match &output.content {
        OutputContent::Text(text) => !text.is_empty() && !text.ends_with('\n'),
        OutputContent::Base64(_) => true,
    };
    // A line's end also ends every turn of the direction of writing (UAX #9, rule X8).
    if open(&report.stdout) || open(&report.stderr) {
        "\x1b[0m\n"
    } else {
        crate::terminal::PLAIN
    }
}

/// One JSON document on stdout, and a line's end.
///
/// # Errors
/// A stdout that cannot be written to.
pub fn print_json(value: &impl serde::Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&text)?;
    stdout.flush()
}

/// A line on stderr. That nobody reads there is no reason to fail.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// An error line on stderr, with what to do next.
pub fn say_error(refusal: &Refusal) {
    let p = Palette::new(colours_on_stderr());
    say(&format!(
        "{} {}",
        paint(p.bad, "error:"),
        crate::terminal::line(&refusal.message)
    ));
    if !refusal.hint.is_empty() {
        say(&format!(
            "{} {}",
            paint(p.dim, "next: "),
            crate::terminal::line(&refusal.hint)
        ));
    }
}

/// A run id nobody else has: 64 random bits in hexadecimal.
fn random_id() -> RunId {
    let mut bytes = [0; 8];
    // Without random bytes at hand (not even at boot does Linux lack them for long) the process and the time do.
    if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) != Ok(bytes.len()) {
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos() as u64);
        bytes = (now ^ (u64::from(std::process::id()) << 44)).to_be_bytes();
    }
    let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    text.parse().unwrap_or_else(|_| random_id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_are_allowed_and_differ() {
        let (a, b) = (random_id(), random_id());
        assert_ne!(a, b);
        assert_eq!(a.as_str().len(), 16);
    }

    #[test]
    fn the_summary_begins_on_a_plain_line_whatever_the_script_left() {
        let mut report = Report::refused(random_id(), Refusal::new("x", "", "").into());
        assert_eq!(clean_slate(&report), "\x1b[0m");
        for (left, slate) in [
            (&b"\x1b[8mhidden\n"[..], "\x1b[0m"),
            (b"\x1b[8mhidden", "\x1b[0m\n"),
            ("\u{202e}turned".as_bytes(), "\x1b[0m\n"),
            (b"50%\r", "\x1b[0m\n"),
            (b"\xff\n", "\x1b[0m\n"),
        ] {
            report.stdout.content = left.to_vec().into();
            assert_eq!(clean_slate(&report), slate);
        }
        (report.stdout.content, report.stderr.content) = (Vec::new().into(), b"open".to_vec().into());
        assert_eq!(clean_slate(&report), "\x1b[0m\n");
    }
}
