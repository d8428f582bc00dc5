use super::*;

const HYBRID: &str = "\
30 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
const UNIFIED: &str = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";

fn paths(mountinfo: &str, path: &str, systemd: bool) -> Result<Vec<String>, String> {
    PodCgroup::plan(mountinfo, Some(Path::new(path)), "id", systemd)
        .map(|planned| {
            planned
                .dirs
                .iter()
                .map(|dir| dir.path.display().to_string())
                .collect()
        })
        .map_err(|error| error.to_string())
}

#[test]
fn a_container_gets_a_cgroup_in_every_v1_hierarchy() {
    assert_eq!(
        paths(HYBRID, "/kubepods/pod1/c", false).unwrap(),
        [
            "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c",
            "/sys/fs/cgroup/memory/kubepods/pod1/c",
            "/sys/fs/cgroup/systemd/kubepods/pod1/c",
        ]
    );
}

#[test]
fn a_container_gets_one_cgroup_on_v2() {
    assert_eq!(
        paths(UNIFIED, "/kubepods/pod1/c", false).unwrap(),
        ["/sys/fs/cgroup/kubepods/pod1/c"]
    );
    assert_eq!(
        paths(UNIFIED, "", false).unwrap(),
        ["/sys/fs/cgroup/sandglass/id"]
    );
}

#[test]
fn a_scope_lies_in_its_slices() {
    assert_eq!(
        paths(UNIFIED, "kubepods-burstable-pod1.slice:cri-containerd:abc", true).unwrap(),
        [
            "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-abc.scope"
        ]
    );
}

#[test]
fn a_path_that_leads_elsewhere_is_refused() {
    for path in ["/../x", "/a/../../b", "/"] {
        let error = paths(UNIFIED, path, false).unwrap_err();
        assert!(error.contains("linux.cgroupsPath"), "{error}");
    }
    for path in ["a/b:c:d", "s:p:", "s:p:a:b", "..:p:x"] {
        assert!(paths(UNIFIED, path, true).is_err(), "{path}");
    }
}

#[test]
fn the_form_of_systemd_needs_the_option_and_v2() {
    let error = paths(UNIFIED, "s.slice:p:n", false).unwrap_err();
    assert!(error.contains("systemd_cgroup"), "{error}");
    let error = paths(HYBRID, "s.slice:p:n", true).unwrap_err();
    assert!(error.contains("needs cgroup v2"), "{error}");
    assert!(PodCgroup::plan("", None, "id", false).is_err());
}

/// A hierarchy of plain directories, in which `kubepods` is there already.
fn hierarchy() -> tempfile::TempDir {
    let mount = tempfile::tempdir().unwrap();
    std::fs::create_dir(mount.path().join("kubepods")).unwrap();
    mount
}

fn planned(mount: &Path) -> PodCgroup {
    let line = format!("31 30 0:27 / {} rw - cgroup cgroup rw,cpu", mount.display());
    PodCgroup::plan(&line, Some(Path::new("/kubepods/pod1/deep/c")), "id", false).unwrap()
}

/// What whoever comes after a crash reads.
fn on_disk(cgroup: &PodCgroup) -> PodCgroup {
    serde_json::from_slice(&serde_json::to_vec(cgroup).unwrap()).unwrap()
}

#[test]
fn after_a_kill_at_any_moment_everything_that_was_made_is_removed_and_nothing_else() {
    let steps = ["", "kubepods/pod1", "kubepods/pod1/deep", "kubepods/pod1/deep/c"];
    for made in steps {
        let mount = hierarchy();
        let mut cgroup = planned(mount.path());
        cgroup.foresee();
        let record = on_disk(&cgroup);
        std::fs::create_dir_all(mount.path().join(made)).unwrap();
        record.remove().unwrap();
        assert!(!mount.path().join("kubepods/pod1").exists(), "killed at {made:?}");
        assert!(mount.path().join("kubepods").exists(), "killed at {made:?}");
    }
}

#[test]
fn a_parent_that_somebody_else_made_in_between_is_not_ours() {
    let mount = hierarchy();
    let mut cgroup = planned(mount.path());
    cgroup.foresee();
    std::fs::create_dir(mount.path().join("kubepods/pod1")).unwrap();
    cgroup.create().unwrap();
    on_disk(&cgroup).remove().unwrap();
    assert!(mount.path().join("kubepods/pod1").exists());
    assert!(!mount.path().join("kubepods/pod1/deep").exists());
}

#[test]
fn a_parent_in_which_others_are_stays() {
    let mount = hierarchy();
    let mut cgroup = planned(mount.path());
    cgroup.foresee();
    cgroup.create().unwrap();
    std::fs::create_dir(mount.path().join("kubepods/pod1/other")).unwrap();
    on_disk(&cgroup).remove().unwrap();
    assert!(mount.path().join("kubepods/pod1/other").exists());
    assert!(!mount.path().join("kubepods/pod1/deep").exists());
}
