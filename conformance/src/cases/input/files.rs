//! Bad input files.

use super::{mkfifo, script};
use crate::case::Case;
use crate::context::Context;
use crate::invoke::write;
use crate::verdict::{Stop, check, same};
use crate::view::Status;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code("input/missing", &[36], "a missing input is named", input_missing),
        Case::code(
            "input/no-file",
            &[36],
            "a directory, a link, a pipe, a device as input: refused",
            input_no_file,
        ),
        Case::code(
            "input/too-large",
            &[36],
            "inputs beyond 64 MiB are refused, alone or together",
            input_too_large,
        ),
        Case::code(
            "input/at-the-limit",
            &[36],
            "inputs of 60 MiB arrive whole",
            input_at_limit,
        ),
        Case::code(
            "input/duplicate-name",
            &[36],
            "a name that comes twice is refused",
            input_duplicate,
        ),
        Case::code(
            "input/case-clash",
            &[36],
            "names that differ in case are two files",
            input_case,
        ),
        Case::code(
            "input/named-like-the-script",
            &[36],
            "an input cannot take the script's place",
            input_like_script,
        ),
        Case::code(
            "input/hostile-name",
            &[36, 63],
            "a name that is more than a name is refused",
            input_hostile_name,
        ),
        Case::code(
            "input/any-plain-name",
            &[36],
            "any plain name is taken, text in every script",
            input_plain_names,
        ),
        Case::code(
            "input/empty-and-binary",
            &[36],
            "an empty file and any bytes arrive as they are",
            input_bytes,
        ),
    ]
}

fn input_missing(c: &Context<'_>) -> Result<(), Stop> {
    let path = script(c)?;
    c.run_file(&path)
        .input(c.dir.join("no-such.csv"))
        .go()?
        .refused(None, "no-such.csv")?;
    let mut named = OsString::from("data.csv=");
    named.push(c.dir.join("no-such.csv"));
    c.run_file(&path).input(named).go()?.refused(None, "no-such.csv")
}

fn input_no_file(c: &Context<'_>) -> Result<(), Stop> {
    let path = script(c)?;
    let soon = Duration::from_secs(10);
    write(&c.dir.join("real.csv"), b"x")?;
    symlink("real.csv", c.dir.join("link.csv"))?;
    symlink("nowhere", c.dir.join("dangling.csv"))?;
    symlink("/etc/shadow", c.dir.join("shadow.csv"))?;
    symlink("loop.csv", c.dir.join("loop.csv"))?;
    mkfifo(&c.dir.join("fifo.csv"))?;
    c.subdir("dir.csv")?;
    let _socket = std::os::unix::net::UnixListener::bind(c.dir.join("socket.csv"))?;
    for name in [
        "link.csv",
        "dangling.csv",
        "shadow.csv",
        "loop.csv",
        "fifo.csv",
        "dir.csv",
        "socket.csv",
    ] {
        c.run_file(&path)
            .input(c.dir.join(name))
            .patience(soon)
            .go()?
            .refused(None, name)?;
    }
    c.run_file(&path)
        .input("/dev/zero")
        .patience(soon)
        .go()?
        .refused(None, "zero")
}

fn sparse(path: &Path, bytes: u64) -> Result<(), Stop> {
    std::fs::File::create(path)?.set_len(bytes)?;
    Ok(())
}

fn input_too_large(c: &Context<'_>) -> Result<(), Stop> {
    let path = script(c)?;
    sparse(&c.dir.join("large.bin"), (64 << 20) + 1)?;
    sparse(&c.dir.join("huge.bin"), 1 << 42)?;
    sparse(&c.dir.join("half-1.bin"), 40 << 20)?;
    sparse(&c.dir.join("half-2.bin"), 40 << 20)?;
    for name in ["large.bin", "huge.bin"] {
        let ended = c
            .run_file(&path)
            .input(c.dir.join(name))
            .patience(Duration::from_secs(20))
            .go()?;
        ended.refused(None, "64Mi|64 Mi|67108864")?;
    }
    let together = c
        .run_file(&path)
        .input(c.dir.join("half-1.bin"))
        .input(c.dir.join("half-2.bin"))
        .go()?;
    together.refused(None, "64Mi|64 Mi|67108864")
}

fn input_at_limit(c: &Context<'_>) -> Result<(), Stop> {
    sparse(&c.dir.join("large.bin"), 60 << 20)?;
    let text = "import hashlib\nprint(hashlib.file_digest(open('large.bin', 'rb'), 'sha256').hexdigest())\n";
    let ended = c.python(text)?.input(c.dir.join("large.bin")).go()?;
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(vec![0_u8; 60 << 20]);
    let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
    same("digest", &format!("{hex}\n").as_str(), &ended.succeeded()?)
}

