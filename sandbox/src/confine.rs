//! Landlock: the files that a script may touch, whatever else goes wrong with mounts and modes.
//!
//! Read and execute on the image, read and write on scratch, no TCP, and signals and abstract sockets kept
//! inside. Needs the kernel's Landlock ABI 6 (Linux 6.12); where the kernel has more (UDP and sockets by path came
//! later), the policy covers that too.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    PathFdError, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope,
};

/// The oldest ABI that carries every right of the policy: scoped signals and abstract sockets came with 6.
pub const LEAST_ABI: ABI = ABI::V6;

/// The newest ABI whose rights are known here.
const NEWEST_ABI: ABI = ABI::V10;

/// Directories of the image that hold what programs are made of.
const IMAGE: [&str; 8] = ["/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/var"];
/// Scratch: everything a run may write.
const SCRATCH: [&str; 4] = ["/work", "/out", "/tmp", "/dev/shm"];
/// Device nodes that programs read and write.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Which paths of the process's own view of the file system are open to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Read and execute.
    image: Vec<PathBuf>,
    /// Everything but execute, device nodes and their ioctls.
    scratch: Vec<PathBuf>,
    /// Read and write, and for terminals their ioctls.
    devices: Vec<PathBuf>,
    /// True where `image` is to be filled with what the root directory holds.
    whole_image: bool,
}

impl Policy {
    /// That of a run, whose image is ours.
    pub(crate) fn of_a_run() -> Self {
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect();
        Self {
            image: paths(&IMAGE),
            scratch: paths(&SCRATCH),
            devices: paths(&DEVICES),
            whole_image: false,
        }
    }

    /// That of a container, whose image may have any layout: what is at its root can be read and executed, but for
    /// what is in `writable`.
    pub(crate) fn of_a_container(writable: &[PathBuf]) -> Self {
        let (devices, scratch): (Vec<PathBuf>, Vec<PathBuf>) = writable
            .iter()
            .cloned()
            .partition(|path| path.starts_with("/dev") && path != Path::new("/dev/shm"));
        Self {
            image: Vec::new(),
            scratch,
            devices: DEVICES.iter().map(PathBuf::from).chain(devices).collect(),
            whole_image: true,
        }
    }

    /// The entries of the root directory that hold an image's files.
    fn image(&self) -> Vec<PathBuf> {
        if !self.whole_image {
            return self.image.clone();
        }
        let entries = std::fs::read_dir("/")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let special = |path: &Path| {
            ["/proc", "/dev"].iter().any(|at| path == Path::new(at)) || self.scratch.iter().any(|s| s == path)
        };
        entries.filter(|path| !special(path)).collect()
    }
}

/// Why Landlock is not in force.
#[derive(Debug, thiserror::Error)]
pub enum LandlockError {
    /// The ruleset could not be made or enforced.
    #[error(transparent)]
    Ruleset(#[from] RulesetError),
    /// A directory of the policy could not be opened.
    #[error(transparent)]
    Path(#[from] PathFdError),
    /// The kernel has no Landlock, or it is not enabled at boot.
    #[error("the kernel does not enforce Landlock ({0})")]
    Absent(String),
    /// The kernel enforced less than asked.
    #[error("the kernel enforced only a part of the policy")]
    Partial,
}

/// Confines the calling thread and everything it starts, and answers with the ABI in force.
///
/// # Errors
/// Whatever keeps any right of [`LEAST_ABI`] from being enforced: there is no best effort.
pub fn restrict_self(policy: &Policy) -> Result<u32, LandlockError> {
    let read = AccessFs::from_read(LEAST_ABI);
    let listing: BitFlags<AccessFs> = AccessFs::ReadDir.into();
    let scratch = AccessFs::from_all(NEWEST_ABI)
        & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST_ABI))?
        .handle_access(AccessNet::from_all(LEAST_ABI))?
        .scope(Scope::from_all(LEAST_ABI))?
        // From here on more where there is more: what is required was just required.
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST_ABI))?
        .handle_access(AccessNet::from_all(NEWEST_ABI))?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new("/")?, listing))?;
    let terminal = device | AccessFs::IoctlDev | AccessFs::ReadDir;
    let (terminals, devices): (Vec<PathBuf>, Vec<PathBuf>) = policy
        .devices
        .iter()
        .cloned()
        .partition(|path| !DEVICES.iter().any(|plain| path == Path::new(plain)));
    for (paths, access) in [
        (policy.image(), read),
        (
            vec![PathBuf::from("/proc")],
            AccessFs::ReadFile | AccessFs::ReadDir,
        ),
        (policy.scratch.clone(), scratch),
        (devices, device),
        (terminals, terminal),
    ] {
        for path in paths {
            match PathFd::new(&path) {
                Ok(fd) => rules = rules.add_rule(PathBeneath::new(fd, access))?,
                // An image need not have all of these; what is absent is not granted.
                Err(_) if std::fs::symlink_metadata(&path).is_err() => {}
                // A link that leads nowhere opens nothing.
                Err(_) if std::fs::metadata(&path).is_err() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    in_force(&rules.restrict_self()?)
}

fn in_force(status: &RestrictionStatus) -> Result<u32, LandlockError> {
    match (&status.ruleset, status.landlock) {
        // Partly: without the rights that this kernel does not know yet. Those of the least ABI are in force, or an
        // error came before.
        (
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            LandlockStatus::Available { effective_abi, .. },
        ) if effective_abi >= LEAST_ABI => Ok(effective_abi as u32),
        (_, LandlockStatus::Available { .. }) => Err(LandlockError::Partial),
        (_, absent) => Err(LandlockError::Absent(format!("{absent:?}"))),
    }
}
