//! A user's home, out of a file of the image's.
//!
//! Not by the C library: it would read the image's `nsswitch.conf` and load what that names.

use std::io::Read;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// Bytes that are read: far more than any image has.
const LONGEST: u64 = 1 << 20;
/// The home of whoever has none.
const NOWHERE: &str = "/";

/// The text of a regular file, as far as it is read; nothing of anything else, which might be waited for.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    // A FIFO is opened without a writer, and a terminal does not become ours.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else {
        return text;
    };
    let regular = rustix::fs::fstat(&file)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile);
    if regular {
        let _ = std::fs::File::from(file).take(LONGEST).read_to_end(&mut text);
    }
    text
}

/// The home of the first line about `uid`, where that is an absolute path; else `/`.
pub(crate) fn home_of(uid: u32, passwd: Vec<u8>) -> String {
    let home = passwd.split(|byte| *byte == b'\n').find_map(|line| {
        // name:password:uid:gid:comment:home:shell
        let mut fields = line.split(|byte| *byte == b':').skip(2);
        let its: u32 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        (its == uid).then_some(fields.nth(2))
    });
    home.flatten()
        .and_then(|home| std::str::from_utf8(home).ok())
        .filter(|home| home.starts_with('/') && !home.contains('\0'))
        .unwrap_or(NOWHERE)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_that_of_the_first_line_about_the_uid() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\na:x:7:7::/home/a:/bin/sh\nb:x:7:7::/home/b:\n";
        assert_eq!(home_of(0, passwd.into()), "/root");
        assert_eq!(home_of(7, passwd.into()), "/home/a");
        assert_eq!(home_of(8, passwd.into()), "/");
    }

    #[test]
    fn what_is_no_home_is_none() {
        for line in [
            "",
            ":::::",
            "a:x:7",
            "a:x:7:7::",
            "a:x:7:7:::",
            "a:x:7:7::home:",
            "a:x:seven:7::/h:",
            "a:x:7:7::/h\0:",
            "a:x:-7:7::/h:",
            "a:x:7777777777777:7::/h:",
        ] {
            assert_eq!(home_of(7, line.into()), "/", "{line:?}");
        }
        assert_eq!(home_of(7, b"a:x:7:7::/\xff:".to_vec()), "/");
    }

    #[test]
    fn only_a_regular_file_is_read_and_no_more_of_it_than_an_image_has() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for other in [at("fifo"), at("none"), dir.path().to_owned(), "/dev/zero".into()] {
            assert_eq!(read(&other), b"", "{}", other.display());
        }
        std::fs::write(at("file"), vec![b'x'; (LONGEST + 1) as usize]).unwrap();
        assert_eq!(read(&at("file")).len() as u64, LONGEST);
    }
}
