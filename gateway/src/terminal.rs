//! What may reach a person's terminal.
//!
//! A terminal obeys what is written to it: escape sequences set titles, fill the clipboard, answer as if the
//! person typed, and move the cursor over lines that were printed before. Everything from a sandbox (output,
//! names of files) therefore passes through here when it goes to a terminal. Pipes and files get the bytes as
//! they are.

use std::fmt::Write as _;

/// Colours survive: `ESC [ digits ; … m` no longer than this.
const SGR_MAX: usize = 32;

/// Makes a stream of bytes harmless for a terminal; chunks may be cut anywhere.
///
/// Printable UTF-8, newline, tab, carriage return and colour sequences pass. Every other control character,
/// C1 included, and every invalid byte becomes visible text, and so does the start of every other escape
/// sequence, which leaves the rest of it as the plain text that it is.
#[derive(Debug, Default)]
pub struct Sanitiser {
    /// The start of a character or of a colour sequence whose end has not come yet.
    pending: Vec<u8>,
    /// Whether a colour, or concealment, still holds: what comes next on this terminal would be seen through it.
    painted: bool,
}

/// Ends every colour, concealment included.
pub const PLAIN: &str = "\x1b[0m";

impl Sanitiser {
    /// The harmless form of `bytes`, as far as it is decided.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let (out, used) = clean(&self.pending, false);
        self.pending.drain(..used);
        self.painted = paints(&out).unwrap_or(self.painted);
        out
    }

    /// What is left when nothing more comes, and the end of colours that the script left on.
    pub fn finish(&mut self) -> String {
        let (mut out, _) = clean(&self.pending, true);
        self.pending.clear();
        if std::mem::take(&mut self.painted) {
            out.push_str(PLAIN);
        }
        out
    }
}

/// The harmless form of a whole text on one line: names of files, messages. Line breaks, the characters that turn the
/// direction of writing and those that cannot be seen become visible as well.
pub fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => visible(&mut out, c),
            c if harmless(c) && !hides(c) => out.push(c),
            c => visible(&mut out, c),
        }
    }
    out
}

/// Cleans `bytes` and says how many of them are decided (all of them when `last`).
fn clean(bytes: &[u8], last: bool) -> (String, usize) {
    let mut out = String::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == 0x1b {
            match colour(&bytes[at..]) {
                Colour::Whole(sequence) => {
                    out.push_str(sequence);
                    at += sequence.len();
                }
                Colour::Cut if !last => break,
                Colour::Cut | Colour::Other => {
                    visible(&mut out, '\u{1b}');
                    at += 1;
                }
            }
            continue;
        }
        match first_char(&bytes[at..]) {
            First::Char(c) => {
                if matches!(c, '\n' | '\r' | '\t') || harmless(c) {
                    out.push(c)
                } else {
                    visible(&mut out, c)
                }
                at += c.len_utf8();
            }
            First::Cut if !last => break,
            First::Cut | First::Invalid => {
                let _ = write!(out, "\\x{:02x}", bytes[at]);
                at += 1;
            }
        }
    }
    (out, at)
}

/// Whether the last colour sequence of a clean text leaves one on; `None` where there is no sequence.
fn paints(clean: &str) -> Option<bool> {
    let (_, after) = clean.rsplit_once("\x1b[")?;
    let parameters = after.split('m').next().unwrap_or_default();
    Some(!matches!(parameters, "" | "0"))
}

enum Colour<'a> {
    Whole(&'a str),
    Cut,
    Other,
}

/// Reads a colour sequence (`ESC [ 1;31 m`) at the start of `bytes`.
fn colour(bytes: &[u8]) -> Colour<'_> {
    for (i, b) in bytes.iter().enumerate().take(SGR_MAX) {
        match (i, b) {
            (0, 0x1b) | (1, b'[') => {}
            (2.., b'0'..=b'9' | b';' | b':') => {}
            (2.., b'm') => return std::str::from_utf8(&bytes[..=i]).map_or(Colour::Other, Colour::Whole),
            _ => return Colour::Other,
        }
    }
    if bytes.len() < SGR_MAX {
        Colour::Cut
    } else {
        Colour::Other
    }
}

enum First {
    Char(char),
    Cut,
    Invalid,
}

fn first_char(bytes: &[u8]) -> First {
    let head = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(e) if e.valid_up_to() > 0 => std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or_default(),
        Err(e) if e.error_len().is_none() => return First::Cut,
        Err(_) => return First::Invalid,
    };
    valid.chars().next().map_or(First::Cut, First::Char)
}

/// No control character of either set.
fn harmless(c: char) -> bool {
    !c.is_control()
}

