//! The container's control groups: a limit that containerd's client cannot set, and the peak of its memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where hierarchies are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// containerd's namespace, below which its client puts containers.
const NAMESPACE: &str = "default";
/// How often the peak is read.
const EVERY: Duration = Duration::from_millis(10);

/// The container's group for a controller, in the hierarchy of cgroup v1 or in the one of v2.
fn dir(controller: &str, id: &str) -> Option<PathBuf> {
    let root = Path::new(ROOT);
    [root.join(controller), root.to_owned()]
        .map(|hierarchy| hierarchy.join(NAMESPACE).join(id))
        .into_iter()
        .find(|dir| dir.is_dir())
}

/// Limits the processes of a container, as a kubelet does from outside. It must not have begun its work.
///
/// # Errors
/// When it has no such group, or the limit cannot be set: the script must not be started then.
pub fn limit_pids(id: &str, pids: u32) -> Result<(), String> {
    let file = dir("pids", id)
        .ok_or_else(|| format!("{id} has no group for the limit of processes"))?
        .join("pids.max");
    std::fs::write(&file, pids.to_string()).map_err(|e| format!("{}: {e}", file.display()))
}

/// Reads the peak of a container's memory as long as it lives.
#[derive(Debug)]
pub struct Gauge {
    over: Arc<AtomicBool>,
    peak: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Gauge {
    /// Starts to read.
    pub fn start(id: &str) -> Self {
        let (over, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, seen, id) = (Arc::clone(&over), Arc::clone(&peak), id.to_owned());
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let read = |name: &str| std::fs::read_to_string(dir("memory", &id)?.join(name)).ok();
                let text = read("memory.max_usage_in_bytes").or_else(|| read("memory.peak"));
                if let Some(bytes) = text.and_then(|text| text.trim().parse().ok()) {
                    seen.fetch_max(bytes, Ordering::Relaxed);
                }
                std::thread::sleep(EVERY);
            }
        });
        Self {
            over,
            peak,
            thread: Some(thread),
        }
    }

    /// The peak that was seen; `None` if the group never was.
    pub fn peak(mut self) -> Option<u64> {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        Some(self.peak.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}
