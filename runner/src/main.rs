//! PID 1 inside every sandbox, whichever driver made it: reads one job, runs the script, caps its output, and
//! hands back what it left in `/out`.
//!
//! It speaks the runner protocol on its standard input and output, and nothing else goes through those. It is
//! single-threaded: one loop waits for the script's pipes, for its children, for the channel and for the wall
//! clock. The order of the modules is the order in which a run meets them.
#![deny(unsafe_code)]

mod channel;
mod error;
mod observe;
mod own;
mod stage;

mod environment;
mod spawn;
mod supervise;

mod processes;
mod streams;

mod collect;
mod listing;

use std::process::ExitCode;

use sandglass_run::FromRunner;
use sandglass_run::protocol::Failed;

use channel::Channel;
use error::RunnerError;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandglass-runner: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), RunnerError> {
    own::claim_descriptors()?;
    let mut channel = Channel::from_stdio()?;
    let result = own::harden().and_then(|()| serve(&mut channel));
    if let Err(error) = &result {
        // Nothing of the script outlives a failure; the namespace would die with PID 1 in any case.
        processes::kill_all();
        if let Some(code) = error.code() {
            let message = sandglass_run::name::printable(error.to_string().as_bytes(), 4_000);
            channel.send(&FromRunner::Failed(Failed { code, message }))?;
        }
    }
    result
}

/// One job from its first frame to `End`.
fn serve(channel: &mut Channel) -> Result<(), RunnerError> {
    // Opened while nothing hostile runs: what it names cannot be changed any more.
    let out = collect::open_out()?;
    let mut staged = stage::receive(channel)?;
    channel.send(&FromRunner::Ready(observe::observe()?))?;
    stage::await_go(channel, &mut staged)?;
    let exit = supervise::run_script(channel, &staged)?;
    channel.send(&FromRunner::Exit(exit))?;
    collect::collect(&out, staged.job.artifacts, channel)?;
    channel.send(&FromRunner::End)
}
