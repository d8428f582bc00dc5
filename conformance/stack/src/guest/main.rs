//! What runs inside the test images. The name it is called by says what it does, so that one small static file serves
//! them all:
//!
//! - `pause` reaps orphans and waits to be told to go;
//! - `nginx`, `httpd` and `hostnet` answer every HTTP request with `200`, on port 80 (`hostnet`: 12003);
//! - `ipcs` lists the segments of System V shared memory that it sees;
//! - `pgrep` lists the processes whose name holds its last argument;
//! - `nonewprivs` prints its effective uid: its file is setuid root in the image.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT, SIGTERM};

/// Where the servers say which process they are.
const PID_FILE: &str = "/var/run/nginx.pid";
const PAGE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
/// No client may hold the one thread for longer.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let called = std::env::args().next().unwrap_or_default();
    let done = match called.rsplit('/').next().unwrap_or_default() {
        "pause" => pause(),
        name @ ("nginx" | "httpd") => serve(name, 80),
        name @ "hostnet" => serve(name, 12003),
        "nonewprivs" => {
            println!("Effective uid: {}", rustix::process::geteuid().as_raw());
            Ok(())
        }
        "ipcs" => shared_memory(),
        "pgrep" => processes(&std::env::args().next_back().unwrap_or_default()),
        other => Err(std::io::Error::other(format!(
            "{other} is none of pause, nginx, httpd, hostnet, nonewprivs, ipcs, pgrep"
        ))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{called}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pause() -> std::io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGCHLD, SIGINT, SIGTERM])?;
    for signal in signals.forever() {
        if signal != SIGCHLD {
            break;
        }
        while matches!(
            rustix::process::wait(rustix::process::WaitOptions::NOHANG),
            Ok(Some(_))
        ) {}
    }
    Ok(())
}

fn shared_memory() -> std::io::Result<()> {
    println!("shmid");
    for line in std::fs::read_to_string("/proc/sysvipc/shm")?.lines().skip(1) {
        println!("{}", line.split_whitespace().nth(1).unwrap_or_default());
    }
    Ok(())
}

fn processes(wanted: &str) -> std::io::Result<()> {
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        let Ok(name) = std::fs::read_to_string(entry.path().join("comm")) else {
            continue;
        };
        let me = std::process::id().to_string() == pid;
        if !me && pid.bytes().all(|byte| byte.is_ascii_digit()) && name.contains(wanted) {
            println!("{pid}");
        }
    }
    Ok(())
}

fn serve(name: &str, port: u16) -> std::io::Result<()> {
    // As the first process of a PID namespace it gets no signal that it has no handler for.
    for signal in [SIGINT, SIGTERM, SIGQUIT] {
        signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::new(AtomicBool::new(true)))?;
    }
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    // A read-only root has no place for it; only what looks for the file needs it.
    if let Err(error) = std::fs::write(PID_FILE, format!("{}\n", std::process::id())) {
        eprintln!("{name}: {PID_FILE} cannot be written: {error}");
    }
    println!("{name}: ready on port {port}");
    for client in listener.incoming() {
        // A client that goes away early is no reason to end.
        let _ = client.and_then(answer);
    }
    Ok(())
}

fn answer(mut client: TcpStream) -> std::io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut request = [0; 4096];
    let mut read = 0;
    while read < request.len() && !request[..read].windows(4).any(|end| end == b"\r\n\r\n") {
        match client.read(&mut request[read..])? {
            0 => break,
            more => read += more,
        }
    }
    client.write_all(PAGE)
}
