//! The streams of a process that containerd's client has started and left alone.
//!
//! A client that stays attached closes its ends as soon as it hears of the exit, and with them now and then the last of
//! the output. So it is told to leave, and the FIFOs that it made for the process are opened here.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

/// Longest that a client may take to have started a process.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// How often it is looked for the FIFOs: well below what the start of a process takes.
const EVERY: Duration = Duration::from_micros(500);

/// Our ends of the three FIFOs, none of which blocks. Their directory is gone when they are.
#[derive(Debug)]
pub struct Attached {
    /// What the process reads.
    pub stdin: File,
    /// What it prints.
    pub stdout: File,
    /// Where it complains.
    pub stderr: File,
}

/// Starts a client with `--detach`, which makes its FIFOs below `dir`, a directory of its own; and takes those over. The
/// inner error is what the client said when it could not start the process.
///
/// # Errors
/// When the client itself cannot be started or used.
pub fn start(mut command: Command, dir: &Path) -> Result<Result<Attached, String>, String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let attached = take_over(&mut command, dir);
    // The names are not needed any more: everybody who uses a FIFO has it open.
    let _ = std::fs::remove_dir_all(dir);
    attached
}

fn take_over(command: &mut Command, dir: &Path) -> Result<Result<Attached, String>, String> {
    // Its own standard input stays open: at its end the client would close that of the process.
    let mut client = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("ctr: {e}"))?;
    let deadline = Instant::now() + STARTS_WITHIN;
    let open = |path: &Path, how: &mut OpenOptions| {
        let opened = how.custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
        opened.map_err(|e| format!("{}: {e}", path.display()))
    };
    let mut holder = None;
    loop {
        if holder.is_none()
            && let Some(stdin) = fifo(dir, "-stdin")
        {
            // Both ways, so that it can be opened before the shim has, and the shim never sees an end of it.
            holder = Some((open(&stdin, OpenOptions::new().read(true).write(true))?, stdin));
        }
        if let Some(status) = client.try_wait().map_err(|e| format!("ctr: {e}"))? {
            if !status.success() {
                return Ok(Err(said(client)));
            }
            break;
        }
        if Instant::now() > deadline {
            let _ = client.kill();
            let _ = client.wait();
            return Err(format!("ctr did not start a process within {STARTS_WITHIN:?}"));
        }
        std::thread::sleep(EVERY);
    }
    let (_holder, stdin) = holder.ok_or("ctr made no FIFO for the standard input")?;
    let beside = |end: &str| fifo(dir, end).ok_or_else(|| format!("ctr made no FIFO {end}"));
    let mut reading = OpenOptions::new();
    reading.read(true);
    // The shim has its ends open by now: what it wrote until then waits in the FIFO, and an end of it is the end.
    Ok(Ok(Attached {
        stdin: open(&stdin, OpenOptions::new().write(true))?,
        stdout: open(&beside("-stdout")?, &mut reading)?,
        stderr: open(&beside("-stderr")?, &mut reading)?,
    }))
}

/// The FIFO whose name ends so, in the one directory that the client made.
fn fifo(dir: &Path, end: &str) -> Option<PathBuf> {
    let entries = |dir: &Path| std::fs::read_dir(dir).map(|found| found.flatten().map(|entry| entry.path()));
    let own = entries(dir).ok()?.next()?;
    entries(&own)
        .ok()?
        .find(|path| path.to_string_lossy().ends_with(end))
}

fn said(client: Child) -> String {
    match client.wait_with_output() {
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    /// What `ctr --detach` does, with a shell in the place of the process: FIFOs in a directory, a process that has them
    /// open, and an early leave.
    const CLIENT: &str = "mkdir $0/x && cd $0/x && mkfifo i-stdin i-stdout i-stderr
        (head -c 3; echo more >&2) <>i-stdin 1<>i-stdout 2<>i-stderr & sleep 0.2";

    #[test]
    fn the_streams_of_a_process_that_was_left_alone_are_taken_over_whole() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("fifos");
        let mut command = Command::new("sh");
        command.args(["-c", CLIENT]).arg(&dir);
        let mut attached = start(command, &dir).unwrap().unwrap();
        assert!(!dir.exists());
        attached.stdin.write_all(b"abc").unwrap();
        let read = |file: &mut File| {
            let (mut bytes, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(10));
            loop {
                match file.read_to_end(&mut bytes) {
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                        std::thread::sleep(EVERY);
                    }
                    end => return end.map(|_| bytes).unwrap(),
                }
            }
        };
        assert_eq!(read(&mut attached.stdout), b"abc");
        assert_eq!(read(&mut attached.stderr), b"more\n");
    }

    #[test]
    fn a_process_that_was_not_started_is_told_in_the_clients_words() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("fifos");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such image >&2; exit 1"]);
        assert_eq!(start(command, &dir).unwrap().unwrap_err(), "no such image");
        assert!(!dir.exists());
    }
}
