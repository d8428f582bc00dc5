//! Output: floods, forgery, bytes that are no text.

use crate::case::Case;
use crate::context::Context;
use crate::ended::Ended;
use crate::verdict::{Stop, check, same};
use crate::view::{Status, Stream};
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "limits/output-flood",
            &[44],
            "output without end is capped, counted, and costs no memory",
            |c| flood(c, "1"),
        )
        .alone(),
        Case::code("limits/error-flood", &[44], "on stderr too", |c| flood(c, "2")).alone(),
        Case::code("limits/both-floods", &[44], "on both at once", both_floods).alone(),
        Case::code(
            "limits/output-keeps-both-ends",
            &[44],
            "the first and the last half are kept",
            both_ends,
        ),
        Case::code(
            "limits/output-below-the-cap",
            &[44],
            "output up to the cap is whole",
            below_the_cap,
        ),
        Case::code("limits/output-of-one-line", &[44], "no line is needed", one_line),
        Case::code(
            "limits/output-utf8-is-not-split",
            &[44],
            "no character is cut in two",
            utf8_not_split,
        ),
        Case::code(
            "limits/output-not-utf8",
            &[44],
            "bytes that are no text come back as they are",
            not_utf8,
        ),
        Case::code(
            "limits/output-nul-and-escapes",
            &[44],
            "NULs and escape sequences come back as they are",
            nul_and_escapes,
        ),
        Case::code(
            "limits/output-forgery",
            &[44],
            "what looks like a report or a frame is only output",
            forgery,
        ),
        Case::code(
            "limits/output-to-every-descriptor",
            &[44, 32],
            "no descriptor leads to the channel",
            every_descriptor,
        ),
        Case::code(
            "limits/output-closed",
            &[44],
            "a script that closes its streams goes on",
            closed,
        ),
        Case::code(
            "limits/output-slow-reader",
            &[44],
            "a slow reader does not stop the script",
            slow_reader,
        )
        .alone(),
        Case::code(
            "limits/output-many-writers",
            &[44],
            "many processes writing at once are all read",
            many_writers,
        ),
    ]
}

/// What a stream keeps, and some room for the marker between its halves.
const KEPT: u64 = (1 << 20) + 4096;

/// The command line may hold this much, however much a script writes.
const MOST_RESIDENT: u64 = 96 << 20;

fn capped(stream: &Stream, at_least: u64) -> Result<(), Stop> {
    let kept = stream.bytes().map_or(u64::MAX, |b| b.len() as u64);
    check(
        stream.truncated && kept <= KEPT && kept > 1 << 19,
        format!("truncated, at most {KEPT} bytes kept"),
        format!("truncated {}, {kept} bytes kept", stream.truncated),
    )?;
    check(
        stream.bytes_total >= at_least,
        format!("at least {at_least} bytes counted"),
        format!("{} bytes", stream.bytes_total),
    )
}

fn small(ended: &Ended) -> Result<(), Stop> {
    check(
        ended.peak_bytes < MOST_RESIDENT,
        format!("the command line stays below {MOST_RESIDENT} bytes of memory"),
        format!("{} bytes", ended.peak_bytes),
    )
}

/// Writes as fast as it can until the wall clock; the driver must keep up and keep nothing.
fn flood(c: &Context<'_>, stream: &str) -> Result<(), Stop> {
    let text = format!(
        "import os\nchunk = b'flood of output without a single line in it ' * 20000\nwhile True: os.write({stream}, chunk)\n"
    );
    let ended = c
        .python(&text)?
        .flag("--timeout", "4s")
        .flag("--cpus", "1")
        .go()?;
    let report = ended.ended(Status::TimedOut, 124)?;
    capped(
        if stream == "1" {
            &report.stdout
        } else {
            &report.stderr
        },
        64 << 20,
    )?;
    small(&ended)
}

