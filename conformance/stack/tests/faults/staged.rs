//! What runs in the containers: a script that is led from step to step, and what it must have written.

use nix::sys::signal::Signal;

use crate::common::within;
use crate::node::{PATIENCE, proc};

/// What such a script ends with.
pub const STATUS: i32 = 7;

/// A script that goes from one step to the next at each SIGUSR1, and ends after the last. In a step `write` it writes one
/// number after the other and then how many there were; in a step `rest` nothing.
pub fn script(steps: &[&str]) -> String {
    let steps: Vec<String> = steps
        .iter()
        .zip(1..)
        .map(|(step, nth)| format!("{step} {nth}"))
        .collect();
    format!(
        "n=0 i=0\n\
         rest() {{ until [ $n -ge $1 ]; do sleep 0.02; done; }}\n\
         write() {{ until [ $n -ge $1 ]; do echo $i; i=$((i+1)); sleep 0.02; done; echo wrote $i; }}\n\
         trap 'n=$((n+1))' USR1\n\
         {}\n\
         exit {STATUS}\n",
        steps.join("\n")
    )
}

/// Waits until a process can be led: before it has its handler the signal would be lost, or end it.
pub fn can_be_led(pid: i32) {
    let led = || {
        let status = proc(pid, "status");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask >> (Signal::SIGUSR1 as i32 - 1) & 1 == 1)
    };
    assert!(within(PATIENCE, led), "{pid}: {}", proc(pid, "status"));
}

/// Says what is wrong with what such a script wrote in `parts` steps `write`, all of them over.
pub fn flaw(written: &str, parts: usize) -> Option<String> {
    let (mut next, mut over) = (0, 0);
    for line in written.lines() {
        if line == next.to_string() {
            next += 1;
        } else if line == format!("wrote {next}") {
            over += 1;
        } else {
            return Some(format!("{line:?} where {next} was next"));
        }
    }
    (over != parts || !written.ends_with('\n')).then(|| format!("{over} steps are over, after {next}"))
}

#[test]
fn a_line_that_is_lost_doubled_or_torn_is_a_flaw() {
    assert_eq!(flaw("0\n1\nwrote 2\n2\nwrote 3\n", 2), None);
    for written in [
        "0\n2\nwrote 3\n",
        "0\n1\n1\nwrote 2\n",
        "0\n1\nwro\nte 2\n",
        "0\n1\n",
        "0\n1\nwrote 2",
        "1\nwrote 2\n",
    ] {
        assert!(flaw(written, 1).is_some(), "{written:?}");
    }
}
