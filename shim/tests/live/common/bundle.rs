//! A bundle as containerd makes it: a directory with a spec, a place for the root, and FIFOs.

use std::path::PathBuf;

use containerd_shim::protos::api::{CreateTaskRequest, ExecProcessRequest, Mount};
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use serde_json::{Value, json};

use super::fifo::{Input, Output};
use super::{Bench, Outcome, root};

/// What is asked of the shim, to be edited before it is.
pub struct Bundle {
    pub id: String,
    pub dir: PathBuf,
    /// `config.json`.
    pub spec: Value,
    /// The runtime's options, as TOML.
    pub options: String,
    /// The mounts of the root.
    pub mounts: Vec<Mount>,
    pub stdin: Option<Input>,
    pub stdout: Output,
    pub stderr: Output,
    pub terminal: bool,
}

/// A mount of the root, as containerd's snapshotter asks for it.
pub fn mount(kind: &str, source: impl AsRef<std::path::Path>, options: &[&str]) -> Mount {
    Mount {
        type_: kind.to_owned(),
        source: source.as_ref().display().to_string(),
        options: options.iter().map(ToString::to_string).collect(),
        ..Mount::default()
    }
}

/// Runtime options as containerd sends those of a runtime that it does not know.
pub fn options(toml: &str) -> Any {
    // Field 3, length-delimited: `config_body`.
    let mut value = vec![26];
    let mut length = toml.len();
    while length > 127 {
        value.push((length & 127) as u8 | 128);
        length >>= 7;
    }
    value.push(length as u8);
    value.extend(toml.as_bytes());
    Any {
        type_url: "runtimeoptions.v1.Options".into(),
        value,
        ..Any::default()
    }
}

impl Bundle {
    pub fn new(bench: &Bench, name: &str, args: &[&str]) -> Outcome<Self> {
        let id = bench.id(name);
        let dir = bench.dir().join("b").join(&id);
        std::fs::create_dir_all(dir.join("rootfs"))?;
        let fifo = |stream: &str| bench.dir().join(format!("{name}-{stream}"));
        Ok(Self {
            spec: spec(&bench.cgroup(name), args),
            mounts: vec![mount("bind", root::shared()?, &["rbind", "ro"])],
            stdin: None,
            stdout: Output::make(&fifo("out"))?,
            stderr: Output::make(&fifo("err"))?,
            options: String::new(),
            terminal: false,
            id,
            dir,
        })
    }

    /// The pod's own spec exactly, as root with the capabilities that containerd gives.
    pub fn by_spec(mut self) -> Self {
        self.options = "hardening = \"spec\"".into();
        self.spec["process"]["user"] = json!({"uid": 0, "gid": 0});
        self.spec["process"]["noNewPrivileges"] = json!(false);
        self
    }

    pub fn with_stdin(mut self, bench: &Bench) -> Outcome<Self> {
        let path = bench.dir().join(format!("{}-in", self.id));
        self.stdin = Some(Input::make(&path)?);
        Ok(self)
    }

    pub fn with_terminal(mut self) -> Self {
        self.terminal = true;
        self.spec["process"]["terminal"] = json!(true);
        self
    }

