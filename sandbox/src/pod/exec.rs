//! A process that is started in a container later: confined exactly as the first.

use oci_spec::runtime::{Process, Spec};

use super::harden::confined;
use super::refuse::check_process;
use super::{Refusal, Role};

/// The process that `asked` becomes in a hardened container.
///
/// As asked: the arguments, environment, working directory, terminal and its size, and the user. The container's: labels
/// of security modules, resource limits and the score for the kernel's memory killer. The table's: no capabilities and
/// `no_new_privs`. (containerd fills in the container's own process where a client says nothing, so containerd's default
/// capabilities come along unasked here too.)
///
/// # Errors
/// As [`check`](super::check) for the process: added capabilities, uid 0, in any container, and a place in the node's queues.
pub fn exec_process(container: &Spec, asked: Process) -> Result<Process, Refusal> {
    // Whatever the container is, nothing that is started in it runs as root.
    check_process(&asked, Role::Container)?;
    let first = container
        .process()
        .as_ref()
        .ok_or_else(|| Refusal::lacking("process"))?;
    let mut process = asked;
    process
        .set_rlimits(first.rlimits().clone())
        .set_apparmor_profile(first.apparmor_profile().clone())
        .set_selinux_label(first.selinux_label().clone())
        .set_oom_score_adj(first.oom_score_adj());
    // In case the container's were not the table's: a spec that was never hardened has no place here, and no harm.
    Ok(confined(process)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::samples::{Sample, container, edited, pause};
    use crate::pod::{Policy, harden};
    use oci_spec::runtime::PosixRlimitType;
    use serde_json::{Value, json};

    fn hardened() -> Spec {
        let labelled = edited(container(), |spec| {
            spec["process"]["apparmorProfile"] = "cri-containerd".into();
            spec["process"]["selinuxLabel"] = "system_u:system_r:container_t:s0".into();
        });
        harden(labelled, &Policy::default(), &Sample).unwrap()
    }

    fn asked(edit: impl FnOnce(&mut Value)) -> Process {
        let mut value = serde_json::to_value(container().process()).unwrap();
        edit(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn refused(edit: impl FnOnce(&mut Value)) -> String {
        exec_process(&hardened(), asked(edit)).unwrap_err().to_string()
    }

    #[test]
    fn an_exec_is_confined_as_the_first_process() {
        let container = hardened();
        let first = container.process().as_ref().unwrap();
        let exec = exec_process(
            &container,
            asked(|process| {
                process["noNewPrivileges"] = false.into();
                process["apparmorProfile"] = "unconfined".into();
                process["selinuxLabel"] = "".into();
                process["oomScoreAdj"] = (-1000).into();
                process["rlimits"] = json!([{"type": "RLIMIT_CORE", "hard": 1 << 30, "soft": 1 << 30}]);
            }),
        )
        .unwrap();
        assert_eq!(exec.capabilities(), first.capabilities());
        assert_eq!(exec.no_new_privileges(), Some(true));
        assert_eq!(exec.rlimits(), first.rlimits());
        assert_eq!(exec.apparmor_profile().as_deref(), Some("cri-containerd"));
        assert_eq!(exec.selinux_label(), first.selinux_label());
        assert_eq!(exec.oom_score_adj(), first.oom_score_adj());
        let core = exec
            .rlimits()
            .iter()
            .flatten()
            .find(|limit| limit.typ() == PosixRlimitType::RlimitCore)
            .unwrap();
        assert_eq!((core.soft(), core.hard()), (1, 1));
    }

    #[test]
    fn what_an_exec_runs_is_as_asked() {
        let wanted = asked(|process| {
            process["args"] = json!(["sh", "-c", "id"]);
            process["env"] = json!(["TERM=xterm"]);
            process["cwd"] = "/tmp".into();
            process["terminal"] = true.into();
            process["consoleSize"] = json!({"height": 24, "width": 80});
            process["user"] = json!({"uid": 2000, "gid": 3000, "additionalGids": [4000]});
        });
        let exec = exec_process(&hardened(), wanted.clone()).unwrap();
        assert_eq!(exec.args(), wanted.args());
        assert_eq!(exec.env(), wanted.env());
        assert_eq!(exec.cwd(), wanted.cwd());
        assert_eq!(exec.terminal(), Some(true));
        assert_eq!(exec.console_size(), wanted.console_size());
        assert_eq!(exec.user(), wanted.user());
    }

    #[test]
    fn an_exec_as_root_is_refused_in_the_pause_container_too() {
        assert!(refused(|process| process["user"]["uid"] = 0.into()).starts_with("process.user.uid is 0"));
        let pause = harden(pause(), &Policy::default(), &Sample).unwrap();
        let as_its_own = pause.process().clone().unwrap();
        assert_eq!(
            exec_process(&pause, as_its_own).unwrap_err().field,
            "process.user.uid"
        );
        assert!(exec_process(&pause, asked(|_| {})).is_ok());
    }

    #[test]
    fn an_exec_with_added_capabilities_is_refused() {
        let sentence = refused(|process| process["capabilities"]["ambient"] = json!(["CAP_SYS_ADMIN"]));
        assert!(
            sentence.starts_with("process.capabilities adds CAP_SYS_ADMIN"),
            "{sentence}"
        );
    }

    #[test]
    fn an_exec_with_a_place_in_the_nodes_queues_is_refused() {
        let sentence = refused(|process| process["execCPUAffinity"] = json!({"initial": "0"}));
        assert!(sentence.starts_with("process.execCPUAffinity asks"), "{sentence}");
    }

    #[test]
    fn a_hardened_exec_stays_as_it_is() {
        let container = hardened();
        let once = exec_process(&container, asked(|_| {})).unwrap();
        assert_eq!(exec_process(&container, once.clone()), Ok(once));
    }
}
