//! Both sides of a conversation: what is in order is accepted, and nothing else.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod common;

use common::{from_runner, to_runner};
use proptest::collection::vec;
use proptest::prelude::*;
use sandglass_run::protocol::{
    ArtifactBounds, ArtifactEnd, ArtifactStart, Dropped, EntryStart, Exit, ExitUsage, Failed, FailureCode,
    Job, MAX_SKIPPED, Observed, OutputEnd, SkippedEntry, SkippedMore, Started,
};
use sandglass_run::session::{SessionError, outer, runner};
use sandglass_run::{FromRunner, Language, SkipReason, Stream, ToRunner};

const CAP: u64 = 100;
const BOUNDS: ArtifactBounds = ArtifactBounds {
    max_count: 3,
    max_bytes_total: 50,
    max_depth: 3,
    max_name_bytes: 20,
};

fn job(entries: u32) -> Job {
    Job {
        protocol: 1,
        language: Language::Python,
        args: vec![],
        wall_ms: 1_000,
        output_cap_bytes: CAP,
        artifacts: BOUNDS,
        cpus: 0.5,
        memory_bytes: None,
        env: [].into(),
        entries,
    }
}

fn entry(name: &str, bytes: u64) -> ToRunner {
    ToRunner::EntryStart(EntryStart {
        name: name.into(),
        bytes,
    })
}

fn entry_data(bytes: usize) -> ToRunner {
    ToRunner::EntryData(vec![0; bytes])
}

fn staging() -> Vec<ToRunner> {
    vec![
        ToRunner::Job(job(2)),
        entry("main.py", 3),
        entry_data(2),
        entry_data(1),
        ToRunner::EntryEnd,
        entry("empty", 0),
        ToRunner::EntryEnd,
        ToRunner::Go,
    ]
}

fn ready() -> FromRunner {
    FromRunner::Ready(Observed {
        pid: 1,
        uids: [65_534; 4],
        gids: [65_534; 4],
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
        interfaces: vec!["lo".into()],
        scratch: vec![],
        uid_map: vec![],
        dumpable: false,
    })
}

fn output(stream: Stream, bytes: usize) -> FromRunner {
    FromRunner::Output {
        stream,
        bytes: vec![b'x'; bytes],
    }
}

fn output_end(stream: Stream, bytes_total: u64, dropped_bytes: u64) -> FromRunner {
    FromRunner::OutputEnd(OutputEnd {
        stream,
        bytes_total,
        dropped_bytes,
    })
}

fn dropped(stream: Stream, bytes: u64) -> FromRunner {
    FromRunner::Dropped(Dropped { stream, bytes })
}

fn exit(code: Option<i32>, signal: Option<i32>) -> FromRunner {
    let usage = ExitUsage {
        cpu_ms: 0,
        max_rss_bytes: 0,
        processes_peak: None,
    };
    FromRunner::Exit(Exit {
        code,
        signal,
        timed_out: false,
        run_ms: 0,
        usage,
        killed_leftovers: 0,
    })
}

fn artifact(path: &str, bytes: u64) -> FromRunner {
    FromRunner::ArtifactStart(ArtifactStart {
        path: path.into(),
        bytes,
        mode: 0o644,
    })
}

fn artifact_data(bytes: usize) -> FromRunner {
    FromRunner::ArtifactData(vec![0; bytes])
}

fn artifact_end(complete: bool) -> FromRunner {
    FromRunner::ArtifactEnd(ArtifactEnd { complete })
}

fn skipped(path: &str) -> FromRunner {
    FromRunner::Skipped(SkippedEntry {
        path_lossy: path.into(),
        reason: SkipReason::Fifo,
    })
}

fn more(count: u64) -> FromRunner {
    FromRunner::SkippedMore(SkippedMore { count })
}

fn failed(message: &str) -> FromRunner {
    FromRunner::Failed(Failed {
        code: FailureCode::Internal,
        message: message.into(),
    })
}

use Stream::{Stderr, Stdout};

fn conversation() -> Vec<FromRunner> {
    vec![
        ready(),
        FromRunner::Started(Started { pid: 2 }),
        output(Stdout, 40),
        output(Stderr, 1),
        dropped(Stdout, 900),
        output_end(Stderr, 1, 0),
        output(Stdout, 60),
        output_end(Stdout, 1_000, 900),
        exit(Some(0), None),
        artifact("a", 5),
        artifact_data(2),
        artifact_data(3),
        artifact_end(true),
        skipped("fifo"),
        artifact("b/c", 7),
        artifact_data(1),
        artifact_end(false),
        more(4),
        FromRunner::End,
    ]
}

