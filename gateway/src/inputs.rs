//! Opening the script and the inputs, once each: what was checked is what is read.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use sandglass_driver::Refusal;
use sandglass_run::name::check_file_name;
use sandglass_run::request::MAX_SCRIPT_BYTES;
use sandglass_run::{Input, InputSource, Language};

/// A script that was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Script {
    /// Its text; one byte too long at most, which admission refuses.
    pub text: Vec<u8>,
    /// Its name in `/work`.
    pub name: String,
    /// What interprets it.
    pub language: Language,
}

/// Reads the script: a file, or stdin for `-`.
///
/// # Errors
/// A script that cannot be read, or whose language nothing tells.
pub fn script(path: &Path, language: Option<Language>) -> Result<Script, Refusal> {
    let text = if path == Path::new("-") {
        read(std::io::stdin().lock(), path)?
    } else {
        read(open_script(path)?, path)?
    };
    let file_name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let language = tell_language(language, file_name, &text).ok_or_else(|| {
        Refusal::new(
            "language_unknown",
            format!("Nothing tells the language of {}: not --language, not its name (.py, .js, .mjs, .cjs), not a #! line.", shown(path)),
            "Say --language python or --language node.",
        )
    })?;
    Ok(Script {
        text,
        name: script_name(file_name, language),
        language,
    })
}

fn open_script(path: &Path) -> Result<File, Refusal> {
    let refused = |code, what: String, hint: &str| {
        Refusal::new(code, format!("The script {} {what}.", shown(path)), hint)
    };
    let file = File::open(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => refused(
            "script_missing",
            "is not there".into(),
            "Name a file, or - for stdin.",
        ),
        _ => refused(
            "script_unreadable",
            format!("cannot be opened: {e}"),
            "Name a file that you may read.",
        ),
    })?;
    match file.metadata() {
        Ok(meta) if meta.is_dir() => Err(refused(
            "script_unreadable",
            "is a directory".into(),
            "Name a file in it.",
        )),
        Ok(_) => Ok(file),
        Err(e) => Err(refused(
            "script_unreadable",
            format!("cannot be read: {e}"),
            "Name a file that you may read.",
        )),
    }
}

/// Reads no more than is needed to know that it is too long.
fn read(from: impl Read, path: &Path) -> Result<Vec<u8>, Refusal> {
    let mut text = Vec::new();
    from.take(MAX_SCRIPT_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|e| {
            let message = format!("The script {} cannot be read: {e}.", shown(path));
            Refusal::new(
                "script_unreadable",
                message,
                "Name a file that you may read, or - for stdin.",
            )
        })?;
    Ok(text)
}

/// The language: what was said, else what the name says, else what the `#!` line says.
fn tell_language(said: Option<Language>, file_name: &str, text: &[u8]) -> Option<Language> {
    said.or_else(|| Language::from_file_name(file_name)).or_else(|| {
        let first = text.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
        let first = std::str::from_utf8(first).ok()?;
        let programs = first
            .split_whitespace()
            .map(|word| word.rsplit('/').next().unwrap_or(word));
        // `#!/usr/bin/env -S python3 -u`: the first word that names an interpreter.
        programs.take(3).find_map(|program| match program {
            "node" | "nodejs" => Some(Language::Node),
            p if p
                .strip_prefix("python")
                .is_some_and(|v| v.chars().all(|c| c.is_ascii_digit() || c == '.')) =>
            {
                Some(Language::Python)
            }
            _ => None,
        })
    })
}

/// The script's own name where it fits its language, which matters for `.mjs` and `.cjs`.
fn script_name(file_name: &str, language: Language) -> String {
    let fits = Language::from_file_name(file_name) == Some(language) && check_file_name(file_name).is_ok();
    if fits {
        file_name.to_owned()
    } else {
        language.default_script_name().to_owned()
    }
}

/// Opens the inputs, each given as `PATH` or `NAME=PATH`.
///
/// A path with `=` in it is written with a slash before the first one (`./a=b`).
///
/// # Errors
/// The first that is not a regular file that can be read. Names and sizes are for admission to judge.
pub fn inputs(given: &[OsString]) -> Result<Vec<Input>, Refusal> {
    given.iter().map(|text| input(text)).collect()
}

fn input(text: &OsStr) -> Result<Input, Refusal> {
    let (name, path) = name_and_path(text)?;
    let refused = |code, what: String, hint: &str| {
        Refusal::new(code, format!("The input {} {what}.", shown(&path)), hint)
    };
    // Not blocking: a named pipe would be waited for here.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| match e {
        Errno::NOENT => refused("input_missing", "is not there".into(), "Name a file that is."),
        Errno::LOOP => refused(
            "input_not_a_file",
            "is a symbolic link".into(),
            "Name the file that it points to.",
        ),
        Errno::NXIO => refused(
            "input_not_a_file",
            "is not a regular file".into(),
            "Copy what you need into a file.",
        ),
        e => refused(
            "input_unreadable",
            format!("cannot be opened: {e}"),
            "Name a file that you may read.",
        ),
    })?;
    let stat = rustix::fs::fstat(&file).map_err(|e| {
        refused(
            "input_unreadable",
            format!("cannot be read: {e}"),
            "Name a file that you may read.",
        )
    })?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => {
            return Err(refused(
                "input_not_a_file",
                "is a directory".into(),
                "Name its files, or an archive of it.",
            ));
        }
        _ => {
            return Err(refused(
                "input_not_a_file",
                "is not a regular file".into(),
                "Copy what you need into a file.",
            ));
        }
    }
    let bytes = u64::try_from(stat.st_size).unwrap_or(0);
    Ok(Input {
        name,
        source: InputSource::File {
            file: file.into(),
            bytes,
        },
    })
}

