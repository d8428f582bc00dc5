//! The table of controls, as values: what every sandbox gets, whoever asked for it.
//!
//! The spec of a run of our own ([`crate::spec`]) and the hardening of a pod's spec ([`crate::pod`]) both take
//! their numbers, lists and options from here, so that the two cannot drift apart.

use std::path::PathBuf;

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capabilities, LinuxCapabilities, LinuxCapabilitiesBuilder, Mount, MountBuilder, PosixRlimit,
    PosixRlimitBuilder, PosixRlimitType,
};

/// The uid and gid that a script has inside: the kernel's overflow id, which owns nothing.
pub const NOBODY: u32 = 65534;

/// Entries that one scratch tmpfs may hold. A tmpfs inode costs about 1 KiB of kernel memory, so this bounds a
/// flood of empty files at some 32 MiB, well below the smallest sensible memory limit.
pub const SCRATCH_INODES: u32 = 32_768;

/// Open files that one process of a sandbox may hold.
pub const OPEN_FILES: u64 = 4_096;

/// Queued signals and POSIX timers that a sandbox may hold at once.
pub const PENDING_SIGNALS: u64 = 256;

/// Bytes of each of `/work`, `/out` and `/tmp` where nothing else is said.
pub const SCRATCH_BYTES: u64 = 128 << 20;

/// Processes and threads of a sandbox where nothing else is said.
pub const PIDS: u32 = 128;

/// Files of `/proc` that tell about the host or reach into it: the OCI default list and what else a script has
/// no use for.
pub(crate) const MASKED_PATHS: [&str; 30] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/bus",
    "/proc/cgroups",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/consoles",
    "/proc/crypto",
    "/proc/devices",
    "/proc/diskstats",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    // The locks of the whole host, ours among them: a byte for each live run.
    "/proc/locks",
    "/proc/misc",
    "/proc/modules",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/swaps",
    "/proc/timer_list",
    "/proc/timer_stats",
];

/// Parts of `/proc` that programs read and nobody inside may write.
pub(crate) const READONLY_PATHS: [&str; 2] = ["/proc/sys", "/proc/sysrq-trigger"];

/// Flags of everything that can be written, and of `/proc`.
pub(crate) const INERT: [&str; 3] = ["nosuid", "nodev", "noexec"];

/// Capabilities: none, in none of the five sets.
pub(crate) fn no_capabilities() -> Result<LinuxCapabilities, OciSpecError> {
    let none = Capabilities::new();
    LinuxCapabilitiesBuilder::default()
        .bounding(none.clone())
        .effective(none.clone())
        .inheritable(none.clone())
        .permitted(none.clone())
        .ambient(none)
        .build()
}

/// Resource limits of each process. `pids` is for sandboxes with a user namespace of their own: the kernel counts
/// the processes of a uid in its user namespace, so without one all sandboxes of the host would share the number.
pub(crate) fn rlimits(pids: Option<u32>) -> Result<Vec<PosixRlimit>, OciSpecError> {
    let fixed = |typ, value: u64| {
        PosixRlimitBuilder::default()
            .typ(typ)
            .soft(value)
            .hard(value)
            .build()
    };
    let mut limits = vec![
        // A core_pattern that pipes into a host program runs even at 0; at 1 the kernel writes and runs nothing.
        fixed(PosixRlimitType::RlimitCore, 1)?,
        fixed(PosixRlimitType::RlimitNofile, OPEN_FILES)?,
        fixed(PosixRlimitType::RlimitMemlock, 64 << 10)?,
        fixed(PosixRlimitType::RlimitMsgqueue, 0)?,
        // Counted, up to the caller's own account, for queued signals and for timers.
        fixed(PosixRlimitType::RlimitSigpending, PENDING_SIGNALS)?,
        fixed(PosixRlimitType::RlimitRtprio, 0)?,
    ];
    if let Some(pids) = pids {
        limits.push(fixed(PosixRlimitType::RlimitNproc, u64::from(pids))?);
    }
    Ok(limits)
}

/// `/proc`.
pub(crate) fn proc_mount() -> Result<Mount, OciSpecError> {
    mount("/proc", "proc", INERT.map(String::from).to_vec())
}

/// `/dev`: device nodes are put there one by one by the runtime; the directory itself belongs to the container's
/// root and nobody else can add to it.
pub(crate) fn dev_mount() -> Result<Mount, OciSpecError> {
    mount(
        "/dev",
        "tmpfs",
        ["nosuid", "noexec", "mode=555", "size=65536", "nr_inodes=32"]
            .map(String::from)
            .to_vec(),
    )
}

/// A tmpfs that a script may write.
pub(crate) struct Scratch<'a> {
    /// Where it is mounted.
    pub target: &'a str,
    /// Its capacity.
    pub bytes: u64,
    /// Mode of its root directory, octal.
    pub mode: &'a str,
    /// Owner of its root directory.
    pub uid: u32,
    /// Group of its root directory.
    pub gid: u32,
}

/// What is written in `/work`, `/out`, `/tmp` and `/dev/shm`: `bytes` for each, half of it for shared memory.
pub(crate) fn scratch(bytes: u64, uid: u32, gid: u32) -> [Scratch<'static>; 4] {
    let one = |target, bytes, mode| Scratch {
        target,
        bytes,
        mode,
        uid,
        gid,
    };
    [
        one("/dev/shm", bytes / 2, "1777"),
        one("/work", bytes, "0755"),
        one("/out", bytes, "0755"),
        one("/tmp", bytes, "1777"),
    ]
}

impl Scratch<'_> {
    /// The mount itself.
    pub(crate) fn mount(&self) -> Result<Mount, OciSpecError> {
        let mut options = INERT.map(String::from).to_vec();
        options.extend([
            format!("mode={}", self.mode),
            format!("size={}", self.bytes),
            format!("nr_inodes={SCRATCH_INODES}"),
            format!("uid={}", self.uid),
            format!("gid={}", self.gid),
        ]);
        mount(self.target, "tmpfs", options)
    }
}

/// A mount of a file system of the kernel's own.
pub(crate) fn mount(target: &str, typ: &str, options: Vec<String>) -> Result<Mount, OciSpecError> {
    MountBuilder::default()
        .destination(PathBuf::from(target))
        .typ(typ)
        .source(typ)
        .options(options)
        .build()
}
