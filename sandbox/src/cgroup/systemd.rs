//! Scopes of systemd: it makes the cgroup, so that it does not take it for its own to reset.
//!
//! Made by libcgroups, which speaks to systemd over D-Bus without a C library; by a worker alone, with which the
//! descriptor goes that it leaves open.

use std::path::PathBuf;
use std::time::Duration;

use libcgroups::common::{CgroupManager, DEFAULT_CGROUP_ROOT};
use libcgroups::systemd::manager::Manager;

use super::bus::{Answer, Connection, Value};
use super::properties::properties;
use super::resources::Setting;

/// systemd's word for a unit that is not loaded.
const GONE: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// How a unit is made to go whatever became of it: one that is still active is stopped, one that failed stays loaded
/// until that is forgotten. The last argument of the first says that it takes the place of other jobs.
const STEPS: [(&str, &[&str]); 2] = [("StopUnit", &["replace"]), ("ResetFailedUnit", &[])];

/// How long the kernel may take to show a process in the scope that systemd has made.
const JOINS_WITHIN: Duration = Duration::from_secs(5);

/// Has systemd make the scope `slice:prefix:name` around the calling process.
pub(super) fn start_scope(path: &str, id: &str) -> Result<(), String> {
    Manager::new(
        DEFAULT_CGROUP_ROOT.into(),
        PathBuf::from(path),
        id.to_owned(),
        true,
        JOINS_WITHIN,
    )
    .and_then(|manager| manager.add_task(nix::unistd::getpid()))
    .map_err(|error| error.to_string())
}

/// Tells systemd the limits of a unit: without, it would lift them the next time it looks at the unit.
pub(super) fn set_properties(unit: &str, settings: &[Setting]) -> Result<(), String> {
    limit(unit, settings, |method, arguments| {
        Connection::to_systemd()
            .and_then(|mut systemd| systemd.ask(method, arguments))
            .map_err(unanswered("limit", unit))
    })
}

fn limit(
    unit: &str,
    settings: &[Setting],
    ask: impl FnOnce(&str, &[Value<'_>]) -> Result<Answer, String>,
) -> Result<(), String> {
    let properties = properties(settings)?;
    if properties.is_empty() {
        return Ok(());
    }
    // Until the next boot, as the unit itself.
    let runtime = Value::Flag(true);
    let arguments = [Value::Text(unit), runtime, Value::Properties(properties)];
    match ask("SetUnitProperties", &arguments)? {
        Answer::Done => Ok(()),
        Answer::Refused(_, sentence) => Err(format!(
            "systemd does not limit {unit}: {sentence}: see `systemctl status {unit}`"
        )),
    }
}

fn unanswered(doing: &str, unit: &str) -> impl Fn(std::io::Error) -> String {
    move |error| format!("asking systemd to {doing} {unit}: {error}: see whether `systemctl status` answers")
}

/// Has systemd let go of a unit whose processes are gone. Most often it has already.
pub(super) fn forget(unit: &str) -> Result<(), String> {
    let failed = unanswered("let go of", unit);
    let mut systemd = Connection::to_systemd().map_err(&failed)?;
    let_go(unit, |method, arguments| {
        let arguments: Vec<_> = arguments.iter().map(|text| Value::Text(text)).collect();
        systemd.ask(method, &arguments).map_err(&failed)
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

    fn pids(limit: &str) -> [Setting; 1] {
        [Setting {
            controller: "pids",
            file: "pids.max".into(),
            value: limit.into(),
            optional: false,
        }]
    }

    #[test]
    fn the_limits_of_a_unit_are_told_in_one_request() {
        let mut asked = Vec::new();
        let outcome = limit(UNIT, &pids("7"), |method, arguments| {
            asked.push(format!("{method} {arguments:?}"));
            Ok(Answer::Done)
        });
        assert_eq!(outcome, Ok(()));
        let told = format!(
            "SetUnitProperties [Text({UNIT:?}), Flag(true), Properties([(\"TasksMax\", Number(7))])]"
        );
        assert_eq!(asked, [told]);
    }

    #[test]
    fn a_limit_that_is_not_taken_is_an_error_with_the_unit() {
        let sentence = limit(UNIT, &pids("7"), |_, _| Ok(gone())).unwrap_err();
        assert!(
            sentence.contains("not loaded.: see `systemctl status"),
            "{sentence}"
        );
        let sentence = limit(UNIT, &pids("7"), |_, _| Err("no socket".into())).unwrap_err();
        assert_eq!(sentence, "no socket");
    }

    #[test]
    fn systemd_is_asked_nothing_where_there_is_nothing_to_tell() {
        assert_eq!(limit(UNIT, &[], |_, _| Err("asked".into())), Ok(()));
    }
}
