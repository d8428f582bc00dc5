//! A bad directory for artifacts.

use super::Mounted;
use crate::case::Case;
use crate::context::Context;
use crate::invoke::write;
use crate::verdict::{Stop, check, same};
use crate::view::Status;
use nix::mount::MsFlags;
use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt as _, symlink};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "input/out-not-a-directory",
            &[],
            "--out that is a file, or below one, is refused before anything runs",
            out_not_dir,
        ),
        Case::code(
            "input/out-not-writable",
            &[],
            "--out that cannot be written is refused before anything runs",
            out_not_writable,
        ),
        Case::code(
            "input/out-holds-the-name",
            &[35],
            "a file that is there already is never overwritten",
            out_holds_name,
        ),
        Case::code(
            "input/out-holds-a-link",
            &[35],
            "nor is a link followed out of --out",
            out_holds_link,
        ),
        Case::code(
            "input/out-of-a-refused-run",
            &[],
            "a run that is refused leaves no --out, and one that ran does",
            out_of_refused,
        ),
    ]
}

const MARKS: &str = "open('/out/result.txt', 'w').write('new')\nprint('ran')\n";

fn out_not_dir(c: &Context<'_>) -> Result<(), Stop> {
    write(&c.dir.join("file"), b"mine")?;
    for out in [
        c.dir.join("file"),
        c.dir.join("file/below"),
        c.dir.join("no/such/parent"),
        "/proc/self/results".into(),
    ] {
        c.python(MARKS)?
            .flag("--out", &out)
            .go()?
            .refused(None, &out.display().to_string())?;
    }
    same(
        "the file",
        &"mine".to_owned(),
        &std::fs::read_to_string(c.dir.join("file"))?,
    )
}

/// Root may write everywhere but where a mount is read-only.
fn out_not_writable(c: &Context<'_>) -> Result<(), Stop> {
    let out = c.subdir("locked")?;
    let _mounted = if c.config.user {
        std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o555))?;
        None
    } else {
        Some(Mounted::tmpfs(&out, "size=64k,mode=0755", MsFlags::MS_RDONLY)?)
    };
    c.python(MARKS)?
        .flag("--out", &out)
        .go()?
        .refused(None, &out.display().to_string())
}

fn out_of_refused(c: &Context<'_>) -> Result<(), Stop> {
    let out = c.dir.join("results");
    c.python(MARKS)?
        .flag("--out", &out)
        .flag("--image", "no-such-image")
        .go()?
        .refused(None, "no-such-image")?;
    check(!out.exists(), "no directory", "there is one")?;
    c.python("print('nothing for /out')\n")?
        .flag("--out", &out)
        .go()?
        .succeeded()?;
    check(out.is_dir(), "a directory", "there is none")
}

fn out_holds_name(c: &Context<'_>) -> Result<(), Stop> {
    let out = c.subdir("out")?;
    write(&out.join("result.txt"), b"precious")?;
    let text = format!("{MARKS}open('/out/other.txt', 'w').write('other')\n");
    let ended = c.python(&text)?.flag("--out", &out).go()?;
    let report = ended.report()?;
    same(
        "the file that was there",
        &"precious".to_owned(),
        &std::fs::read_to_string(out.join("result.txt"))?,
    )?;
    if report.status == Status::Refused {
        return ended.refused(None, "result.txt");
    }
    let named = report.skipped.iter().any(|s| s.path == "result.txt");
    check(
        named,
        "the report says that it was not stored",
        format!("skipped {:?}, artifacts {:?}", report.skipped, report.artifacts),
    )?;
    check(
        out.join("other.txt").exists(),
        "the other artifact is stored",
        "it is not",
    )?;
    let plain = c.python(&text)?.plain().flag("--out", &out).go()?;
    let said = String::from_utf8_lossy(&plain.stderr).into_owned() + &String::from_utf8_lossy(&plain.stdout);
    check(said.contains("result.txt"), "a person is told as well", said)
}

fn out_holds_link(c: &Context<'_>) -> Result<(), Stop> {
    let (out, elsewhere) = (c.subdir("out")?, c.subdir("elsewhere")?);
    write(&elsewhere.join("target"), b"precious")?;
    symlink(elsewhere.join("target"), out.join("link.txt"))?;
    symlink(&elsewhere, out.join("sub"))?;
    symlink(elsewhere.join("new"), out.join("dangling.txt"))?;
    let text = "import os\nos.mkdir('/out/sub')\nfor n in ('link.txt', 'sub/file', 'dangling.txt', 'fine.txt'): open('/out/' + n, 'w').write('hostile')\n";
    let ended = c.python(text)?.flag("--out", &out).go()?;
    ended.report()?;
    same(
        "the target of the link",
        &"precious".to_owned(),
        &std::fs::read_to_string(elsewhere.join("target"))?,
    )?;
    let names: Vec<_> = std::fs::read_dir(&elsewhere)?
        .flatten()
        .map(|e| e.file_name())
        .collect();
    same("files elsewhere", &vec![OsString::from("target")], &names)?;
    check(
        out.join("fine.txt").exists(),
        "the other artifact is stored",
        format!("{:?}", ended.report),
    )
}
