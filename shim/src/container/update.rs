//! Setting limits of a container that is there.

use oci_spec::OciSpecError;
use oci_spec::runtime::{LinuxPids, LinuxResources};
use sandglass_sandbox::pod::{Policy, bounded};

use super::Container;
use crate::error::{Result, failed, invalid};

impl Container {
    /// Sets what the section says, within the bounds of a sandbox if this is one.
    ///
    /// # Errors
    /// A section that cannot be read, or a value that the kernel or systemd does not take.
    pub async fn update(&self, resources: &[u8]) -> Result<()> {
        let mut resources: LinuxResources = serde_json::from_slice(resources)
            .map_err(|error| invalid(format!("the resources to set: {error}")))?;
        if let Some(most) = self.most_pids {
            resources = within(resources, most).map_err(|error| failed("bounding the resources", error))?;
        }
        // Two at once would write their values in turns.
        let _turn = self.updating.lock().await;
        let cgroup = self.cgroup.clone();
        // systemd may take its time, and a write to the kernel, too.
        tokio::task::spawn_blocking(move || cgroup.apply(&resources))
            .await
            .map_err(|error| failed("setting the resources", error))?
            .map_err(|error| failed("setting the resources", error))
    }
}

/// What an update may set in a sandbox: what a create may, and nothing that it does not name.
fn within(asked: LinuxResources, most: u32) -> std::result::Result<LinuxResources, OciSpecError> {
    let pids = asked.pids().map(|pids| pids.limit());
    let policy = Policy {
        pids: most,
        ..Policy::default()
    };
    let mut resources = bounded(asked, &policy)?;
    // The limit of processes in force stays where none is named.
    resources.set_pids(match pids {
        None => None,
        Some(_) => resources.pids().map(|bounded| {
            let mut pids = LinuxPids::default();
            pids.set_limit(bounded.limit().min(i64::from(most)));
            pids
        }),
    });
    if let Some(memory) = resources.memory_mut() {
        // Without a limit of memory the one of both together would be an allowance to swap.
        if memory.limit().is_none_or(|limit| limit <= 0) {
            memory.set_swap(None);
        }
    }
    // Those of the create stay. containerd sends the rules of the pod's spec along with every update; taking all away
    // for a moment, to allow some again, would fail what the container opens in that moment.
    resources.set_devices(None);
    Ok(resources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn bound(asked: Value) -> Value {
        let asked = serde_json::from_value(asked).unwrap();
        serde_json::to_value(within(asked, 100).unwrap()).unwrap()
    }

    #[test]
    fn an_update_lifts_no_limit_of_processes() {
        for (asked, expected) in [(7, 7), (100, 100), (101, 100), (0, 100), (-1, 100)] {
            let bounded = bound(json!({"pids": {"limit": asked}}));
            assert_eq!(bounded["pids"]["limit"], expected, "{asked}");
        }
        assert_eq!(bound(json!({"cpu": {"quota": 5000}}))["pids"], Value::Null);
    }

    #[test]
    fn an_update_lets_nothing_swap_and_nothing_sleep_instead_of_dying() {
        for asked in [
            json!({"limit": 4096, "swap": -1}),
            json!({"limit": 4096, "swap": 8192}),
            json!({"limit": 4096}),
        ] {
            assert_eq!(bound(json!({"memory": asked}))["memory"]["swap"], 4096);
        }
        for asked in [
            json!({"swap": -1}),
            json!({"limit": -1, "swap": -1}),
            json!({"limit": 0, "swap": 5}),
        ] {
            assert_eq!(bound(json!({"memory": asked}))["memory"]["swap"], Value::Null);
        }
        let awake = bound(json!({"memory": {"disableOOMKiller": true}}));
        assert_eq!(awake["memory"]["disableOOMKiller"], Value::Null);
    }

    #[test]
    fn an_update_allows_no_device_and_sets_no_raw_value_that_undoes_a_limit() {
        let bounded = bound(json!({
            "devices": [{"allow": true, "type": "b", "access": "rwm"}],
            "unified": {"memory.swap.max": "max", "pids.max": "max", "memory.high": "5"},
            "cpu": {"quota": 20_000, "period": 100_000},
        }));
        assert_eq!(
            bounded,
            json!({"unified": {"memory.high": "5"}, "cpu": {"quota": 20_000, "period": 100_000}})
        );
    }
}