/// How many frames are accepted; `Go` is said as soon as it may be.
fn accepted(frames: &[FromRunner]) -> (usize, Option<SessionError>, outer::Session) {
    let mut session = outer::Session::new(CAP, BOUNDS);
    for (index, frame) in frames.iter().enumerate() {
        if let Err(error) = session.accept(frame) {
            return (index, Some(error), session);
        }
        if matches!(frame, FromRunner::Ready(_)) {
            session.go().unwrap();
        }
    }
    (frames.len(), None, session)
}

fn accepted_by_runner(frames: &[ToRunner]) -> (usize, Option<SessionError>) {
    let mut session = runner::Session::new();
    for (index, frame) in frames.iter().enumerate() {
        if let Err(error) = session.accept(frame) {
            return (index, Some(error));
        }
    }
    (frames.len(), None)
}

#[test]
fn a_whole_conversation_is_accepted() {
    let (count, error, session) = accepted(&conversation());
    assert_eq!((count, error), (conversation().len(), None));
    assert!(session.is_ended() && session.has_started() && session.has_exited());
    assert_eq!(accepted_by_runner(&staging()), (staging().len(), None));
}

#[test]
fn nothing_follows_the_end() {
    for frame in conversation() {
        let frames = [conversation(), vec![frame.clone()]].concat();
        let (count, error, _) = accepted(&frames);
        assert_eq!(count, conversation().len(), "{frame:?}");
        assert!(
            matches!(error, Some(SessionError::OutOfOrder { .. })),
            "{frame:?}: {error:?}"
        );
        let frames = [vec![failed("x"), frame.clone()]].concat();
        assert_eq!(accepted(&frames).0, 1, "{frame:?}");
    }
}

#[test]
fn a_failure_may_come_at_any_time_and_ends_it() {
    for length in 0..conversation().len() {
        let frames = [&conversation()[..length], &[failed("x")]].concat();
        let (count, error, session) = accepted(&frames);
        assert_eq!((count, error, session.is_ended()), (length + 1, None, true));
    }
}

#[test]
fn nothing_is_accepted_after_an_error() {
    let mut session = outer::Session::new(CAP, BOUNDS);
    session.accept(&FromRunner::End).unwrap_err();
    for frame in conversation() {
        assert_eq!(session.accept(&frame), Err(SessionError::Over));
    }
    assert!(session.go().is_err() && !session.is_ended());
}

#[test]
fn the_script_cannot_start_before_go() {
    let mut session = outer::Session::new(CAP, BOUNDS);
    session.accept(&ready()).unwrap();
    session
        .accept(&FromRunner::Started(Started { pid: 2 }))
        .unwrap_err();
    let mut session = outer::Session::new(CAP, BOUNDS);
    session.go().unwrap_err();
    session.accept(&ready()).unwrap_err();
}

/// Everything up to the exit, with these frames for the streams.
fn with_streams(frames: &[FromRunner]) -> (usize, Option<SessionError>) {
    let (count, error, _) = accepted(&[&conversation()[..2], frames].concat());
    (count - 2, error)
}

#[test]
fn a_streams_bounds_and_sums_are_checked() {
    let too_much = |result| matches!(result, (_, Some(SessionError::TooMuch { .. })));
    assert!(too_much(with_streams(&[output(Stdout, 101)])));
    assert!(too_much(with_streams(&[
        output(Stdout, 60),
        dropped(Stdout, 1),
        output(Stdout, 41)
    ])));
    assert_eq!(
        with_streams(&[output(Stdout, 100), output(Stderr, 100)]),
        (2, None)
    );
    let mismatch = |result| matches!(result, (_, Some(SessionError::Mismatch { .. })));
    assert!(mismatch(with_streams(&[
        output(Stdout, 5),
        output_end(Stdout, 6, 0)
    ])));
    assert!(mismatch(with_streams(&[
        output(Stdout, 5),
        output_end(Stdout, 6, 1)
    ])));
    assert!(mismatch(with_streams(&[
        dropped(Stdout, 1),
        output_end(Stdout, 0, 0)
    ])));
    assert!(mismatch(with_streams(&[dropped(Stdout, 1), dropped(Stdout, 1)])));
    assert!(mismatch(with_streams(&[dropped(Stdout, 0)])));
    assert!(mismatch(with_streams(&[
        output(Stdout, 1),
        dropped(Stdout, u64::MAX),
        output_end(Stdout, 0, u64::MAX)
    ])));
    assert!(matches!(
        with_streams(&[output(Stdout, 0)]),
        (0, Some(SessionError::EmptyBulk { .. }))
    ));
}

