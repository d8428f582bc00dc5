//! What the runtime can do, in the words of the OCI runtime-spec's features document.
//!
//! containerd asks when it starts, for every handler. It advertises user namespaces to the kubelet where the document has
//! them together with ID-mapped mounts: only then is a pod with `hostUsers: false` placed here.

use containerd_shim::protos::protobuf::MessageField;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::types::introspection::{RuntimeInfo, RuntimeVersion};
use serde_json::json;

use crate::options::Hardening;

/// The type by which containerd knows the document.
const TYPE_URL: &str = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";

/// The answer to `-info`, for a handler that does so much to its containers. A sandbox refuses a pod's own user
/// namespace, so it advertises none. One by the spec advertises it where it has no `table` of options: for a handler
/// that has one, containerd's CRI plugin (up to 2.4) starts such a pod and then fails to make its containers.
pub fn info(runtime: &str, hardening: Hardening, table: bool) -> RuntimeInfo {
    RuntimeInfo {
        name: runtime.to_owned(),
        version: MessageField::some(RuntimeVersion {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..RuntimeVersion::default()
        }),
        features: MessageField::some(Any {
            type_url: TYPE_URL.to_owned(),
            value: features(hardening, table).to_string().into_bytes(),
            ..Any::default()
        }),
        ..RuntimeInfo::default()
    }
}

fn features(hardening: Hardening, table: bool) -> serde_json::Value {
    let mapped = hardening == Hardening::Spec;
    let users = mapped && !table;
    let mut features = json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": "1.3.0",
        "mountOptions": [
            "async", "atime", "bind", "defaults", "dev", "diratime", "dirsync", "exec", "iversion", "lazytime", "loud",
            "mand", "noatime", "nodev", "nodiratime", "noexec", "noiversion", "nolazytime", "nomand", "norelatime",
            "nostrictatime", "nosuid", "private", "rbind", "relatime", "remount", "ro", "rprivate", "rro", "rrw",
            "rshared", "rslave", "runbindable", "rw", "shared", "silent", "slave", "strictatime", "suid", "sync",
            "unbindable"
        ],
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "time", "uts"],
            "cgroup": { "v1": true, "v2": true, "systemd": true, "systemdUser": false, "rdma": false },
            "seccomp": {
                "enabled": true,
                "actions": [
                    "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD",
                    "SCMP_ACT_LOG", "SCMP_ACT_TRACE", "SCMP_ACT_TRAP"
                ],
                "operators": [
                    "SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_LE", "SCMP_CMP_LT", "SCMP_CMP_MASKED_EQ",
                    "SCMP_CMP_NE"
                ],
                "archs": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"]
            },
            "apparmor": { "enabled": true },
            "selinux": { "enabled": false },
            "mountExtensions": { "idmap": { "enabled": mapped } }
        },
        "annotations": { "dev.sandglass.runtime.landlock.abi.min": "6" }
    });
    if let Some(namespaces) = features["linux"]["namespaces"].as_array_mut().filter(|_| users) {
        namespaces.push("user".into());
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_namespaces_are_advertised_where_a_pod_can_have_one() {
        for (hardening, table, mapped, users) in [
            (Hardening::Sandbox, false, false, false),
            (Hardening::Sandbox, true, false, false),
            (Hardening::Spec, true, true, false),
            (Hardening::Spec, false, true, true),
        ] {
            let features = features(hardening, table);
            assert_eq!(features["linux"]["mountExtensions"]["idmap"]["enabled"], mapped);
            let namespaces = features["linux"]["namespaces"].as_array().unwrap();
            assert_eq!(namespaces.iter().any(|name| name == "user"), users);
        }
    }

    #[test]
    fn the_document_is_one_of_the_oci() {
        for hardening in [Hardening::Sandbox, Hardening::Spec] {
            let read: oci_spec::runtime::Features =
                serde_json::from_value(features(hardening, false)).unwrap();
            assert_eq!(read.oci_version_min(), "1.0.0");
        }
    }
}
