//! What the runner reads: any bytes, in pieces whose size is the first byte, through the decoder and the session.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandglass_run::session::runner::Session;
use sandglass_run::{Decoder, Message, ToRunner};

fuzz_target!(|input: &[u8]| {
    let Some((size, bytes)) = input.split_first() else {
        return;
    };
    let mut decoder = Decoder::<ToRunner>::new();
    let mut session = Session::new();
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    let mut wire = Vec::new();
                    frame.encode(&mut wire).expect("what was read can be written");
                    let mut again = Decoder::new();
                    again.push(&wire);
                    assert_eq!(again.next_frame(), Ok(Some(frame.clone())));
                    if session.accept(&frame).is_ok() {
                        assert!(session.is_running() == (frame == ToRunner::Go));
                    } else {
                        assert!(!session.is_running());
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next_frame(), Err(error));
                    assert_eq!(decoder.buffered_bytes(), 0);
                    return;
                }
            }
        }
    }
    assert!(decoder.buffered_bytes() <= bytes.len());
});
