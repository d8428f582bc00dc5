//! Names that cross the border of a sandbox: inputs on their way in, artifacts on their way out, and
//! environment variables. All of them are hostile until they passed a function of this module.

use std::cmp::Ordering;

/// Longest name of one file, in bytes: what Linux file systems take (`NAME_MAX`).
pub const MAX_NAME_BYTES: usize = 255;
/// Longest path of an artifact below `/out`, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;
/// Deepest artifact below `/out`: a path may have this many components.
pub const MAX_DEPTH: usize = 8;
/// Longest path that is shown for something that was skipped, in bytes.
pub const MAX_SHOWN_PATH_BYTES: usize = 1024;

/// Why a name or a path was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing at all, or a path with an empty component.
    #[error("it is empty, or a part of it is")]
    Empty,
    /// More bytes than allowed.
    #[error("it is longer than {MAX_NAME_BYTES} bytes, or its whole path longer than {MAX_PATH_BYTES}")]
    TooLong,
    /// More directories than allowed.
    #[error("it lies deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// `.` or `..`.
    #[error("it is, or holds, . or ..")]
    Dots,
    /// A slash in a single name, or at the start of a path.
    #[error("it holds a slash where none may be")]
    Slash,
    /// A character that can forge lines or reorder text where the name is shown.
    #[error("it holds a control character")]
    Control,
    /// Not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
}

/// Control characters, and those that break lines or reverse the direction of text on a terminal.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Checks the name of one file: one path component that is safe to create and to show.
///
/// # Errors
/// Says which rule it breaks.
pub fn check_file_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        Err(NameError::Empty)
    } else if name.len() > MAX_NAME_BYTES {
        Err(NameError::TooLong)
    } else if name == "." || name == ".." {
        Err(NameError::Dots)
    } else if name.contains('/') {
        Err(NameError::Slash)
    } else if name.chars().any(is_control) {
        Err(NameError::Control)
    } else {
        Ok(())
    }
}

/// As [`check_file_name`], for a name as it comes from a file system.
///
/// # Errors
/// Says which rule it breaks.
pub fn file_name_from_bytes(name: &[u8]) -> Result<&str, NameError> {
    let name = std::str::from_utf8(name).map_err(|_| NameError::NotUtf8)?;
    check_file_name(name)?;
    Ok(name)
}

/// Checks the path of an artifact: relative, `/` between components, each of which is a file name.
///
/// # Errors
/// Says which rule it breaks.
pub fn check_artifact_path(path: &str) -> Result<(), NameError> {
    if path.len() > MAX_PATH_BYTES {
        return Err(NameError::TooLong);
    }
    if path.starts_with('/') {
        return Err(NameError::Slash);
    }
    for (depth, component) in path.split('/').enumerate() {
        if depth >= MAX_DEPTH {
            return Err(NameError::TooDeep);
        }
        check_file_name(component)?;
    }
    Ok(())
}

/// The order in which artifacts come: by components, each bytewise, so a directory's files stand together.
pub fn compare_paths(a: &str, b: &str) -> Ordering {
    a.split('/')
        .map(str::as_bytes)
        .cmp(b.split('/').map(str::as_bytes))
}

