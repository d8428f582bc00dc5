//! The hardened OCI spec: a pure function from what a run asked for to what the container runtime is told.
//!
//! Every value of the table of controls that the OCI runtime spec can express is decided here and nowhere
//! else. What it cannot express (Landlock, our seccomp filters, the parent-death signal) is applied by
//! the executor in the container's own process.

use std::path::PathBuf;

use oci_spec::runtime::{
    LinuxBuilder, LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceBuilder,
    LinuxNamespaceType, Mount, ProcessBuilder, RootBuilder, Spec, SpecBuilder, UserBuilder,
};

use crate::error::SandboxError;
use crate::table;

pub use crate::table::{NOBODY, OPEN_FILES, PENDING_SIGNALS, SCRATCH_INODES};

/// What identifies a process in the user namespace, and how that namespace comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The caller is root: the container gets a range of host ids that no other run and no account has. It is
    /// mapped in one piece, from 0 (needed while the root is built) to 65534: for more than one piece the container
    /// library would call the setuid helpers of the shadow suite.
    Range {
        /// First host id of the range.
        base: u32,
    },
    /// The caller is an ordinary user, who can map one id, its own: it is 65534 inside. The worker enters that user
    /// namespace itself, and the container's other namespaces are made in it.
    Own,
}

impl Identity {
    /// Where the ids of the namespace that the container library makes begin outside, if it makes one.
    fn first_host_id(self) -> Option<u32> {
        match self {
            Self::Range { base } => Some(base),
            Self::Own => None,
        }
    }
}

/// What the spec depends on.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Unpacked image, mounted read-only as `/`.
    pub rootfs: PathBuf,
    /// argv of PID 1, the first an absolute path in the image.
    pub args: Vec<String>,
    /// How the script's uid is mapped.
    pub identity: Identity,
    /// Bytes of each of `/work`, `/out`, `/tmp`; `/dev/shm` gets half of it.
    pub scratch_bytes: u64,
    /// Processes and threads of the sandbox; also the per-user resource limit, which holds where no cgroup does.
    pub pids: u32,
}

/// The spec of one run.
///
/// # Errors
/// Only where the builder of the spec crate refuses a value, which would be a mistake of ours.
pub fn hardened(shape: &Shape) -> Result<Spec, SandboxError> {
    build(shape).map_err(|source| SandboxError::Spec {
        reason: source.to_string(),
    })
}

fn build(shape: &Shape) -> Result<Spec, oci_spec::OciSpecError> {
    let process = ProcessBuilder::default()
        .terminal(false)
        .user(
            UserBuilder::default()
                .uid(NOBODY)
                .gid(NOBODY)
                .umask(0o022_u32)
                .build()?,
        )
        .args(shape.args.clone())
        // Where it is missing, the library has the C library look for it, by files of the image.
        .env(vec!["HOME=/".to_owned()])
        .cwd("/")
        .capabilities(table::no_capabilities()?)
        .no_new_privileges(true)
        .rlimits(table::rlimits(Some(shape.pids))?)
        .build()?;
    let mut linux = LinuxBuilder::default()
        .namespaces(namespaces(shape.identity)?)
        .masked_paths(masked_paths())
        .readonly_paths(table::READONLY_PATHS.map(String::from))
        .rootfs_propagation("private");
    if let Some(base) = shape.identity.first_host_id() {
        let mappings = vec![id_mapping(base)?];
        linux = linux.uid_mappings(mappings.clone()).gid_mappings(mappings);
    }
    // No resources here: the sandbox's cgroup is ours (see `crate::cgroup`), made and joined around the container.
    let mut linux = linux.build()?;
    linux
        .set_resources(None)
        .set_devices(None)
        .set_cgroups_path(Some(PathBuf::from("/none")));
    let mut spec = SpecBuilder::default()
        .version("1.2.0")
        .root(
            RootBuilder::default()
                .path(shape.rootfs.clone())
                .readonly(true)
                .build()?,
        )
        .hostname("sandbox")
        .mounts(mounts(shape.scratch_bytes)?)
        .process(process)
        .linux(linux)
        .build()?;
    spec.set_annotations(None);
    Ok(spec)
}

/// The table's masks and `/dev/tty`, which the runtime always makes: a run of ours has no terminal.
fn masked_paths() -> Vec<String> {
    let mut paths: Vec<_> = table::MASKED_PATHS.map(String::from).into();
    paths.push("/dev/tty".to_owned());
    paths
}

fn namespaces(identity: Identity) -> Result<Vec<LinuxNamespace>, oci_spec::OciSpecError> {
    use LinuxNamespaceType as T;
    // The cgroup namespace is inherited from the worker, which made it where it has the right root.
    let mut types = vec![T::Pid, T::Mount, T::Ipc, T::Uts, T::Network];
    if matches!(identity, Identity::Range { .. }) {
        types.insert(0, T::User);
    }
    types
        .into_iter()
        .map(|typ| LinuxNamespaceBuilder::default().typ(typ).build())
        .collect()
}

