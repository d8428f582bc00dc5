//! The shim without containerd: a mock of it starts the real program, speaks to it as containerd does, and looks at what
//! is left.
//!
//! Every test ends with the same look: no process, mount, cgroup, socket, state directory or shim of it is there any
//! more, and an idle shim has no children. The containers' root holds a static busybox and this very program, which is
//! the probe that runs inside; so the tests need a harness of their own.

#![forbid(unsafe_code)]

mod common;
mod confinement;
mod disk;
mod endurance;
mod events;
mod executable;
mod faults;
mod inputs;
mod life;
#[cfg(feature = "otlp")]
mod otlp;
mod probe;
mod races;
mod refusals;
mod requests;
mod resources;
mod roots;
mod starting;
mod streams;
mod users;

use std::process::ExitCode;
use std::time::Duration;

use common::{Bench, Outcome, root, within};
use libtest_mimic::{Arguments, Trial};

/// Longest time of one test, in seconds; where more cycles than usual are asked for, it is an hour.
fn longest() -> u64 {
    match std::env::var_os(endurance::COUNT) {
        None => 150,
        Some(_) => 3600,
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.first().is_some_and(|name| name == root::PROBE) {
        return probe::main(&args[1..]);
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "A container of a pod is made by root: as another user these tests are ignored, and nothing is shown."
        );
    } else if let Err(reason) = root::shared() {
        eprintln!("The containers of these tests cannot be made: {reason}.");
        return ExitCode::FAILURE;
    }
    // What a killed shim leaves becomes our child, so that its end can be seen whatever process 1 of this machine does.
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        eprintln!("becoming the reaper of orphans: {error}");
        return ExitCode::FAILURE;
    }
    let mut trials = Vec::new();
    for group in [
        life::trials,
        resources::trials,
        roots::trials,
        streams::trials,
        events::trials,
        starting::trials,
        requests::trials,
        inputs::trials,
        refusals::trials,
        confinement::trials,
        users::trials,
        executable::trials,
        faults::trials,
        disk::trials,
        races::trials,
        endurance::trials,
        #[cfg(feature = "otlp")]
        otlp::trials,
    ] {
        trials.extend(group());
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    root::remove();
    conclusion.exit_code()
}

/// A test with a bench of its own, which is looked at when it is over.
fn trial<F>(name: &'static str, test: F) -> Trial
where
    F: AsyncFnOnce(&mut Bench) -> Outcome + Send + 'static,
{
    let root = rustix::process::geteuid().is_root();
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(async {
            let mut bench = Bench::new().await?;
            let outcome = within(longest(), "the end of the test", test(&mut bench)).await;
            bench.finish(outcome.and_then(|outcome| outcome)).await
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        outcome
    })
    .with_ignored_flag(!root)
}
