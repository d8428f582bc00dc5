//! What the host is, and what else it does.

use std::path::Path;
use std::process::Command;

/// The kernel's release.
#[must_use]
pub fn kernel() -> String {
    read("/proc/sys/kernel/osrelease")
}

/// The three load averages.
#[must_use]
pub fn load() -> String {
    read("/proc/loadavg")
        .split(' ')
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The first line of what a program says of its version, or why it says nothing.
#[must_use]
pub fn version(program: &Path) -> String {
    let said = Command::new(program).arg("--version").output();
    let text = said.map_or_else(
        |e| e.to_string(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    text.lines().next().unwrap_or_default().to_owned()
}

/// A line of the kernel's, or why there is none.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|e| e.to_string(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_three_numbers() {
        let load = load();
        assert_eq!(
            load.split(' ').filter_map(|n| n.parse::<f64>().ok()).count(),
            3,
            "{load}"
        );
    }

    #[test]
    fn a_program_that_is_not_there_says_why_it_has_no_version() {
        assert!(version(Path::new("/no/such/program")).contains("No such file"));
    }
}