fn id_mapping(base: u32) -> Result<LinuxIdMapping, oci_spec::OciSpecError> {
    LinuxIdMappingBuilder::default()
        .container_id(0_u32)
        .host_id(base)
        .size(NOBODY + 1)
        .build()
}

fn mounts(scratch_bytes: u64) -> Result<Vec<Mount>, oci_spec::OciSpecError> {
    let mut mounts = vec![table::proc_mount()?, table::dev_mount()?];
    for scratch in table::scratch(scratch_bytes, NOBODY, NOBODY) {
        mounts.push(scratch.mount()?);
    }
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(identity: Identity) -> Shape {
        Shape {
            rootfs: PathBuf::from("/rootfs"),
            args: vec!["/usr/libexec/sandglass-runner".into()],
            identity,
            scratch_bytes: 128 << 20,
            pids: 128,
        }
    }

    fn spec(identity: Identity) -> Spec {
        hardened(&shape(identity)).expect("the shape is valid")
    }

    #[test]
    fn holds_no_capability_and_gains_none() {
        let spec = spec(Identity::Range { base: 1 << 30 });
        let process = spec.process().as_ref().unwrap();
        let caps = process.capabilities().as_ref().unwrap();
        for set in [
            caps.bounding(),
            caps.effective(),
            caps.inheritable(),
            caps.permitted(),
            caps.ambient(),
        ] {
            assert_eq!(set.as_ref().map(|set| set.len()), Some(0));
        }
        assert_eq!(process.no_new_privileges(), Some(true));
        assert_eq!(process.env().as_deref(), Some(&["HOME=/".to_owned()][..]));
    }

    #[test]
    fn the_script_is_nobody_in_both_identities() {
        let ranged = spec(Identity::Range { base: 1 << 30 });
        assert_eq!(ranged.process().as_ref().unwrap().user().uid(), NOBODY);
        let linux = ranged.linux().as_ref().unwrap();
        let mapped: Vec<_> = linux
            .uid_mappings()
            .as_ref()
            .unwrap()
            .iter()
            .map(|m| (m.container_id(), m.host_id(), m.size()))
            .collect();
        assert_eq!(mapped, [(0, 1 << 30, NOBODY + 1)]);
        let own = spec(Identity::Own);
        assert_eq!(own.process().as_ref().unwrap().user().uid(), NOBODY);
        assert!(
            own.linux()
                .as_ref()
                .unwrap()
                .uid_mappings()
                .as_ref()
                .is_none_or(Vec::is_empty)
        );
    }

    #[test]
    fn has_every_namespace_of_its_own() {
        use LinuxNamespaceType as T;
        let of = |identity| {
            let spec = spec(identity);
            let linux = spec.linux().as_ref().unwrap();
            let namespaces = linux.namespaces().clone().unwrap();
            assert!(namespaces.iter().all(|namespace| namespace.path().is_none()));
            namespaces.iter().map(LinuxNamespace::typ).collect::<Vec<_>>()
        };
        assert_eq!(of(Identity::Own), [T::Pid, T::Mount, T::Ipc, T::Uts, T::Network]);
        assert_eq!(
            of(Identity::Range { base: 1 << 30 }),
            [T::User, T::Pid, T::Mount, T::Ipc, T::Uts, T::Network]
        );
    }

    #[test]
    fn root_is_read_only_and_scratch_is_bounded_and_cannot_execute() {
        let spec = spec(Identity::Range { base: 1 << 30 });
        assert_eq!(spec.root().as_ref().unwrap().readonly(), Some(true));
        let mounts = spec.mounts().as_ref().unwrap();
        for target in ["/work", "/out", "/tmp", "/dev/shm"] {
            let mount = mounts
                .iter()
                .find(|m| m.destination().to_str() == Some(target))
                .expect(target);
            let options = mount.options().as_ref().unwrap();
            for needed in ["nosuid", "nodev", "noexec"] {
                assert!(options.iter().any(|o| o == needed), "{target} lacks {needed}");
            }
            for needed in ["size=", "nr_inodes="] {
                assert!(
                    options.iter().any(|o| o.starts_with(needed)),
                    "{target} lacks {needed}"
                );
            }
        }
        assert!(
            mounts.iter().all(|m| m.typ().as_deref() != Some("sysfs")),
            "no /sys at all"
        );
        assert!(
            mounts.iter().all(|m| m.typ().as_deref() != Some("bind")),
            "nothing of the host"
        );
    }

    #[test]
    fn names_no_device_and_no_resource_of_its_own() {
        let spec = spec(Identity::Own);
        let linux = spec.linux().as_ref().unwrap();
        assert!(linux.devices().is_none());
        assert!(linux.resources().is_none());
        assert!(
            linux.seccomp().is_none(),
            "the filters are ours and are loaded by the executor"
        );
    }
}
