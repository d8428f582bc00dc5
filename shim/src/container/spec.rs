//! The spec that containerd wrote: read, looked at, hardened.

use std::path::Path;

use oci_spec::runtime::{Process, Spec};
use sandglass_sandbox::pod;

use crate::error::{Result, invalid};
use crate::options::Options;

/// Longest `config.json`, in bytes: containerd's own messages are bounded by this.
const LONGEST_SPEC: u64 = 16 << 20;

pub(super) fn runs_something(process: &Process) -> Result<()> {
    match process.args().as_deref() {
        Some([program, ..]) if !program.is_empty() => Ok(()),
        _ => Err(invalid("process.args names no program")),
    }
}

pub(super) fn read_spec(bundle: &Path) -> Result<Spec> {
    use std::io::Read;
    let path = bundle.join("config.json");
    let mut body = Vec::new();
    std::fs::File::open(&path)
        .and_then(|file| file.take(LONGEST_SPEC + 1).read_to_end(&mut body))
        .map_err(|error| invalid(format!("{}: {error}", path.display())))?;
    if body.len() as u64 > LONGEST_SPEC {
        return Err(invalid(format!("{}: longer than 16 MiB", path.display())));
    }
    let spec: Spec = serde_json::from_slice(&body)
        .map_err(|error| invalid(format!("config.json is not an OCI spec: {error}")))?;
    if !spec.version().starts_with("1.") {
        return Err(invalid(format!(
            "ociVersion is {:?}, and this runtime reads specs of the versions 1.x",
            spec.version()
        )));
    }
    Ok(spec)
}

pub(super) fn harden(spec: Spec, options: &Options, bundle: &Path) -> Result<Spec> {
    let mut policy = options.policy().map_err(|error| invalid(error.to_string()))?;
    // containerd resolves links in the paths that it hands on; so what they are compared with is resolved, too.
    let resolved = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    policy.kubelet_dir = resolved(&policy.kubelet_dir);
    policy.containerd_dirs = policy.containerd_dirs.iter().map(|dir| resolved(dir)).collect();
    let node = pod::Node {
        bundle: bundle.to_owned(),
    };
    pod::harden(spec, &policy, &node).map_err(|refusal| invalid(refusal.to_string()))
}

/// The most processes that an update of a hardened container may allow: as many as its own spec does, or the node where
/// that is more.
pub(super) fn most_pids(spec: &Spec, options: &Options) -> Result<u32> {
    let policy = options.policy().map_err(|error| invalid(error.to_string()))?;
    let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
    let own = resources.and_then(|resources| resources.pids().map(|pids| pids.limit()));
    // More than a kernel has ids for is as many as it has.
    let own = own.map_or(0, |limit| u32::try_from(limit.max(0)).unwrap_or(u32::MAX));
    Ok(policy.pids.max(own))
}