fn name_and_path(text: &OsStr) -> Result<(String, PathBuf), Refusal> {
    let bytes = text.as_bytes();
    let split = bytes
        .iter()
        .position(|b| *b == b'=')
        .filter(|at| !bytes[..*at].contains(&b'/'));
    let (name, path) = match split {
        Some(at) => (
            OsStr::from_bytes(&bytes[..at]),
            Path::new(OsStr::from_bytes(&bytes[at + 1..])),
        ),
        None => (Path::new(text).file_name().unwrap_or_default(), Path::new(text)),
    };
    match name.to_str() {
        Some(name) => Ok((name.to_owned(), path.to_owned())),
        None => Err(Refusal::new(
            "input_name_invalid",
            format!("The name of the input {} is not UTF-8.", shown(Path::new(text))),
            "Give it another with NAME=PATH.",
        )),
    }
}

fn shown(path: &Path) -> String {
    sandglass_run::name::printable(path.as_os_str().as_bytes(), 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_what_was_said_then_the_name_then_the_first_line() {
        use Language::{Node, Python};
        for (said, name, text, want) in [
            (Some(Node), "x.py", "", Some(Node)),
            (None, "x.py", "#!/usr/bin/node", Some(Python)),
            (None, "x.mjs", "", Some(Node)),
            (None, "x", "#!/usr/bin/env python3\n", Some(Python)),
            (None, "x", "#!/usr/bin/env -S node --test\n", Some(Node)),
            (None, "x", "#!/usr/local/bin/python3.12", Some(Python)),
            (None, "x", "#!/bin/sh\npython", None),
            (None, "x", "#!/usr/bin/pythonic", None),
            (None, "x.rb", "puts 1", None),
            (None, "-", "print(1)", None),
        ] {
            assert_eq!(
                tell_language(said, name, text.as_bytes()),
                want,
                "{name} {text:?}"
            );
        }
    }

    #[test]
    fn a_script_keeps_a_name_that_fits_its_language() {
        assert_eq!(script_name("to_json.mjs", Language::Node), "to_json.mjs");
        assert_eq!(script_name("run", Language::Python), "main.py");
        assert_eq!(script_name("x.py", Language::Node), "main.js");
        assert_eq!(script_name("a\u{1b}.py", Language::Python), "main.py");
    }

    #[test]
    fn an_input_is_a_path_or_a_name_and_a_path() {
        let parse = |t: &str| name_and_path(OsStr::new(t)).unwrap();
        assert_eq!(parse("dir/data.csv"), ("data.csv".into(), "dir/data.csv".into()));
        assert_eq!(parse("t.csv=dir/x=1.csv"), ("t.csv".into(), "dir/x=1.csv".into()));
        assert_eq!(parse("./a=b.csv"), ("a=b.csv".into(), "./a=b.csv".into()));
        assert_eq!(parse("=x").0, "");
        assert_eq!(parse("..").0, "");
        assert!(name_and_path(OsStr::from_bytes(b"\xff")).is_err());
    }

    #[test]
    fn only_regular_files_are_inputs() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        std::fs::write(at("file"), b"12345").unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let code = |name: &str| input(at(name).as_os_str()).unwrap_err().code;
        assert_eq!(code("missing"), "input_missing");
        for name in ["dir", "link", "fifo", "socket"] {
            assert_eq!(code(name), "input_not_a_file", "{name}");
        }
        let input = input(at("file").as_os_str()).unwrap();
        assert_eq!((input.name.as_str(), input.source.bytes()), ("file", 5));
    }

    #[test]
    fn a_script_that_cannot_be_read_says_why() {
        let tmp = tempfile::tempdir().unwrap();
        let code = |path: &Path| script(path, Some(Language::Python)).unwrap_err().code;
        assert_eq!(code(&tmp.path().join("missing.py")), "script_missing");
        assert_eq!(code(tmp.path()), "script_unreadable");
        let unknown = tmp.path().join("x.rb");
        std::fs::write(&unknown, b"puts 1").unwrap();
        assert_eq!(script(&unknown, None).unwrap_err().code, "language_unknown");
    }

    #[test]
    fn no_more_of_a_script_is_read_than_shows_that_it_is_too_long() {
        let text = read(std::io::repeat(b'#'), Path::new("-")).unwrap();
        assert_eq!(text.len() as u64, MAX_SCRIPT_BYTES + 1);
    }
}
