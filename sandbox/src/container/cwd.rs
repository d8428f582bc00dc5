//! The working directory of a process: made where it is missing, as other runtimes do, and named where it cannot be had.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::Spec;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, mkdirat, openat2};
use rustix::io::Errno;

/// What the container library says of any step that failed in the new process, this one among them.
const NOTHING_SAID: &str = "failed to unix syscall";

fn open(root: impl std::os::fd::AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Links of the image are followed as the container would follow them, and never out of its root.
    openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
}

fn open_root(root: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(root, flags, Mode::empty())
}

/// True for a working directory below a mount of the container's, where it can be made only when that is there.
pub(super) fn lies_in_a_mount(spec: &Spec) -> bool {
    let Some(process) = spec.process() else {
        return false;
    };
    let mounts = spec.mounts().iter().flatten();
    mounts
        .map(|mount| mount.destination().as_path())
        .any(|at| at != Path::new("/") && process.cwd() != at && process.cwd().starts_with(at))
}

/// Makes a working directory in the container's root, and what leads to it. One that cannot be made, as on a root that
/// is read-only, shows when the process is to enter it. It is root's, whose ids on the host are `owner` in a container
/// with a user namespace.
pub(super) fn make(root: &Path, cwd: &Path, owner: Option<(u32, u32)>) {
    let _ = try_make(root, cwd, owner);
}

fn try_make(root: &Path, cwd: &Path, owner: Option<(u32, u32)>) -> rustix::io::Result<()> {
    let root = open_root(root)?;
    let mut parent = open(&root, Path::new("."))?;
    let mut so_far = PathBuf::new();
    for part in cwd.components() {
        let Component::Normal(name) = part else { continue };
        so_far.push(name);
        parent = match open(&root, &so_far) {
            Err(Errno::NOENT) => {
                mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
                if let Some((uid, gid)) = owner {
                    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
                    chownat(&parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                }
                open(&root, &so_far)?
            }
            found => found?,
        };
    }
    Ok(())
}

/// The library's sentence; where it says nothing and the working directory is missing, one that names it.
pub(super) fn explain(said: String, root: &Path, cwd: &Path) -> String {
    let there = open_root(root).and_then(|root| open(root, cwd));
    match there {
        Err(error) if said.ends_with(NOTHING_SAID) => {
            format!(
                "process.cwd is {cwd:?}, which cannot be entered: {}",
                std::io::Error::from(error)
            )
        }
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_missing_is_made_with_what_leads_to_it() {
        let root = tempfile::tempdir().unwrap();
        make(root.path(), Path::new("/a/b/c"), None);
        assert!(root.path().join("a/b/c").is_dir());
        make(root.path(), Path::new("/a/b/c/"), None);
        make(root.path(), Path::new("/"), None);
    }

    #[test]
    fn what_lies_below_a_mount_is_made_there() {
        let spec = |cwd: &str| -> Spec {
            let json = format!(
                r#"{{"ociVersion":"1.2.0","process":{{"cwd":"{cwd}","user":{{"uid":0,"gid":0}}}},
                "mounts":[{{"destination":"/"}},{{"destination":"/work"}},{{"destination":"/data/in"}}]}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        for cwd in ["/work/a", "/work/a/b", "/data/in/a/"] {
            assert!(lies_in_a_mount(&spec(cwd)), "{cwd}");
        }
        for cwd in ["/", "/work", "/work/", "/workshop", "/data", "/data/out", "/home"] {
            assert!(!lies_in_a_mount(&spec(cwd)), "{cwd}");
        }
    }

    #[test]
    fn nothing_is_made_outside_of_the_root() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::os::unix::fs::symlink("../..", root.join("up")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("away")).unwrap();
        make(&root, Path::new("/up/new"), None);
        make(&root, Path::new("/../climbed"), None);
        make(&root, Path::new("/away/new"), None);
        let mut names: Vec<_> = std::fs::read_dir(outside.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["root"]);
        assert!(root.join("new").is_dir() && root.join("climbed").is_dir());
    }

    #[test]
    fn only_a_missing_directory_takes_the_place_of_what_was_said() {
        let root = tempfile::tempdir().unwrap();
        let nothing = || format!("in the new process: {NOTHING_SAID}");
        let said = explain(nothing(), root.path(), Path::new("/no/such"));
        assert!(
            said.contains("process.cwd is \"/no/such\"") && said.contains("No such file"),
            "{said}"
        );
        assert_eq!(explain(nothing(), root.path(), Path::new("/")), nothing());
        assert_eq!(explain("else".into(), root.path(), Path::new("/no/such")), "else");
    }
}
