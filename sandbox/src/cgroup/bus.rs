//! Two requests to systemd, over D-Bus: to stop a unit, and to forget that it failed.
//!
//! They are made in a shim, which lives as long as its pod: the client of libcgroups never closes its socket and hands
//! it on to whatever is started next, and it cannot ask for the second. What follows is as much of the protocol as a
//! call with strings needs (the D-Bus specification, "Message Protocol" and "Authentication Protocol").

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// systemd's own socket, which root may speak to; where that is out of sight, the bus, on which one has to say hello.
const SOCKETS: [(&str, bool); 2] = [
    ("/run/systemd/private", false),
    ("/run/dbus/system_bus_socket", true),
];
/// How long systemd may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Longest part of a message that is read, in bytes.
const LONGEST: usize = 1 << 20;
/// So many messages about other things may come before the answer.
const OTHERS: usize = 10_000;

const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const ERROR_NAME: u8 = 4;
const SIGNATURE: u8 = 8;

/// Who is called: path, destination, interface.
type Callee = [&'static str; 3];

const MANAGER: Callee = [
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1",
    "org.freedesktop.systemd1.Manager",
];
const BUS: Callee = [
    "/org/freedesktop/DBus",
    "org.freedesktop.DBus",
    "org.freedesktop.DBus",
];

/// What a call was answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was done.
    Done,
    /// It was refused, with the name of the error and a sentence.
    Refused(String, String),
}

/// A connection to systemd.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    serial: u32,
}

