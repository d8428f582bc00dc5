//! Pods by CRI, as a kubelet asks for them: what is asked, and whether a handler gives it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::context::Context;
use crate::runtime::Handler;
use crate::verdict::{Stop, check};

/// kubelet's directory of pods, which a stack has where a node has it.
const PODS: &str = "/var/lib/kubelet/pods";

/// A pod with one container, as the two files that `crictl` reads.
#[derive(Debug)]
pub struct Pod {
    /// The `PodSandboxConfig`.
    pub pod: Value,
    /// The `ContainerConfig`.
    pub container: Value,
    /// The pod's directory below kubelet's.
    pub home: PathBuf,
}

impl Pod {
    /// An ordinary pod: nobody, the usual masks, an `emptyDir`. What a case asks for besides is the only difference.
    ///
    /// # Errors
    /// When kubelet's directories cannot be made.
    pub fn ordinary(c: &Context<'_>) -> Result<Self, Stop> {
        let uid = c.run_id();
        let home = Path::new(PODS).join(&uid);
        let image = c.config.runtime.as_ref().map(|runtime| runtime.image.clone());
        let pod = Self {
            pod: json!({
                "metadata": {"name": uid, "namespace": "default", "uid": uid, "attempt": 0},
                "hostname": "pod",
                "log_directory": c.dir,
                "linux": {"security_context": {"namespace_options": {}, "seccomp": {"profile_type": 0}}},
            }),
            container: json!({
                "metadata": {"name": "container", "attempt": 0},
                "image": {"image": image.unwrap_or_default()},
                "command": ["sleep", "600"],
                "log_path": "container.log",
                "mounts": [],
                "linux": {
                    "resources": {"memory_limit_in_bytes": 256 << 20},
                    "security_context": {
                        "namespace_options": {"pid": 1},
                        "no_new_privs": true,
                        "seccomp": {"profile_type": 0},
                        "run_as_user": {"value": 65534},
                        "run_as_group": {"value": 65534},
                        "masked_paths": MASKED,
                        "readonly_paths": READONLY,
                    },
                },
            }),
            home,
        };
        pod.volume("kubernetes.io~empty-dir", "scratch")?;
        Ok(pod)
    }

    /// Makes a volume of the pod's, or of another's, as kubelet would.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn volume(&self, plugin: &str, name: &str) -> Result<PathBuf, Stop> {
        let path = self.home.join("volumes").join(plugin).join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Adds a mount to the container.
    pub fn mount(&mut self, from: &Path, to: &str, more: &Value) {
        let mut mount = json!({"host_path": from, "container_path": to});
        if let (Some(mount), Some(more)) = (mount.as_object_mut(), more.as_object()) {
            mount.extend(more.clone());
        }
        if let Some(mounts) = self.container["mounts"].as_array_mut() {
            mounts.push(mount);
        }
    }

    /// The container's security context.
    pub fn context(&mut self) -> &mut Value {
        &mut self.container["linux"]["security_context"]
    }

    /// The pod's namespaces; 2 is the node's.
    pub fn namespaces(&mut self) -> &mut Value {
        &mut self.pod["linux"]["security_context"]["namespace_options"]
    }

    /// Asks a handler for it, and takes it away again. The error is what the handler said.
    ///
    /// # Errors
    /// When the suite itself cannot ask.
    pub fn ask(&self, c: &Context<'_>, handler: Handler) -> Result<Result<(), String>, Stop> {
        let write = |name: &str, value: &Value| -> Result<String, Stop> {
            let path = c.dir.join(format!("{}-{name}.json", handler.name()));
            std::fs::write(&path, value.to_string())?;
            Ok(path.display().to_string())
        };
        // The same pod for both handlers, but for its name, which containerd wants to be unique.
        let mut pod = self.pod.clone();
        pod["metadata"]["namespace"] = handler.name().into();
        let (pod, container) = (write("pod", &pod)?, write("container", &self.container)?);
        let made = match crictl(&["runp", "--runtime", handler.name(), &pod])? {
            Ok(id) => id,
            Err(said) => return Ok(Err(said)),
        };
        let start = || -> Result<Result<String, String>, Stop> {
            match crictl(&["create", "--no-pull", &made, &container, &pod])? {
                Ok(id) => crictl(&["start", &id]),
                Err(said) => Ok(Err(said)),
            }
        };
        let asked = start();
        let removed = crictl(&["rmp", "--force", &made])?;
        check(
            removed.is_ok(),
            "the pod can be taken away",
            format!("{removed:?}"),
        )?;
        Ok(asked?.map(drop))
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// Runs `crictl`: what it printed, or what it said when it failed.
fn crictl(words: &[&str]) -> Result<Result<String, String>, Stop> {
    said(Command::new("crictl").args(words))
}

/// Runs a client: what it printed, or what it said when it failed.
///
/// # Errors
/// When it cannot be started.
pub fn said(command: &mut Command) -> Result<Result<String, String>, Stop> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    })
}

/// What a kubelet sends unless `procMount` says otherwise.
const MASKED: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];

/// The same, for what is only read.
const READONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];
