//! What a spec must not ask for: each field that contradicts a sandbox, one module for each part of the spec.
//!
//! A request is refused, not quietly dropped, wherever a pod's author would otherwise believe to have something that
//! the sandbox takes away. Two things are dropped because every pod has them without asking: containerd's default
//! capabilities, and the absence of `no_new_privs` and of a read-only root.

mod annotations;
mod devices;
mod linux;
mod mounts;
mod namespaces;
mod process;
mod sources;

use oci_spec::runtime::{Hooks, Linux, Process, Spec};

use super::refusal::shown;
use super::{Host, Policy, Refusal, Role};

pub(super) use mounts::place;
pub(super) use process::process as check_process;
pub(super) use sources::{Source, source_of};

/// Refuses a spec that asks for what a sandbox cannot be.
///
/// # Errors
/// The first contradicting field, as a sentence. What makes a whole pod privileged comes first, since its other fields
/// only follow from it.
pub fn check(spec: &Spec, policy: &Policy, host: &dyn Host) -> Result<(), Refusal> {
    let role = Role::of(spec);
    let (process, linux) = parts(spec)?;
    platform(spec)?;
    root(spec, host)?;
    hooks(spec)?;
    annotations::check(spec)?;
    linux::privileged(process, linux)?;
    process::process(process, role)?;
    namespaces::check(linux, host)?;
    devices::check(linux)?;
    mounts::check(spec, role, policy, host)?;
    linux::check(linux)
}

/// The two sections that every spec of a Linux container has.
pub(super) fn parts(spec: &Spec) -> Result<(&Process, &Linux), Refusal> {
    let process = spec
        .process()
        .as_ref()
        .ok_or_else(|| Refusal::lacking("process"))?;
    let linux = spec.linux().as_ref().ok_or_else(|| Refusal::lacking("linux"))?;
    Ok((process, linux))
}

/// The root is what containerd mounted for the container in its bundle: what becomes of that there (no device counts, no
/// setuid file) becomes of no other directory.
fn root(spec: &Spec, host: &dyn Host) -> Result<(), Refusal> {
    let path = spec
        .root()
        .as_ref()
        .ok_or_else(|| Refusal::lacking("root"))?
        .path();
    if host.is_root(path) {
        return Ok(());
    }
    Err(Refusal::new(
        "root.path",
        &format!(
            "is {}, which is not the root that containerd mounts for the container, the directory rootfs of its bundle",
            shown(&path.to_string_lossy())
        ),
        "run an image that containerd has",
    ))
}

fn platform(spec: &Spec) -> Result<(), Refusal> {
    let foreign = [
        ("windows", spec.windows().is_some()),
        ("solaris", spec.solaris().is_some()),
        ("vm", spec.vm().is_some()),
        ("zos", spec.zos().is_some()),
    ];
    match foreign.iter().find(|(_, present)| *present) {
        Some((field, _)) => Err(Refusal::new(
            *field,
            "is a section for another kind of container, and a sandbox is a Linux one",
            "remove the section",
        )),
        None => Ok(()),
    }
}

fn hooks(spec: &Spec) -> Result<(), Refusal> {
    let Some(hooks) = spec.hooks() else { return Ok(()) };
    match stages(hooks).iter().find(|(_, count)| *count > 0) {
        Some((stage, _)) => Err(Refusal::new(
            format!("hooks.{stage}"),
            "names a program that would run beside the sandbox",
            "take the hook out of the runtime's or the plugin's configuration",
        )),
        None => Ok(()),
    }
}

#[allow(deprecated)] // `prestart` still runs where a spec has it.
fn stages(hooks: &Hooks) -> [(&'static str, usize); 6] {
    let count = |stage: &Option<Vec<_>>| stage.as_ref().map_or(0, Vec::len);
    [
        ("prestart", count(hooks.prestart())),
        ("createRuntime", count(hooks.create_runtime())),
        ("createContainer", count(hooks.create_container())),
        ("startContainer", count(hooks.start_container())),
        ("poststart", count(hooks.poststart())),
        ("poststop", count(hooks.poststop())),
    ]
}

#[cfg(test)]
mod tests {
    use crate::pod::samples::{BUNDLE, accepts, container, lacking, rejects};
    use serde_json::json;

    #[test]
    fn what_containerd_makes_of_ordinary_pods_is_accepted() {
        accepts(crate::pod::samples::container(), |_| {});
        accepts(crate::pod::samples::pause(), |_| {});
        accepts(crate::pod::samples::plain(), |_| {});
    }

    #[test]
    fn a_hook_would_run_on_the_node() {
        for stage in [
            "prestart",
            "createRuntime",
            "createContainer",
            "startContainer",
            "poststart",
            "poststop",
        ] {
            rejects(
                container(),
                |spec| spec["hooks"] = json!({ stage: [{"path": "/usr/bin/true"}] }),
                &format!("hooks.{stage} names a program that would run beside the sandbox"),
            );
        }
        accepts(container(), |spec| {
            spec["hooks"] = json!({"prestart": [], "poststop": []})
        });
    }

    #[test]
    fn a_directory_other_than_the_bundles_is_no_root() {
        for path in [
            "/",
            "/srv/rootfs",
            "../rootfs",
            "rootfs/../rootfs",
            "rootfs/usr",
            "/run/containerd",
            "/run/containerd/../../",
            "/run/containerd/io.containerd.runtime.v2.task/k8s.io/c2/rootfs",
        ] {
            rejects(
                container(),
                |spec| spec["root"]["path"] = path.into(),
                &format!("root.path is \"{path}\", which is not the root that containerd mounts"),
            );
        }
        for path in ["rootfs".to_owned(), format!("{BUNDLE}/rootfs")] {
            accepts(container(), |spec| spec["root"]["path"] = path.into());
        }
    }

    #[test]
    fn a_section_for_another_platform_is_refused() {
        rejects(
            container(),
            |spec| spec["windows"] = json!({"layerFolders": ["c:\\layer"]}),
            "windows is a section for another kind of container",
        );
    }

    #[test]
    fn a_spec_without_its_parts_is_refused_by_name() {
        for part in ["process", "linux", "root"] {
            lacking(container(), part);
        }
    }
}
