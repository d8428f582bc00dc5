//! What the script finds: nothing of the runner's, a whole environment, and its files.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod common;

use std::io::Write;
use std::process::{Command, Stdio};

use common::{Outer, is_root, job, perl, run, run_with, shell};
use sandglass_run::protocol::{EntryStart, Failed, FailureCode, Job};
use sandglass_run::{FromRunner, Language, ToRunner, read_frame, write_frame};

#[test]
fn the_script_has_three_descriptors_and_no_more() {
    let outcome = run(&perl(
        r#"for (0 .. 9999) { my $to = readlink "/proc/$$/fd/$_"; print "$_ $to\n" if $to }"#,
    ));
    let lines: Vec<&str> = outcome.text().lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0], "0 /dev/null");
    assert!(
        lines[1].starts_with("1 pipe:[") && lines[2].starts_with("2 pipe:["),
        "{lines:?}"
    );
    assert_ne!(lines[1][2..], lines[2][2..]);
}

#[test]
fn the_runner_cannot_be_reached_from_inside() {
    let outcome = run(&shell(
        "for f in fd environ maps mem exe cwd root auxv stack; do
             if cat /proc/1/$f > /dev/null 2>&1 || ls /proc/1/$f/ > /dev/null 2>&1; then echo reached $f; fi
         done
         if echo x > /proc/1/fd/1; then echo wrote; fi
         if readlink /proc/1/exe; then echo read; fi
         id -u",
    ));
    assert_eq!(outcome.text(), "65534\n");
}

#[test]
fn the_same_holes_are_open_to_a_process_of_its_own() {
    // The control of the test above: what is refused there works where nothing forbids it.
    let outcome = run(&shell(
        "sleep 5 & cd /proc/$!; cat environ > /dev/null && ls fd/ > /dev/null && readlink exe > /dev/null && echo reached",
    ));
    assert_eq!(outcome.text(), "reached\n");
}

#[test]
fn the_environment_is_built_from_nothing() {
    let outcome = run(&Job {
        env: [("REGION".into(), "eu".into())].into(),
        ..job(Language::Exec, &["env"])
    });
    let mut lines: Vec<&str> = outcome.text().lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "HOME=/work",
            "LANG=C.UTF-8",
            "LC_ALL=C.UTF-8",
            "MPLBACKEND=Agg",
            "MPLCONFIGDIR=/tmp/.matplotlib",
            "NODE_OPTIONS=--max-old-space-size=384",
            "OMP_NUM_THREADS=1",
            "OPENBLAS_NUM_THREADS=1",
            "PATH=/usr/local/bin:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONUNBUFFERED=1",
            "REGION=eu",
            "TMPDIR=/tmp",
            "TZ=UTC",
            "USER=nobody",
        ]
    );
}

#[test]
fn the_script_leads_a_session_without_core_files_or_odd_signals() {
    let outcome = run(&shell(
        "pwd; umask; ulimit -Sc; ulimit -Hc; cat /proc/self/status > /tmp/status; grep -E '^Sig(Blk|Ign|Cgt)' /tmp/status; cut -d' ' -f1,5,6 /proc/$$/stat",
    ));
    let lines: Vec<&str> = outcome.text().lines().collect();
    // The shell counts in blocks, so the one byte shows as none.
    assert_eq!(&lines[..4], ["/work", "0022", "0", "0"]);
    for line in &lines[4..7] {
        let mask = u64::from_str_radix(line.split_once('\t').unwrap().1, 16).unwrap();
        // The C library keeps the signals 32 and 33 for itself, so where they were ignored they stay it.
        assert_eq!(mask & !(0b11 << 31), 0, "{line}");
    }
    let ids: Vec<&str> = lines[7].split(' ').collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[0] != "1", "{ids:?}");
    let limits = run(&shell("grep 'core file' /proc/self/limits"));
    assert_eq!(
        limits.text().split_whitespace().collect::<Vec<_>>()[4..6],
        ["1", "1"]
    );
}