/// Whether `inner` lies below `outer` (which would then have to be a directory).
pub fn is_below(inner: &str, outer: &str) -> bool {
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Makes hostile bytes fit to be shown: what is not UTF-8 or is a control character becomes U+FFFD, and
/// what is longer than `max_bytes` is cut on a character and ends in `…`.
pub fn printable(bytes: &[u8], max_bytes: usize) -> String {
    // Enough of the input for `max_bytes` of output, never all of something huge.
    let head = &bytes[..bytes.len().min(max_bytes.saturating_add(4))];
    let mut shown = String::new();
    let mut cut = head.len() < bytes.len();
    for c in String::from_utf8_lossy(head).chars() {
        let c = if is_control(c) {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        };
        if shown.len() + c.len_utf8() > max_bytes {
            cut = true;
            break;
        }
        shown.push(c);
    }
    if cut {
        while shown.len() + '…'.len_utf8() > max_bytes && shown.pop().is_some() {}
        shown.push('…');
    }
    shown
}

/// Whether a text is fit to be shown as it is, which [`printable`] makes sure of.
pub fn is_printable(text: &str) -> bool {
    !text.chars().any(is_control)
}

/// Longest value of an environment variable, in bytes.
pub const MAX_ENV_VALUE_BYTES: usize = 32 * 1024;

/// Whether a variable may be added to a script's environment: a plain name that neither the runner sets
/// itself nor makes the loader, a shell or an interpreter load something.
pub fn is_allowed_variable(name: &str, value: &str) -> bool {
    const RESERVED: [&str; 14] = [
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "TZ",
        "TMPDIR",
        "IFS",
        "ENV",
        "BASH_ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "MPLCONFIGDIR",
    ];
    const RESERVED_PREFIXES: [&str; 5] = ["LD_", "LC_", "PYTHON", "NODE_", "BASH_FUNC_"];
    let plain = name.len() <= 128
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    plain
        && !RESERVED.contains(&name)
        && !RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        && value.len() <= MAX_ENV_VALUE_BYTES
        && !value.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_one_plain_component() {
        for good in [
            "a",
            "data.csv",
            "-rf",
            "..a",
            ".hidden",
            "顧客.csv",
            "a b",
            &"x".repeat(255),
        ] {
            assert_eq!(check_file_name(good), Ok(()), "{good:?}");
        }
        for (bad, why) in [
            ("", NameError::Empty),
            (".", NameError::Dots),
            ("..", NameError::Dots),
            ("/abs", NameError::Slash),
            ("../x", NameError::Slash),
            ("a/b", NameError::Slash),
            ("a\nb", NameError::Control),
            ("a\0b", NameError::Control),
            ("a\u{1b}[2J", NameError::Control),
            ("cod\u{202e}gpj.exe", NameError::Control),
            (&"x".repeat(256), NameError::TooLong),
        ] {
            assert_eq!(check_file_name(bad), Err(why), "{bad:?}");
        }
        assert_eq!(file_name_from_bytes(b"\xff"), Err(NameError::NotUtf8));
    }

    #[test]
    fn an_artifact_path_never_leaves_out() {
        for good in ["a", "a/b/c", "1/2/3/4/5/6/7/8"] {
            assert_eq!(check_artifact_path(good), Ok(()), "{good:?}");
        }
        for bad in [
            "",
            "/a",
            "a//b",
            "a/",
            "a/../b",
            "./a",
            "1/2/3/4/5/6/7/8/9",
            "a/\u{7}",
            &"ab/".repeat(400),
        ] {
            assert!(check_artifact_path(bad).is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn paths_are_ordered_by_component() {
        assert_eq!(compare_paths("a/b", "a.txt"), Ordering::Less);
        assert_eq!(compare_paths("a", "a/b"), Ordering::Less);
        assert_eq!(compare_paths("b", "a/b"), Ordering::Greater);
        assert!(is_below("a/b", "a"));
        assert!(!is_below("ab", "a"));
        assert!(!is_below("a", "a"));
    }

    #[test]
    fn what_is_shown_cannot_forge_lines_and_is_bounded() {
        assert_eq!(printable(b"a\nb\xffc", 100), "a\u{fffd}b\u{fffd}c");
        assert_eq!(printable("ééé".as_bytes(), 5), "é…");
        assert_eq!(printable(b"abc", 3), "abc");
        for max in 3..40 {
            let shown = printable(&[0xff; 10_000], max);
            assert!(shown.len() <= max && is_printable(&shown), "{max}");
        }
    }

    #[test]
    fn variables_that_load_code_cannot_be_added() {
        assert!(is_allowed_variable("REGION", "eu"));
        for bad in [
            "LD_PRELOAD",
            "PYTHONPATH",
            "NODE_OPTIONS",
            "BASH_ENV",
            "PATH",
            "HOME",
            "A=B",
            "",
            "1A",
            "A B",
            "LC_ALL",
        ] {
            assert!(!is_allowed_variable(bad, "x"), "{bad:?} must be refused");
        }
        assert!(!is_allowed_variable("A", "x\0y"));
    }
}
