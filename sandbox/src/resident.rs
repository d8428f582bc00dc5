//! What a process that waits holds in memory, and how it gives most of that back.
//!
//! Most of what a worker has resident is program text: it ran once and will run once more, at the end. A page of a
//! file that was never written to can leave the process at any time; touched again, it comes back from the page
//! cache. Relocated tables, heap and stacks are the process's own and stay.

use std::ops::Range;

use crate::sys;

/// Gives back the resident pages of mapped files that this process never changed: program text and constants. Costs
/// about a tenth of a millisecond, and some page faults later; for a process that is going to wait.
///
/// # Errors
/// `/proc/self/smaps` cannot be read, or the kernel refuses the advice. Nothing is lost then.
pub fn give_back_clean_pages() -> std::io::Result<()> {
    let smaps = std::fs::read_to_string("/proc/self/smaps")?;
    unchanged(&smaps).into_iter().try_for_each(sys::drop_clean_pages)
}

/// The mappings in a text of `smaps` (proc_pid_smaps(5)) that hold nothing but what their file has: private, not
/// writable, of a file, with no page of their own in memory or swap, and not locked.
fn unchanged(smaps: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut candidate: Option<Range<usize>> = None;
    let mut own = false;
    for line in smaps.lines() {
        match line.split_once(':') {
            Some((field, value)) if !field.contains(' ') => {
                own |= matches!(field, "Anonymous" | "Swap" | "Locked") && value.trim() != "0 kB";
            }
            // The first line of a mapping; its path may hold a colon, and what stands before has blanks.
            _ => {
                found.extend(candidate.take().filter(|_| !own));
                candidate = read_only_file(line);
                own = false;
            }
        }
    }
    found.extend(candidate.filter(|_| !own));
    found
}

/// The range of `7f00-7f20 r-xp 00000000 08:01 1234 /path`, if that is a private mapping of a file that cannot be
/// written to.
fn read_only_file(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let private = matches!(words.next()?, "r--p" | "r-xp");
    let inode: u64 = words.nth(2)?.parse().ok()?;
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    (private && inode != 0).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(first: &str, anonymous: u32) -> String {
        format!(
            "{first}\nSize: 8 kB\nRss: 8 kB\nAnonymous: {anonymous} kB\nSwap: 0 kB\nLocked: 0 kB\nVmFlags: rd mr\n"
        )
    }

    #[test]
    fn only_what_the_file_still_has_is_given_back() {
        let smaps = [
            mapping("1000-3000 r-xp 00000000 08:01 7 /usr/bin/x: y", 0),
            mapping("3000-5000 r--p 00002000 08:01 7 /usr/bin/x", 4),
            mapping("5000-7000 rw-p 00004000 08:01 7 /usr/bin/x", 0),
            mapping("7000-9000 r--s 00000000 08:01 8 /shared", 0),
            mapping("9000-b000 r--p 00000000 00:00 0 ", 0),
            mapping("b000-d000 r-xp 00000000 00:00 0 [vdso]", 0),
            mapping("d000-f000 ---p 00000000 08:01 7 /usr/bin/x", 0),
            mapping("f000-11000 r--p 00000000 08:01 9 /usr/lib/z", 0),
        ];
        assert_eq!(unchanged(&smaps.concat()), [0x1000..0x3000, 0xf000..0x11000]);
    }

    #[test]
    fn what_is_swapped_out_or_locked_stays() {
        for field in ["Swap", "Locked"] {
            let smaps = mapping("1000-3000 r-xp 00000000 08:01 7 /x", 0)
                .replace(&format!("{field}: 0 kB"), &format!("{field}: 4 kB"));
            assert!(unchanged(&smaps).is_empty(), "{field}");
        }
        assert!(unchanged("").is_empty());
    }

    /// Program text and relocated tables alike still work afterwards, and less of the program is resident.
    #[test]
    fn a_process_that_gave_back_its_text_goes_on() {
        let resident = || {
            let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
            let kib = |field: &str| -> u64 {
                let line = rollup.lines().find_map(|line| line.strip_prefix(field)).unwrap();
                line.trim().trim_end_matches(" kB").parse().unwrap()
            };
            kib("Rss:") - kib("Anonymous:")
        };
        // Every page of the program, so that there is something to give back.
        let sum: u64 = std::fs::read("/proc/self/exe")
            .unwrap()
            .iter()
            .map(|b| u64::from(*b))
            .sum();
        let before = resident();
        give_back_clean_pages().unwrap();
        let after = resident();
        assert!(sum > 0 && after * 2 < before, "{before} KiB, then {after} KiB");
        let _: Box<dyn std::fmt::Debug> = Box::new(std::fs::read("/nonexistent").unwrap_err());
    }
}
