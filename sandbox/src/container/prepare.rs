//! From the spec in force to what the container library is told and what is done around it: pure, but for asking the
//! kernel what this process may still give.

use std::path::Path;

use caps::{Capability, CapsHashSet};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use oci_spec::runtime::{
    Capabilities as SpecCapabilities, Capability as SpecCapability, Linux, LinuxResources, LinuxSeccomp,
    PosixRlimitBuilder, PosixRlimitType, Process, Spec,
};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sandglass_seccomp::Arch;

use crate::executor::{Capabilities, Program};
use crate::filters::Filters;

/// What our executor does in the process, beside the library.
pub(super) struct Steps {
    pub(super) program: Program,
    pub(super) filters: Filters,
    pub(super) capabilities: Option<Capabilities>,
}

/// Takes from a process what the executor does, and leaves the library what it can do.
///
/// Without `no_new_privs` the kernel takes a filter only from a process with CAP_SYS_ADMIN. The library installs none,
/// and gives up capabilities before it calls us; so it is told to keep that one, and the executor gives it up.
pub(super) fn steps(
    process: &mut Process,
    seccomp: Option<&LinuxSeccomp>,
    strict: bool,
) -> Result<Steps, String> {
    let privileges_may_grow = process.no_new_privileges() != Some(true);
    if strict && privileges_may_grow {
        return Err("process.noNewPrivileges is not set in a spec that is to be hardened".into());
    }
    let filters = Filters {
        section: seccomp.map(|section| program_of(section, strict)).transpose()?,
        strict,
        privileges_may_grow,
    };
    let capabilities = (privileges_may_grow && filters.section.is_some()).then(|| keep_admin(process));
    let program = Program::new(
        process.args().clone().unwrap_or_default(),
        process.env().clone().unwrap_or_default(),
    );
    tell_home(process);
    Ok(Steps {
        program,
        filters,
        capabilities,
    })
}

/// Tells the library a HOME where there is none. It would ask the C library for the user's, inside of the container and
/// before any filter: that reads the image's `nsswitch.conf`, and loads the modules which that names from the image. The
/// program's own is found by [`Program`].
fn tell_home(process: &mut Process) {
    let mut env = process.env().clone().unwrap_or_default();
    // By the library's own reading of it.
    let known = libcontainer::utils::parse_env(&env).remove("HOME");
    if known.is_none_or(|home| home.is_empty()) {
        env.push("HOME=/".to_owned());
        process.set_env(Some(env));
    }
}

fn program_of(section: &LinuxSeccomp, strict: bool) -> Result<Vec<sandglass_seccomp::SockFilter>, String> {
    let options = sandglass_seccomp::oci::Options {
        enosys_for_newer: true,
    };
    let translated = sandglass_seccomp::oci::translate(section, Arch::NATIVE, options)
        .map_err(|error| format!("linux.seccomp: {error}"))?;
    if strict && !translated.lets_filters_follow {
        return Err(
            "linux.seccomp does not allow seccomp and prctl, so that the profile `strict` cannot be put behind it: allow both in the profile, which `strict` then refuses".into(),
        );
    }
    Ok(translated.program)
}

fn keep_admin(process: &mut Process) -> Capabilities {
    let set = |asked: &Option<SpecCapabilities>| -> CapsHashSet {
        asked
            .iter()
            .flatten()
            .filter_map(|name| name.to_string().parse().ok().or_else(|| parse(name)))
            .collect()
    };
    let mut sets = process.capabilities().clone().unwrap_or_default();
    let last = Capabilities {
        effective: set(sets.effective()),
        permitted: set(sets.permitted()),
    };
    let with_admin = |asked: &Option<SpecCapabilities>| {
        let mut all = asked.clone().unwrap_or_default();
        all.insert(SpecCapability::SysAdmin);
        Some(all)
    };
    let (effective, permitted) = (with_admin(sets.effective()), with_admin(sets.permitted()));
    sets.set_effective(effective).set_permitted(permitted);
    process.set_capabilities(Some(sets));
    last
}