impl Connection {
    /// Connects to this machine's systemd.
    pub(super) fn to_systemd() -> Result<Self> {
        let mut last = Error::from(ErrorKind::NotFound);
        for (path, is_bus) in SOCKETS {
            match UnixStream::connect(path).and_then(|stream| Self::over(stream, is_bus)) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn over(stream: UnixStream, is_bus: bool) -> Result<Self> {
        stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
        stream.set_write_timeout(Some(ANSWERS_WITHIN))?;
        let mut connection = Self { stream, serial: 0 };
        connection.authenticate()?;
        match is_bus.then(|| connection.call(BUS, "Hello", &[])).transpose()? {
            Some(Answer::Refused(_, sentence)) => Err(Error::other(sentence)),
            _ => Ok(connection),
        }
    }

    /// Says by which uid we connect, in hexadecimal digits of its decimal ones; the kernel tells the other side.
    fn authenticate(&mut self) -> Result<()> {
        let uid = nix::unistd::geteuid().to_string();
        let hex: String = uid.bytes().map(|digit| format!("{digit:x}")).collect();
        self.stream
            .write_all(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes())?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            line.extend(byte);
            if line.len() > 256 {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        if !line.starts_with(b"OK ") {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.stream.write_all(b"BEGIN\r\n")
    }

    /// Calls a method of systemd's manager, whose arguments are strings.
    pub(super) fn ask(&mut self, member: &str, arguments: &[&str]) -> Result<Answer> {
        self.call(MANAGER, member, arguments)
    }

    fn call(&mut self, callee: Callee, member: &str, arguments: &[&str]) -> Result<Answer> {
        self.serial += 1;
        self.stream
            .write_all(&message(self.serial, callee, member, arguments))?;
        for _ in 0..OTHERS {
            let mut fixed = [0; 16];
            self.stream.read_exact(&mut fixed)?;
            let body = number(&fixed, 4).ok_or(ErrorKind::InvalidData)?;
            let fields = number(&fixed, 12).ok_or(ErrorKind::InvalidData)?;
            // Big-endian, or nonsense.
            if fixed[0] != b'l' || body > LONGEST || fields > LONGEST {
                return Err(ErrorKind::InvalidData.into());
            }
            let mut rest = vec![0; fields.next_multiple_of(8) + body];
            self.stream.read_exact(&mut rest)?;
            let (header, body) = rest.split_at(fields.next_multiple_of(8));
            match fixed[1] {
                METHOD_RETURN => return Ok(Answer::Done),
                ERROR => {
                    let name = error_name(&header[..fields]).unwrap_or_default();
                    let sentence = text(body, 0).unwrap_or(name);
                    return Ok(Answer::Refused(name.to_owned(), sentence.to_owned()));
                }
                // A signal, which systemd sends to all.
                _ => {}
            }
        }
        Err(ErrorKind::TimedOut.into())
    }
}

/// A call as it goes over the wire, little-endian.
fn message(serial: u32, [path, destination, interface]: Callee, member: &str, arguments: &[&str]) -> Vec<u8> {
    let mut body = Vec::new();
    for argument in arguments {
        pad(&mut body, 4);
        put(&mut body, argument);
    }
    let mut fields = Vec::new();
    for (code, kind, value) in [
        (1, b'o', path),
        (2, b's', interface),
        (3, b's', member),
        (6, b's', destination),
    ] {
        pad(&mut fields, 8);
        fields.extend([code, 1, kind, 0]);
        put(&mut fields, value);
    }
    if let Ok(count @ 1..) = u8::try_from(arguments.len()) {
        pad(&mut fields, 8);
        fields.extend([SIGNATURE, 1, b'g', 0, count]);
        fields.extend(std::iter::repeat_n(b's', usize::from(count)));
        fields.push(0);
    }
    let mut message = vec![b'l', 1, 0, 1];
    message.extend(length(&body));
    message.extend(serial.to_le_bytes());
    message.extend(length(&fields));
    message.extend(fields);
    pad(&mut message, 8);
    message.extend(body);
    message
}

fn pad(to: &mut Vec<u8>, align: usize) {
    to.resize(to.len().next_multiple_of(align), 0);
}

fn put(to: &mut Vec<u8>, text: &str) {
    to.extend(length(text.as_bytes()));
    to.extend(text.as_bytes());
    to.push(0);
}

fn length(of: &[u8]) -> [u8; 4] {
    u32::try_from(of.len()).unwrap_or(u32::MAX).to_le_bytes()
}

fn number(from: &[u8], at: usize) -> Option<usize> {
    let bytes = from.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

fn text(from: &[u8], at: usize) -> Option<&str> {
    let length = number(from, at)?;
    let bytes = from.get(at + 4..)?.get(..length)?;
    std::str::from_utf8(bytes).ok()
}

/// The name of an error, from the fields of a message's header.
fn error_name(fields: &[u8]) -> Option<&str> {
    let mut at = 0;
    while at < fields.len() {
        let (code, kind) = (*fields.get(at)?, *fields.get(at + 2)?);
        at += 4;
        match kind {
            b's' | b'o' if code == ERROR_NAME => return text(fields, at),
            b's' | b'o' => at += 4 + number(fields, at)? + 1,
            b'g' => at += 1 + usize::from(*fields.get(at)?) + 1,
            b'u' => at += 4,
            _ => return None,
        }
        at = at.next_multiple_of(8);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What another implementation makes of the same call.
    const STOP: &[u8] = b"\
        l\x01\x00\x01\x1c\x00\x00\x00\x07\x00\x00\x00\xa0\x00\x00\x00\
        \x01\x01o\x00\x19\x00\x00\x00/org/freedesktop/systemd1\x00\x00\x00\x00\x00\x00\x00\
        \x02\x01s\x00 \x00\x00\x00org.freedesktop.systemd1.Manager\x00\x00\x00\x00\x00\x00\x00\x00\
        \x03\x01s\x00\x08\x00\x00\x00StopUnit\x00\x00\x00\x00\x00\x00\x00\x00\
        \x06\x01s\x00\x18\x00\x00\x00org.freedesktop.systemd1\x00\x00\x00\x00\x00\x00\x00\x00\
        \x08\x01g\x00\x02ss\x00\
        \x09\x00\x00\x00a-b.scope\x00\x00\x00\x07\x00\x00\x00replace\x00";

    #[test]
    fn a_call_is_what_other_clients_send() {
        assert_eq!(message(7, MANAGER, "StopUnit", &["a-b.scope", "replace"]), STOP);
    }

    fn reply(kind: u8, fields: &[u8], body: &[u8]) -> Vec<u8> {
        let mut message = vec![b'l', kind, 1, 1];
        message.extend(length(body));
        message.extend(1_u32.to_le_bytes());
        message.extend(length(fields));
        message.extend(fields);
        pad(&mut message, 8);
        message.extend(body);
        message
    }

    fn refusal(name: &str, sentence: &str) -> Vec<u8> {
        // The serial that it answers, the signature of the body, then the name.
        let mut fields = vec![5, 1, b'u', 0, 1, 0, 0, 0, SIGNATURE, 1, b'g', 0, 1, b's', 0];
        pad(&mut fields, 8);
        fields.extend([ERROR_NAME, 1, b's', 0]);
        put(&mut fields, name);
        let mut body = Vec::new();
        put(&mut body, sentence);
        reply(ERROR, &fields, &body)
    }

    /// Somebody at the other end, who takes one caller and one call, and what was answered to it.
    fn against(greeting: &'static str, replies: Vec<u8>) -> Result<Answer> {
        let (ours, mut theirs) = UnixStream::pair()?;
        let other = std::thread::spawn(move || -> Result<Vec<u8>> {
            let mut auth = [0; 64];
            let length = theirs.read(&mut auth)?;
            theirs.write_all(greeting.as_bytes())?;
            theirs.write_all(&replies)?;
            theirs.shutdown(std::net::Shutdown::Write)?;
            let mut all = auth[..length].to_vec();
            theirs.read_to_end(&mut all)?;
            Ok(all)
        });
        let answer = Connection::over(ours, false)
            .and_then(|mut connection| connection.ask("StopUnit", &["a-b.scope", "replace"]));
        let heard = other.join().map_err(|_| Error::other("it panicked"))??;
        if answer.is_ok() {
            let uid = nix::unistd::geteuid().to_string();
            let hex: String = uid.bytes().map(|digit| format!("{digit:x}")).collect();
            let mut expected = format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n").into_bytes();
            expected.extend(message(1, MANAGER, "StopUnit", &["a-b.scope", "replace"]));
            assert_eq!(heard, expected);
        }
        answer
    }

    #[test]
    fn what_comes_before_the_answer_is_passed_over() {
        let mut replies = reply(4, &[], b"a signal");
        replies.extend(reply(METHOD_RETURN, &[], b""));
        assert_eq!(against("OK 0123\r\n", replies).unwrap(), Answer::Done);
    }

    #[test]
    fn a_refusal_comes_with_its_name_and_its_sentence() {
        let replies = refusal("org.example.No", "Unit a-b.scope not loaded.");
        assert_eq!(
            against("OK 0123\r\n", replies).unwrap(),
            Answer::Refused("org.example.No".into(), "Unit a-b.scope not loaded.".into())
        );
    }

    #[test]
    fn nonsense_and_silence_are_errors() {
        assert!(against("REJECTED EXTERNAL\r\n", Vec::new()).is_err());
        assert!(against("OK 0123\r\n", Vec::new()).is_err());
        let mut huge = reply(METHOD_RETURN, &[], b"");
        huge[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(against("OK 0123\r\n", huge).is_err());
        let mut foreign = reply(METHOD_RETURN, &[], b"");
        foreign[0] = b'B';
        assert!(against("OK 0123\r\n", foreign).is_err());
    }
}
