//! What this program does inside a container, by its first argument.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub fn main(args: &[String]) -> ExitCode {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["ids"] => {
            say(&format!(
                "{} {}",
                rustix::process::getuid().as_raw(),
                rustix::process::geteuid().as_raw()
            ));
            ExitCode::SUCCESS
        }
        ["overwrite", pid, log] => overwrite(pid, log),
        ["overwrite-all"] => overwrite_all(),
        _ => ExitCode::FAILURE,
    }
}

fn say(text: &str) {
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// Every way to write a file that a process executes: what came of each, `OPENED` where one succeeded.
fn attempts(paths: &[String]) -> Vec<String> {
    let ways: [fn(&mut OpenOptions) -> &mut OpenOptions; 3] = [
        |o| o.write(true),
        |o| o.read(true).write(true),
        |o| o.append(true),
    ];
    let mut came = BTreeSet::new();
    for path in paths {
        for way in ways {
            // Not truncated: a success is bad enough.
            match way(&mut OpenOptions::new()).open(path) {
                Ok(_) => came.insert(format!("OPENED {path}")),
                Err(error) => came.insert(error.to_string()),
            };
        }
    }
    came.into_iter().collect()
}

/// Takes hold of the program of a process and tries to write it: while it runs, and after.
fn overwrite(pid: &str, log: &str) -> ExitCode {
    let say = |text: &str| {
        say(text);
        let file = OpenOptions::new().append(true).create(true).open(log);
        let _ = file.and_then(|mut file| writeln!(file, "{text}"));
    };
    let exe = format!("/proc/{pid}/exe");
    let held = match File::open(&exe) {
        Ok(held) => held,
        Err(error) => {
            say(&format!("not reached: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let again = format!("/proc/self/fd/{}", held.as_raw_fd());
    for came in attempts(&[exe.clone(), again.clone()]) {
        say(&format!("while: {came}"));
    }
    say("held");
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::metadata(format!("/proc/{pid}/stat")).is_ok() {
        if Instant::now() > deadline {
            say("it never ended");
            return ExitCode::FAILURE;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // A writer is kept out while any process executes the file; a moment later nobody does.
    for _ in 0..20 {
        for came in attempts(std::slice::from_ref(&again)) {
            say(&format!("after: {came}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    say("all tried");
    ExitCode::SUCCESS
}

/// Takes hold of every program that is not one of the image's, as fast as it can, and tries to write each.
fn overwrite_all() -> ExitCode {
    let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
    let images: Vec<_> = ["/bin/busybox", "/usr/probe"]
        .iter()
        .filter_map(|path| std::fs::metadata(path).ok())
        .map(identity)
        .collect();
    let mut held: Vec<File> = Vec::new();
    let mut said = BTreeSet::new();
    // Each line once, so that nobody has to read along.
    let mut once = |text: &str| {
        if said.insert(text.to_owned()) {
            say(text);
        }
    };
    once("ready");
    loop {
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            let exe = format!("/proc/{pid}/exe");
            let Ok(file) = File::open(&exe) else { continue };
            if file
                .metadata()
                .map(identity)
                .is_ok_and(|found| images.contains(&found))
            {
                continue;
            }
            once("reached");
            held.push(file);
            for came in attempts(&[exe]) {
                once(&came);
            }
        }
        // What it holds it tries again, when nobody executes it any more.
        let again: Vec<String> = held
            .iter()
            .rev()
            .take(4)
            .map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()))
            .collect();
        if attempts(&again).iter().any(|came| came.starts_with("OPENED")) {
            once("OPENED what is held");
        }
        held.truncate(64);
    }
}
