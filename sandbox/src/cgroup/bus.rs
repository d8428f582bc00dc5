//! Requests to systemd, over D-Bus: to limit a unit, to stop it, and to forget that it failed.
//!
//! They are made in a shim, which lives as long as its pod: the client of libcgroups never closes its socket and hands
//! it on to whatever is started next, and it cannot ask for the last. What follows is as much of the protocol as these
//! calls need (the D-Bus specification, "Message Protocol" and "Authentication Protocol").
//!
//! No library makes the connection: rustbus 0.19 opens it for children to inherit and logs in without a bound on time,
//! zbus wants a thread or a reactor. Five kinds of values do not need one for the wire format alone.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

/// systemd's own socket, which root may speak to; where that is out of sight, the bus, on which one has to say hello.
const SOCKETS: [(&str, bool); 2] = [
    ("/run/systemd/private", false),
    ("/run/dbus/system_bus_socket", true),
];
/// How long systemd may take for all that is asked over one connection, from before it takes that.
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

/// An argument of a call, or the value of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A string.
    Text(&'a str),
    /// A boolean.
    Flag(bool),
    /// An unsigned number of 64 bits.
    Number(u64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Names, each with a number.
    Numbers(Vec<(String, u64)>),
    /// Properties, by name.
    Properties(Vec<(&'static str, Value<'static>)>),
}

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
    stream: Stream,
    serial: u32,
}

/// A socket that is read and written until a certain time, however many steps that takes.
#[derive(Debug)]
struct Stream {
    socket: UnixStream,
    until: Instant,
}

impl Stream {
    fn connect(path: &str, until: Instant) -> Result<Self> {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let address = SocketAddrUnix::new(path)?;
        loop {
            // Of a listener that takes nobody any more the queue fills up, and whoever comes next waits as a writer.
            set_socket_timeout(&socket, Timeout::Send, Some(left(until)?))?;
            match rustix::net::connect(&socket, &address) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(late(error.into())),
                Ok(()) => break,
            }
        }
        let socket = UnixStream::from(socket);
        Ok(Self { socket, until })
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        self.socket.set_read_timeout(Some(left(self.until)?))?;
        self.socket.read(to).map_err(late)
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> Result<usize> {
        self.socket.set_write_timeout(Some(left(self.until)?))?;
        self.socket.write(from).map_err(late)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The time that is left, never none at all: that would be no limit.
fn left(until: Instant) -> Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left.max(Duration::from_millis(1))),
    }
}

/// The kernel's word for a time that is over is the one for a call that would block.
fn late(error: Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Connection {
    /// Connects to this machine's systemd.
    pub(super) fn to_systemd() -> Result<Self> {
        let until = Instant::now() + ANSWERS_WITHIN;
        let mut last = Error::from(ErrorKind::NotFound);
        for (path, is_bus) in SOCKETS {
            match Stream::connect(path, until).and_then(|stream| Self::over(stream, is_bus)) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn over(stream: Stream, is_bus: bool) -> Result<Self> {
        let mut connection = Self { stream, serial: 0 };
        connection.authenticate()?;
        match is_bus.then(|| connection.call(BUS, "Hello", &[])).transpose()? {
            Some(Answer::Refused(_, sentence)) => Err(Error::other(sentence)),
            _ => Ok(connection),
        }
    }

    /// Says by which uid we connect, in hexadecimal digits of its decimal ones; the kernel tells the other side.
    ///
    /// The last word goes along with the first, as in systemd's own client: at its private socket a call that comes
    /// together with `BEGIN` lies unread until the next one.
    fn authenticate(&mut self) -> Result<()> {
        let uid = nix::unistd::geteuid().to_string();
        let hex: String = uid.bytes().map(|digit| format!("{digit:x}")).collect();
        self.stream
            .write_all(format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n").as_bytes())?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            line.extend(byte);
            if line.len() > 256 {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        if line.starts_with(b"OK ") {
            Ok(())
        } else {
            Err(ErrorKind::PermissionDenied.into())
        }
    }

    /// Calls a method of systemd's manager.
    pub(super) fn ask(&mut self, member: &str, arguments: &[Value<'_>]) -> Result<Answer> {
        self.call(MANAGER, member, arguments)
    }

    fn call(&mut self, callee: Callee, member: &str, arguments: &[Value<'_>]) -> Result<Answer> {
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
fn message(
    serial: u32,
    [path, destination, interface]: Callee,
    member: &str,
    arguments: &[Value<'_>],
) -> Vec<u8> {
    let mut body = Vec::new();
    for argument in arguments {
        argument.put(&mut body);
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
    if !arguments.is_empty() {
        pad(&mut fields, 8);
        fields.extend([SIGNATURE, 1, b'g', 0]);
        let signature: String = arguments.iter().map(Value::signature).collect();
        put_signature(&mut fields, &signature);
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

impl Value<'_> {
    fn signature(&self) -> &'static str {
        match self {
            Self::Text(_) => "s",
            Self::Flag(_) => "b",
            Self::Number(_) => "t",
            Self::Bytes(_) => "ay",
            Self::Numbers(_) => "a(st)",
            Self::Properties(_) => "a(sv)",
        }
    }

    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Text(text) => put(to, text),
            Self::Flag(flag) => {
                pad(to, 4);
                to.extend(u32::from(*flag).to_le_bytes());
            }
            Self::Number(number) => {
                pad(to, 8);
                to.extend(number.to_le_bytes());
            }
            Self::Bytes(bytes) => put_array(to, 1, |to| to.extend(bytes)),
            Self::Numbers(pairs) => put_array(to, 8, |to| {
                for (name, number) in pairs {
                    pad(to, 8);
                    put(to, name);
                    Self::Number(*number).put(to);
                }
            }),
            Self::Properties(pairs) => put_array(to, 8, |to| {
                for (name, value) in pairs {
                    pad(to, 8);
                    put(to, name);
                    put_signature(to, value.signature());
                    value.put(to);
                }
            }),
        }
    }
}

fn pad(to: &mut Vec<u8>, align: usize) {
    to.resize(to.len().next_multiple_of(align), 0);
}

fn put(to: &mut Vec<u8>, text: &str) {
    pad(to, 4);
    to.extend(length(text.as_bytes()));
    to.extend(text.as_bytes());
    to.push(0);
}

/// One of the few that we have, which are short.
fn put_signature(to: &mut Vec<u8>, signature: &str) {
    to.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
    to.extend(signature.as_bytes());
    to.push(0);
}

/// An array, whose length does not count what aligns its first element.
fn put_array(to: &mut Vec<u8>, align: usize, put_elements: impl FnOnce(&mut Vec<u8>)) {
    pad(to, 4);
    let at = to.len();
    to.extend([0; 4]);
    pad(to, align);
    let first = to.len();
    put_elements(to);
    let length = length(&to[first..]);
    to[at..at + 4].copy_from_slice(&length);
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
mod tests;
