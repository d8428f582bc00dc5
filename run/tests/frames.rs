//! The wire: what is written is read back, however it arrives, and nothing else is read at all.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod common;

use std::fmt::Debug;

use common::{from_runner, pieces, to_runner};
use proptest::collection::vec;
use proptest::prelude::*;
use sandglass_run::frame::{ChannelError, HEADER_BYTES, MAX_BULK_BYTES, MAX_FRAME_BYTES};
use sandglass_run::protocol::kind;
use sandglass_run::{Decoder, FrameError, FromRunner, Message, Stream, ToRunner, read_frame, write_frame};

fn wire<M: Message>(frames: &[M]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
    bytes
}

fn decode<M: Message>(pieces: &[Vec<u8>]) -> (Vec<M>, Result<(), FrameError>) {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, decoder.end())
}

fn read_all<M: Message>(mut bytes: &[u8]) -> (Vec<M>, Result<(), ChannelError>) {
    let mut frames = Vec::new();
    loop {
        match read_frame(&mut bytes) {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (frames, Ok(())),
            Err(error) => return (frames, Err(error)),
        }
    }
}

/// Both readers give the frames, for any cut of the stream.
fn comes_back<M: Message + Debug + PartialEq>(frames: &[M], cuts: &[usize]) -> Result<(), TestCaseError> {
    let bytes = wire(frames);
    let (decoded, end) = decode::<M>(&pieces(&bytes, cuts));
    prop_assert_eq!(&decoded[..], frames);
    prop_assert_eq!(end, Ok(()));
    let (read, end) = read_all::<M>(&bytes);
    prop_assert_eq!(&read[..], frames);
    prop_assert!(end.is_ok());
    Ok(())
}

/// Any bytes at all give the same in any cut and by either reader.
fn survives<M: Message + Debug + PartialEq>(bytes: &[u8], cuts: &[usize]) -> Result<(), TestCaseError> {
    let whole = decode::<M>(&[bytes.to_vec()]);
    prop_assert_eq!(
        decode::<M>(&pieces(bytes, cuts)),
        decode::<M>(&pieces(bytes, &[]))
    );
    let (read, end) = read_all::<M>(bytes);
    prop_assert_eq!(read, whole.0);
    prop_assert_eq!(end.is_ok(), whole.1.is_ok());
    Ok(())
}

fn is_wrong_direction(end: &Result<(), FrameError>) -> bool {
    matches!(end, Err(FrameError::WrongDirection { .. }))
}