#[test]
fn nothing_comes_of_a_stream_after_its_end() {
    for late in [output(Stdout, 1), dropped(Stdout, 1), output_end(Stdout, 0, 0)] {
        let (count, error) = with_streams(&[output_end(Stdout, 0, 0), late]);
        assert!(count == 1 && matches!(error, Some(SessionError::OutOfOrder { .. })));
    }
    assert_eq!(
        with_streams(&[output_end(Stdout, 0, 0), exit(Some(0), None)]).0,
        1,
        "the other one is still open"
    );
}

#[test]
fn an_exit_is_a_status_or_a_signal() {
    let ends = [output_end(Stdout, 0, 0), output_end(Stderr, 0, 0)];
    let told = |exit| with_streams(&[&ends[..], &[exit]].concat()).1;
    for (code, signal) in [
        (Some(0), None),
        (Some(255), None),
        (None, Some(1)),
        (None, Some(64)),
    ] {
        assert_eq!(told(exit(code, signal)), None);
    }
    for (code, signal) in [
        (None, None),
        (Some(0), Some(9)),
        (Some(-1), None),
        (Some(256), None),
        (None, Some(0)),
        (None, Some(65)),
    ] {
        assert!(matches!(
            told(exit(code, signal)),
            Some(SessionError::BadValue { .. })
        ));
    }
}

/// What is said about these frames in place of those for `/out`.
fn with_artifacts(frames: &[FromRunner]) -> Option<SessionError> {
    accepted(&[&conversation()[..9], frames].concat()).1
}

fn whole(path: &str, bytes: u64) -> Vec<FromRunner> {
    let mut frames = vec![artifact(path, bytes)];
    frames.extend((bytes > 0).then(|| artifact_data(bytes.try_into().unwrap())));
    frames.push(artifact_end(true));
    frames
}

#[test]
fn hostile_paths_are_refused() {
    for path in [
        "",
        "/a",
        "../a",
        "a/../b",
        "a//b",
        "a/",
        ".",
        "a\nb",
        "\u{202e}a",
        "a/b/c/d",
        &"x".repeat(21),
    ] {
        assert!(with_artifacts(&[artifact(path, 0)]).is_some(), "{path:?}");
    }
    assert_eq!(with_artifacts(&whole("a/b/c", 1)), None);
}

#[test]
fn no_path_comes_twice_or_below_a_file() {
    for (first, second) in [("a", "a"), ("b", "a"), ("a", "a/b"), ("a.b", "a/b")] {
        let error = with_artifacts(&[whole(first, 0), whole(second, 0)].concat());
        assert!(
            matches!(error, Some(SessionError::NameOrder { .. })),
            "{first} {second}: {error:?}"
        );
    }
    for (first, second) in [("a", "ab"), ("a/b", "a.b"), ("A", "a"), ("a/b", "a/c")] {
        assert_eq!(
            with_artifacts(&[whole(first, 0), whole(second, 0)].concat()),
            None,
            "{first} {second}"
        );
    }
}

#[test]
fn artifacts_are_bounded_in_count_and_bytes() {
    let files = |names: &[&str], bytes| {
        names
            .iter()
            .flat_map(|name| whole(name, bytes))
            .collect::<Vec<_>>()
    };
    assert_eq!(with_artifacts(&files(&["a", "b", "c"], 1)), None);
    let too_much = |error| matches!(error, Some(SessionError::TooMuch { .. }));
    assert!(too_much(with_artifacts(&files(&["a", "b", "c", "d"], 1))));
    assert!(too_much(with_artifacts(&files(&["a", "b"], 26))));
    assert!(too_much(with_artifacts(&[artifact("a", u64::MAX)])));
    assert!(too_much(with_artifacts(&[artifact("a", 2), artifact_data(3)])));
    let short = with_artifacts(&[artifact("a", 2), artifact_data(1), artifact_end(true)]);
    assert!(matches!(short, Some(SessionError::Mismatch { .. })));
    let empty = with_artifacts(&[artifact("a", 2), artifact_data(0)]);
    assert!(matches!(empty, Some(SessionError::EmptyBulk { .. })));
    let mode = FromRunner::ArtifactStart(ArtifactStart {
        path: "a".into(),
        bytes: 0,
        mode: 0o4755,
    });
    assert!(matches!(
        with_artifacts(&[mode]),
        Some(SessionError::BadValue { .. })
    ));
}

