//! Links, pipes, sockets, devices, and files that change.

use super::{below, collect, names, only_good};
use crate::case::Case;
use crate::context::Context;
use crate::verdict::{Stop, check, same};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "files/out-regular",
            &[35],
            "regular files come back, in directories too, with size, digest and type",
            regular,
        ),
        Case::code(
            "files/out-without-a-place",
            &[35],
            "without --out they are listed all the same",
            no_out,
        ),
        Case::code(
            "files/out-links",
            &[35],
            "no link is followed: to a secret, to the root, to a directory, to itself",
            links,
        ),
        Case::code(
            "files/out-hard-link",
            &[35, 33],
            "a hard link is only another name of the script's own file",
            hard_link,
        ),
        Case::code(
            "files/out-fifo",
            &[35],
            "a pipe does not hang the collection",
            fifo,
        ),
        Case::code("files/out-socket", &[35], "nor does a socket", socket),
        Case::code(
            "files/out-device",
            &[35, 25],
            "there is no device to collect",
            device,
        ),
        Case::code(
            "files/out-growing",
            &[35],
            "a file that grows until the end is whole by its own size",
            growing,
        ),
        Case::code(
            "files/out-swapped",
            &[35],
            "a directory that turns into a link and back leads nowhere",
            swapped,
        ),
        Case::code(
            "files/out-itself-removed",
            &[35],
            "/out itself cannot be taken away or replaced",
            out_itself,
        ),
    ]
}

fn regular(c: &Context<'_>) -> Result<(), Stop> {
    let text = "os.makedirs('a/b')\nopen('a/b/table.csv', 'w').write('x,y\\n1,2\\n')\nopen('empty', 'w').close()\nopen('a/data.json', 'w').write('{}')\nopen('large.bin', 'wb').write(bytes(range(256)) * 40000)\nopen('chart.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(32))\n";
    let (report, stored) = collect(c, text)?;
    same(
        "stored",
        &names(&[
            "0-good.txt",
            "a/b/table.csv",
            "a/data.json",
            "chart.png",
            "empty",
            "large.bin",
        ]),
        &stored,
    )?;
    same("skipped", &0, &report.skipped.len())?;
    let kind = |path: &str| {
        report
            .artifacts
            .iter()
            .find(|a| a.path == path)
            .map(|a| a.media_type.clone())
            .unwrap_or_default()
    };
    for (path, media) in [
        ("a/b/table.csv", "text/csv"),
        ("a/data.json", "application/json"),
        ("chart.png", "image/png"),
    ] {
        check(
            kind(path).starts_with(media),
            format!("{path} is {media}"),
            kind(path),
        )?;
    }
    Ok(())
}

fn no_out(c: &Context<'_>) -> Result<(), Stop> {
    let ended = c.python("open('/out/a.csv', 'w').write('x')\n")?.go()?;
    ended.succeeded()?;
    let paths: Vec<_> = ended
        .report()?
        .artifacts
        .iter()
        .map(|a| (a.path.clone(), a.bytes))
        .collect();
    same("artifacts", &vec![("a.csv".to_owned(), 1)], &paths)?;
    let written: Vec<_> = std::fs::read_dir(&c.dir)?
        .flatten()
        .map(|e| e.file_name())
        .filter(|n| n != "script.py")
        .collect();
    same("files beside the script", &Vec::<OsString>::new(), &written)
}

fn links(c: &Context<'_>) -> Result<(), Stop> {
    let canary = c
        .canary
        .paths
        .first()
        .map(|p| p.display().to_string())
        .unwrap_or_default();
    let text = format!(
        "os.mkdir('d')\nfor n, t in (('shadow', '/etc/shadow'), ('canary', '{canary}'), ('root', '/proc/self/root'), ('usr', '/usr'), ('self', 'self'), ('up', '..'), ('to-good', '0-good.txt'), ('fd', '/proc/self/fd/0'), ('d/passwd', '/etc/passwd'), ('memory', '/proc/self/mem')): os.symlink(t, n)\n"
    );
    let (report, stored) = collect(c, &text)?;
    let link = "symbolic_link";
    only_good(
        &report,
        &stored,
        &[
            ("shadow", link),
            ("canary", link),
            ("root", link),
            ("usr", link),
            ("self", link),
            ("up", link),
            ("to-good", link),
            ("d/passwd", link),
        ],
    )?;
    let out = std::fs::read(c.dir.join("out/0-good.txt"))?;
    check(
        !String::from_utf8_lossy(&out).contains(&c.canary.token),
        "no secret",
        "there is one",
    )
}