/// Frames with some of their bytes changed: nearly good, which random bytes never are.
fn nearly_good() -> impl Strategy<Value = Vec<u8>> {
    let frames = prop_oneof![
        vec(to_runner(), 1..4).prop_map(|frames| wire(&frames)),
        vec(from_runner(), 1..4).prop_map(|frames| wire(&frames)),
    ];
    (frames, vec((any::<usize>(), any::<u8>()), 0..4)).prop_map(|(mut bytes, changes)| {
        for (place, value) in changes {
            let place = place % bytes.len();
            bytes[place] = value;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn frames_to_the_runner_come_back_however_they_are_cut(
        frames in vec(to_runner(), 0..6), cuts in vec(any::<usize>(), 0..20)
    ) {
        comes_back(&frames, &cuts)?;
    }

    #[test]
    fn frames_from_the_runner_come_back_however_they_are_cut(
        frames in vec(from_runner(), 0..6), cuts in vec(any::<usize>(), 0..20)
    ) {
        comes_back(&frames, &cuts)?;
    }

    #[test]
    fn any_bytes_are_survived(
        bytes in prop_oneof![vec(any::<u8>(), 0..2_000), nearly_good()], cuts in vec(any::<usize>(), 0..20)
    ) {
        survives::<ToRunner>(&bytes, &cuts)?;
        survives::<FromRunner>(&bytes, &cuts)?;
    }

    #[test]
    fn a_cut_stream_is_no_whole_one(frame in from_runner(), keep in any::<prop::sample::Index>()) {
        let bytes = wire(std::slice::from_ref(&frame));
        let kept = keep.index(bytes.len());
        let (frames, end) = decode::<FromRunner>(&[bytes[..kept].to_vec()]);
        prop_assert!(frames.is_empty());
        prop_assert_eq!(end, if kept == 0 { Ok(()) } else { Err(FrameError::Truncated) });
    }

    #[test]
    fn no_frame_of_one_direction_is_one_of_the_other(to in to_runner(), from in from_runner()) {
        let (none, end) = decode::<FromRunner>(&[wire(&[to])]);
        prop_assert!(none.is_empty() && is_wrong_direction(&end));
        let (none, end) = decode::<ToRunner>(&[wire(&[from])]);
        prop_assert!(none.is_empty() && is_wrong_direction(&end));
    }
}

/// The header of a frame with this many bytes of payload.
fn header(kind: u8, payload: u32) -> Vec<u8> {
    [&(payload + 1).to_le_bytes()[..], &[kind]].concat()
}

#[test]
fn too_long_is_refused_at_the_header() {
    for (kind, most) in [
        (kind::JOB, 1 << 20),
        (kind::ENTRY_DATA, MAX_BULK_BYTES as u32),
        (kind::GO, 0),
        (kind::ENTRY_END, 0),
    ] {
        let mut decoder = Decoder::<ToRunner>::new();
        decoder.push(&header(kind, most + 1));
        assert!(
            matches!(decoder.next_frame(), Err(FrameError::TooLong { .. })),
            "{kind}"
        );
        assert_eq!(decoder.buffered_bytes(), 0);
        let mut reader = &header(kind, most + 1)[..];
        assert!(matches!(
            read_frame::<ToRunner>(&mut reader),
            Err(ChannelError::Frame(FrameError::TooLong { .. }))
        ));
    }
    for kind in 0..=u8::MAX {
        if let Ok(limit) = FromRunner::payload_limit(kind) {
            assert!(limit < MAX_FRAME_BYTES);
            let mut decoder = Decoder::<FromRunner>::new();
            decoder.push(&header(kind, u32::MAX - 1));
            assert!(
                matches!(decoder.next_frame(), Err(FrameError::TooLong { .. })),
                "{kind}"
            );
        }
    }
}

#[test]
fn an_announced_frame_takes_no_memory_before_it_comes() {
    // Were a mebibyte reserved for each header, this would take a tebibyte.
    let waiting: Vec<Decoder<ToRunner>> = (0..100_000)
        .map(|_| {
            let mut decoder = Decoder::new();
            decoder.push(&header(kind::JOB, 1 << 20));
            assert_eq!(decoder.next_frame(), Ok(None));
            decoder
        })
        .collect();
    assert!(
        waiting
            .iter()
            .all(|decoder| decoder.buffered_bytes() == HEADER_BYTES)
    );
}

#[test]
fn an_error_is_for_ever() {
    let mut decoder = Decoder::<ToRunner>::new();
    decoder.push(&header(0x7f, 0));
    let unknown = Err(FrameError::UnknownKind { kind: 0x7f });
    assert_eq!(decoder.next_frame(), unknown);
    decoder.push(&wire(&[ToRunner::Go]));
    assert_eq!(decoder.next_frame(), unknown);
    assert_eq!(decoder.end(), Err(FrameError::UnknownKind { kind: 0x7f }));
}

#[test]
fn each_wrong_payload_is_refused() {
    let frame = |kind: u8, payload: &[u8]| [header(kind, payload.len() as u32), payload.to_vec()].concat();
    for (kind, payload) in [
        (kind::STARTED, &br#"{"pid":1}x"#[..]),
        (kind::STARTED, br#"{"pid":1,"more":2}"#),
        (kind::STARTED, br#"{"pid":-1}"#),
        (kind::STARTED, br#"{"pid":1,"pid":2}"#),
        (kind::STARTED, b"{}"),
        (kind::STARTED, b""),
        (kind::STARTED, b"\xff"),
        (kind::OUTPUT, b""),
        (kind::OUTPUT, b"\x00x"),
        (kind::OUTPUT, b"\x03x"),
        (kind::SKIPPED, br#"{"path_lossy":"x","reason":"because"}"#),
    ] {
        let (none, end) = decode::<FromRunner>(&[frame(kind, payload)]);
        assert!(
            none.is_empty() && matches!(end, Err(FrameError::BadPayload { .. })),
            "{end:?}"
        );
    }
    let (_, end) = decode::<FromRunner>(&[vec![0, 0, 0, 0, kind::END]]);
    assert_eq!(end, Err(FrameError::Empty));
    let (_, end) = decode::<FromRunner>(&[frame(kind::END, b"x")]);
    assert!(matches!(end, Err(FrameError::TooLong { .. })));
}

#[test]
fn a_job_of_another_version_says_so_whatever_else_it_holds() {
    let payload = br#"{"protocol":2,"new_field":[]}"#;
    let (_, end) =
        decode::<ToRunner>(&[[header(kind::JOB, payload.len() as u32), payload.to_vec()].concat()]);
    assert_eq!(
        end,
        Err(FrameError::Version {
            found: 2,
            supported: 1
        })
    );
}

#[test]
fn what_is_too_long_is_not_written_either() {
    let mut out = b"before".to_vec();
    let long = vec![0; MAX_BULK_BYTES + 1];
    assert!(ToRunner::EntryData(long.clone()).encode(&mut out).is_err());
    assert!(FromRunner::encode_output(Stream::Stdout, &long, &mut out).is_err());
    assert_eq!(out, b"before");
    let full = FromRunner::Output {
        stream: Stream::Stderr,
        bytes: vec![7; MAX_BULK_BYTES],
    };
    write_frame(&mut out, &full).unwrap();
    let mut borrowed = b"before".to_vec();
    FromRunner::encode_output(Stream::Stderr, &[7; MAX_BULK_BYTES], &mut borrowed).unwrap();
    assert_eq!(out, borrowed);
}