fn input_duplicate(c: &Context<'_>) -> Result<(), Stop> {
    let path = script(c)?;
    let (one, two) = (c.subdir("1")?.join("data.csv"), c.subdir("2")?.join("data.csv"));
    write(&one, b"1")?;
    write(&two, b"2")?;
    c.run_file(&path)
        .input(&one)
        .input(&two)
        .go()?
        .refused(None, "data.csv")?;
    let mut named = OsString::from("data.csv=");
    named.push(&two);
    c.run_file(&path)
        .input(&one)
        .input(named)
        .go()?
        .refused(None, "data.csv")
}

fn input_case(c: &Context<'_>) -> Result<(), Stop> {
    write(&c.dir.join("DATA.csv"), b"upper")?;
    write(&c.dir.join("data.csv"), b"lower")?;
    let text = "print(open('DATA.csv').read(), open('data.csv').read())\n";
    let ended = c
        .python(text)?
        .input(c.dir.join("DATA.csv"))
        .input(c.dir.join("data.csv"))
        .go()?;
    same("output", &"upper lower\n", &ended.succeeded()?)
}

/// Whatever the runner calls the script inside, an input of that name is refused or does not run.
fn input_like_script(c: &Context<'_>) -> Result<(), Stop> {
    write(&c.dir.join("evil"), b"print('the input ran')\n")?;
    for name in [
        "main.py",
        "script.py",
        "main.js",
        "main.mjs",
        "script",
        "__main__.py",
        "sitecustomize.py",
        "usercustomize.py",
        "site.py",
    ] {
        let mut named = OsString::from(format!("{name}="));
        named.push(c.dir.join("evil"));
        let ended = c.python("print('the script ran')\n")?.input(named).go()?;
        let report = ended.report()?;
        let fine = report.status == Status::Succeeded && report.stdout.text() == Some("the script ran\n");
        check(
            fine || report.status == Status::Refused && ended.code == Some(125),
            "the script runs, or the name is refused",
            format!(
                "{name}: {:?} {:?} {:?}",
                report.status,
                report.stdout.text(),
                report.stderr.text()
            ),
        )?;
    }
    Ok(())
}

fn input_hostile_name(c: &Context<'_>) -> Result<(), Stop> {
    let path = script(c)?;
    let data = c.dir.join("data");
    write(&data, b"x")?;
    let long = "n".repeat(256);
    for name in [
        "../x",
        "/abs",
        "a/../../b",
        "a/b",
        ".",
        "..",
        "",
        "a\nb",
        "a\u{1b}[2J",
        "a\u{7f}",
        "a\rb",
        "../../../../etc/cron.d/x",
        &long,
    ] {
        let mut named = OsString::from(format!("{name}="));
        named.push(&data);
        c.run_file(&path).input(named).go()?.refused(None, "name")?;
    }
    let mut not_text = OsString::from_vec(vec![0x61, 0xff, b'=']);
    not_text.push(&data);
    c.run_file(&path)
        .input(not_text)
        .go()?
        .refused(None, "name|utf-8")?;
    let hostile_file = c.dir.join("a\nb");
    write(&hostile_file, b"x")?;
    c.run_file(&path).input(&hostile_file).go()?.refused(None, "name")
}

fn input_plain_names(c: &Context<'_>) -> Result<(), Stop> {
    let data = c.dir.join("data");
    write(&data, b"x")?;
    let long = "n".repeat(255);
    let names = [
        "data.csv",
        "-rf",
        "...",
        ".hidden",
        "a b",
        "沙漏.csv",
        "naïve",
        "😀",
        "a'b\"c",
        "$HOME",
        "con",
        "a,b;c",
        &long,
    ];
    let mut invocation =
        c.python("import os\nnames = [n for n in os.listdir('/work') if n != 'script.py']\nprint(len(names), sorted(names))\n")?;
    for name in names {
        let mut named = OsString::from(format!("{name}="));
        named.push(&data);
        invocation = invocation.input(named);
    }
    let ended = invocation.go()?;
    let stdout = ended.succeeded()?;
    for name in ["-rf", "'...'", "沙漏.csv", "naïve", "😀", "$HOME", &long] {
        check(stdout.contains(name), format!("{name:?} is there"), stdout)?;
    }
    check(
        stdout.starts_with(&format!("{} ", names.len())),
        "every one of them",
        stdout,
    )
}

fn input_bytes(c: &Context<'_>) -> Result<(), Stop> {
    write(&c.dir.join("empty"), b"")?;
    write(&c.dir.join("bytes"), &(0..=255).collect::<Vec<u8>>())?;
    let text = "import os\nassert os.path.getsize('empty') == 0\nassert open('bytes', 'rb').read() == bytes(range(256))\nprint(oct(os.stat('bytes').st_mode & 0o7111))\n";
    let ended = c
        .python(text)?
        .input(c.dir.join("empty"))
        .input(c.dir.join("bytes"))
        .go()?;
    same("mode bits that execute", &"0o0\n", &ended.succeeded()?)
}
