//! Colours, where there is a terminal and nobody minds.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};

/// Whether nobody minds colours: `NO_COLOR` is not set to anything, and the terminal is not a dumb one.
pub fn colours_wanted() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    !no_color && !dumb
}

/// Whether stderr gets colours.
pub fn colours_on_stderr() -> bool {
    std::io::stderr().is_terminal() && colours_wanted()
}

/// The few styles that there are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Palette {
    /// It is fine.
    pub good: Style,
    /// Look at this.
    pub warn: Style,
    /// It is not fine.
    pub bad: Style,
    /// Said aside.
    pub dim: Style,
    /// The word that matters.
    pub strong: Style,
}

impl Palette {
    /// Colours, or none.
    pub fn new(colours: bool) -> Self {
        if !colours {
            return Self::default();
        }
        Self {
            good: AnsiColor::Green.on_default(),
            warn: AnsiColor::Yellow.on_default(),
            bad: AnsiColor::Red.on_default().bold(),
            dim: Style::new().dimmed(),
            strong: Style::new().bold(),
        }
    }
}

/// A text in a style.
pub fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}
