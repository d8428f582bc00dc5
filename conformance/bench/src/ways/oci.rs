//! OCI runtimes, given the same hardened spec that ours gives to its container library, and Docker's seccomp profile.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use sandglass_sandbox::spec::{Identity, Shape, hardened};
use serde_json::{Value, json};

use super::{Name, Way};
use crate::error::{BenchError, Result};
use crate::timed::{PATIENCE, poll_exit, timed};
use crate::view::{FONT_CACHE_LINKS, View};
use crate::workload::Workload;

/// What Docker's default profile comes to for a container without capabilities.
const DOCKER_DEFAULT: &str = include_str!("../../../../seccomp-profiles/tests/fixtures/docker-default.json");
/// First host id of the container's user namespace: one range of 65 536 below all that ours takes.
const FIRST_ID: u32 = 0x6fff_0000;
/// The cgroup below which the runtimes make theirs.
pub const CGROUP: &str = "sandglass-bench";

/// An OCI runtime.
#[derive(Debug)]
pub struct Oci {
    name: Name,
    program: PathBuf,
    /// Bundles and the runtime's state.
    dir: PathBuf,
    count: u64,
}

impl Oci {
    /// Writes a bundle for each workload.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn new(name: Name, program: &Path, dir: &Path, view: &View) -> Result<Self> {
        let dir = dir.join(format!("{name:?}").to_lowercase());
        for workload in Workload::ALL {
            let bundle = bundle(&dir, workload);
            std::fs::create_dir_all(&bundle).map_err(BenchError::at("Making", &bundle))?;
            let config = config(view, workload)?;
            let path = bundle.join("config.json");
            std::fs::write(&path, config.to_string()).map_err(BenchError::at("Writing", &path))?;
        }
        Ok(Self {
            name,
            program: program.to_owned(),
            dir,
            count: 0,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(self.dir.join("state"));
        command
    }

    /// Makes, starts, waits for and deletes a container: what an engine asks of its runtime.
    fn create_start_delete(&self, bundle: &Path, id: &str) -> Result<Duration> {
        let pid_file = self.dir.join("pid");
        let begin = Instant::now();
        let create = self
            .command()
            .arg("create")
            .arg("--bundle")
            .arg(bundle)
            .arg("--pid-file")
            .arg(&pid_file)
            .arg(id)
            .run_timed();
        if create.is_err() {
            // Half a container leaves a cgroup behind.
            let _ = self.command().args(["delete", "--force", id]).run_timed();
        }
        create?;
        let ended = self.start_and_wait(&pid_file, id);
        let deleted = self.command().args(["delete", "--force", id]).run_timed();
        let took = begin.elapsed();
        ended?;
        deleted?;
        Ok(took)
    }

    /// This process is the reaper of orphans, so the container's first process is a child of its own by now.
    fn start_and_wait(&self, pid_file: &Path, id: &str) -> Result<()> {
        let pid = std::fs::read_to_string(pid_file)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| BenchError::Setup("The runtime wrote no process id.".into()))?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(BenchError::doing("Looking at the container"))?;
        let started = self.command().args(["start", id]).run_timed();
        if started.is_err() || !poll_exit(&pidfd, PATIENCE) {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
        }
        let status = rustix::process::waitpid(Some(pid), WaitOptions::empty())
            .map_err(BenchError::doing("Waiting for the container"))?;
        started?;
        match status.and_then(|(_, status)| status.exit_status()) {
            Some(0) => Ok(()),
            other => Err(BenchError::Setup(format!("The container ended with {other:?}."))),
        }
    }
}

/// A builder's last step, so that a chain can be timed.
trait IntoTimed {
    fn run_timed(&mut self) -> Result<Duration>;
}

impl IntoTimed for Command {
    fn run_timed(&mut self) -> Result<Duration> {
        timed(self)
    }
}

fn bundle(dir: &Path, workload: Workload) -> PathBuf {
    dir.join(format!("{workload:?}").to_lowercase())
}

impl Way for Oci {
    fn name(&self) -> Name {
        self.name
    }

    fn run(&mut self, workload: Workload) -> Result<Duration> {
        self.count += 1;
        let id = format!(
            "bench-{}-{}-{}",
            std::process::id(),
            format!("{:?}", self.name).to_lowercase(),
            self.count
        );
        let bundle = bundle(&self.dir, workload);
        if matches!(self.name, Name::RuncRun | Name::CrunRun) {
            return timed(self.command().arg("run").arg("--bundle").arg(bundle).arg(id));
        }
        self.create_start_delete(&bundle, &id)
    }
}

