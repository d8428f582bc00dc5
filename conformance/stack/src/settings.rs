//! The files that containerd, crictl and the CNI plugins read.

use serde_json::json;

use crate::config::{Config, Handler};
use crate::place::{ROOT, SETTINGS, SOCKET, STATE};

/// The image of every pod's first container.
pub const PAUSE: &str = "localhost/sandglass-pause:1";
/// Plugins that cannot work here, or are not wanted: each costs time at the start.
const DISABLED: [&str; 10] = [
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.differ.v1.erofs",
    "io.containerd.mount-handler.v1.erofs",
    "io.containerd.image-verifier.v1.bindir",
    "io.containerd.monitor.container.v1.restart",
    "io.containerd.tracing.processor.v1.otlp",
];

/// containerd's configuration.
pub fn containerd(config: &Config) -> String {
    let runtime = "plugins.'io.containerd.cri.v1.runtime'";
    let mut text = format!(
        "version = 3\n\
         root = {root}\n\
         state = {state}\n\
         disabled_plugins = {disabled}\n\
         [grpc]\n\
         address = {socket}\n\
         [debug]\n\
         level = {level}\n\
         [plugins.'io.containerd.cri.v1.images'.pinned_images]\n\
         sandbox = {pause}\n\
         [{runtime}]\n\
         # Containers want a lower OOM score than a service without CAP_SYS_RESOURCE may give.\n\
         restrict_oom_score_adj = true\n\
         [{runtime}.cni]\n\
         bin_dirs = [{cni}]\n\
         conf_dir = {network}\n\
         [{runtime}.containerd]\n\
         default_runtime_name = {default}\n",
        root = quoted(ROOT),
        state = quoted(STATE),
        disabled = list(&DISABLED),
        socket = quoted(SOCKET),
        level = quoted(if config.debug { "debug" } else { "info" }),
        pause = quoted(PAUSE),
        cni = quoted(&config.servers.cni().display().to_string()),
        network = quoted(&format!("{SETTINGS}/network")),
        default = quoted(config.handlers.first().map_or("runc", |handler| &handler.name)),
    );
    for handler in &config.handlers {
        text.push_str(&runtime_table(runtime, handler));
    }
    text
}

fn runtime_table(parent: &str, handler: &Handler) -> String {
    let name = quoted(&handler.name);
    let mut text = format!(
        "[{parent}.containerd.runtimes.{name}]\nruntime_type = {}\n",
        quoted(&handler.runtime_type)
    );
    if !handler.options.is_empty() {
        text.push_str(&format!("[{parent}.containerd.runtimes.{name}.options]\n"));
        for (key, value) in &handler.options {
            text.push_str(&format!("{key} = {value}\n"));
        }
    }
    text
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn list(items: &[&str]) -> String {
    toml::Value::Array(
        items
            .iter()
            .map(|item| toml::Value::String((*item).to_owned()))
            .collect(),
    )
    .to_string()
}

/// The network of pods: a bridge of the stack's own network namespace, from which no packet leaves it.
pub fn network() -> String {
    json!({
        "cniVersion": "1.0.0",
        "name": "sandglass",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": "10.88.0.0/16"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
        ],
    })
    .to_string()
}

/// crictl's configuration.
pub fn crictl() -> String {
    format!("runtime-endpoint: unix://{SOCKET}\nimage-endpoint: unix://{SOCKET}\ntimeout: 30\ndebug: false\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Servers;
    use std::path::Path;

    fn config() -> Config {
        let servers = Servers { root: "/x".into() };
        Config::new(
            servers,
            Some(Path::new("/y/shim")),
            &[("crun", Path::new("/usr/bin/crun"))],
        )
    }

    #[test]
    fn containerds_configuration_is_toml_with_every_handler_and_its_options() {
        let text = containerd(&config());
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        let runtimes = &parsed["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"];
        assert_eq!(
            runtimes["sandglass"]["options"]["hardening"].as_str(),
            Some("sandbox")
        );
        assert_eq!(
            runtimes["sandglass-spec"]["runtime_type"].as_str(),
            Some("io.containerd.sandglass-spec.v1")
        );
        assert_eq!(
            runtimes["sandglass"]["runtime_type"].as_str(),
            Some("io.containerd.sandglass.v1")
        );
        assert!(runtimes["sandglass-spec"].get("options").is_none());
        assert_eq!(
            runtimes["crun"]["options"]["BinaryName"].as_str(),
            Some("/usr/bin/crun")
        );
        assert_eq!(
            parsed["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["default_runtime_name"].as_str(),
            Some("runc")
        );
    }

    #[test]
    fn a_hostile_path_stays_one_value() {
        let mut config = config();
        config.handlers[0] = Handler::runc("run\"c", Path::new("/a'\"\n[x]"));
        let parsed: toml::Table = toml::from_str(&containerd(&config)).unwrap();
        let runtimes = &parsed["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"];
        assert_eq!(
            runtimes["run\"c"]["options"]["BinaryName"].as_str(),
            Some("/a'\"\n[x]")
        );
        assert!(!parsed.contains_key("x"));
    }

    #[test]
    fn pods_get_a_bridge_and_host_ports() {
        let parsed: serde_json::Value = serde_json::from_str(&network()).unwrap();
        let kinds: Vec<_> = parsed["plugins"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["type"].clone())
            .collect();
        assert_eq!(kinds, ["bridge", "portmap"]);
    }
}
