//! Room for the cgroups of runs below the cgroup that we sit in ourselves.
//!
//! The unified hierarchy gives controllers to the children of a cgroup only while no process sits in the cgroup itself;
//! only the root of the hierarchy is exempt (cgroups(7), "no internal processes"). A driver in a cgroup that was
//! delegated to it, and its workers, therefore move into a leaf of that cgroup. They stay there until they end, so the
//! leaf goes away with the delegated cgroup, when systemd takes that away. Processes that are not ours are never moved.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;

use super::files::{get, open_dir, put};

/// Where our own processes sit, beside the directory of the runs.
pub(super) const LEAF: &str = "sandglass-driver";

/// How many foreign processes an error names.
const MOST_NAMED: usize = 3;

/// A process in the cgroup: ours, not ours, or gone since it was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Other,
    Gone,
}

/// Moves our own processes out of a cgroup, so that its children can have controllers.
///
/// A worker that was started just before may appear right after; then the kernel answers the next write of
/// `cgroup.subtree_control` with EBUSY, and the caller tries again.
///
/// # Errors
/// Processes that are not ours sit there, or the kernel's refusal.
pub(super) fn make_room(base: &OwnedFd) -> std::io::Result<()> {
    let (ours, others) = sitting(base)?;
    if !others.is_empty() {
        return Err(std::io::Error::other(refusal(&others)));
    }
    if ours.is_empty() {
        return Ok(());
    }
    super::make_dir(base, LEAF)?;
    let leaf = open_dir(base, Path::new(LEAF))?;
    for pid in ours {
        match put(&leaf, "cgroup.procs", &pid.to_string()) {
            // Gone since it was listed.
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Why [`make_room`] would refuse; reads only.
pub(super) fn obstacle(base: &Path) -> Option<String> {
    let base = open_dir(rustix::fs::CWD, base).ok()?;
    let (_, others) = sitting(&base).ok()?;
    (!others.is_empty()).then(|| refusal(&others))
}

/// The processes of a cgroup, ours and others. None at the root of the hierarchy, where the rule does not hold.
fn sitting(base: &OwnedFd) -> std::io::Result<(Vec<u32>, Vec<u32>)> {
    // The root is the one cgroup without a type.
    if rustix::fs::accessat(
        base,
        "cgroup.type",
        rustix::fs::Access::EXISTS,
        rustix::fs::AtFlags::empty(),
    )
    .is_err()
    {
        return Ok((Vec::new(), Vec::new()));
    }
    let own = program("self").ok_or(std::io::ErrorKind::NotFound)?;
    Ok(split(&get(base, "cgroup.procs")?, |pid| {
        match program(&pid.to_string()) {
            Some(theirs) if theirs == own => Whose::Ours,
            // Outside of our PID namespace a process is listed as 0.
            _ if pid == 0 || Path::new("/proc").join(pid.to_string()).exists() => Whose::Other,
            _ => Whose::Gone,
        }
    }))
}

/// The pure half: a driver and its workers run one program, and nothing else does.
fn split(procs: &str, whose: impl Fn(u32) -> Whose) -> (Vec<u32>, Vec<u32>) {
    let pids = procs.lines().filter_map(|line| line.parse().ok());
    let known = pids
        .map(|pid: u32| (pid, whose(pid)))
        .filter(|(_, whose)| *whose != Whose::Gone);
    let (ours, others): (Vec<_>, Vec<_>) = known.partition(|(_, whose)| *whose == Whose::Ours);
    let pids = |pairs: Vec<(u32, Whose)>| pairs.into_iter().map(|(pid, _)| pid).collect();
    (pids(ours), pids(others))
}

/// Device and inode of a process's program; `None` where it is gone or may not be looked at.
fn program(pid: &str) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((found.dev(), found.ino()))
}

fn refusal(others: &[u32]) -> String {
    let name = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{pid} {}", name.trim()).trim().to_owned()
    };
    let named: Vec<String> = others.iter().take(MOST_NAMED).map(name).collect();
    let more = if others.len() > MOST_NAMED { ", …" } else { "" };
    format!(
        "other processes sit in the same cgroup ({}{more}), and cgroup v2 lets no limit be set below a cgroup that holds processes",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_of_our_own_program_are_ours_to_move() {
        let whose = |pid| match pid {
            7 | 9 => Whose::Ours,
            8 => Whose::Gone,
            _ => Whose::Other,
        };
        assert_eq!(split("7\n8\n9\n", whose), (vec![7, 9], vec![]));
        assert_eq!(split("0\n7\n12\n", whose), (vec![7], vec![0, 12]));
        assert_eq!(split("", whose), (vec![], vec![]));
    }

    #[test]
    fn a_process_is_known_by_its_program() {
        let own = std::process::id().to_string();
        assert_eq!(program(&own), program("self"));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = program(&other.id().to_string());
        other.kill().unwrap();
        other.wait().unwrap();
        assert_ne!(found, program("self"));
    }

    #[test]
    fn a_refusal_names_a_few_of_the_others() {
        let own = std::process::id();
        let text = refusal(&[own, 0, 0, 0]);
        assert!(text.contains(&own.to_string()) && text.contains(", …"), "{text}");
    }
}