fn both_floods(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import os\nchunk = b'both streams at once\\n' * 20000\nwhile True:\n    os.write(1, chunk)\n    os.write(2, chunk)\n";
    let ended = c.python(text)?.flag("--timeout", "3s").flag("--cpus", "1").go()?;
    let report = ended.ended(Status::TimedOut, 124)?;
    capped(&report.stdout, 16 << 20)?;
    capped(&report.stderr, 16 << 20)?;
    small(&ended)
}

fn both_ends(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import sys\nsys.stdout.write('BEGIN')\nfor n in range(200000): sys.stdout.write('%012d\\n' % n)\nsys.stdout.write('END')\n";
    let ended = c.python(text)?.go()?;
    let stdout = ended.succeeded()?;
    let report = ended.report()?;
    capped(&report.stdout, 5 + 200_000 * 13 + 3)?;
    same(
        "bytes counted",
        &(5 + 200_000 * 13 + 3),
        &report.stdout.bytes_total,
    )?;
    check(
        stdout.starts_with("BEGIN000000000000\n") && stdout.ends_with("000000199999\nEND"),
        "the first and the last bytes",
        format!(
            "{:?} … {:?}",
            &stdout[..stdout.len().min(40)],
            stdout.chars().rev().take(40).collect::<String>()
        ),
    )?;
    // Both halves are about equally long.
    let last_of_first = stdout.find("END").unwrap_or(0);
    check(last_of_first > 1 << 19, "two halves", "one is missing")?;
    let half = 1 << 19;
    check(
        stdout
            .get(half - 20_000..half - 19_000)
            .is_some_and(|s| s.contains("\n00000003")),
        "the first half is unbroken",
        "it is not",
    )
}

fn below_the_cap(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .python("import sys\nsys.stdout.write('x' * (1 << 20))\n")?
        .go()?;
    let stdout = ended.succeeded()?;
    same("length", &(1 << 20), &stdout.len())?;
    same("truncated", &false, &ended.report()?.stdout.truncated)
}

fn one_line(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .python("import sys\nsys.stdout.write('no end of line')\nsys.stderr.write('x' * 300000)\n")?
        .go()?;
    same("stdout", &"no end of line", &ended.succeeded()?)?;
    same(
        "length of stderr",
        &Some(300_000),
        &ended.report()?.stderr.text().map(str::len),
    )
}

fn utf8_not_split(c: &Context<'_>) -> Result<(), Stop> {
    for prefix in ["", "x", "xy"] {
        let text = format!("import sys\nsys.stdout.write('{prefix}' + '沙漏' * 500000)\n");
        let ended = c.python(&text)?.go()?;
        let stdout = ended.succeeded()?;
        capped(&ended.report()?.stdout, 3_000_000)?;
        check(
            !stdout.contains('\u{fffd}')
                && stdout.starts_with(&format!("{prefix}沙漏"))
                && stdout.ends_with("沙漏"),
            "whole characters at both ends",
            "there are broken ones",
        )?;
    }
    Ok(())
}

fn not_utf8(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .python("import sys\nsys.stdout.buffer.write(bytes(range(256)))\n")?
        .go()?;
    let report = ended.ended(Status::Succeeded, 0)?;
    check(
        report.stdout.is_base64(),
        "base64 in place of text",
        format!("{:?}", report.stdout),
    )?;
    same(
        "bytes",
        &Some((0..=255).collect::<Vec<u8>>()),
        &report.stdout.bytes(),
    )?;
    same("total", &256, &report.stdout.bytes_total)
}

fn nul_and_escapes(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c
        .python("import sys\nsys.stdout.write('a\\0b\\x1b[2J\\x1b]0;title\\x07\\r\\x08\\u202e')\n")?
        .go()?;
    same(
        "stdout",
        &"a\0b\x1b[2J\x1b]0;title\x07\r\x08\u{202e}",
        &ended.succeeded()?,
    )?;
    check(
        !ended.stdout.contains(&0x1b) && !ended.stdout.contains(&0),
        "the report itself has no raw control character",
        "it has",
    )
}

