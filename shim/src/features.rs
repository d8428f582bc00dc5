//! What the runtime can do, in the words of the OCI runtime-spec's features document.
//!
//! containerd asks when it starts, for every handler. It advertises user namespaces to the kubelet only where ID-mapped
//! mounts are there; they are not, so a pod with `hostUsers: false` is not placed here.

use containerd_shim::protos::protobuf::MessageField;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::types::introspection::{RuntimeInfo, RuntimeVersion};
use serde_json::json;

/// The type by which containerd knows the document.
const TYPE_URL: &str = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";

/// The answer to `-info`.
pub fn info(runtime: &str) -> RuntimeInfo {
    RuntimeInfo {
        name: runtime.to_owned(),
        version: MessageField::some(RuntimeVersion {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..RuntimeVersion::default()
        }),
        features: MessageField::some(Any {
            type_url: TYPE_URL.to_owned(),
            value: features().to_string().into_bytes(),
            ..Any::default()
        }),
        ..RuntimeInfo::default()
    }
}

fn features() -> serde_json::Value {
    json!({
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
            "mountExtensions": { "idmap": { "enabled": false } }
        },
        "annotations": { "dev.sandglass.runtime.landlock.abi.min": "6" }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_namespace_is_advertised_without_mapped_mounts() {
        let features = features();
        assert_eq!(features["linux"]["mountExtensions"]["idmap"]["enabled"], false);
        let namespaces = features["linux"]["namespaces"].as_array().unwrap();
        assert!(!namespaces.iter().any(|name| name == "user"));
    }

    #[test]
    fn the_document_is_one_of_the_oci() {
        let read: oci_spec::runtime::Features = serde_json::from_value(features()).unwrap();
        assert_eq!(read.oci_version_min(), "1.0.0");
    }
}