/// The spec: ours, with the command, the script, limits and filter that ours brings in other ways.
fn config(view: &View, workload: Workload) -> Result<Value> {
    let broken = |e: &dyn std::fmt::Display| BenchError::Setup(format!("The spec cannot be made: {e}."));
    let limits = sandglass_run::Limits::default();
    let spec = hardened(&Shape {
        rootfs: view.rootfs.clone(),
        args: with_font_cache(view, workload),
        identity: Identity::Range { base: FIRST_ID },
        scratch_bytes: limits.scratch_bytes,
        pids: limits.pids,
    })
    .map_err(|e| broken(&e))?;
    let mut spec = serde_json::to_value(spec).map_err(|e| broken(&e))?;
    let environment: Vec<String> = view
        .environment()
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    spec["process"]["env"] = json!(environment);
    spec["process"]["cwd"] = json!("/work");
    // Nothing here is newer, and a crun of some years refuses to hear of a later one.
    spec["ociVersion"] = json!("1.0.2");
    let linux = &mut spec["linux"];
    // Ours makes this one itself, where it has the right root.
    if let Some(namespaces) = linux["namespaces"].as_array_mut() {
        namespaces.push(json!({ "type": "cgroup" }));
    }
    linux["cgroupsPath"] = json!(format!("/{CGROUP}/{}", std::process::id()));
    linux["seccomp"] = serde_json::from_str(DOCKER_DEFAULT).map_err(|e| broken(&e))?;
    // A small count: the product is exact.
    #[allow(clippy::cast_possible_truncation)]
    let quota = (view.cpus * 100_000.0) as i64;
    linux["resources"] = json!({
        "memory": { "limit": limits.memory_bytes },
        "cpu": { "quota": quota, "period": 100_000 },
        "pids": { "limit": limits.pids },
    });
    if let (Some((name, _)), Some(mounts)) = (workload.script(), spec["mounts"].as_array_mut()) {
        mounts.push(json!({
            "destination": format!("/work/{name}"),
            "source": view.scripts.join(name),
            "type": "bind",
            "options": ["bind", "ro", "nosuid", "nodev"],
        }));
    }
    Ok(spec)
}

/// A spec cannot say that a link is made in a tmpfs, so the chart's shell makes it.
fn with_font_cache(view: &View, workload: Workload) -> Vec<String> {
    let argv = workload.argv();
    if workload != Workload::Chart {
        return argv.iter().map(|word| (*word).to_owned()).collect();
    }
    let links: String = view
        .font_caches
        .iter()
        .map(|(name, target)| format!("ln -s {target} {FONT_CACHE_LINKS}/{name} && "))
        .collect();
    let line = format!("mkdir {FONT_CACHE_LINKS} && {links} exec {}", argv.join(" "));
    ["sh", "-c", &line].map(str::to_owned).to_vec()
}

/// Removes the parents of the runtimes' cgroups, which they leave behind, and what a failed one left in them.
pub fn remove_cgroups() {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root).into_iter().flatten().flatten();
    for hierarchy in hierarchies.map(|entry| entry.path()).chain([root.to_owned()]) {
        let parent = hierarchy.join(CGROUP);
        for child in std::fs::read_dir(&parent).into_iter().flatten().flatten() {
            // Only an empty one goes; the control files are no directories.
            let _ = std::fs::remove_dir(child.path());
        }
        let _ = std::fs::remove_dir(&parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View {
            rootfs: "/image".into(),
            scripts: "/scripts".into(),
            font_caches: vec![("fontlist-v1.json".into(), "/cache/fontlist-v1.json".into())],
            cpus: 2.0,
        }
    }

    #[test]
    fn the_bundle_has_every_control_that_an_oci_runtime_can_give() {
        let spec = config(&view(), Workload::Python).unwrap();
        assert_eq!(spec["process"]["args"], json!(["python3", "-c", "pass"]));
        assert_eq!(spec["process"]["noNewPrivileges"], json!(true));
        assert_eq!(spec["process"]["capabilities"]["bounding"], json!([]));
        assert_eq!(
            spec["process"].get("oomScoreAdj").unwrap_or(&Value::Null),
            &Value::Null
        );
        assert_eq!(spec["linux"]["seccomp"]["defaultAction"], json!("SCMP_ACT_ERRNO"));
        assert_eq!(spec["linux"]["resources"]["cpu"]["quota"], json!(200_000));
        assert_eq!(spec["linux"]["resources"]["memory"]["limit"], json!(512 << 20));
        assert_eq!(spec["linux"]["namespaces"].as_array().unwrap().len(), 7);
        assert!(!spec["linux"]["maskedPaths"].as_array().unwrap().is_empty());
    }

    #[test]
    fn the_chart_finds_a_warm_font_cache() {
        let args = with_font_cache(&view(), Workload::Chart);
        assert!(
            args[2].contains("ln -s /cache/fontlist-v1.json /tmp/.matplotlib/fontlist-v1.json"),
            "{args:?}"
        );
        assert!(args[2].ends_with("exec python3 /work/chart.py"), "{args:?}");
    }
}
