//! What a process holds in memory, as the kernel counts it.

use std::io::{Error, ErrorKind, Result};
use std::ops::AddAssign;

use serde::Serialize;

/// What one or several processes hold, in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Memory {
    /// Resident: shared pages count fully.
    pub rss_kib: f64,
    /// Proportional: a page that n processes share counts as one nth.
    pub pss_kib: f64,
}

impl AddAssign for Memory {
    fn add_assign(&mut self, other: Self) {
        self.rss_kib += other.rss_kib;
        self.pss_kib += other.pss_kib;
    }
}

impl Memory {
    /// Of one process.
    ///
    /// # Errors
    /// A process that is gone, or that may not be looked at.
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text =
            std::fs::read_to_string(&path).map_err(|e| Error::new(e.kind(), format!("{path}: {e}")))?;
        parse(&text).ok_or_else(|| Error::new(ErrorKind::InvalidData, format!("{path} has no Rss and Pss")))
    }

    /// Of each of `count` alike.
    #[must_use]
    pub fn each(self, count: usize) -> Self {
        // A count of processes: small.
        #[allow(clippy::cast_precision_loss)]
        let count = count as f64;
        Self {
            rss_kib: self.rss_kib / count,
            pss_kib: self.pss_kib / count,
        }
    }
}

/// `Rss:` and `Pss:` of smaps_rollup (proc_pid_smaps(5)), in KiB.
fn parse(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some(Memory {
        rss_kib: field("Rss:")?,
        pss_kib: field("Pss:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proportional_size_is_the_line_called_pss_and_no_other() {
        let text = "00400000-7ffd [rollup]\nRss:  2048 kB\nPss:   512 kB\nPss_Dirty: 100 kB\n";
        let memory = parse(text).unwrap();
        assert_eq!((memory.rss_kib, memory.pss_kib), (2048.0, 512.0));
        assert_eq!(parse("Rss: 1 kB\n"), None);
    }

    #[test]
    fn this_process_has_a_size_and_its_share_is_no_more_than_all() {
        let own = Memory::of(std::process::id()).unwrap();
        assert!(own.pss_kib > 0.0 && own.pss_kib <= own.rss_kib, "{own:?}");
    }

    #[test]
    fn a_process_that_is_gone_has_none() {
        assert_eq!(Memory::of(u32::MAX).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