#[test]
fn skipped_lines_are_bounded_and_fit_to_be_shown() {
    let lines = |count| vec![skipped("x"); count];
    assert_eq!(
        with_artifacts(&[lines(MAX_SKIPPED), vec![more(1), FromRunner::End]].concat()),
        None
    );
    assert!(with_artifacts(&lines(MAX_SKIPPED + 1)).is_some());
    for path in ["a\nb", "\u{1b}[2J", &"x".repeat(1_025)] {
        assert!(with_artifacts(&[skipped(path)]).is_some(), "{path:?}");
    }
    assert!(with_artifacts(&[more(0)]).is_some());
    assert!(with_artifacts(&[more(1), more(1)]).is_some());
    assert!(with_artifacts(&[more(1), skipped("x")]).is_some());
    assert!(with_artifacts(&[failed("a\nb")]).is_some());
}

#[test]
fn the_runner_refuses_what_is_out_of_order_or_bounds() {
    let with_job = |frames: &[ToRunner]| accepted_by_runner(&[&[ToRunner::Job(job(2))], frames].concat());
    assert_eq!(accepted_by_runner(&[ToRunner::Go]).0, 0);
    assert_eq!(with_job(&[ToRunner::Go]).0, 1);
    assert_eq!(with_job(&[entry_data(1)]).0, 1);
    assert_eq!(with_job(&[entry("a", 1), ToRunner::EntryEnd]).0, 2);
    assert_eq!(with_job(&[entry("a", 1), entry_data(2)]).0, 2);
    assert_eq!(with_job(&[entry("a", 1), entry_data(0)]).0, 2);
    assert_eq!(with_job(&[entry("a", 0), ToRunner::EntryEnd, entry("a", 0)]).0, 3);
    for name in ["../x", "/abs", "a/b", "", ".", "a\0b"] {
        assert_eq!(with_job(&[entry(name, 0)]).0, 1, "{name:?}");
    }
    let again = [staging(), vec![ToRunner::Go]].concat();
    assert_eq!(accepted_by_runner(&again).0, staging().len());
}

#[test]
fn the_runner_refuses_a_job_beyond_all_bounds() {
    let refused = |change: &dyn Fn(&mut Job)| {
        let mut job = job(1);
        change(&mut job);
        matches!(
            accepted_by_runner(&[ToRunner::Job(job)]),
            (0, Some(SessionError::BadValue { .. }))
        )
    };
    assert!(!refused(&|_| ()));
    let changes: [&dyn Fn(&mut Job); 16] = [
        &|job| job.protocol = 2,
        &|job| job.wall_ms = 0,
        &|job| job.wall_ms = u64::MAX,
        &|job| job.output_cap_bytes = u64::MAX,
        &|job| job.cpus = 0.0,
        &|job| job.cpus = f64::NAN,
        &|job| job.memory_bytes = Some(0),
        &|job| job.artifacts.max_count = u32::MAX,
        &|job| job.artifacts.max_depth = 9,
        &|job| job.artifacts.max_depth = 0,
        &|job| job.artifacts.max_name_bytes = 256,
        &|job| job.entries = 0,
        &|job| job.entries = 1_025,
        &|job| job.args = vec!["a\0".into()],
        &|job| (job.language, job.args) = (Language::Exec, vec![]),
        &|job| job.env = [("LD_PRELOAD".into(), "/work/x.so".into())].into(),
    ];
    for (index, change) in changes.iter().enumerate() {
        assert!(refused(change), "change {index}");
    }
}

/// A frame that fits somewhere in a conversation.
fn plausible() -> impl Strategy<Value = FromRunner> {
    let one = (0..conversation().len()).prop_map(|index| conversation()[index].clone());
    prop_oneof![
        4 => one,
        1 => (common::stream(), 0..60_usize).prop_map(|(stream, bytes)| output(stream, bytes)),
        1 => (common::stream(), 0..3_u64).prop_map(|(stream, total)| output_end(stream, total, 0)),
        1 => "[a-c](/[a-c])?".prop_map(|path| artifact(&path, 1)),
        1 => from_runner(),
    ]
}

/// A conversation with frames put in, taken out and exchanged.
fn disturbed() -> impl Strategy<Value = Vec<FromRunner>> {
    vec(
        (
            0..3_u8,
            any::<prop::sample::Index>(),
            any::<prop::sample::Index>(),
            plausible(),
        ),
        0..5,
    )
    .prop_map(|changes| {
        let mut frames = conversation();
        for (what, at, other, frame) in changes {
            let length = frames.len();
            match what {
                0 => frames.insert(at.index(length), frame),
                1 if length > 1 => drop(frames.remove(at.index(length))),
                _ => frames.swap(at.index(length), other.index(length)),
            }
        }
        frames
    })
}

