//! Scopes of systemd: it makes the cgroup, so that it does not take it for its own to reset.
//!
//! Made and limited by libcgroups, which speaks to systemd over D-Bus without a C library.

use std::path::PathBuf;
use std::time::Duration;

use libcgroups::common::{CgroupManager, ControllerOpt, DEFAULT_CGROUP_ROOT};
use libcgroups::systemd::manager::Manager;
use oci_spec::runtime::LinuxResources;

use super::bus::{Answer, Connection};

/// systemd's word for a unit that is not loaded.
const GONE: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// How a unit is made to go whatever became of it: one that is still active is stopped, one that failed stays loaded
/// until that is forgotten. The last argument of the first says that it takes the place of other jobs.
const STEPS: [(&str, &[&str]); 2] = [("StopUnit", &["replace"]), ("ResetFailedUnit", &[])];

/// How long the kernel may take to show a process in the scope that systemd has made.
const JOINS_WITHIN: Duration = Duration::from_secs(5);

fn manager(path: &str, id: &str) -> Result<Manager, String> {
    Manager::new(
        DEFAULT_CGROUP_ROOT.into(),
        PathBuf::from(path),
        id.to_owned(),
        true,
        JOINS_WITHIN,
    )
    .map_err(|error| error.to_string())
}

/// Has systemd make the scope `slice:prefix:name` around the calling process.
pub(super) fn start_scope(path: &str, id: &str) -> Result<(), String> {
    manager(path, id)?
        .add_task(nix::unistd::getpid())
        .map_err(|error| error.to_string())
}

/// Tells systemd the limits of a scope: without, it would lift them the next time it looks at the unit.
pub(super) fn set_properties(path: &str, id: &str, resources: &LinuxResources) -> Result<(), String> {
    let asked = ControllerOpt {
        resources,
        disable_oom_killer: false,
        oom_score_adj: None,
        freezer_state: None,
    };
    manager(path, id)?
        .apply(&asked)
        .map_err(|error| error.to_string())
}

/// Has systemd let go of a unit whose processes are gone. Most often it has already.
pub(super) fn forget(unit: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        format!("asking systemd to let go of {unit}: {error}: see whether `systemctl status` answers")
    };
    let mut systemd = Connection::to_systemd().map_err(failed)?;
    let_go(unit, |method, arguments| {
        systemd.ask(method, arguments).map_err(failed)
    })
}

/// The steps, until there is no such unit.
fn let_go(unit: &str, mut ask: impl FnMut(&str, &[&str]) -> Result<Answer, String>) -> Result<(), String> {
    for (method, more) in STEPS {
        let arguments: Vec<&str> = std::iter::once(unit).chain(more.iter().copied()).collect();
        match ask(method, &arguments)? {
            Answer::Done => {}
            Answer::Refused(name, _) if name == GONE => return Ok(()),
            Answer::Refused(_, sentence) => {
                return Err(format!(
                    "systemd does not let go of {unit} ({method}): {sentence}: see `systemctl status {unit}`"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = "cri-containerd-c.scope";

    fn gone() -> Answer {
        Answer::Refused(GONE.into(), format!("Unit {UNIT} not loaded."))
    }

    /// What is asked of a systemd that answers so, and what comes of it.
    fn asked(answers: &[Answer]) -> (Vec<String>, Result<(), String>) {
        let mut asked = Vec::new();
        let outcome = let_go(UNIT, |method, arguments| {
            asked.push(format!("{method} {}", arguments.join(" ")));
            Ok(answers[asked.len() - 1].clone())
        });
        (asked, outcome)
    }

    #[test]
    fn a_unit_that_is_gone_is_done_with() {
        let stop = format!("StopUnit {UNIT} replace");
        assert_eq!(asked(&[gone()]), (vec![stop], Ok(())));
    }

    #[test]
    fn a_unit_that_stayed_is_stopped_and_its_failure_forgotten() {
        let steps = vec![
            format!("StopUnit {UNIT} replace"),
            format!("ResetFailedUnit {UNIT}"),
        ];
        assert_eq!(asked(&[Answer::Done, Answer::Done]), (steps.clone(), Ok(())));
        // It went with the stop.
        assert_eq!(asked(&[Answer::Done, gone()]), (steps, Ok(())));
    }

    #[test]
    fn a_refusal_is_told_with_the_unit() {
        let refused = Answer::Refused("org.freedesktop.DBus.Error.AccessDenied".into(), "no".into());
        let (_, outcome) = asked(&[refused]);
        let sentence = outcome.unwrap_err();
        assert!(
            sentence.contains(UNIT) && sentence.contains("(StopUnit): no: see"),
            "{sentence}"
        );
    }

    #[test]
    fn a_systemd_that_cannot_be_asked_is_an_error() {
        let outcome = let_go(UNIT, |_, _| Err("no socket".into()));
        assert_eq!(outcome, Err("no socket".into()));
    }
}
