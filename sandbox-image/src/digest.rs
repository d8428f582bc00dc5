//! sha256 in hex, of bytes, of files and of what passes through a writer.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

/// sha256 of `bytes`, 64 lower-case hex digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// sha256 and length of all that `reader` gives.
pub(crate) fn sha256_reader(reader: &mut dyn Read) -> io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 128 * 1024];
    let mut total = 0_u64;
    loop {
        let count = reader.read(&mut buffer)?;
        if count == 0 {
            return Ok((hex::encode(hasher.finalize()), total));
        }
        hasher.update(&buffer[..count]);
        total += count as u64;
    }
}

/// sha256 and length of a file.
pub(crate) fn sha256_file(path: &Path) -> io::Result<(String, u64)> {
    sha256_reader(&mut File::open(path)?)
}

/// Whether `text` is 64 lower-case hex digits.
pub(crate) fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Hashes and counts what is written through it.
pub(crate) struct HashWriter<W> {
    inner: W,
    hasher: Sha256,
    written: u64,
}

impl<W: Write> HashWriter<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            written: 0,
        }
    }

    /// The writer, the sha256 in hex and the number of bytes.
    pub(crate) fn finish(self) -> (W, String, u64) {
        (self.inner, hex::encode(self.hasher.finalize()), self.written)
    }
}

impl<W: Write> Write for HashWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buf)?;
        self.hasher.update(&buf[..count]);
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Hashes and counts what is read through it.
pub(crate) struct HashReader<R> {
    inner: R,
    hasher: Sha256,
    count: u64,
}

impl<R: Read> HashReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            count: 0,
        }
    }

    /// Reads what is left; then the sha256 in hex and the number of bytes of all that was read.
    pub(crate) fn finish(mut self) -> io::Result<(String, u64)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((hex::encode(self.hasher.finalize()), self.count))
    }
}

impl<R: Read> Read for HashReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buf)?;
        self.hasher.update(&buf[..count]);
        self.count += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_and_a_reader_see_the_same_digest_as_the_bytes() {
        let bytes = b"sandglass".repeat(1000);
        let mut writer = HashWriter::new(Vec::new());
        writer.write_all(&bytes).unwrap();
        let (written, digest, length) = writer.finish();
        assert_eq!(written, bytes);
        assert_eq!(digest, sha256_hex(&bytes));
        assert_eq!(length, bytes.len() as u64);
        assert_eq!(HashReader::new(&bytes[..]).finish().unwrap(), (digest, length));
    }

    #[test]
    fn only_lower_case_hex_of_the_right_length_is_a_sha256() {
        assert!(is_sha256_hex(&"0a".repeat(32)));
        assert!(!is_sha256_hex(&"0A".repeat(32)));
        assert!(!is_sha256_hex(&"0a".repeat(31)));
        assert!(!is_sha256_hex(&format!("{}/", "a".repeat(63))));
    }
}
