//! Annotations that make containerd, a shim or a runtime do something on the node.

use oci_spec::runtime::Spec;

use crate::pod::Refusal;
use crate::pod::refusal::shown;

/// Prefixes of keys that are instructions, and to whom.
const RESERVED: [(&str, &str); 5] = [
    ("cdi.k8s.io/", "asks for devices of the node through CDI"),
    ("io.containerd.", "is reserved to containerd and its shims"),
    ("containerd.io/", "is reserved to containerd and its shims"),
    ("run.oci.", "instructs an OCI runtime"),
    (
        "org.systemd.property.",
        "sets a property of a systemd unit of the node",
    ),
];

/// Refuses reserved annotations. CRI's own (`io.kubernetes.cri.*`) and the author's are only information.
pub(super) fn check(spec: &Spec) -> Result<(), Refusal> {
    // In the order of the keys, so that the same spec is refused with the same sentence.
    let mut keys: Vec<_> = spec.annotations().iter().flatten().map(|(key, _)| key).collect();
    keys.sort();
    for key in keys {
        // The subdomains of a reserved domain belong to it.
        let reserved = |prefix: &str| {
            key.starts_with(prefix) || (prefix.ends_with('/') && key.contains(&format!(".{prefix}")))
        };
        if let Some((_, says)) = RESERVED.iter().find(|(prefix, _)| reserved(prefix)) {
            return Err(Refusal::new(
                format!("annotations[{}]", shown(key)),
                says,
                "remove the annotation",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::pod::samples::{accepts, container, rejects};

    #[test]
    fn a_device_asked_for_through_cdi_is_refused() {
        rejects(
            container(),
            |spec| spec["annotations"]["cdi.k8s.io/gpu"] = "vendor.com/gpu=0".into(),
            "annotations[\"cdi.k8s.io/gpu\"] asks for devices of the node through CDI",
        );
        accepts(container(), |spec| {
            spec["annotations"]["example.com/cdi"] = "vendor.com/gpu=0".into()
        });
    }

    #[test]
    fn annotations_reserved_to_containerd_are_refused() {
        for key in [
            "io.containerd.runc.v2.group",
            "io.containerd.cri.runtime-handler",
            "containerd.io/restart.loguri",
            "nri.containerd.io/hook",
        ] {
            rejects(
                container(),
                |spec| spec["annotations"][key] = "binary:///bin/sh".into(),
                &format!("annotations[\"{key}\"] is reserved to containerd and its shims"),
            );
        }
        accepts(container(), |spec| {
            spec["annotations"]["example.com/io.containerd.x"] = "y".into()
        });
    }

    #[test]
    fn annotations_that_instruct_other_runtimes_are_refused() {
        rejects(
            container(),
            |spec| spec["annotations"]["run.oci.hooks.stdout"] = "/tmp/x".into(),
            "annotations[\"run.oci.hooks.stdout\"] instructs an OCI runtime",
        );
        rejects(
            container(),
            |spec| spec["annotations"]["org.systemd.property.ExecStopPost"] = "'/bin/sh'".into(),
            "sets a property of a systemd unit of the node",
        );
    }
}
