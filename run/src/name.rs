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
    #[error("it holds a control character, or one that cannot be seen")]
    Control,
    /// Not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
}

/// Control characters, those that break lines or turn the direction of text, and those that nobody can see: two names
/// that look the same must be the same. `before` is the character that stands before it: emoji and several scripts are
/// written with joiners and variation selectors, which mean nothing after a character of ASCII.
fn is_hidden(before: Option<char>, c: char) -> bool {
    let follows = |what: fn(char) -> bool| {
        before.is_some_and(|before| !before.is_ascii() && !is_invisible(before) && !what(before))
    };
    match c {
        c if is_joiner(c) => !follows(is_joiner),
        c if is_selector(c) => !follows(|before| is_joiner(before) || is_selector(before)),
        c => c.is_control() || is_invisible(c),
    }
}

/// Zero width (non-)joiners.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Variation selectors.
fn is_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Unicode's separators of lines, its format characters and the others that it calls `Default_Ignorable_Code_Point`
/// (`DerivedCoreProperties.txt`): zero width, direction, fillers, tags, annotations. Spaces are left out that look like
/// one, joiners are for [`is_hidden`].
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e00ff}'
            | '\u{e01f0}'..='\u{e0fff}'
    )
}

/// Whether something in a text is not to be seen, or would do more than be shown.
fn has_hidden(text: &str) -> bool {
    let mut before = None;
    text.chars().any(|c| is_hidden(before.replace(c), c))
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
    } else if has_hidden(name) {
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

/// Makes hostile bytes fit to be shown: what is not UTF-8, is a control character or cannot be seen becomes U+FFFD, and
/// what is longer than `max_bytes` is cut on a character and ends in `…`.
pub fn printable(bytes: &[u8], max_bytes: usize) -> String {
    // Enough of the input for `max_bytes` of output, never all of something huge.
    let head = &bytes[..bytes.len().min(max_bytes.saturating_add(4))];
    let mut shown = String::new();
    let mut cut = head.len() < bytes.len();
    for c in String::from_utf8_lossy(head).chars() {
        let c = if is_hidden(shown.chars().next_back(), c) {
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
    !has_hidden(text)
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
            "❤\u{fe0f}.png",
            "👩\u{200d}💻.txt",
            "🏳\u{fe0f}\u{200d}🌈.txt",
            "می\u{200c}خواهم.csv",
            "葛\u{e0100}.txt",
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
            ("report\u{200b}.csv", NameError::Control),
            ("\u{feff}report.csv", NameError::Control),
            ("report\u{e0041}.csv", NameError::Control),
            ("report\u{2060}.csv", NameError::Control),
            ("report\u{3164}.csv", NameError::Control),
            ("report\u{200d}.csv", NameError::Control),
            ("\u{fe0f}report.csv", NameError::Control),
            ("❤\u{fe0f}\u{fe0f}.png", NameError::Control),
            ("❤\u{200d}\u{200d}.png", NameError::Control),
            ("a\u{61c}b", NameError::Control),
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

    proptest::proptest! {
        /// What is left of a name without what cannot be seen is the name itself, or it is refused.
        #[test]
        fn a_hidden_character_anywhere_in_a_plain_name_is_refused(
            name in "[a-z0-9. _-]{0,20}",
            at in 0_usize..20,
            hidden in proptest::sample::select(vec!['\u{200b}', '\u{200d}', '\u{fe0f}', '\u{feff}', '\u{2067}', '\u{e0061}', '\u{ad}', '\u{1b}', '\u{202e}']),
        ) {
            let at = at.min(name.len());
            let hidden = format!("{}{hidden}{}", &name[..at], &name[at..]);
            proptest::prop_assert_eq!(check_file_name(&hidden), Err(NameError::Control));
            proptest::prop_assert!(!is_printable(&hidden));
            proptest::prop_assert!(is_printable(&printable(hidden.as_bytes(), 200)));
        }

        #[test]
        fn whatever_is_shown_is_printable(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), text in ".{0,60}", max in 3_usize..120) {
            for input in [&bytes[..], text.as_bytes()] {
                let shown = printable(input, max);
                proptest::prop_assert!(is_printable(&shown) && shown.len() <= max, "{shown:?}");
            }
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
