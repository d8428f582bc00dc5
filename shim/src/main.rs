//! `containerd-shim-sandglass-v1`: the containerd runtime of the RuntimeClass `sandglass`.
//!
//! containerd starts one for each pod and speaks the runtime-v2 Task API, version 3, to it. Every container is made by
//! `sandglass-sandbox`, in a worker process of its own; this process keeps the state, copies the streams, waits for
//! the processes and tells containerd what happened. README.md beside the crate says how to install it.
//!
//! ```text
//! containerd ── start ── shim ──┬── worker (create, exec: gone when done)
//!                               ├── pause container
//!                               └── the pod's containers and what is exec'ed in them
//! ```

mod container;
mod error;
mod events;
mod exits;
mod features;
mod io;
mod log;
mod oom;
mod options;
#[cfg(feature = "otlp")]
mod otlp;
mod process;
mod receipt;
mod rest;
mod rootfs;
mod server;
mod service;
mod stats;
mod task;
mod terminal;
mod watched;

use std::process::ExitCode;

/// The runtime's name, as containerd's configuration has it in `runtime_type`.
const RUNTIME: &str = "io.containerd.sandglass.v1";

fn main() -> ExitCode {
    // Before anything else, while this process has one thread.
    if sandglass_sandbox::container::is_worker() {
        return sandglass_sandbox::container::worker_main(rootfs::mount);
    }
    // What whoever started us left open is not for the server and what it starts.
    if let Err(error) = sandglass_sandbox::container::cloexec_from_three() {
        eprintln!(
            "{}: closing inherited descriptors: {error}",
            env!("CARGO_BIN_NAME")
        );
        return ExitCode::FAILURE;
    }
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if matches!(
        args.first().and_then(|arg| arg.to_str()),
        None | Some("-h" | "-help" | "--help" | "help")
    ) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match containerd_shim::parse(&args) {
        Ok(flags) if flags.version => {
            println!(
                "{}:\n  Version:  {}\n  Runtime:  {RUNTIME}\n  Task API: 3",
                env!("CARGO_BIN_NAME"),
                env!("CARGO_PKG_VERSION")
            );
            ExitCode::SUCCESS
        }
        Ok(flags) if !is_containerds(&flags) => refuse("these words are not those of containerd"),
        Ok(_) => serve(),
        Err(error) => refuse(&error.to_string()),
    }
}

/// An action, a question for features, or a server with its socket.
fn is_containerds(flags: &containerd_shim::Flags) -> bool {
    match flags.action.as_str() {
        "start" | "delete" => true,
        action => flags.info || (action.is_empty() && !flags.socket.is_empty()),
    }
}

fn refuse(why: &str) -> ExitCode {
    eprintln!(
        "{}: {why}. This program is started by containerd; see --help.",
        env!("CARGO_BIN_NAME")
    );
    ExitCode::FAILURE
}

fn serve() -> ExitCode {
    // One thread: the shim waits, and what it does for a container is done in a worker process.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(std::time::Duration::from_millis(100))
        .max_blocking_threads(4)
        .build();
    match runtime {
        Ok(runtime) => {
            runtime.block_on(service::run());
            // After the last call, so that its span is among them.
            #[cfg(feature = "otlp")]
            otlp::flush();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: starting the reactor: {error}", env!("CARGO_BIN_NAME"));
            ExitCode::FAILURE
        }
    }
}

const HELP: &str = "\
The containerd runtime of Sandglass: runs each container of a pod in a sandbox.

containerd starts this program; nobody else has to. To install it, put it into containerd's PATH as
containerd-shim-sandglass-v1 and name the runtime in containerd's configuration (version 3, containerd 2.0 or later):

  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.sandglass]
    runtime_type = 'io.containerd.sandglass.v1'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.sandglass.options]
      hardening = 'sandbox'    # or 'spec': the pod's own spec, exactly
      systemd_cgroup = false   # true where the kubelet has cgroupDriver: systemd (cgroup v2)

then make a RuntimeClass with `handler: sandglass`. To try it without Kubernetes:

  ctr run --rm --runtime io.containerd.sandglass.v1 --user 65534:65534 IMAGE NAME id

  -v          print the version
  -info       print the runtime's features, as OCI features JSON in a protobuf message
  start, delete, -namespace, -id, -address, -bundle, -debug, -publish-binary
              containerd's own
";
