//! What every row shows to the program that it runs: the same files, the same environment.

use std::path::{Path, PathBuf};

use crate::error::{BenchError, Result};
use crate::workload::Workload;

/// Where the image keeps matplotlib's font cache, made ahead, and where matplotlib is told to look for it.
const FONT_CACHE: &str = "usr/share/sandglass/matplotlib";
/// The directory of links to it: it must be writable, or matplotlib makes its cache anew.
pub const FONT_CACHE_LINKS: &str = "/tmp/.matplotlib";

/// Directories that are empty, writable and in memory, beside `/dev/shm`.
pub const SCRATCH: [&str; 3] = ["/work", "/out", "/tmp"];

/// The image and the scripts, where they can be bound from.
#[derive(Debug, Clone)]
pub struct View {
    /// The unpacked image.
    pub rootfs: PathBuf,
    /// The directory of scripts.
    pub scripts: PathBuf,
    /// Links to the font cache: their name below [`FONT_CACHE_LINKS`] and where they lead.
    pub font_caches: Vec<(String, String)>,
    /// CPUs that a run may use.
    pub cpus: f64,
}

impl View {
    /// Writes the scripts and looks for the font cache.
    ///
    /// # Errors
    /// Files that cannot be written, and an image without a font cache: charts would be measured cold then.
    pub fn new(rootfs: &Path, scripts: &Path, cpus: f64) -> Result<Self> {
        for workload in Workload::ALL {
            if let Some((name, text)) = workload.script() {
                let path = scripts.join(name);
                std::fs::write(&path, text).map_err(BenchError::at("Writing", &path))?;
            }
        }
        let cache = rootfs.join(FONT_CACHE);
        let entries = std::fs::read_dir(&cache).map_err(BenchError::at("Reading", &cache))?;
        let font_caches = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let target = format!("/{FONT_CACHE}/{name}");
                name.starts_with("fontlist-").then_some((name, target))
            })
            .collect();
        Ok(Self {
            rootfs: rootfs.to_owned(),
            scripts: scripts.to_owned(),
            font_caches,
            cpus,
        })
    }

    /// The environment that the runner gives to a script.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        // A count of processors: small and whole.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let threads = (self.cpus.ceil() as u32).max(1).to_string();
        [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("HOME", "/work"),
            ("USER", "nobody"),
            ("TMPDIR", "/tmp"),
            ("LANG", "C.UTF-8"),
            ("LC_ALL", "C.UTF-8"),
            ("TZ", "UTC"),
            ("PYTHONUNBUFFERED", "1"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("MPLBACKEND", "Agg"),
            ("MPLCONFIGDIR", FONT_CACHE_LINKS),
            ("OPENBLAS_NUM_THREADS", &threads),
            ("OMP_NUM_THREADS", &threads),
            ("NODE_OPTIONS", "--max-old-space-size=384"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .to_vec()
    }
}
