//! Why a spec is not run, in one sentence.

/// A field of a spec that contradicts a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Refusal {
    /// The field, as the OCI runtime spec names it: `linux.namespaces[pid]`, `mounts[/data].source`.
    pub field: String,
    /// The field, what it says and what to do, in one sentence.
    pub sentence: String,
}

impl Refusal {
    /// The field `field` `says` something that a sandbox cannot be; `remedy` is what to do about it.
    pub(super) fn new(field: impl Into<String>, says: &str, remedy: &str) -> Self {
        let field = field.into();
        let sentence = format!("{field} {says}: {remedy}, or give the pod another RuntimeClass");
        Self { field, sentence }
    }

    /// The spec lacks a part without which there is nothing to harden.
    pub(super) fn lacking(field: &str) -> Self {
        Self {
            field: field.to_owned(),
            sentence: format!(
                "{field} is missing, and no container can be made without it: name it in the spec"
            ),
        }
    }
}

impl From<oci_spec::OciSpecError> for Refusal {
    fn from(error: oci_spec::OciSpecError) -> Self {
        Self {
            field: "spec".to_owned(),
            sentence: format!("the hardened spec could not be built: {error}"),
        }
    }
}

/// Longest part of a hostile string that a sentence repeats.
const SHOWN: usize = 120;

/// A string out of a spec as a sentence shows it: quoted, and as [`plain`] has it.
pub(super) fn shown(text: &str) -> String {
    format!("\"{}\"", plain(text))
}

/// A string out of a spec with control and invisible characters escaped, and no longer than a line bears.
pub(super) fn plain(text: &str) -> String {
    let part: String = text.chars().take(SHOWN).collect();
    let more = if part.len() < text.len() { "…" } else { "" };
    let mut escaped: String = part
        .chars()
        .map(|c| match c {
            ' '..='~' if c != '"' && c != '\\' => c.to_string(),
            _ => c.escape_unicode().to_string(),
        })
        .collect();
    escaped.push_str(more);
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_sentence_with_the_field_what_it_says_and_what_to_do() {
        let refusal = Refusal::new("linux.devices", "adds /dev/kvm", "remove the device");
        assert_eq!(
            refusal.to_string(),
            "linux.devices adds /dev/kvm: remove the device, or give the pod another RuntimeClass"
        );
    }

    #[test]
    fn a_hostile_string_neither_breaks_the_line_nor_fills_the_log() {
        let text = format!("/a\n\"\u{202e}{}", "x".repeat(1 << 16));
        let shown = shown(&text);
        assert!(shown.starts_with(r#""/a\u{a}\u{22}\u{202e}xxx"#), "{shown}");
        assert!(
            shown.chars().all(|c| c == '…' || (' '..='~').contains(&c)),
            "{shown}"
        );
        assert!(shown.len() < 200);
    }
}
