//! The mounts of a sandbox: the table's file systems, the pod's volumes made inert, scratch.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};

use crate::pod::mount::{self, Kind};
use crate::pod::refuse::{Source, place, source_of};
use crate::pod::{Host, Policy, Refusal, Role};
use crate::table::{self, INERT, SCRATCH_INODES};

/// The mounts of a spec that was checked.
///
/// In this order, so that nothing hides what comes after it: `/proc`, `/dev` and what the kernel has in it, scratch, and
/// the pod's other mounts in the pod's order.
pub(super) fn hardened(
    spec: &Spec,
    role: Role,
    policy: &Policy,
    host: &dyn Host,
) -> Result<Vec<Mount>, Refusal> {
    let user = spec.process().as_ref().map(|process| process.user());
    let (uid, gid) = user.map_or((table::NOBODY, table::NOBODY), |user| (user.uid(), user.gid()));
    let scratch = table::scratch(policy.scratch_bytes, uid, gid);
    let is_scratch = |target: &Path| scratch.iter().any(|one| target == Path::new(one.target));

    let mut kernel = vec![table::proc_mount()?, table::dev_mount()?];
    let (mut own_scratch, mut others) = (Vec::new(), Vec::new());
    for mount in spec.mounts().iter().flatten() {
        let target = place(mount)?;
        let kind = mount::kind(mount);
        let is_dev = target == Path::new("/dev");
        match kind {
            // `/proc` and `/dev` are the table's; `/sys` and cgroups tell about the node and are left out.
            Kind::Proc | Kind::Sysfs | Kind::Cgroup => {}
            Kind::Tmpfs if is_dev => {}
            Kind::Devpts => kernel.push(with_options(mount, &target, terminals(mount))),
            Kind::Mqueue => kernel.push(with_options(mount, &target, INERT.map(String::from).into())),
            Kind::Tmpfs => {
                let options = memory(mount, policy);
                list(&mut own_scratch, &mut others, is_scratch(&target))
                    .push(with_options(mount, &target, options));
            }
            Kind::Bind => {
                let read_only = mount::is_read_only(mount) || is_given(mount, spec, policy, host);
                let options = volume(mount, read_only);
                list(&mut own_scratch, &mut others, is_scratch(&target))
                    .push(with_options(mount, &target, options));
            }
            // Refused before; listed so that a new kind has to be decided here.
            Kind::Other => {
                return Err(Refusal::new(
                    format!("mounts[{}]", target.display()),
                    "is of a kind that a sandbox does not mount",
                    "remove the mount",
                ));
            }
        }
    }
    if role != Role::Pause {
        for one in &scratch {
            if own_scratch
                .iter()
                .all(|own: &Mount| own.destination() != Path::new(one.target))
            {
                own_scratch.push(one.mount()?);
            }
        }
    }
    kernel.extend(own_scratch);
    kernel.extend(others);
    Ok(kernel)
}

fn list<'a>(scratch: &'a mut Vec<Mount>, others: &'a mut Vec<Mount>, is_scratch: bool) -> &'a mut Vec<Mount> {
    if is_scratch { scratch } else { others }
}

fn is_given(mount: &Mount, spec: &Spec, policy: &Policy, host: &dyn Host) -> bool {
    let source = mount.source().as_deref().and_then(mount::source);
    source.is_some_and(|source| source_of(source, spec, policy, host) == Ok(Source::Given))
}

fn with_options(mount: &Mount, target: &Path, options: Vec<String>) -> Mount {
    let mut mount = mount.clone();
    mount
        .set_destination(PathBuf::from(target))
        .set_options(Some(options));
    mount
}

/// Options of a volume that are the pod's to choose: they only make it touch or follow less.
const OWN: [&str; 10] = [
    "noatime",
    "rnoatime",
    "nodiratime",
    "rnodiratime",
    "relatime",
    "rrelatime",
    "strictatime",
    "rstrictatime",
    "nosymfollow",
    "rnosymfollow",
];

/// A volume: inert where it can be written, and never a way to set-user-id files or devices. Said twice, for the mount
/// and for all below it, since a bind brings along what is mounted in its source.
fn volume(mount: &Mount, read_only: bool) -> Vec<String> {
    let recursive = mount::options(mount).any(|option| option == "rbind");
    let no_exec = !read_only
        || mount::last_of(mount, "noexec", "exec")
        || mount::options(mount).any(|option| option == "rnoexec");
    let mut options = vec![if recursive { "rbind" } else { "bind" }, "rprivate"];
    options.extend(if read_only {
        ["ro", "rro"].as_slice()
    } else {
        ["rw"].as_slice()
    });
    options.extend(["nosuid", "rnosuid", "nodev", "rnodev"]);
    if no_exec {
        options.extend(["noexec", "rnoexec"]);
    }
    for option in mount::options(mount).filter(|option| OWN.contains(option)) {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    options.into_iter().map(String::from).collect()
}

/// A tmpfs of the pod's own: inert, and with an end to its bytes and its files. Zero, which means no end, counts as
/// nothing said.
fn memory(mount: &Mount, policy: &Policy) -> Vec<String> {
    let said = |key: &str| {
        mount::options(mount)
            .filter_map(|option| option.strip_prefix(key)?.strip_prefix('='))
            .last()
            .filter(|value| !value.is_empty())
    };
    let bounded = |key: &str| said(key).filter(|value| amount(value).is_some_and(|amount| amount > 0));
    let mut options: Vec<String> = INERT.map(String::from).into();
    if mount::is_read_only(mount) {
        options.push("ro".to_owned());
    }
    let number = |key: &str| said(key).filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some(mode) = number("mode") {
        options.push(format!("mode={mode}"));
    }
    let size = bounded("size").map_or_else(|| policy.scratch_bytes.to_string(), str::to_owned);
    options.push(format!("size={size}"));
    let inodes = bounded("nr_inodes")
        .and_then(amount)
        .unwrap_or(u64::MAX)
        .min(u64::from(SCRATCH_INODES));
    options.push(format!("nr_inodes={inodes}"));
    options.extend(
        ["uid", "gid"]
            .iter()
            .filter_map(|key| number(key).map(|value| format!("{key}={value}"))),
    );
    options
}

/// A number as tmpfs reads it: with a unit, or for sizes a share of the memory.
fn amount(value: &str) -> Option<u64> {
    let digits = value.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().ok()?;
    let shift = match &value[digits.len()..] {
        "" | "%" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Pseudo terminals of the container's own. They are devices, so `nodev` is the one flag they cannot have.
fn terminals(mount: &Mount) -> Vec<String> {
    let mut options = vec!["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"];
    options.extend(
        mount::options(mount)
            .filter(|option| option.starts_with("gid="))
            .last(),
    );
    options.into_iter().map(String::from).collect()
}