/// Whether the order of accepted frames is that of the protocol, told without a state machine: each frame's rank
/// never falls, and what must be there before it is.
fn in_order(frames: &[FromRunner]) -> bool {
    let place = |test: &dyn Fn(&FromRunner) -> bool| frames.iter().position(test);
    let count = |test: &dyn Fn(&FromRunner) -> bool| frames.iter().filter(|frame| test(frame)).count();
    let rank = |frame: &FromRunner| match frame {
        FromRunner::Ready(_) => 0,
        FromRunner::Started(_) => 1,
        FromRunner::Output { .. } | FromRunner::Dropped(_) | FromRunner::OutputEnd(_) => 2,
        FromRunner::Exit(_) => 3,
        FromRunner::ArtifactStart(_) | FromRunner::ArtifactData(_) | FromRunner::ArtifactEnd(_) => 4,
        FromRunner::Skipped(_) => 4,
        FromRunner::SkippedMore(_) => 5,
        FromRunner::End | FromRunner::Failed(_) => 6,
    };
    let ranks: Vec<u8> = frames.iter().map(rank).collect();
    let highest = ranks.last().copied().unwrap_or(0);
    let fallen = ranks.windows(2).any(|pair| pair[0] > pair[1]);
    let once = [0, 1, 3, 5, 6]
        .into_iter()
        .all(|rank| ranks.iter().filter(|r| **r == rank).count() <= 1);
    let ends = |stream| count(&|f| matches!(f, FromRunner::OutputEnd(end) if end.stream == stream));
    let last_of = |stream| {
        frames.iter().rposition(|f| match f {
            FromRunner::Output { stream: s, .. } => *s == stream,
            FromRunner::Dropped(dropped) => dropped.stream == stream,
            FromRunner::OutputEnd(end) => end.stream == stream,
            _ => false,
        })
    };
    let streams = [Stdout, Stderr].into_iter().all(|stream| {
        let end = place(&|f| matches!(f, FromRunner::OutputEnd(end) if end.stream == stream));
        ends(stream) <= 1 && (end.is_none() || end == last_of(stream))
    });
    let exited =
        place(&|f| matches!(f, FromRunner::Exit(_))).is_none_or(|_| ends(Stdout) + ends(Stderr) == 2);
    let failed = matches!(frames.last(), Some(FromRunner::Failed(_)));
    let ladder = failed || (1..=highest).all(|rank| [2, 4, 5].contains(&rank) || ranks.contains(&rank));
    let mut open = false;
    let nested = frames.iter().all(|frame| match frame {
        FromRunner::ArtifactStart(_) => !std::mem::replace(&mut open, true),
        FromRunner::ArtifactData(_) => open,
        FromRunner::ArtifactEnd(_) => std::mem::replace(&mut open, false),
        FromRunner::Failed(_) => true,
        _ => !open,
    });
    !fallen && once && streams && exited && (highest == 0 || failed || ranks[0] == 0) && ladder && nested
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_accepted_is_in_order_and_in_bounds(frames in disturbed()) {
        let (count, error, _) = accepted(&frames);
        let good = &frames[..count];
        prop_assert!(in_order(good), "{good:#?}");
        prop_assert_eq!(error.is_some(), count < frames.len());
        for stream in [Stdout, Stderr] {
            let bytes: usize = good.iter().map(|frame| match frame {
                FromRunner::Output { stream: s, bytes } if *s == stream => bytes.len(),
                _ => 0,
            }).sum();
            prop_assert!(bytes as u64 <= CAP);
        }
        let announced: u64 = good.iter().map(|frame| match frame {
            FromRunner::ArtifactStart(start) => start.bytes,
            _ => 0,
        }).sum();
        prop_assert!(announced <= BOUNDS.max_bytes_total);
    }

    #[test]
    fn what_is_out_of_order_is_not_accepted(frames in disturbed()) {
        if !in_order(&frames) {
            prop_assert!(accepted(&frames).0 < frames.len());
        }
    }

    #[test]
    fn the_runner_starts_nothing_unless_all_is_staged(frames in vec(prop_oneof![
        3 => (0..staging().len()).prop_map(|index| staging()[index].clone()),
        1 => to_runner(),
    ], 0..12)) {
        let (count, _) = accepted_by_runner(&frames);
        if frames[..count].contains(&ToRunner::Go) {
            let staged = frames[..count].iter().filter(|frame| matches!(frame, ToRunner::EntryEnd)).count();
            let ToRunner::Job(job) = &frames[0] else { panic!("the first frame is a job") };
            prop_assert_eq!(staged, job.entries as usize);
            prop_assert_eq!(frames[..count].last(), Some(&ToRunner::Go));
        }
    }
}
