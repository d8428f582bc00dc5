//! Puts a stream together again on the outer side, for the report.

use crate::report::{Output, OutputContent};

/// What has come of one output stream. The session bounds how much can be pushed.
#[derive(Debug, Clone, Default)]
pub struct Capture {
    bytes: Vec<u8>,
    received: u64,
    dropped: u64,
}

impl Capture {
    /// Of a stream of which nothing came yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A piece came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes were left out here: a line says so, in the text too.
    pub fn dropped(&mut self, bytes: u64) {
        self.dropped = self.dropped.saturating_add(bytes);
        self.bytes.extend_from_slice(drop_marker(bytes).as_bytes());
    }

    /// The stream as the report has it.
    pub fn finish(self) -> Output {
        Output {
            content: OutputContent::from(self.bytes),
            bytes_total: self.received.saturating_add(self.dropped),
            truncated: self.dropped > 0,
        }
    }
}

/// The line that stands where bytes were left out.
pub fn drop_marker(bytes: u64) -> String {
    format!("\n[sandglass: {bytes} bytes of output were dropped here]\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_stands_where_bytes_were_dropped() {
        let mut capture = Capture::new();
        capture.push(b"ab");
        capture.dropped(7);
        capture.push(b"yz");
        let output = capture.finish();
        assert_eq!(
            output.content,
            OutputContent::Text("ab\n[sandglass: 7 bytes of output were dropped here]\nyz".into())
        );
        assert_eq!((output.bytes_total, output.truncated), (11, true));
    }

    #[test]
    fn a_whole_stream_has_no_marker() {
        let mut capture = Capture::new();
        capture.push("é".as_bytes());
        assert_eq!(
            capture.finish(),
            Output {
                content: OutputContent::Text("é".into()),
                bytes_total: 2,
                truncated: false
            }
        );
    }

    #[test]
    fn bytes_that_are_not_utf8_are_preserved() {
        let mut capture = Capture::new();
        capture.push(&[0, 0xff]);
        assert_eq!(capture.finish().content, OutputContent::Base64(vec![0, 0xff]));
    }
}
