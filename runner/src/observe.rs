//! What the kernel says about the sandbox, read from inside for the receipt.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::DumpableBehavior;
use sandglass_run::protocol::{IdRange, Observed, ScratchMount};

use crate::error::{During, RunnerError};

/// Most bytes that are read of one file.
const MAX_FILE_BYTES: usize = 256 * 1024;

/// Reads everything that [`Observed`] holds.
pub fn observe() -> Result<Observed, RunnerError> {
    let status = read("/proc/self/status")?;
    let status = parse_status(&status).ok_or(RunnerError::Unreadable {
        file: "/proc/self/status",
        what: "ids, groups, capabilities or seccomp",
    })?;
    let mounts = read("/proc/self/mountinfo")?;
    let root_read_only = parse_root(&mounts).ok_or(RunnerError::Unreadable {
        file: "/proc/self/mountinfo",
        what: "the root",
    })?;
    let uid_map = parse_id_map(&read("/proc/self/uid_map")?).ok_or(RunnerError::Unreadable {
        file: "/proc/self/uid_map",
        what: "three numbers on each line",
    })?;
    let dumpable = rustix::process::dumpable_behavior().during("PR_GET_DUMPABLE")?;
    Ok(Observed {
        root_read_only,
        interfaces: parse_interfaces(&read("/proc/self/net/dev")?),
        scratch: parse_scratch(&mounts),
        uid_map,
        dumpable: dumpable != DumpableBehavior::NotDumpable,
        ..status
    })
}

fn read(path: &'static str) -> Result<String, RunnerError> {
    let file = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).during(path)?;
    let mut text = Vec::new();
    loop {
        let mut piece = [0; 4096];
        match rustix::io::read(&file, &mut piece).during(path)? {
            0 => break,
            bytes => text.extend_from_slice(piece.get(..bytes).unwrap_or_default()),
        }
        if text.len() > MAX_FILE_BYTES {
            return Err(RunnerError::Unreadable {
                file: path,
                what: "an end",
            });
        }
    }
    String::from_utf8(text).map_err(|_| RunnerError::Unreadable {
        file: path,
        what: "UTF-8",
    })
}

/// Everything that stands in `/proc/self/status`; the other fields are left empty.
fn parse_status(status: &str) -> Option<Observed> {
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
    };
    let number = |name: &str| field(name)?.parse::<u32>().ok();
    let mask = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
    let ids = |name: &str| {
        let ids: Vec<u32> = field(name)?
            .split_whitespace()
            .map(|id| id.parse().ok())
            .collect::<Option<_>>()?;
        <[u32; 4]>::try_from(ids).ok()
    };
    Some(Observed {
        pid: number("Pid")?,
        uids: ids("Uid")?,
        gids: ids("Gid")?,
        groups: field("Groups")?
            .split_whitespace()
            .map(|id| id.parse().ok())
            .collect::<Option<_>>()?,
        cap_inh: mask("CapInh")?,
        cap_prm: mask("CapPrm")?,
        cap_eff: mask("CapEff")?,
        cap_bnd: mask("CapBnd")?,
        cap_amb: mask("CapAmb")?,
        no_new_privs: number("NoNewPrivs")? == 1,
        seccomp_mode: u8::try_from(number("Seccomp")?).ok()?,
        seccomp_filters: number("Seccomp_filters"),
        root_read_only: false,
        interfaces: Vec::new(),
        scratch: Vec::new(),
        uid_map: Vec::new(),
        dumpable: true,
    })
}

/// One line of `/proc/self/mountinfo`.
struct Mount<'a> {
    path: &'a str,
    options: &'a str,
    kind: &'a str,
    super_options: &'a str,
}

impl<'a> Mount<'a> {
    /// `id parent major:minor root path options [tags] - kind source super-options`
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(4);
        let mut file_system = file_system.split(' ');
        Some(Self {
            path: mount.next()?,
            options: mount.next()?,
            kind: file_system.next()?,
            super_options: file_system.nth(1)?,
        })
    }

    fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|o| o == option)
    }

    fn read_only(&self) -> bool {
        self.has("ro") || self.super_options.split(',').any(|o| o == "ro")
    }

    fn super_value(&self, name: &str) -> Option<&'a str> {
        self.super_options
            .split(',')
            .find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}

/// The mount that is visible at a path is the last one there.
fn mount_at<'a>(mountinfo: &'a str, path: &str) -> Option<Mount<'a>> {
    mountinfo
        .lines()
        .rev()
        .filter_map(Mount::parse)
        .find(|mount| mount.path == path)
}

fn parse_root(mountinfo: &str) -> Option<bool> {
    mount_at(mountinfo, "/").map(|root| root.read_only())
}

