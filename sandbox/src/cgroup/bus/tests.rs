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

const STOPPED: [Value<'_>; 2] = [Value::Text("a-b.scope"), Value::Text("replace")];

#[test]
fn a_call_is_what_other_clients_send() {
    assert_eq!(message(7, MANAGER, "StopUnit", &STOPPED), STOP);
}

const LIMIT: &[u8] = b"\
    l\x01\x00\x01\xb8\x00\x00\x00\x07\x00\x00\x00\xad\x00\x00\x00\
    \x01\x01o\x00\x19\x00\x00\x00/org/freedesktop/systemd1\x00\x00\x00\x00\x00\x00\x00\
    \x02\x01s\x00 \x00\x00\x00org.freedesktop.systemd1.Manager\x00\x00\x00\x00\x00\x00\x00\x00\
    \x03\x01s\x00\x11\x00\x00\x00SetUnitProperties\x00\x00\x00\x00\x00\x00\x00\
    \x06\x01s\x00\x18\x00\x00\x00org.freedesktop.systemd1\x00\x00\x00\x00\x00\x00\x00\x00\
    \x08\x01g\x00\x07sba(sv)\x00\x00\x00\x00\
    \x09\x00\x00\x00a-b.scope\x00\x00\x00\x01\x00\x00\x00\xa0\x00\x00\x00\
    \x0b\x00\x00\x00AllowedCPUs\x00\x02ay\x00\x02\x00\x00\x00\x0f\x02\x00\x00\x00\x00\x00\x00\
    \x08\x00\x00\x00TasksMax\x00\x01t\x00\x07\x00\x00\x00\x00\x00\x00\x00\
    \x12\x00\x00\x00IOReadBandwidthMax\x00\x05a(st)\x00\x00\x00@\x00\x00\x00\x00\x00\x00\x00\
    \x0e\x00\x00\x00/dev/block/8:0\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\
    \x0f\x00\x00\x00/dev/block/8:16\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff";

#[test]
fn properties_are_what_other_clients_send() {
    let rates = [("/dev/block/8:0", 5), ("/dev/block/8:16", u64::MAX)];
    let rates = rates.map(|(device, rate)| (device.to_owned(), rate));
    let properties = vec![
        ("AllowedCPUs", Value::Bytes(vec![15, 2])),
        ("TasksMax", Value::Number(7)),
        ("IOReadBandwidthMax", Value::Numbers(rates.into())),
    ];
    let arguments = [
        Value::Text("a-b.scope"),
        Value::Flag(true),
        Value::Properties(properties),
    ];
    assert_eq!(message(7, MANAGER, "SetUnitProperties", &arguments), LIMIT);
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

fn within(socket: UnixStream, time: Duration) -> Stream {
    let until = Instant::now() + time;
    Stream { socket, until }
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
    let answer = Connection::over(within(ours, ANSWERS_WITHIN), false)
        .and_then(|mut connection| connection.ask("StopUnit", &STOPPED));
    let heard = other.join().map_err(|_| Error::other("it panicked"))??;
    if answer.is_ok() {
        let uid = nix::unistd::geteuid().to_string();
        let hex: String = uid.bytes().map(|digit| format!("{digit:x}")).collect();
        let mut expected = format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n").into_bytes();
        expected.extend(message(1, MANAGER, "StopUnit", &STOPPED));
        assert_eq!(heard, expected);
    }
    answer
}

#[test]
fn no_call_can_come_together_with_the_end_of_the_login() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let caller = std::thread::spawn(move || Connection::over(within(ours, ANSWERS_WITHIN), false));
    let mut login = [0; 64];
    let length = theirs.read(&mut login).unwrap();
    assert!(login[..length].ends_with(b"\r\nBEGIN\r\n"));
    theirs.write_all(b"OK 0123\r\n").unwrap();
    assert!(caller.join().unwrap().is_ok());
    let mut more = Vec::new();
    theirs.read_to_end(&mut more).unwrap();
    assert!(more.is_empty(), "{more:?}");
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

/// What a thread makes of it, or none if that takes much longer than it may.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Option<Result<T>> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(work()));
    told.recv_timeout(Duration::from_secs(5)).ok()
}

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a_systemd_that_takes_no_connection_is_not_waited_for_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket").to_str().unwrap().to_owned();
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(path.as_str()).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut taken = Vec::new();
    let last = loop {
        let path = path.clone();
        match in_time(move || Stream::connect(&path, Instant::now() + SHORT)) {
            Some(Ok(stream)) => taken.push(stream),
            other => break other,
        }
        assert!(taken.len() < 10, "the queue has no end");
    };
    assert!(!taken.is_empty());
    let error = last.expect("it hangs").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
fn a_systemd_that_always_says_something_else_is_not_listened_to_for_ever() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let other = std::thread::spawn(move || -> Result<()> {
        theirs.write_all(b"OK 0123\r\n")?;
        // Each comes well before one read would be given up.
        loop {
            theirs.write_all(&reply(4, &[], b"a signal"))?;
            std::thread::sleep(SHORT / 10);
        }
    });
    let asked = in_time(move || Connection::over(within(ours, SHORT), false)?.ask("StopUnit", &STOPPED));
    let error = asked.expect("it listens on").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // Its next word finds nobody.
    assert!(other.join().unwrap().is_err());
}