#[test]
fn files_are_staged_as_they_were_sent() {
    let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let sh: &[u8] = b"stat -c '%A %s %n' *; cksum < data.bin";
    let entries: [(&str, &[u8]); 4] = [
        ("main.sh", sh),
        ("data.bin", &data),
        ("empty", b""),
        ("\u{9867}\u{5ba2} 1.csv", b"x"),
    ];
    let outcome = run_with(&job(Language::Exec, &["sh", "main.sh"]), &entries);
    let text = outcome.text();
    assert!(text.contains("-rw-r--r-- 300000 data.bin"), "{text}");
    assert!(text.contains("-rw-r--r-- 0 empty"), "{text}");
    let mut cksum = Command::new("cksum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    cksum.stdin.take().unwrap().write_all(&data).unwrap();
    let expected = String::from_utf8(cksum.wait_with_output().unwrap().stdout).unwrap();
    assert!(text.ends_with(&expected), "{text} / {expected}");
}

#[test]
fn files_that_do_not_fit_are_told_apart() {
    let mut outer = Outer::start();
    let bytes = vec![0; 80 << 20];
    outer.send(&ToRunner::Job(Job {
        entries: 1,
        ..shell("true")
    }));
    outer.send(&ToRunner::EntryStart(EntryStart {
        name: "big".into(),
        bytes: bytes.len() as u64,
    }));
    for piece in bytes.chunks(64 * 1024) {
        // The runner gives up in the middle of it.
        if write_frame(outer.to.as_mut().unwrap(), &ToRunner::EntryData(piece.to_vec())).is_err() {
            break;
        }
    }
    match outer.receive() {
        Some(FromRunner::Failed(Failed {
            code: FailureCode::StagingNoSpace,
            message,
        })) => {
            assert!(message.contains("big"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_breaks_the_protocol_is_refused_and_starts_nothing() {
    let job = |entries| {
        ToRunner::Job(Job {
            entries,
            ..shell("true")
        })
    };
    let entry = |name: &str| {
        ToRunner::EntryStart(EntryStart {
            name: name.into(),
            bytes: 1,
        })
    };
    for frames in [
        vec![ToRunner::Go],
        vec![job(1), ToRunner::Go],
        vec![job(1), entry("../x")],
        vec![job(1), entry("a"), ToRunner::EntryEnd],
        vec![job(1), entry("a"), ToRunner::EntryData(b"xy".to_vec())],
        vec![
            job(2),
            entry("a"),
            ToRunner::EntryData(b"x".to_vec()),
            ToRunner::EntryEnd,
            entry("a"),
        ],
        vec![job(0), job(0)],
    ] {
        let mut outer = Outer::start();
        for frame in &frames {
            outer.send(frame);
        }
        let mut last = None;
        while let Some(frame) = read_frame::<FromRunner>(&mut outer.from).unwrap() {
            assert!(
                matches!(frame, FromRunner::Ready(_) | FromRunner::Failed(_)),
                "{frame:?} after {frames:?}"
            );
            last = Some(frame);
        }
        assert!(
            matches!(
                last,
                Some(FromRunner::Failed(Failed {
                    code: FailureCode::Protocol,
                    ..
                }))
            ),
            "{last:?} after {frames:?}"
        );
    }
}

#[test]
fn bytes_that_are_no_frame_are_refused() {
    let mut outer = Outer::start();
    outer
        .to
        .as_mut()
        .unwrap()
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .unwrap();
    match outer.receive() {
        Some(FromRunner::Failed(Failed {
            code: FailureCode::Protocol,
            ..
        })) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_frame_after_go_kills_the_script() {
    let mut outer = Outer::start();
    outer.stage(&shell("sleep 60"), &[]);
    outer.ready();
    outer.go();
    outer.send(&ToRunner::Go);
    let outcome = outer.outcome();
    assert_eq!(outcome.failed.unwrap().code, FailureCode::Protocol);
    assert!(outcome.exit.is_none());
}

#[test]
fn it_refuses_to_be_anything_but_process_1() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sandglass-runner"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let frame = read_frame::<FromRunner>(child.stdout.as_mut().unwrap()).unwrap();
    match frame {
        Some(FromRunner::Failed(Failed {
            code: FailureCode::NotPid1,
            ..
        })) => {}
        other => panic!("{other:?}"),
    }
    assert!(!child.wait().unwrap().success());
}

#[test]
fn it_tells_what_the_kernel_says_about_the_sandbox() {
    let mut outer = Outer::start();
    outer.stage(&shell("true"), &[]);
    let observed = outer.ready();
    assert_eq!(
        (observed.pid, observed.uid(), observed.gid()),
        (1, Some(65_534), Some(65_534))
    );
    assert!(!observed.dumpable && observed.root_read_only);
    assert_eq!((observed.cap_eff, observed.cap_prm, observed.cap_amb), (0, 0, 0));
    assert_eq!(
        (observed.seccomp_mode, observed.no_new_privs),
        (0, false),
        "nothing set them in this test"
    );
    assert_eq!(observed.interfaces, ["lo"]);
    assert_eq!(observed.uid_map.len(), 1);
    let range = (observed.uid_map[0].inside, observed.uid_map[0].count);
    assert_eq!(range, if is_root() { (0, u32::MAX) } else { (65_534, 1) });
    let scratch: Vec<_> = observed.scratch.iter().map(|mount| mount.path.as_str()).collect();
    assert_eq!(scratch, ["/work", "/out", "/tmp", "/dev/shm"]);
    for mount in &observed.scratch {
        assert_eq!((mount.kind.as_str(), mount.size_bytes), ("tmpfs", Some(64 << 20)));
        assert!(mount.nosuid && mount.nodev && mount.noexec && !mount.read_only);
    }
}

#[test]
fn python_finds_the_font_cache_in_a_directory_that_can_be_written() {
    let mut outer = Outer::start_seeded(true);
    let script = b"import os\nd = os.environ['MPLCONFIGDIR']\nprint(os.listdir(d), os.access(d, os.W_OK), open(d + '/fontlist-v390.json').read())";
    outer.stage(&job(Language::Python, &[]), &[("main.py", script)]);
    outer.ready();
    outer.go();
    let outcome = outer.outcome();
    assert_eq!(
        outcome.text(),
        "['fontlist-v390.json'] True {}\n\n",
        "{}",
        outcome.error_text()
    );
}

/// All of it counts for what is built for release; what is the runner's alone is the same in any build.
#[test]
fn a_waiting_runner_takes_less_than_a_mebibyte_and_a_half() {
    let mut outer = Outer::start();
    outer.stage(&shell("true"), &[("data", &vec![0; 1 << 20])]);
    outer.ready();
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", outer.runner_pid())).unwrap();
    let kib = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    assert!(kib("Pss_Anon:") < 400, "{rollup}");
    assert!(cfg!(debug_assertions) || kib("Pss:") < 1_536, "{rollup}");
}