fn parse(name: &SpecCapability) -> Option<Capability> {
    let text = serde_json::to_value(name).ok()?;
    let text = text.as_str()?;
    let full = if text.starts_with("CAP_") {
        text.to_owned()
    } else {
        format!("CAP_{text}")
    };
    full.parse().ok()
}

/// Checks that the root is a directory: the library says no more than that something is not there.
pub(super) fn root_is_there(spec: &Spec) -> Result<(), String> {
    let path = spec.root().as_ref().ok_or("the spec has no root")?.path();
    let failed = |reason: &dyn std::fmt::Display| {
        format!(
            "root.path is {}, which cannot be a root: {reason}",
            path.display()
        )
    };
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(failed(&"it is not a directory")),
        Err(error) => Err(failed(&error)),
    }
}

/// Checks that the library finds in the root the directories below which it makes devices: it goes there by name, from
/// outside, so a link of the image's would lead it to a directory of the node's.
pub(super) fn devices_have_places(spec: &Spec) -> Result<(), String> {
    let root = spec.root().as_ref().ok_or("the spec has no root")?.path();
    let linux = spec.linux().as_ref();
    let devices = linux.and_then(|linux| linux.devices().as_ref());
    let asked = devices
        .into_iter()
        .flatten()
        .filter_map(|device| device.path().parent());
    let root =
        rustix::fs::open(root, DIRECTORY, Mode::empty()).map_err(|error| format!("root.path: {error}"))?;
    for place in std::iter::once(Path::new("/dev")).chain(asked) {
        let below = place.strip_prefix("/").unwrap_or(place);
        let below = if below.as_os_str().is_empty() {
            Path::new(".")
        } else {
            below
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&root, below, DIRECTORY, Mode::empty(), resolve) {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => {
                return Err(format!(
                    "the image's {} is not a plain directory ({error}), and devices are made there: use an image where it is one, or nothing",
                    place.display()
                ));
            }
        }
    }
    Ok(())
}

const DIRECTORY: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Checks that the namespaces that a container is to join are there: the library says no more than that something is not.
pub(super) fn joins_what_is_there(spec: &Spec) -> Result<(), String> {
    for namespace in super::namespaces(spec) {
        if let Some(path) = namespace.path()
            && let Err(error) = std::fs::metadata(path)
        {
            return Err(format!(
                "linux.namespaces: {} is to be joined, and cannot be looked at ({error}): see whether the pod's sandbox is still running",
                path.display()
            ));
        }
    }
    Ok(())
}

/// Takes from a spec what is done around the library: limits of the cgroup, the seccomp section, the OOM score.
pub(super) fn take_around(spec: &mut Spec) -> (Option<LinuxResources>, Option<LinuxSeccomp>, Option<i32>) {
    let mut resources = None;
    let mut seccomp = None;
    if let Some(linux) = spec.linux_mut().as_mut() {
        resources = linux.resources().clone();
        seccomp = linux.seccomp().clone();
        strip(linux);
    }
    let score = spec.process().as_ref().and_then(Process::oom_score_adj);
    if let Some(process) = spec.process_mut().as_mut() {
        process.set_oom_score_adj(None);
    }
    (resources, seccomp, score)
}

fn strip(linux: &mut Linux) {
    linux.set_resources(None).set_seccomp(None);
}

/// Sets our own OOM score, which the container inherits. Lowering it needs CAP_SYS_RESOURCE; where that is not to be
/// had the container goes with the score that it has, and the answer says so.
pub(super) fn set_oom_score(score: i32) -> Result<Option<String>, String> {
    match std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(Some(format!(
            "process.oomScoreAdj {score} is lower than this host lets the runtime go (no CAP_SYS_RESOURCE): the container keeps the runtime's own"
        ))),
        Err(error) => Err(format!("process.oomScoreAdj {score}: {error}")),
    }
}

