//! What is run in every row.

use serde::Serialize;

/// The chart of the demo, taken as it is.
const CHART: &str = include_str!("../../../examples/subscriptions.py");

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// The smallest program of the image.
    True,
    /// An interpreter that starts and ends.
    Python,
    /// The other one.
    Node,
    /// A table with pandas and a chart with matplotlib.
    Chart,
}

impl Workload {
    /// All, the cheapest first.
    pub const ALL: [Self; 4] = [Self::True, Self::Python, Self::Node, Self::Chart];

    /// Its name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Python => "python3 -c pass",
            Self::Node => "node -e 0",
            Self::Chart => "pandas+matplotlib chart",
        }
    }

    /// The argument vector on the image's root.
    pub fn argv(self) -> &'static [&'static str] {
        match self {
            Self::True => &["true"],
            Self::Python => &["python3", "-c", "pass"],
            Self::Node => &["node", "-e", "0"],
            Self::Chart => &["python3", "/work/chart.py"],
        }
    }

    /// The script for those that take scripts only: its name and its text.
    pub fn script(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::True => None,
            Self::Python => Some(("pass.py", "pass\n")),
            Self::Node => Some(("zero.js", "0\n")),
            Self::Chart => Some(("chart.py", CHART)),
        }
    }
}
