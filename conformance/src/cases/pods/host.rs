//! Pods that ask for a part of the node: its namespaces, files, devices, settings.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};

use super::refuses;
use crate::case::Case;
use crate::pods::Pod;
use crate::verdict::Stop;

/// Where a container sees what it asked for.
const AT: &str = "/data";

/// The cases.
pub fn cases() -> Vec<Case> {
    [namespaces(), paths(), devices()].concat()
}

fn namespaces() -> Vec<Case> {
    vec![
        Case::code("pods/host-network", &[], "the node's network is refused", |c| {
            refuses(c, "linux.namespaces[network]", |pod| {
                pod.namespaces()["network"] = 2.into();
                // Its name is the node's as well then.
                pod.pod["hostname"] = "".into();
                Ok(())
            })
        }),
        Case::code("pods/host-pid", &[], "the node's processes are refused", |c| {
            refuses(c, "linux.namespaces[pid]", |pod| {
                pod.namespaces()["pid"] = 2.into();
                pod.context()["namespace_options"]["pid"] = 2.into();
                Ok(())
            })
        }),
        Case::code("pods/host-ipc", &[], "the node's shared memory is refused", |c| {
            refuses(c, "linux.namespaces[ipc]", |pod| {
                pod.namespaces()["ipc"] = 2.into();
                pod.context()["namespace_options"]["ipc"] = 2.into();
                Ok(())
            })
        }),
        Case::code(
            "pods/unsafe-sysctl",
            &[],
            "a sysctl that kubelet does not call safe is refused",
            |c| {
                refuses(c, "linux.sysctl[\"kernel.msgmax\"]", |pod| {
                    pod.pod["linux"]["sysctls"]["kernel.msgmax"] = "4096".into();
                    Ok(())
                })
            },
        ),
        Case::code("pods/unmasked-proc", &[], "an unmasked /proc is refused", |c| {
            refuses(c, "linux.maskedPaths", |pod| {
                pod.context()["masked_paths"] = json!([]);
                pod.context()["readonly_paths"] = json!([]);
                Ok(())
            })
        }),
        Case::code(
            "pods/writable-proc",
            &[],
            "a /proc whose settings can be written is refused",
            |c| {
                refuses(c, "linux.readonlyPaths", |pod| {
                    pod.context()["readonly_paths"] = json!([]);
                    Ok(())
                })
            },
        ),
    ]
}

fn paths() -> Vec<Case> {
    vec![
        Case::code(
            "pods/host-path",
            &[],
            "a directory of the node is refused, even to read",
            |c| {
                refuses(c, "mounts[/data].source", |pod| {
                    pod.mount(Path::new("/etc"), AT, &json!({"readonly": true}));
                    Ok(())
                })
            },
        ),
        Case::code(
            "pods/host-socket",
            &[],
            "the socket of containerd is refused",
            |c| {
                refuses(c, "mounts[/data].source", |pod| {
                    pod.mount(Path::new("/run/containerd/containerd.sock"), AT, &Value::Null);
                    Ok(())
                })
            },
        ),
        Case::code(
            "pods/volume-of-another-pod",
            &[],
            "a volume of another pod is refused",
            |c| {
                let mut other = None;
                refuses(c, "mounts[/data].source", |pod| {
                    let others = Other::new(pod)?;
                    pod.mount(&others.0.join(VOLUME), AT, &Value::Null);
                    other = Some(others);
                    Ok(())
                })
            },
        ),
        Case::code(
            "pods/local-volume",
            &[],
            "a local volume, which is a path of the node, is refused",
            |c| {
                refuses(c, "mounts[/data].source", |pod| {
                    let volume = pod.volume("kubernetes.io~local-volume", "disk")?;
                    pod.mount(&volume, AT, &Value::Null);
                    Ok(())
                })
            },
        ),
        Case::code(
            "pods/file-of-kubelet",
            &[],
            "a file of kubelet's own is refused",
            |c| {
                refuses(c, "mounts[/data].source", |pod| {
                    let plugins = pod.home.join("plugins");
                    std::fs::create_dir_all(&plugins)?;
                    pod.mount(&plugins, AT, &Value::Null);
                    Ok(())
                })
            },
        ),
        Case::code(
            "pods/mount-propagation",
            &[],
            "mounts that pass between node and container are refused",
            |c| {
                let mut shared = None;
                refuses(c, "mounts[/data].options", |pod| {
                    let volume = pod.volume("kubernetes.io~empty-dir", "shared")?;
                    shared = Some(Shared::new(pod, &volume)?);
                    pod.mount(&volume, AT, &json!({"propagation": 1}));
                    Ok(())
                })
            },
        ),
    ]
}

