//! Devices: those of the table, which the runtime makes without being asked, and no others.

use oci_spec::runtime::{Linux, LinuxDeviceCgroup, LinuxDeviceType};

use crate::pod::Refusal;
use crate::pod::refusal::shown;

/// Character devices that containerd's default rules allow: null, zero, full, random, urandom, tty, console and ptmx
/// by number, and all pseudo terminals.
const ALLOWED: [(i64, Option<i64>); 9] = [
    (1, Some(3)),
    (1, Some(5)),
    (1, Some(7)),
    (1, Some(8)),
    (1, Some(9)),
    (5, Some(0)),
    (5, Some(1)),
    (5, Some(2)),
    (136, None),
];

/// Refuses device nodes, and rules that allow more than containerd allows everybody.
pub(super) fn check(linux: &Linux) -> Result<(), Refusal> {
    if let Some(device) = linux.devices().iter().flatten().next() {
        return Err(Refusal::new(
            "linux.devices",
            &format!("adds {}", shown(&device.path().to_string_lossy())),
            "remove the device or the resource claim that brings it",
        ));
    }
    let rules = linux
        .resources()
        .as_ref()
        .and_then(|resources| resources.devices().as_ref());
    match rules
        .into_iter()
        .flatten()
        .find(|rule| rule.allow() && !is_default(rule))
    {
        Some(rule) => Err(Refusal::new(
            "linux.resources.devices",
            &format!(
                "allows {}, which containers do not have by default",
                shown(&rule.to_string())
            ),
            "remove the rule or the device that brings it",
        )),
        None => Ok(()),
    }
}

fn is_default(rule: &LinuxDeviceCgroup) -> bool {
    let Some(major) = rule.major() else { return false };
    rule.typ() == Some(LinuxDeviceType::C)
        && ALLOWED
            .iter()
            .any(|(known, minor)| *known == major && (minor.is_none() || *minor == rule.minor()))
}

#[cfg(test)]
mod tests {
    use crate::pod::samples::{accepts, container, rejects};
    use serde_json::json;

    #[test]
    fn a_device_node_is_refused() {
        rejects(
            container(),
            |spec| {
                spec["linux"]["devices"] =
                    json!([{"path": "/dev/kvm", "type": "c", "major": 10, "minor": 232}])
            },
            "linux.devices adds \"/dev/kvm\"",
        );
        accepts(container(), |spec| spec["linux"]["devices"] = json!([]));
    }

    #[test]
    fn a_device_rule_beyond_containerds_defaults_is_refused() {
        for (rule, shown) in [
            (json!({"allow": true, "access": "rwm"}), "a *:* rwm"),
            (json!({"allow": true, "type": "a", "access": "rwm"}), "a *:* rwm"),
            (
                json!({"allow": true, "type": "c", "major": 10, "minor": 232, "access": "rw"}),
                "c 10:232 rw",
            ),
            (
                json!({"allow": true, "type": "c", "major": 1, "access": "rw"}),
                "c 1:* rw",
            ),
            (
                json!({"allow": true, "type": "b", "major": 1, "minor": 3, "access": "rw"}),
                "b 1:3 rw",
            ),
            (json!({"allow": true, "type": "c", "access": "m"}), "c *:* m"),
        ] {
            rejects(
                container(),
                |spec| {
                    spec["linux"]["resources"]["devices"]
                        .as_array_mut()
                        .unwrap()
                        .push(rule.clone())
                },
                &format!("linux.resources.devices allows \"{shown}\""),
            );
        }
    }

    #[test]
    fn denials_and_the_default_devices_are_accepted() {
        accepts(container(), |spec| {
            let rules = spec["linux"]["resources"]["devices"].as_array_mut().unwrap();
            rules.push(json!({"allow": false, "access": "rwm"}));
            rules.push(json!({"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"}));
            rules.push(json!({"allow": true, "type": "c", "major": 136, "minor": 7, "access": "rwm"}));
        });
    }
}