fn parse_scratch(mountinfo: &str) -> Vec<ScratchMount> {
    ["/work", "/out", "/tmp", "/dev/shm"]
        .into_iter()
        .filter_map(|path| mount_at(mountinfo, path))
        .map(|mount| ScratchMount {
            path: mount.path.to_owned(),
            kind: mount.kind.to_owned(),
            read_only: mount.read_only(),
            nosuid: mount.has("nosuid"),
            nodev: mount.has("nodev"),
            noexec: mount.has("noexec"),
            size_bytes: mount.super_value("size").and_then(parse_size),
            inodes: mount.super_value("nr_inodes").and_then(parse_size),
        })
        .collect()
}

/// tmpfs writes sizes in kibibytes, and a count of inodes that was given as `1m` the same way.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (text.get(..text.len() - 1)?, 1 << 10),
        b'm' => (text.get(..text.len() - 1)?, 1 << 20),
        b'g' => (text.get(..text.len() - 1)?, 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn parse_id_map(text: &str) -> Option<Vec<IdRange>> {
    text.lines()
        .map(|line| {
            let numbers: Vec<u32> = line
                .split_whitespace()
                .map(|n| n.parse().ok())
                .collect::<Option<_>>()?;
            let [inside, outside, count] = <[u32; 3]>::try_from(numbers).ok()?;
            Some(IdRange {
                inside,
                outside,
                count,
            })
        })
        .collect()
}

/// Two lines of headings, then `name: numbers`.
fn parse_interfaces(text: &str) -> Vec<String> {
    text.lines()
        .skip(2)
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\trunner\nUmask:\t0022\nPid:\t1\nPPid:\t0\nUid:\t65534\t65534\t65534\t65534\n\
        Gid:\t65534\t65534\t65534\t1\nGroups:\t4 7 \nCapInh:\t0000000000000000\nCapPrm:\t0000000000000001\n\
        CapEff:\t0000000000000002\nCapBnd:\t000001fffeffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n\
        Seccomp:\t2\nSeccomp_filters:\t3\n";

    #[test]
    fn the_status_is_read_as_the_kernel_writes_it() {
        let observed = parse_status(STATUS).unwrap();
        assert_eq!(
            (observed.pid, observed.uid(), observed.gid()),
            (1, Some(65_534), None)
        );
        assert_eq!(observed.groups, [4, 7]);
        assert_eq!(
            (observed.cap_prm, observed.cap_eff, observed.cap_bnd),
            (1, 2, 0x1ff_feff_ffff)
        );
        assert_eq!(
            (
                observed.no_new_privs,
                observed.seccomp_mode,
                observed.seccomp_filters
            ),
            (true, 2, Some(3))
        );
        assert!(!observed.has_no_capabilities());
    }

    #[test]
    fn a_status_without_a_field_is_not_taken_for_a_good_one() {
        for field in [
            "Pid",
            "Uid",
            "Gid",
            "Groups",
            "CapInh",
            "CapAmb",
            "NoNewPrivs",
            "Seccomp",
        ] {
            let broken = STATUS.replace(&format!("{field}:\t"), "Other:\t");
            assert!(parse_status(&broken).is_none(), "without {field}");
        }
    }

    const MOUNTS: &str = "\
22 1 0:20 / / rw,relatime - overlay overlay rw\n\
23 22 0:21 / / ro,relatime - overlay overlay rw,lowerdir=/x\n\
24 23 0:22 / /work rw,nosuid,nodev,noexec,relatime shared:1 master:2 - tmpfs tmpfs rw,size=131072k,nr_inodes=4096,mode=700\n\
25 23 0:23 / /tmp ro,nosuid - tmpfs tmpfs rw,size=1g\n\
26 23 0:24 / /workshop rw - tmpfs tmpfs rw\n";

    #[test]
    fn the_visible_mount_is_the_last_one_at_its_path() {
        assert_eq!(parse_root(MOUNTS), Some(true));
        assert_eq!(parse_root("22 1 0:20 / / rw - ext4 /dev/vda rw\n"), Some(false));
        assert_eq!(parse_root(""), None);
    }

    #[test]
    fn scratch_mounts_are_read_with_flags_and_caps() {
        let scratch = parse_scratch(MOUNTS);
        assert_eq!(
            scratch.iter().map(|m| m.path.as_str()).collect::<Vec<_>>(),
            ["/work", "/tmp"]
        );
        assert!(scratch[0].nosuid && scratch[0].nodev && scratch[0].noexec && !scratch[0].read_only);
        assert_eq!(
            (scratch[0].size_bytes, scratch[0].inodes),
            (Some(128 << 20), Some(4_096))
        );
        assert!(scratch[1].read_only && !scratch[1].noexec);
        assert_eq!(scratch[1].size_bytes, Some(1 << 30));
    }

    #[test]
    fn maps_and_interfaces_are_read() {
        assert_eq!(
            parse_id_map("         0     100000      65536\n"),
            Some(vec![IdRange {
                inside: 0,
                outside: 100_000,
                count: 65_536
            }])
        );
        assert_eq!(parse_id_map("0 x 1\n"), None);
        let dev = "Inter-|   Receive\n face |bytes\n    lo:  0 0\n  eth0: 1 2\n";
        assert_eq!(parse_interfaces(dev), ["lo", "eth0"]);
    }
}