fn devices() -> Vec<Case> {
    vec![
        Case::code("pods/device", &[], "a device is refused", |c| {
            refuses(c, "linux.devices", |pod| {
                let device =
                    json!({"host_path": "/dev/zero", "container_path": "/dev/another", "permissions": "rwm"});
                pod.container["devices"] = json!([device]);
                Ok(())
            })
        }),
        Case::code(
            "pods/device-by-cdi",
            &[],
            "so is one that comes through CDI",
            |c| {
                let mut described = None;
                refuses(c, "linux.devices", |pod| {
                    let edits = json!({"deviceNodes": [{"path": "/dev/by-cdi", "hostPath": "/dev/zero"}]});
                    described = Some(Described::new(pod, &edits)?);
                    Ok(())
                })
            },
        ),
        Case::code(
            "pods/hook-by-cdi",
            &[],
            "a hook, which would run on the node, is refused",
            |c| {
                let mut described = None;
                refuses(c, "hooks.createRuntime", |pod| {
                    let hook =
                        json!({"hookName": "createRuntime", "path": "/usr/bin/true", "args": ["true"]});
                    described = Some(Described::new(pod, &json!({"hooks": [hook]}))?);
                    Ok(())
                })
            },
        ),
    ]
}

/// Where a pod has its volume.
const VOLUME: &str = "volumes/kubernetes.io~empty-dir/scratch";

/// The directory of another pod with a volume; taken back at its end.
struct Other(PathBuf);

impl Other {
    fn new(pod: &Pod) -> Result<Self, Stop> {
        let mut name = pod.home.file_name().unwrap_or_default().to_owned();
        name.push("-other");
        let other = Self(pod.home.with_file_name(name));
        std::fs::create_dir_all(other.0.join(VOLUME))?;
        Ok(other)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A directory whose mounts pass to others, as a node's are; taken back at its end, which comes after that of its pod, with
/// what the pod could not take away meanwhile.
struct Shared {
    dir: PathBuf,
    home: PathBuf,
}

impl Shared {
    fn new(pod: &Pod, dir: &Path) -> Result<Self, Stop> {
        let say = |e: nix::Error| Stop::from(std::io::Error::from(e));
        mount(Some(dir), dir, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(say)?;
        let shared = Self {
            dir: dir.to_owned(),
            home: pod.home.clone(),
        };
        mount(None::<&str>, dir, None::<&str>, MsFlags::MS_SHARED, None::<&str>).map_err(say)?;
        Ok(shared)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = umount2(&self.dir, MntFlags::MNT_DETACH);
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// A device as a vendor describes it to CDI, and the pod's claim of it; the description is taken back at its end.
struct Described(PathBuf);

impl Described {
    fn new(pod: &mut Pod, edits: &Value) -> Result<Self, Stop> {
        const DIR: &str = "/var/run/cdi";
        let uid = pod.pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let kind = format!("sandglass.test/{uid}");
        std::fs::create_dir_all(DIR)?;
        let described = Self(Path::new(DIR).join(format!("{uid}.json")));
        let device = json!({"name": "one", "containerEdits": edits});
        let text = json!({"cdiVersion": "0.6.0", "kind": kind, "devices": [device]});
        std::fs::write(&described.0, text.to_string())?;
        pod.container["CDI_devices"] = json!([{"name": format!("{kind}=one")}]);
        Ok(described)
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
