//! The media type of an artifact: what its first bytes are, else what its name says.

/// As many first bytes as the longest signature needs (tar: offset 257; OOXML: the first entries of the zip).
pub const SNIFF_BYTES: usize = 8 * 1024;

const UNKNOWN: &str = "application/octet-stream";

/// The media type of a file called `name` that begins with `head` (up to [`SNIFF_BYTES`]).
///
/// It is a description for people and tools, never a promise: who serves an artifact still has to send it as a
/// download. Bytes win over the name, so that an HTML page called `chart.png` is not listed as a picture; a
/// name that claims a binary format whose signature is known and absent claims nothing.
pub fn media_type(name: &str, head: &[u8]) -> String {
    let by_name = mime_guess::from_path(name).first();
    if let Some(kind) = infer::get(head) {
        let by_bytes = kind.mime_type();
        // Text formats are guessed loosely from bytes (any `<?xml`): there the name knows better, if it speaks
        // of text as well.
        let text = by_bytes.starts_with("text/");
        return match by_name {
            Some(name) if text && is_texty(name.essence_str()) => name.essence_str().to_owned(),
            _ => by_bytes.to_owned(),
        };
    }
    match by_name {
        Some(mime) if is_texty(mime.essence_str()) => {
            if looks_like_text(head) {
                mime.essence_str().to_owned()
            } else {
                UNKNOWN.to_owned()
            }
        }
        Some(mime) if !infer::is_mime_supported(mime.essence_str()) => mime.essence_str().to_owned(),
        Some(_) => UNKNOWN.to_owned(),
        None if !head.is_empty() && looks_like_text(head) => "text/plain".to_owned(),
        None => UNKNOWN.to_owned(),
    }
}

/// Formats whose content is text, whatever their first word is.
fn is_texty(mime: &str) -> bool {
    mime.starts_with("text/")
        || mime.ends_with("+xml")
        || mime.ends_with("+json")
        || matches!(
            mime,
            "application/json" | "application/xml" | "application/javascript" | "application/toml"
        )
}

/// No NUL, and UTF-8 up to where the head may have been cut.
fn looks_like_text(head: &[u8]) -> bool {
    let utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(e) => e.error_len().is_none(),
    };
    utf8 && !head.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_artifacts_get_the_usual_types() {
        let cases: [(&str, &[u8], &str); 10] = [
            ("customers.csv", b"month,customers\n1,100\n", "text/csv"),
            ("customers.json", b"[{\"month\": 1}]", "application/json"),
            ("customers.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
            ("report.pdf", b"%PDF-1.7\n", "application/pdf"),
            ("page.html", b"<!DOCTYPE html><html></html>", "text/html"),
            ("chart.svg", b"<?xml version=\"1.0\"?><svg/>", "image/svg+xml"),
            ("notes.md", b"# Notes", "text/markdown"),
            ("data.gz", b"\x1f\x8b\x08\0\0\0\0\0", "application/gzip"),
            ("README", b"plain words", "text/plain"),
            ("blob", b"\x00\x01\x02", UNKNOWN),
        ];
        for (name, head, want) in cases {
            assert_eq!(media_type(name, head), want, "{name}");
        }
    }

    #[test]
    fn a_page_called_a_picture_is_not_listed_as_a_picture() {
        assert_eq!(
            media_type("chart.png", b"<!DOCTYPE html><script>alert(1)</script>"),
            "text/html"
        );
        assert_eq!(media_type("chart.png", b"just words"), UNKNOWN);
        assert_eq!(
            media_type("data.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
            "image/png"
        );
        assert_eq!(media_type("data.csv", b"a,b\0c"), UNKNOWN);
    }

    #[test]
    fn a_character_cut_at_the_end_of_the_head_is_still_text() {
        assert_eq!(media_type("x.csv", &"ä".as_bytes()[..1]), "text/csv");
    }

    #[test]
    fn an_empty_file_is_what_its_name_says() {
        assert_eq!(media_type("x.csv", b""), "text/csv");
        assert_eq!(media_type("x", b""), UNKNOWN);
    }
}
