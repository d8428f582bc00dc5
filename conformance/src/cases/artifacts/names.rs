//! Names and paths.

use super::{collect, names, only_good};
use crate::case::Case;
use crate::context::Context;
use crate::verdict::{Stop, check, same};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "files/out-hostile-names",
            &[35],
            "names that would forge lines or leave the directory do not come back",
            hostile_names,
        ),
        Case::code(
            "files/out-plain-names",
            &[35],
            "other names do, in any script",
            plain_names,
        ),
        Case::code(
            "files/out-long-path",
            &[35],
            "a path of 4096 bytes does not come back",
            long_path,
        ),
    ]
}

fn hostile_names(c: &Context<'_>) -> Result<(), Stop> {
    let text = "for n in (b'line\\nbreak', b'esc\\x1b[2J', b'rtl\\xe2\\x80\\xae', b'\\xff\\xfe', b'tab\\tb', b'cr\\rb', b'bell\\x07', b'del\\x7f', b'sep\\xe2\\x80\\xa8x', b'..\\n', b'c1\\xc2\\x9b2J', b'zero\\xe2\\x80\\x8b', b'\\xef\\xbb\\xbfbom', b'tag\\xf3\\xa0\\x81\\x81', b'join\\xe2\\x80\\x8der'):\n    open(b'/out/' + n, 'w').write('x')\nos.mkdir(b'/out/dir\\n')\nopen(b'/out/dir\\n/file', 'w').write('x')\n";
    let (report, stored) = collect(c, text)?;
    only_good(&report, &stored, &[])?;
    check(
        report.skipped.len() >= 16,
        "each is told",
        format!("{:?}", report.skipped),
    )?;
    let plain = c
        .python(&format!("import os\n{text}"))?
        .plain()
        .flag("--out", c.subdir("out2")?)
        .go()?;
    let shown = [plain.stdout, plain.stderr].concat();
    check(
        !shown.contains(&0x1b) && !shown.contains(&0x07),
        "no escape sequence of a name on a terminal",
        String::from_utf8_lossy(&shown),
    )
}

fn plain_names(c: &Context<'_>) -> Result<(), Stop> {
    let long = "n".repeat(255);
    let list = [
        "-rf",
        ".hidden",
        "...",
        "a b",
        "沙漏.csv",
        "naïve.txt",
        "😀.png",
        "❤\u{fe0f}.png",
        "a'b\"c",
        "$HOME",
        "con",
        "a;b",
        "a\\b",
        "%2e%2e",
        &long,
    ];
    let mut text = String::new();
    for name in list {
        text.push_str(&format!("open({}, 'w').write('x')\n", python_literal(name)));
    }
    let (report, mut stored) = collect(c, &text)?;
    stored.remove("0-good.txt");
    same("stored", &names(&list), &stored)?;
    same("skipped", &0, &report.skipped.len())
}

/// A Python literal of any text: its code points.
fn python_literal(text: &str) -> String {
    let points: Vec<String> = text.chars().map(|ch| u32::from(ch).to_string()).collect();
    format!("''.join(map(chr, [{}]))", points.join(","))
}

fn long_path(c: &Context<'_>) -> Result<(), Stop> {
    let text = "for n in range(7):\n    d = chr(97 + n) * 250\n    os.mkdir(d); os.chdir(d)\nopen('f' * 250, 'w').write('x')\n";
    let (report, stored) = collect(c, text)?;
    same("stored", &names(&["0-good.txt"]), &stored)?;
    check(!report.skipped.is_empty(), "it is told", "it is not")
}
