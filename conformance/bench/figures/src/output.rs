//! What a benchmark says in the end.

use std::io::Write;

/// Prints the results to standard output: as JSON for machines, else as the text that `render` makes of them.
///
/// # Errors
/// They cannot be written.
pub fn print<R: serde::Serialize>(
    results: &R,
    json: bool,
    render: impl FnOnce(&R) -> String,
) -> std::io::Result<()> {
    let text = if json {
        serde_json::to_string_pretty(results)? + "\n"
    } else {
        render(results)
    };
    std::io::stdout().write_all(text.as_bytes())
}
