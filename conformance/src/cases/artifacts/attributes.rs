//! Modes, attributes, types.

use super::{collect, names};
use crate::case::Case;
use crate::context::Context;
use crate::verdict::{Stop, check, same};
use std::os::unix::fs::MetadataExt as _;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "files/out-modes",
            &[35, 37],
            "no setuid bit, no execute bit, no owner comes with a file",
            modes,
        ),
        Case::code(
            "files/out-attributes",
            &[37],
            "no extended attribute comes with a file",
            attributes,
        ),
        Case::code(
            "files/out-unreadable",
            &[35],
            "a locked file or directory is told, and hides nothing else",
            unreadable,
        ),
        Case::code(
            "files/out-text-like-html",
            &[35],
            "a web page comes back with its own type, to be handled with care",
            html,
        ),
    ]
}

fn modes(c: &Context<'_>) -> Result<(), Stop> {
    let text = "for n, mode in (('suid', 0o6777), ('exec', 0o755), ('open', 0o666), ('sticky', 0o1644)):\n    open(n, 'w').write('#!/bin/sh\\nid\\n')\n    os.chmod(n, mode)\n";
    let (_, stored) = collect(c, text)?;
    same(
        "stored",
        &names(&["0-good.txt", "suid", "exec", "open", "sticky"]),
        &stored,
    )?;
    for name in stored {
        let meta = std::fs::metadata(c.dir.join("out").join(&name))?;
        check(
            meta.mode() & 0o7133 == 0,
            "no setuid, no execute, not writable for others",
            format!("{name} has mode {:o}", meta.mode()),
        )?;
        same("owner", &nix::unistd::geteuid().as_raw(), &meta.uid())?;
    }
    Ok(())
}

/// Set by the script where the file system lets it; the count says that at least the attempt was made.
fn attributes(c: &Context<'_>) -> Result<(), Stop> {
    let text = "tried = 0\nfor n in ('user.prober', 'security.capability', 'trusted.x', 'system.posix_acl_access'):\n    tried += 1\n    try: os.setxattr('0-good.txt', n, b'\\x01\\x00\\x00\\x02' + bytes(16))\n    except OSError: pass\nprint(tried)\n";
    let (report, _) = collect(c, text)?;
    same("attempts", &Some("4\n"), &report.stdout.text())?;
    let path = c.dir.join("out/0-good.txt");
    let listed = std::process::Command::new("ls").arg("-l").arg(&path).output()?;
    let line = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mode = line.split(' ').next().unwrap_or_default();
    check(
        mode.len() == 10 || mode.ends_with('.'),
        "no access list (ls shows one by a +)",
        &line,
    )?;
    let capabilities = std::fs::metadata(&path)?;
    check(
        capabilities.mode() & 0o111 == 0,
        "nothing that a capability could be on",
        format!("{:o}", capabilities.mode()),
    )
}

fn unreadable(c: &Context<'_>) -> Result<(), Stop> {
    let text = "open('locked', 'w').write('x')\nos.chmod('locked', 0)\nos.mkdir('shut')\nopen('shut/in', 'w').write('x')\nos.chmod('shut', 0)\nos.chmod('/out', 0o777)\n";
    let (report, stored) = collect(c, text)?;
    for (path, inside) in [("locked", "locked"), ("shut", "shut/in")] {
        let here =
            stored.contains(inside) || report.skipped.iter().any(|s| s.path == path || s.path == inside);
        check(
            here,
            format!("{path} comes back or is told"),
            format!("{stored:?} {:?}", report.skipped),
        )?;
    }
    Ok(())
}

fn html(c: &Context<'_>) -> Result<(), Stop> {
    let (report, _) = collect(
        c,
        "open('page.html', 'w').write('<script>alert(1)</script>')\nopen('image.svg', 'w').write('<svg xmlns=\"http://www.w3.org/2000/svg\"><script/></svg>')\nopen('fake.png', 'w').write('<html><script>')\n",
    )?;
    let kind = |path: &str| {
        report
            .artifacts
            .iter()
            .find(|a| a.path == path)
            .map(|a| a.media_type.clone())
            .unwrap_or_default()
    };
    check(
        kind("page.html").starts_with("text/html"),
        "text/html",
        kind("page.html"),
    )?;
    check(
        kind("image.svg").starts_with("image/svg+xml"),
        "image/svg+xml",
        kind("image.svg"),
    )?;
    check(
        kind("fake.png") != "image/png",
        "a page that calls itself a picture is none",
        kind("fake.png"),
    )
}