/// Lowers resource limits to what this process may give, where it lacks CAP_SYS_RESOURCE.
pub(super) fn clamp_rlimits(process: &mut Process) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(mut limits) = process.rlimits().clone() else {
        return warnings;
    };
    for limit in &mut limits {
        let Some(resource) = resource(limit.typ()) else {
            continue;
        };
        let Ok((soft, most)) = getrlimit(resource) else {
            continue;
        };
        // Raising ours tells whether it can be raised.
        if limit.hard() > most && setrlimit(resource, soft, limit.hard()).is_err() {
            warnings.push(format!(
                "process.rlimits {:?}: {} is more than this host lets the runtime give (no CAP_SYS_RESOURCE): the container gets {most}",
                limit.typ(),
                limit.hard()
            ));
            let lowered = PosixRlimitBuilder::default()
                .typ(limit.typ())
                .hard(most)
                .soft(limit.soft().min(most));
            if let Ok(lowered) = lowered.build() {
                *limit = lowered;
            }
        }
    }
    process.set_rlimits(Some(limits));
    warnings
}

fn resource(kind: PosixRlimitType) -> Option<Resource> {
    Some(match kind {
        PosixRlimitType::RlimitCpu => Resource::RLIMIT_CPU,
        PosixRlimitType::RlimitFsize => Resource::RLIMIT_FSIZE,
        PosixRlimitType::RlimitData => Resource::RLIMIT_DATA,
        PosixRlimitType::RlimitStack => Resource::RLIMIT_STACK,
        PosixRlimitType::RlimitCore => Resource::RLIMIT_CORE,
        PosixRlimitType::RlimitRss => Resource::RLIMIT_RSS,
        PosixRlimitType::RlimitNproc => Resource::RLIMIT_NPROC,
        PosixRlimitType::RlimitNofile => Resource::RLIMIT_NOFILE,
        PosixRlimitType::RlimitMemlock => Resource::RLIMIT_MEMLOCK,
        PosixRlimitType::RlimitAs => Resource::RLIMIT_AS,
        PosixRlimitType::RlimitLocks => Resource::RLIMIT_LOCKS,
        PosixRlimitType::RlimitSigpending => Resource::RLIMIT_SIGPENDING,
        PosixRlimitType::RlimitMsgqueue => Resource::RLIMIT_MSGQUEUE,
        PosixRlimitType::RlimitNice => Resource::RLIMIT_NICE,
        PosixRlimitType::RlimitRtprio => Resource::RLIMIT_RTPRIO,
        PosixRlimitType::RlimitRttime => Resource::RLIMIT_RTTIME,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(json: &str) -> Process {
        serde_json::from_str(json).unwrap()
    }

    const PLAIN: &str = r#"{"cwd":"/","user":{"uid":0,"gid":0},"args":["true"],
        "capabilities":{"bounding":["CAP_CHOWN"],"effective":["CAP_CHOWN"],"permitted":["CAP_CHOWN"]}}"#;
    const SECTION: &str = r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#;

    #[test]
    fn a_filter_without_no_new_privs_is_installed_with_a_capability_that_is_given_up_after() {
        let mut process = process(PLAIN);
        let section: LinuxSeccomp = serde_json::from_str(SECTION).unwrap();
        let steps = steps(&mut process, Some(&section), false).unwrap();
        let kept = process.capabilities().as_ref().unwrap();
        assert!(
            kept.effective()
                .as_ref()
                .unwrap()
                .contains(&SpecCapability::SysAdmin)
        );
        assert!(
            !kept
                .bounding()
                .as_ref()
                .unwrap()
                .contains(&SpecCapability::SysAdmin)
        );
        let last = steps.capabilities.unwrap();
        assert_eq!(last.effective, CapsHashSet::from([Capability::CAP_CHOWN]));
        assert_eq!(last.permitted, last.effective);
    }

    #[test]
    fn the_library_is_always_told_a_home_and_the_program_only_its_own() {
        for (env, home) in [
            ("", "/"),
            (r#""A=1""#, "/"),
            (r#""HOME=""#, "/"),
            (r#""HOME""#, "/"),
            (r#""HOME=/a","HOME=""#, "/"),
            (r#""HOME=","HOME=/a""#, "/a"),
            (r#""HOME=/a""#, "/a"),
        ] {
            let json = format!(r#"{{"cwd":"/","user":{{"uid":0,"gid":0}},"args":["true"],"env":[{env}]}}"#);
            let mut process = process(&json);
            let asked = process.env().clone().unwrap_or_default();
            let steps = steps(&mut process, None, false).unwrap();
            let told = libcontainer::utils::parse_env(&process.env().clone().unwrap_or_default());
            assert_eq!(told.get("HOME").map(String::as_str), Some(home), "{env}");
            assert_eq!(steps.program.env, asked, "{env}");
        }
    }

    #[test]
    fn devices_are_made_in_plain_directories_of_the_root_only() {
        use std::os::unix::fs::symlink;
        let outside = tempfile::tempdir().unwrap();
        let spec = |root: &Path, device: &str| -> Spec {
            let json = serde_json::json!({"ociVersion": "1.2.0", "root": {"path": root}, "linux": {
                "devices": [{"path": device, "type": "c", "major": 1, "minor": 3}]}});
            serde_json::from_value(json).unwrap()
        };
        let root = |name: &str| {
            let root = outside.path().join(name);
            std::fs::create_dir_all(&root).unwrap();
            root
        };
        let plain = root("plain");
        assert_eq!(devices_have_places(&spec(&plain, "/dev/a")), Ok(()));
        std::fs::create_dir(plain.join("dev")).unwrap();
        for device in ["/dev/a", "/dev/b/c", "/a"] {
            assert_eq!(devices_have_places(&spec(&plain, device)), Ok(()), "{device}");
        }
        symlink(outside.path(), plain.join("away")).unwrap();
        assert!(devices_have_places(&spec(&plain, "/away/a")).is_err());
        assert!(devices_have_places(&spec(&plain, "/dev/../../a")).is_err());
        for (name, target) in [
            ("absolute", outside.path()),
            ("climbing", Path::new("../..")),
            ("inside", Path::new("etc")),
        ] {
            let root = root(name);
            symlink(target, root.join("dev")).unwrap();
            let refusal = devices_have_places(&spec(&root, "/dev/a")).unwrap_err();
            assert!(refusal.contains("/dev is not a plain directory"), "{refusal}");
        }
        let file = root("file");
        std::fs::write(file.join("dev"), "").unwrap();
        assert!(devices_have_places(&spec(&file, "/dev/a")).is_err());
    }

    #[test]
    fn without_a_section_no_capability_is_added() {
        let mut process = process(PLAIN);
        let before = process.capabilities().clone();
        assert!(steps(&mut process, None, false).unwrap().capabilities.is_none());
        assert_eq!(process.capabilities(), &before);
    }

    #[test]
    fn strict_is_not_put_on_a_process_that_may_gain_privileges() {
        assert!(steps(&mut process(PLAIN), None, true).is_err());
    }

    #[test]
    fn a_profile_that_lets_no_filter_follow_is_refused_with_the_mend() {
        let mut process = process(PLAIN);
        process.set_no_new_privileges(Some(true));
        let section: LinuxSeccomp = serde_json::from_str(
            r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["seccomp"],"action":"SCMP_ACT_ERRNO"}]}"#,
        )
        .unwrap();
        let error = steps(&mut process, Some(&section), true).err().unwrap();
        assert!(error.contains("allow both"), "{error}");
        assert!(steps(&mut process, Some(&section), false).is_ok());
    }

    #[test]
    fn what_is_done_around_the_library_is_not_told_to_it() {
        let json = format!(
            r#"{{"ociVersion":"1.2.0","process":{{"cwd":"/","user":{{"uid":0,"gid":0}},"oomScoreAdj":7}},
                "linux":{{"seccomp":{SECTION},"resources":{{"pids":{{"limit":3}}}}}}}}"#
        );
        let mut spec: Spec = serde_json::from_str(&json).unwrap();
        let (resources, seccomp, score) = take_around(&mut spec);
        assert!(resources.is_some() && seccomp.is_some());
        assert_eq!(score, Some(7));
        let linux = spec.linux().as_ref().unwrap();
        assert!(linux.resources().is_none() && linux.seccomp().is_none());
        assert_eq!(spec.process().as_ref().unwrap().oom_score_adj(), None);
    }
}
