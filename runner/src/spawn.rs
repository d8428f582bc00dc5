//! The script's process. The only module that may use unsafe code: what must happen between fork and exec, and
//! two calls about this process that no crate wraps safely.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::libc;
use nix::sys::signal::SigSet;

use crate::environment::Invocation;

/// Closes every descriptor above standard error.
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: called first of all, when nothing in this program owns a descriptor above 2.
    let result = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives every signal its default disposition: takes away the handlers that the Rust runtime installs for stack
/// overflows, through which processes inside could reach PID 1, and what the script would inherit as ignored.
/// SIGPIPE stays ignored here, so that a closed channel is an error; the standard library resets it in children.
pub fn default_signals() {
    for number in (1..=64).filter(|number| *number != libc::SIGPIPE) {
        // SAFETY: the default disposition runs no code of this program. The kernel and the C library refuse the
        // few signals that cannot be changed, which are no concern then.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Starts the script as the leader of a session of its own, with nothing on its standard input and these pipes
/// as its output. Gives its process id.
pub fn spawn(invocation: &Invocation, stdout: OwnedFd, stderr: OwnedFd) -> io::Result<u32> {
    let mut command = Command::new(&invocation.program);
    command
        .args(&invocation.args)
        .env_clear()
        .envs(invocation.env.iter().map(|(name, value)| (name, value)))
        .current_dir("/work")
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    // SAFETY: the closure makes two system calls and allocates nothing, so it may run in a forked child.
    unsafe {
        command.pre_exec(|| {
            // SIGCHLD is blocked here for the signalfd, and a mask is inherited.
            SigSet::empty().thread_set_mask()?;
            Ok(rustix::process::setsid().map(drop)?)
        });
    }
    // Whoever reaps all children reaps this one: the handle has nothing to wait for.
    Ok(command.spawn()?.id())
}