fn forgery(c: &Context<'_>) -> Result<(), Stop> {
    let text = r#"import struct, sys
report = '{"schema":1,"run_id":"forged","status":"succeeded","exit_code":0}'
out = sys.stdout.buffer
out.write(('\n' + report + '\n"},"status":"succeeded"\n').encode())
for kind in range(32):
    out.write(struct.pack('<IB', len(report), kind) + report.encode())
sys.stderr.write('{"level":"ERROR","message":"forged"}\n')
sys.stdout.flush()
sys.exit(3)
"#;
    let ended = c.python(text)?.go()?;
    let report = ended.ended(Status::Failed, 3)?;
    check(
        report.run_id != "forged",
        "the report of this run",
        "the forged one",
    )?;
    let kept = report.stdout.bytes().unwrap_or_default();
    check(
        String::from_utf8_lossy(&kept).contains("\"run_id\":\"forged\""),
        "the forgery is in the output",
        "it is not",
    )
}

fn every_descriptor(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import os\nwritten = []\nfor fd in list(range(3, 1024)):\n    try: os.write(fd, b'\\x01\\0\\0\\0\\x06{}'); written.append(fd)\n    except OSError: pass\nfor pid in ('1', 'self'):\n    for fd in range(0, 64):\n        try:\n            handle = os.open(f'/proc/{pid}/fd/{fd}', os.O_WRONLY)\n            if pid == '1': written.append((pid, fd))\n        except OSError: pass\nprint(written)\n";
    same(
        "descriptors that could be written to",
        &"[]\n",
        &c.python(text)?.go()?.succeeded()?,
    )
}

fn closed(c: &Context<'_>) -> Result<(), Stop> {
    let out = c.subdir("out")?;
    let text = "import os, time\nos.write(1, b'said')\nos.close(1)\nos.close(2)\ntime.sleep(0.3)\nopen('/out/went-on', 'w').close()\nos._exit(7)\n";
    let ended = c.python(text)?.flag("--out", &out).go()?;
    let report = ended.ended(Status::Failed, 7)?;
    same("stdout", &Some("said"), &report.stdout.text())?;
    check(out.join("went-on").exists(), "the script went on", "it did not")
}

/// The script measures for itself how long its writing took while nobody read for two seconds.
fn slow_reader(c: &Context<'_>) -> Result<(), Stop> {
    let out = c.subdir("out")?;
    let text = "import os, time\nstart = time.monotonic()\nfor n in range(64): os.write(1, b'0123456789abcde\\n' * 4096)\nopen('/out/took', 'w').write(str(time.monotonic() - start))\n";
    let ended = c.python(text)?.plain().slow_reader().flag("--out", &out).go()?;
    same("exit status", &Some(0), &ended.code)?;
    let took: f64 = std::fs::read_to_string(out.join("took"))?
        .parse()
        .unwrap_or(f64::MAX);
    check(
        took < 1.5,
        "the script writes on while nobody reads",
        format!("it was held up for {took:.1} s"),
    )?;
    small(&ended)
}

fn many_writers(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import os\npids = []\nfor n in range(40):\n    pid = os.fork()\n    if pid == 0:\n        for _ in range(200): os.write(1 + n % 2, b'%02d:0123456789\\n' % n)\n        os._exit(0)\n    pids.append(pid)\nfor pid in pids: os.waitpid(pid, 0)\n";
    let ended = c.python(text)?.go()?;
    let stdout = ended.succeeded()?;
    let whole = |text: &str| {
        text.lines()
            .filter(|l| l.len() == 13 && l.ends_with(":0123456789"))
            .count()
    };
    same("whole lines on stdout", &4000, &whole(stdout))?;
    same(
        "whole lines on stderr",
        &4000,
        &whole(ended.report()?.stderr.text().unwrap_or_default()),
    )?;
    check(
        ended.wall < Duration::from_secs(30),
        "no stall",
        format!("{:?}", ended.wall),
    )
}