    pub fn edited(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.spec);
        self
    }

    /// Writes `config.json`, as containerd does before it asks.
    pub fn write(&self) -> Outcome {
        Ok(std::fs::write(
            self.dir.join("config.json"),
            self.spec.to_string(),
        )?)
    }

    /// The request to create it.
    pub fn request(&self) -> CreateTaskRequest {
        CreateTaskRequest {
            id: self.id.clone(),
            bundle: self.dir.display().to_string(),
            rootfs: self.mounts.clone(),
            terminal: self.terminal,
            stdin: self
                .stdin
                .as_ref()
                .map(|fifo| fifo.path.display().to_string())
                .unwrap_or_default(),
            stdout: self.stdout.path.display().to_string(),
            stderr: if self.terminal {
                String::new()
            } else {
                self.stderr.path.display().to_string()
            },
            options: (!self.options.is_empty()).then(|| options(&self.options)).into(),
            ..CreateTaskRequest::default()
        }
    }

    pub fn input(&self) -> Outcome<&Input> {
        self.stdin
            .as_ref()
            .ok_or_else(|| "the bundle has no input".into())
    }

    /// Where its cgroups are, below each hierarchy.
    pub fn cgroup(&self) -> String {
        self.spec["linux"]["cgroupsPath"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// A process to be started in a container, as containerd asks for it.
pub struct Exec {
    pub id: String,
    pub process: Value,
    pub stdin: Option<Input>,
    pub stdout: Output,
    pub terminal: bool,
}

impl Exec {
    pub fn new(bench: &Bench, bundle: &Bundle, id: &str, args: &[&str]) -> Outcome<Self> {
        let mut process = bundle.spec["process"].clone();
        process["args"] = json!(args);
        process["terminal"] = json!(false);
        let path = bench.dir().join(format!("{}-{id}-out", bundle.id));
        Ok(Self {
            id: id.to_owned(),
            process,
            stdin: None,
            stdout: Output::make(&path)?,
            terminal: false,
        })
    }

    pub fn with_stdin(mut self, bench: &Bench) -> Outcome<Self> {
        let path = bench.dir().join(format!("{}-in", self.id));
        self.stdin = Some(Input::make(&path)?);
        Ok(self)
    }

    pub fn with_terminal(mut self) -> Self {
        self.terminal = true;
        self.process["terminal"] = json!(true);
        self
    }

    pub fn edited(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.process);
        self
    }

    pub fn request(&self, container: &str) -> ExecProcessRequest {
        ExecProcessRequest {
            id: container.to_owned(),
            exec_id: self.id.clone(),
            terminal: self.terminal,
            stdin: self
                .stdin
                .as_ref()
                .map(|fifo| fifo.path.display().to_string())
                .unwrap_or_default(),
            stdout: self.stdout.path.display().to_string(),
            spec: Some(Any {
                type_url: "types.containerd.io/opencontainers/runtime-spec/1/Process".into(),
                value: self.process.to_string().into_bytes(),
                ..Any::default()
            })
            .into(),
            ..ExecProcessRequest::default()
        }
    }
}

/// A spec as `ctr` writes it, of a process that is nobody.
fn spec(cgroup: &str, args: &[&str]) -> Value {
    let default = json!([
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FSETID",
        "CAP_FOWNER",
        "CAP_MKNOD",
        "CAP_NET_RAW",
        "CAP_SETGID",
        "CAP_SETUID",
        "CAP_SETFCAP",
        "CAP_SETPCAP",
        "CAP_NET_BIND_SERVICE",
        "CAP_SYS_CHROOT",
        "CAP_KILL",
        "CAP_AUDIT_WRITE"
    ]);
    let mount = |at: &str, kind: &str, options: &[&str]| json!({"destination": at, "type": kind, "source": kind, "options": options});
    let allow = |major: u32, minor: u32| json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"});
    json!({
        "ociVersion": "1.2.0",
        "process": {
            "user": {"uid": 65534, "gid": 65534},
            "args": args,
            "env": ["PATH=/bin"],
            "cwd": "/",
            "capabilities": {"bounding": default, "effective": default, "permitted": default},
            "noNewPrivileges": true,
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
        },
        "root": {"path": "rootfs"},
        "hostname": "pod",
        "mounts": [
            mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
            mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
            mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
            mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
            mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
            mount("/run", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ],
        "linux": {
            "namespaces": [
                {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network"}
            ],
            "cgroupsPath": cgroup,
            "resources": {
                "devices": [
                    {"allow": false, "access": "rwm"}, allow(1, 3), allow(1, 5), allow(1, 7), allow(1, 8),
                    allow(1, 9), allow(5, 0), allow(5, 1), allow(5, 2),
                    {"allow": true, "type": "c", "major": 136, "access": "rwm"}
                ],
            },
            "maskedPaths": [
                "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
                "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi"
            ],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}
