//! Conversations with runners of every kind: proper, dying, stalling and hostile ones.

use std::io::{PipeReader, PipeWriter, Write};

use sandglass_run::protocol::{
    ArtifactBounds, ArtifactStart, Dropped, ExitUsage, Failed, FailureCode, OutputEnd, SkippedEntry, Started,
};
use sandglass_run::{Language, SkipReason, read_frame, write_frame};

use super::*;
use crate::events::{Quiet, Store};
use crate::outdir::StoreError;

/// The runner's side of the pipes, in a thread of its own.
struct Runner {
    from_us: PipeReader,
    to_us: PipeWriter,
}

impl Runner {
    fn hear(&mut self) -> ToRunner {
        read_frame(&mut self.from_us).unwrap().unwrap()
    }

    /// Reads up to the last entry and gives their names and contents.
    fn staged(&mut self) -> Vec<(String, Vec<u8>)> {
        let ToRunner::Job(job) = self.hear() else {
            panic!("the job comes first")
        };
        let mut entries = Vec::new();
        for _ in 0..job.entries {
            let ToRunner::EntryStart(start) = self.hear() else {
                panic!("an entry begins")
            };
            let mut content = Vec::new();
            loop {
                match self.hear() {
                    ToRunner::EntryData(bytes) => content.extend(bytes),
                    ToRunner::EntryEnd => break,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(start.bytes, content.len() as u64);
            entries.push((start.name, content));
        }
        entries
    }

    fn say(&mut self, frame: FromRunner) {
        // A driver that has stopped listening is what some tests are about.
        let _ = write_frame(&mut self.to_us, &frame);
    }

    fn ready(&mut self) {
        self.say(FromRunner::Ready(observed()));
        assert_eq!(self.hear(), ToRunner::Go);
        self.say(FromRunner::Started(Started { pid: 2 }));
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        self.say(FromRunner::Output {
            stream,
            bytes: bytes.to_vec(),
        });
    }

    fn exit(&mut self, totals: [u64; 2], timed_out: bool) {
        for (stream, bytes_total) in [Stream::Stdout, Stream::Stderr].into_iter().zip(totals) {
            self.say(FromRunner::OutputEnd(OutputEnd {
                stream,
                bytes_total,
                dropped_bytes: 0,
            }));
        }
        let (code, signal) = if timed_out {
            (None, Some(9))
        } else {
            (Some(0), None)
        };
        let usage = ExitUsage {
            cpu_ms: 1,
            max_rss_bytes: 1,
            processes_peak: None,
        };
        self.say(FromRunner::Exit(Exit {
            code,
            signal,
            timed_out,
            run_ms: 1,
            usage,
            killed_leftovers: 0,
        }));
    }

    fn artifact(&mut self, path: &str, bytes: &[u8]) {
        let start = ArtifactStart {
            path: path.into(),
            bytes: bytes.len() as u64,
            mode: 0o644,
        };
        self.say(FromRunner::ArtifactStart(start));
        self.say(FromRunner::ArtifactData(bytes.to_vec()));
        self.say(FromRunner::ArtifactEnd(ArtifactEnd { complete: true }));
    }
}

fn observed() -> Observed {
    Observed {
        pid: 1,
        uids: [65534; 4],
        gids: [65534; 4],
        groups: vec![],
        cap_inh: 0,
        cap_prm: 0,
        cap_eff: 0,
        cap_bnd: 0,
        cap_amb: 0,
        no_new_privs: true,
        seccomp_mode: 2,
        seccomp_filters: Some(1),
        root_read_only: true,
        interfaces: vec![],
        scratch: vec![],
        uid_map: vec![],
        dumpable: false,
    }
}

fn receipt() -> Isolation {
    Isolation {
        driver: "local".into(),
        runtime: "sandglass".into(),
        image: "sha256:0".into(),
        uid: 65534,
        capabilities: "none".into(),
        no_new_privileges: true,
        seccomp_profile: "strict".into(),
        landlock_abi: Some(7),
        user_namespace: true,
        network: "none".into(),
        root_read_only: true,
        waived: vec![],
    }
}

fn staging(inputs: Vec<Input>) -> Staging {
    let job = Job {
        protocol: 1,
        language: Language::Python,
        args: vec![],
        wall_ms: 200,
        output_cap_bytes: 1024,
        artifacts: ArtifactBounds {
            max_count: 2,
            max_bytes_total: 1 << 20,
            max_depth: 8,
            max_name_bytes: 255,
        },
        cpus: 0.5,
        memory_bytes: None,
        env: Default::default(),
        entries: inputs.len() as u32 + 1,
    };
    Staging {
        job,
        script: Some(("main.py".into(), b"pass".to_vec())),
        inputs,
    }
}

const CLOCKS: Clocks = Clocks {
    stage: Duration::from_millis(300),
    grace: Duration::from_millis(100),
    collect: Duration::from_millis(300),
};

struct Heard {
    stop: Stop,
    told: Told,
}

/// Lets a runner do what it does and gives back what the driver made of it.
fn talk_with(
    inputs: Vec<Input>,
    check: impl FnOnce(&Observed) -> Result<Isolation, MissingControl>,
    events: &mut dyn Events,
    cancel: &Cancel,
    runner: impl FnOnce(Runner) + Send + 'static,
) -> Heard {
    let (from_us, to_runner) = std::io::pipe().unwrap();
    let (from_runner, to_us) = std::io::pipe().unwrap();
    let thread = std::thread::spawn(move || runner(Runner { from_us, to_us }));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let heard = runtime.block_on(async {
        let mut channel = Channel::new(to_runner.into(), from_runner.into(), None).unwrap();
        let mut phases = Phases::start();
        let (stop, told) = converse(
            &mut channel,
            staging(inputs),
            check,
            events,
            (cancel, CLOCKS, &mut phases),
        )
        .await;
        Heard { stop, told }
    });
    thread.join().unwrap();
    heard
}

fn talk(runner: impl FnOnce(Runner) + Send + 'static) -> Heard {
    talk_with(
        vec![],
        |_| Ok(receipt()),
        &mut Quiet(None),
        &Cancel::new(),
        runner,
    )
}

#[test]
fn a_whole_run_is_heard_from_the_first_byte_to_the_last() {
    let inputs = vec![Input {
        name: "data.csv".into(),
        source: InputSource::Bytes(vec![b'x'; 200_000]),
    }];
    let heard = talk_with(
        inputs,
        |_| Ok(receipt()),
        &mut Quiet(None),
        &Cancel::new(),
        |mut r| {
            let entries = r.staged();
            assert_eq!(entries[0], ("main.py".to_owned(), b"pass".to_vec()));
            assert_eq!((entries[1].0.as_str(), entries[1].1.len()), ("data.csv", 200_000));
            r.ready();
            r.output(Stream::Stdout, b"hello ");
            r.output(Stream::Stderr, b"oops");
            r.output(Stream::Stdout, b"world");
            r.exit([11, 4], false);
            r.artifact("a.csv", b"1,2\n");
            r.say(FromRunner::Skipped(SkippedEntry {
                path_lossy: "link".into(),
                reason: SkipReason::SymbolicLink,
            }));
            r.say(FromRunner::End);
        },
    );
    assert_eq!(heard.stop, Stop::Said);
    assert!(heard.told.started);
    assert_eq!(heard.told.isolation, Some(receipt()));
    assert_eq!(heard.told.stdout.finish().content.as_bytes(), b"hello world");
    assert_eq!(heard.told.stderr.finish().content.as_bytes(), b"oops");
    assert_eq!(heard.told.artifacts[0].path, "a.csv");
    assert_eq!(heard.told.skipped[0].reason, SkipReason::SymbolicLink);
}

#[test]
fn a_missing_control_ends_the_run_before_the_script_starts() {
    let missing = |_: &Observed| {
        Err(MissingControl {
            control: "seccomp",
            required: "2".into(),
            found: "0".into(),
        })
    };
    let heard = talk_with(vec![], missing, &mut Quiet(None), &Cancel::new(), |mut r| {
        r.staged();
        r.say(FromRunner::Ready(observed()));
        let more: Option<ToRunner> = read_frame(&mut r.from_us).unwrap();
        assert_eq!(more, None, "Go is never said");
    });
    let Stop::Refused(refusal) = heard.stop else {
        panic!("{:?}", heard.stop)
    };
    assert_eq!(refusal.code, "control_missing");
    assert!(refusal.message.contains("`seccomp`"));
    assert!(!heard.told.started);
}

#[test]
fn a_runner_that_never_says_that_the_script_ended_meets_our_own_clock() {
    let started = Instant::now();
    let heard = talk(|mut r| {
        r.staged();
        r.ready();
        std::thread::sleep(Duration::from_millis(600));
    });
    assert_eq!(heard.stop, Stop::WallClock);
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_runner_that_trickles_output_meets_our_clock_as_well() {
    let heard = talk(|mut r| {
        r.staged();
        r.ready();
        for _ in 0..50 {
            r.output(Stream::Stdout, b".");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(heard.stop, Stop::WallClock);
}

#[test]
fn a_runner_that_stalls_while_staging_or_collecting_is_stopped() {
    let heard = talk(|mut r| {
        r.staged();
        std::thread::sleep(Duration::from_millis(500));
    });
    assert_eq!(heard.stop, Stop::Stalled("staging"));
    let heard = talk(|mut r| {
        r.staged();
        r.ready();
        r.exit([0, 0], true);
        std::thread::sleep(Duration::from_millis(500));
    });
    assert_eq!(heard.stop, Stop::Stalled("collecting /out"));
    assert!(heard.told.exit.unwrap().timed_out);
}

#[test]
fn a_runner_that_does_not_read_its_inputs_does_not_block_us() {
    let inputs = vec![Input {
        name: "big".into(),
        source: InputSource::Bytes(vec![0; 1 << 20]),
    }];
    let heard = talk_with(
        inputs,
        |_| Ok(receipt()),
        &mut Quiet(None),
        &Cancel::new(),
        |r| {
            std::thread::sleep(Duration::from_millis(500));
            drop(r);
        },
    );
    assert_eq!(heard.stop, Stop::Stalled("staging"));
}

#[test]
fn a_failure_while_staging_is_heard_although_our_inputs_were_not_all_taken() {
    let inputs = vec![Input {
        name: "big".into(),
        source: InputSource::Bytes(vec![0; 1 << 20]),
    }];
    let failed = Failed {
        code: FailureCode::StagingNoSpace,
        message: "/work is full".into(),
    };
    let says = failed.clone();
    let heard = talk_with(
        inputs,
        |_| Ok(receipt()),
        &mut Quiet(None),
        &Cancel::new(),
        |mut r| {
            r.hear();
            r.say(FromRunner::Failed(says));
        },
    );
    assert_eq!(heard.stop, Stop::Failed(failed));
}

#[test]
fn a_sandbox_that_vanishes_is_noticed_at_once_at_every_point() {
    for point in 0..4 {
        let heard = talk(move |mut r| {
            if point == 0 {
                return;
            }
            r.staged();
            if point == 1 {
                return;
            }
            r.ready();
            if point == 2 {
                return;
            }
            r.exit([0, 0], false);
        });
        assert_eq!(heard.stop, Stop::Vanished, "{point}");
        assert_eq!(heard.told.exit.is_some(), point == 3);
    }
}

#[test]
fn a_cancelled_run_stops_at_once_wherever_it_is() {
    for after in [0, 60] {
        let cancel = Cancel::new();
        let trigger = cancel.clone();
        let started = Instant::now();
        let heard = talk_with(
            vec![],
            |_| Ok(receipt()),
            &mut Quiet(None),
            &cancel,
            move |mut r| {
                if after == 0 {
                    trigger.cancel();
                    return;
                }
                r.staged();
                r.ready();
                std::thread::sleep(Duration::from_millis(after));
                trigger.cancel();
            },
        );
        assert_eq!(heard.stop, Stop::Cancelled);
        assert!(started.elapsed() < Duration::from_millis(250));
    }
}

#[test]
fn a_hostile_runner_is_broken_off_and_nothing_of_it_is_believed() {
    type Act = fn(&mut Runner);
    let hostile: [(&str, Act); 9] = [
        ("output before Go", |r| {
            r.staged();
            r.output(Stream::Stdout, b"x");
        }),
        ("exit before the streams ended", |r| {
            r.staged();
            r.ready();
            let usage = ExitUsage {
                cpu_ms: 0,
                max_rss_bytes: 0,
                processes_peak: None,
            };
            let (code, signal) = (Some(0), None);
            r.say(FromRunner::Exit(Exit {
                code,
                signal,
                timed_out: false,
                run_ms: 0,
                usage,
                killed_leftovers: 0,
            }));
        }),
        ("more output than the cap", |r| {
            r.staged();
            r.ready();
            r.output(Stream::Stdout, &[b'x'; 1025]);
        }),
        ("more artifacts than allowed", |r| {
            r.staged();
            r.ready();
            r.exit([0, 0], false);
            for name in ["a", "b", "c"] {
                r.artifact(name, b"x");
            }
        }),
        ("a path that leaves", |r| {
            r.staged();
            r.ready();
            r.exit([0, 0], false);
            r.artifact("../escaped", b"x");
        }),
        ("the same name twice", |r| {
            r.staged();
            r.ready();
            r.exit([0, 0], false);
            r.artifact("a", b"x");
            r.artifact("a", b"y");
        }),
        ("more bytes than announced", |r| {
            r.staged();
            r.ready();
            r.exit([0, 0], false);
            r.say(FromRunner::ArtifactStart(ArtifactStart {
                path: "a".into(),
                bytes: 1,
                mode: 0o644,
            }));
            r.say(FromRunner::ArtifactData(b"xyz".to_vec()));
        }),
        ("bytes that are no frame", |r| {
            r.staged();
            let _ = r.to_us.write_all(&[0xff; 64]);
        }),
        ("two drops in one stream", |r| {
            r.staged();
            r.ready();
            for _ in 0..2 {
                r.say(FromRunner::Dropped(Dropped {
                    stream: Stream::Stdout,
                    bytes: 1,
                }));
            }
        }),
    ];
    for (name, act) in hostile {
        let tmp = tempfile::tempdir().unwrap();
        let out = crate::OutDir::open(&tmp.path().join("out")).unwrap();
        let heard = talk_with(
            vec![],
            |_| Ok(receipt()),
            &mut Quiet(Some(&out)),
            &Cancel::new(),
            move |mut r| act(&mut r),
        );
        assert!(matches!(heard.stop, Stop::Broken(_)), "{name}: {:?}", heard.stop);
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 1, "{name}");
        assert!(std::fs::read_dir(out.path()).unwrap().count() <= 2, "{name}");
    }
}

#[test]
fn an_input_that_became_shorter_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("data");
    std::fs::write(&path, b"short").unwrap();
    let file = File::open(&path).unwrap();
    let inputs = vec![Input {
        name: "data".into(),
        source: InputSource::File { file, bytes: 100 },
    }];
    let heard = talk_with(
        inputs,
        |_| Ok(receipt()),
        &mut Quiet(None),
        &Cancel::new(),
        |mut r| {
            while let Ok(Some(_)) = read_frame::<ToRunner>(&mut r.from_us) {}
        },
    );
    let Stop::Refused(refusal) = heard.stop else {
        panic!("{:?}", heard.stop)
    };
    assert_eq!(refusal.code, "input_changed");
}

#[test]
fn a_file_is_staged_as_long_as_it_was_and_no_longer() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("data");
    std::fs::write(&path, vec![b'x'; 100_000]).unwrap();
    let file = File::open(&path).unwrap();
    let inputs = vec![Input {
        name: "data".into(),
        source: InputSource::File { file, bytes: 70_000 },
    }];
    talk_with(
        inputs,
        |_| Ok(receipt()),
        &mut Quiet(None),
        &Cancel::new(),
        |mut r| {
            assert_eq!(r.staged()[1].1.len(), 70_000);
        },
    );
}

#[test]
fn events_come_in_the_order_in_which_they_happened() {
    #[derive(Default)]
    struct Log(Vec<String>);
    impl Events for Log {
        fn started(&mut self) {
            self.0.push("started".into());
        }
        fn output(&mut self, stream: Stream, bytes: &[u8]) {
            self.0
                .push(format!("{stream:?} {}", String::from_utf8_lossy(bytes)));
        }
        fn dropped(&mut self, stream: Stream, bytes: u64) {
            self.0.push(format!("{stream:?} dropped {bytes}"));
        }
        fn artifact(&mut self, path: &str, bytes: u64) -> Result<Option<Box<dyn Store>>, StoreError> {
            self.0.push(format!("artifact {path} {bytes}"));
            Err(StoreError::Exists)
        }
    }
    let mut log = Log::default();
    let heard = talk_with(
        vec![],
        |_| Ok(receipt()),
        &mut log,
        &Cancel::new(),
        |mut r| {
            r.staged();
            r.ready();
            r.output(Stream::Stdout, b"head");
            r.say(FromRunner::Dropped(Dropped {
                stream: Stream::Stdout,
                bytes: 9,
            }));
            r.output(Stream::Stdout, b"tail");
            let end = |stream, bytes_total, dropped_bytes| {
                FromRunner::OutputEnd(OutputEnd {
                    stream,
                    bytes_total,
                    dropped_bytes,
                })
            };
            r.say(end(Stream::Stdout, 17, 9));
            r.say(end(Stream::Stderr, 0, 0));
            let usage = ExitUsage {
                cpu_ms: 0,
                max_rss_bytes: 0,
                processes_peak: None,
            };
            let (code, signal) = (Some(3), None);
            r.say(FromRunner::Exit(Exit {
                code,
                signal,
                timed_out: false,
                run_ms: 0,
                usage,
                killed_leftovers: 0,
            }));
            r.artifact("a", b"x");
            r.say(FromRunner::End);
        },
    );
    assert_eq!(
        log.0,
        [
            "started",
            "Stdout head",
            "Stdout dropped 9",
            "Stdout tail",
            "artifact a 1"
        ]
    );
    assert_eq!(heard.stop, Stop::Said);
    let stdout = heard.told.stdout.finish();
    assert!(stdout.truncated && stdout.bytes_total == 17);
    assert_eq!(heard.told.skipped.len(), 1);
}
