//! What the outer side reads from a hostile runner: any bytes, in pieces whose size is the first byte, through the
//! decoder and the session, which may let nothing beyond its bounds through.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandglass_run::name::check_artifact_path;
use sandglass_run::protocol::{ArtifactBounds, MAX_SKIPPED};
use sandglass_run::session::outer::Session;
use sandglass_run::{Capture, Decoder, FromRunner, Message};

const CAP: u64 = 64;
const BOUNDS: ArtifactBounds = ArtifactBounds {
    max_count: 3,
    max_bytes_total: 100,
    max_depth: 4,
    max_name_bytes: 16,
};

fuzz_target!(|input: &[u8]| {
    let Some((size, bytes)) = input.split_first() else {
        return;
    };
    let mut decoder = Decoder::<FromRunner>::new();
    let mut session = Session::new(CAP, BOUNDS);
    let (mut output, mut artifacts, mut skipped) = (0, Vec::new(), 0);
    let mut capture = Capture::new();
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        decoder.push(piece);
        loop {
            let frame = match decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next_frame(), Err(error));
                    return;
                }
            };
            let mut wire = Vec::new();
            frame.encode(&mut wire).expect("what was read can be written");
            let ended = session.is_ended();
            if session.accept(&frame).is_err() {
                continue;
            }
            assert!(!ended, "nothing is accepted after the end");
            match frame {
                FromRunner::Ready(_) => session.go().expect("Ready allows Go"),
                FromRunner::Output { bytes, .. } => {
                    output += bytes.len() as u64;
                    capture.push(&bytes);
                }
                FromRunner::Dropped(dropped) => capture.dropped(dropped.bytes),
                FromRunner::ArtifactStart(start) => {
                    assert_eq!(check_artifact_path(&start.path), Ok(()));
                    assert!(!artifacts.contains(&start.path));
                    artifacts.push(start.path);
                }
                FromRunner::Skipped(_) => skipped += 1,
                _ => {}
            }
            assert!(output <= 2 * CAP && artifacts.len() <= 3 && skipped <= MAX_SKIPPED);
        }
    }
    let report = capture.finish();
    assert!(report.content.as_bytes().len() as u64 <= 2 * CAP + 256);
});