fn hard_link(c: &Context<'_>) -> Result<(), Stop> {
    let text = "os.link('0-good.txt', 'second.txt')\nfor n in ('/etc/passwd', '/usr/bin/python3.12'):\n    try: os.link(n, 'stolen-' + os.path.basename(n))\n    except OSError: pass\n";
    let (_, stored) = collect(c, text)?;
    let out = c.dir.join("out");
    check(
        stored.iter().all(|n| n == "0-good.txt" || n == "second.txt"),
        "at most the two names of the script's file",
        format!("{stored:?}"),
    )?;
    same(
        "links of the stored file",
        &1,
        &std::fs::metadata(out.join("0-good.txt"))?.nlink(),
    )
}

/// Where a profile lets a script make pipes, they must be told and not opened.
fn fifo(c: &Context<'_>) -> Result<(), Stop> {
    let text = "os.mkdir('d')\nfor n in ('pipe', 'd/pipe'):\n    try: os.mkfifo(n); print('made')\n    except OSError as e: print('refused', e.errno)\n";
    let (report, stored) = collect(c, text)?;
    match report.stdout.text() {
        Some("made\nmade\n") => only_good(&report, &stored, &[("pipe", "fifo"), ("d/pipe", "fifo")]),
        Some("refused 1\nrefused 1\n" | "refused 38\nrefused 38\n") => only_good(&report, &stored, &[]),
        other => Err(Stop::failed(
            "pipes that are made or refused",
            format!("{other:?}"),
        )),
    }
}

fn socket(c: &Context<'_>) -> Result<(), Stop> {
    let (report, stored) = collect(
        c,
        "import socket\nsocket.socket(socket.AF_UNIX).bind('/out/listening')\n",
    )?;
    only_good(&report, &stored, &[("listening", "socket")])
}

fn device(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import stat\nfor n, mode, dev in (('null', stat.S_IFCHR, (1, 3)), ('sda', stat.S_IFBLK, (8, 0)), ('mem', stat.S_IFCHR, (1, 1))):\n    try: os.mknod(n, mode | 0o666, os.makedev(*dev)); print('made', n)\n    except OSError as e: print('refused', n, e.errno)\n";
    let (report, stored) = collect(c, text)?;
    check(
        !report.stdout.text().unwrap_or_default().contains("made"),
        "no device is made",
        format!("{:?}", report.stdout.text()),
    )?;
    only_good(&report, &stored, &[])
}

/// Children go on writing until they are killed; what comes back agrees with itself.
fn growing(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import time\nfor n in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        f = open('growing-%d' % n, 'ab', buffering=0)\n        while True:\n            f.write(b'x' * 1000)\n            if n == 2: f.truncate(0)\ntime.sleep(0.3)\n";
    let (_, stored) = collect(c, text)?;
    check(
        stored.len() >= 3,
        "the files that grew are there",
        format!("{stored:?}"),
    )
}

fn swapped(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import time\nos.mkdir('d')\nopen('d/file', 'w').write('mine')\nos.symlink('/etc', 'evil')\nif os.fork() == 0:\n    os.setsid()\n    while True:\n        os.rename('d', 'x'); os.rename('evil', 'd'); os.rename('d', 'evil'); os.rename('x', 'd')\ntime.sleep(0.3)\n";
    let (report, stored) = collect(c, text)?;
    check(
        stored
            .iter()
            .all(|n| ["0-good.txt", "d/file", "x/file"].contains(&n.as_str())),
        "nothing of /etc",
        format!("{stored:?} {:?}", report.skipped),
    )
}

fn out_itself(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import shutil\nos.chdir('/')\nfor attempt in (lambda: os.rmdir('/out'), lambda: os.rename('/out', '/tmp/out'), lambda: os.symlink('/etc', '/out'), lambda: shutil.move('/out', '/work/out')):\n    try: attempt(); print('done')\n    except OSError: print('refused')\nopen('/out/0-good.txt', 'w').write('good')\nos.chmod('/out', 0)\n";
    let out = c.subdir("out")?;
    let ended = c
        .python(&format!("import os\n{text}"))?
        .flag("--out", &out)
        .go()?;
    ended.succeeded()?;
    let report = ended.report()?;
    let listed = report.artifacts.iter().any(|a| a.path == "0-good.txt") || !report.skipped.is_empty();
    check(
        listed,
        "the file comes back, or is told",
        format!("{:?} {:?}", report.artifacts, report.skipped),
    )?;
    check(
        below(&out, &out)?.iter().all(|n| n == "0-good.txt"),
        "nothing of /etc",
        "there is",
    )
}
