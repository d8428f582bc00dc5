//! A process, timed from before it is started until it is gone.

use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

use crate::error::{BenchError, Result};

/// No run takes this long; one that does is stuck, and waiting on would hang the benchmark.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Runs a command with nothing on stdin and nobody who reads its stdout.
///
/// Neither is `/dev/null`: some runtimes give the standard streams to the container's user, and the node is the host's.
///
/// # Errors
/// It cannot be started, takes too long, or ends with anything but 0; the message has what it said on stderr.
pub fn timed(command: &mut Command) -> Result<Duration> {
    let (stdout, _) = unnamed_file()?;
    let (stderr, keep) = unnamed_file()?;
    command.stdin(at_its_end()?).stdout(stdout).stderr(stderr);
    let begin = Instant::now();
    let mut child = command
        .spawn()
        .map_err(BenchError::doing(format!("Starting {command:?}")))?;
    let in_time = wait_for_exit(child.id());
    if !in_time {
        let _ = child.kill();
    }
    let status = child.wait().map_err(BenchError::doing("Waiting"))?;
    let took = begin.elapsed();
    if in_time && status.success() {
        return Ok(took);
    }
    Err(BenchError::Setup(failure(command, status, in_time, keep)))
}

/// Waits until a child has ended, without reaping it. False: it did not in time.
pub fn wait_for_exit(pid: u32) -> bool {
    let pidfd = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    pidfd.is_none_or(|pidfd| poll_exit(&pidfd, PATIENCE))
}

/// Waits until a process has ended. False: it did not in time.
pub fn poll_exit(pidfd: &OwnedFd, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()));
        let mut watched = [PollFd::new(pidfd, PollFlags::IN)];
        match rustix::event::poll(&mut watched, left.ok().as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// A pipe into which nobody writes.
fn at_its_end() -> Result<Stdio> {
    let (reader, _) = std::io::pipe().map_err(BenchError::doing("Making a pipe for stdin"))?;
    Ok(reader.into())
}

/// A file without a name for an output: a pipe that nobody reads could fill up and stall the run.
fn unnamed_file() -> Result<(Stdio, std::fs::File)> {
    let failed = || BenchError::doing("Making a file for an output");
    let file = tempfile::tempfile().map_err(failed())?;
    let copy = file.try_clone().map_err(failed())?;
    Ok((copy.into(), file))
}

fn failure(command: &Command, status: ExitStatus, in_time: bool, mut stderr: std::fs::File) -> String {
    let mut said = Vec::new();
    let _ = stderr.rewind();
    let _ = stderr.take(4096).read_to_end(&mut said);
    let how = if in_time {
        status.to_string()
    } else {
        format!("not over after {} s", PATIENCE.as_secs())
    };
    format!("{command:?}: {how}. {}", String::from_utf8_lossy(&said).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_fails_gives_no_time_but_what_it_said() {
        let error = timed(Command::new("sh").args(["-c", "echo because >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("because") && text.contains('3'), "{text}");
    }

    #[test]
    fn no_stream_of_a_command_is_a_device_of_the_host() {
        let text =
            "test ! -c /dev/stdin && test ! -c /dev/stdout && test ! -c /dev/stderr && test -z \"$(cat)\"";
        timed(Command::new("sh").args(["-c", text])).unwrap();
    }

    #[test]
    fn a_time_covers_the_whole_life_of_the_process() {
        let took = timed(Command::new("sleep").arg("0.05")).unwrap();
        assert!(took >= Duration::from_millis(50), "{took:?}");
    }
}