/// Characters that cannot be seen, and those with which `gpj.exe` is made to look like `exe.jpg`: what no name may
/// hold, but for joiners and variation selectors, which belong to what they follow.
fn hides(c: char) -> bool {
    !sandglass_run::name::is_printable(c.encode_utf8(&mut [0; 4]))
        && !matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

fn visible(out: &mut String, c: char) {
    match u32::from(c) {
        n @ 0..=0x1f => {
            out.push('^');
            out.push(char::from(b'@' + n as u8));
        }
        0x7f => out.push_str("^?"),
        n => {
            let _ = write!(out, "\\u{{{n:x}}}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> String {
        let mut s = Sanitiser::default();
        s.push(bytes) + &s.finish()
    }

    #[test]
    fn text_line_ends_and_colours_pass() {
        let text = "plain äöü 漢字 🙂\n\ttabs\r50%\x1b[1;38:5:208mcolour\x1b[0m\n";
        assert_eq!(all(text.as_bytes()), text);
    }

    #[test]
    fn sequences_that_do_more_than_colour_are_shown_and_not_obeyed() {
        for (hostile, shown) in [
            (&b"\x1b]0;title\x07"[..], "^[]0;title^G"),
            (b"\x1b]52;c;cm0gLXJm\x1b\\", "^[]52;c;cm0gLXJm^[\\"),
            (b"\x1b[2J\x1b[1A", "^[[2J^[[1A"),
            (b"\x1b[6n", "^[[6n"),
            (b"\x1bPq", "^[Pq"),
            ("\u{9b}2J".as_bytes(), "\\u{9b}2J"),
            (b"\x9b2J", "\\x9b2J"),
            (b"a\x08b\x7f\x00", "a^Hb^?^@"),
            (b"\x1b[31", "^[[31"),
        ] {
            assert_eq!(all(hostile), shown);
        }
    }

    #[test]
    fn colours_and_concealment_that_a_script_leaves_on_end_with_its_output() {
        for (left_on, shown) in [
            ("\x1b[8mhidden\n", "\x1b[8mhidden\n\x1b[0m"),
            ("\x1b[0m\x1b[31m", "\x1b[0m\x1b[31m\x1b[0m"),
            ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
            ("\x1b[31mred\x1b[m", "\x1b[31mred\x1b[m"),
            ("\x1b[0;8m", "\x1b[0;8m\x1b[0m"),
            ("plain", "plain"),
        ] {
            assert_eq!(all(left_on.as_bytes()), shown);
            let mut s = Sanitiser::default();
            let pieces: String = left_on.bytes().map(|b| s.push(&[b])).collect();
            assert_eq!(pieces + &s.finish(), shown, "piece by piece");
        }
    }

    #[test]
    fn a_line_shows_breaks_and_turned_writing() {
        assert_eq!(line("a\nb\x1b[31m\u{202e}gpj.exe"), "a^Jb^[[31m\\u{202e}gpj.exe");
        assert_eq!(
            line("a\u{200b}b\u{feff}\u{e0041}"),
            "a\\u{200b}b\\u{feff}\\u{e0041}"
        );
        assert_eq!(line("bericht-ä ❤\u{fe0f}.csv"), "bericht-ä ❤\u{fe0f}.csv");
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_text(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let cut = cut.min(bytes.len());
            let mut s = Sanitiser::default();
            let split = s.push(&bytes[..cut]) + &s.push(&bytes[cut..]) + &s.finish();
            prop_assert_eq!(split, all(&bytes));
        }

        #[test]
        fn no_control_character_but_of_colours_comes_out(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let out = all(&bytes);
            let mut rest = out.as_str();
            while let Some(at) = rest.find(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
                let Colour::Whole(sequence) = colour(&rest.as_bytes()[at..]) else {
                    return Err(TestCaseError::fail(format!("{out:?}")));
                };
                rest = &rest[at + sequence.len()..];
            }
        }

        #[test]
        fn whatever_comes_the_terminal_is_plain_at_the_end(text in "([a-z\n]|\x1b\\[[0-9;]{0,6}m|\x1b|\x1b\\[8){0,12}") {
            let out = all(text.as_bytes());
            let on = out.rfind("\x1b[").map(|at| &out[at..]);
            prop_assert!(on.is_none_or(|on| on.starts_with("\x1b[0m") || on.starts_with("\x1b[m")), "{:?}", out);
        }

        #[test]
        fn pending_never_grows(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20)) {
            let mut s = Sanitiser::default();
            for chunk in chunks {
                s.push(&chunk);
                prop_assert!(s.pending.len() < SGR_MAX);
            }
        }
    }
}
