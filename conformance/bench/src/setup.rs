//! What every section stands on: an image, a directory of its own, the other programs.

use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use sandglass_figures::host::{kernel, load, version};
use serde::Serialize;
use tempfile::TempDir;

use crate::alive::WAITER;
use crate::cli::Cli;
use crate::error::{BenchError, Result};
use crate::view::View;
use crate::ways::bare::Bare;
use crate::ways::bwrap::Bwrap;
use crate::ways::oci::{self, Oci};
use crate::ways::sandglass::{CommandLine, Library, Ours};
use crate::ways::{Name, Way};
use crate::workload::Workload;

/// What is measured, and on what.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that a run may use in every row.
    pub cpus: f64,
    /// Load averages at the start: what else ran.
    pub load: String,
    /// The image by digest.
    pub image: String,
    /// The other programs: their first line of `--version`, or why they are not measured.
    pub others: Vec<(String, String)>,
}

/// Everything that the sections need. Dropping it removes what it made.
#[derive(Debug)]
pub struct Ground {
    /// How ours is called.
    pub ours: Ours,
    /// What the others show.
    pub view: View,
    /// bwrap.
    pub bwrap: Bwrap,
    /// What is measured.
    pub host: Host,
    runtimes: Vec<(Name, PathBuf)>,
    dir: TempDir,
}

impl Ground {
    /// Looks for everything, and tries the runtimes once.
    ///
    /// # Errors
    /// Not root, no image, no bwrap, a directory that cannot be made.
    pub fn new(cli: &Cli) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            let what = "The rows are compared as root, which runc needs; run this as root.";
            return Err(BenchError::Setup(what.into()));
        }
        // What the others leave without a parent is ours to reap.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(BenchError::doing("Becoming the reaper of orphans"))?;
        let image = sandglass_image::Store::open(&cli.store)
            .resolve(None)
            .map_err(|e| {
                BenchError::Setup(format!(
                    "{e} Build it with `make image`, or name it with --store."
                ))
            })?;
        // As the state of runs itself: `/run` is in memory on most hosts.
        let dir = tempfile::Builder::new()
            .prefix("sandglass-bench-")
            .tempdir_in("/run")
            .or_else(|_| tempfile::tempdir())
            .map_err(BenchError::doing("Making a directory"))?;
        let made = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path)
                .map_err(BenchError::at("Making", &path))
                .map(|()| path)
        };
        let (scripts, state, rootfs, oci) = (made("scripts")?, made("state")?, made("rootfs")?, made("oci")?);
        open_up(dir.path()).map_err(BenchError::doing("Opening the directory up"))?;
        bind_privately(&image.rootfs, &rootfs).map_err(BenchError::doing("Binding the image"))?;
        let waiter = scripts.join(WAITER.0);
        std::fs::write(&waiter, WAITER.1).map_err(BenchError::at("Writing", &waiter))?;
        let cpus = cli.cpus.unwrap_or_else(all_cpus);
        let view = View::new(&rootfs, &scripts, cpus)?;
        let ours = Ours {
            program: cli.sandglass.clone(),
            store: cli.store.clone(),
            state,
            scripts,
            cpus,
        };
        let bwrap = Bwrap::new(&cli.bwrap, &view);
        let mut ground = Self {
            ours,
            view,
            bwrap,
            host: Host {
                kernel: kernel(),
                cpus,
                load: load(),
                image: image.digest,
                others: vec![("bwrap".into(), version(&cli.bwrap))],
            },
            runtimes: Vec::new(),
            dir,
        };
        ground.bwrap.clone().run(Workload::True)?;
        ground.try_runtime("runc", &[Name::RuncRun, Name::Runc], cli.runc.as_deref(), &oci);
        ground.try_runtime("crun", &[Name::CrunRun, Name::Crun], cli.crun.as_deref(), &oci);
        Ok(ground)
    }

    /// A runtime that cannot run `true` here is not measured, and the reason is told.
    fn try_runtime(&mut self, title: &str, names: &[Name], program: Option<&Path>, dir: &Path) {
        let Some(program) = program else {
            let reason = format!("not measured: name one with --{title}");
            self.host.others.push((title.into(), reason));
            return;
        };
        let try_it = || {
            names.iter().try_for_each(|name| {
                Oci::new(*name, program, dir, &self.view)?
                    .run(Workload::True)
                    .map(drop)
            })
        };
        let mut note = "";
        let tried = try_it().or_else(|error| {
            if !error.to_string().contains("hybrid") {
                return Err(error);
            }
            // Some crun refuse a host that has an unused v2 tree beside its v1 hierarchies. It goes from this mount
            // namespace only, and so from the sight of every row alike.
            let tree = Path::new("/sys/fs/cgroup/unified");
            // What another runtime made in it could not be taken away later.
            oci::remove_cgroups();
            nix::mount::umount2(tree, nix::mount::MntFlags::MNT_DETACH)
                .map_err(BenchError::at("Hiding", tree))?;
            note = ", with the unused cgroup v2 tree out of sight";
            try_it()
        });
        let said = match tried {
            Ok(()) => {
                self.runtimes
                    .extend(names.iter().map(|name| (*name, program.to_owned())));
                format!("{}{note}", version(program))
            }
            Err(error) => format!(
                "not measured: {} does not run `true` here: {error}",
                version(program)
            ),
        };
        self.host.others.push((title.into(), said));
    }

    /// All the ways to run, the plainest first.
    ///
    /// # Errors
    /// One that cannot be set up.
    pub fn ways(&self) -> Result<Vec<Box<dyn Way>>> {
        let mut ways: Vec<Box<dyn Way>> =
            vec![Box::new(Bare::start(&self.view)?), Box::new(self.bwrap.clone())];
        for (name, program) in &self.runtimes {
            ways.push(Box::new(Oci::new(
                *name,
                program,
                &self.dir.path().join("oci"),
                &self.view,
            )?));
        }
        ways.push(Box::new(CommandLine(self.ours.clone())));
        ways.push(Box::new(Library::new(&self.ours)?));
        Ok(ways)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.view.rootfs, nix::mount::MntFlags::MNT_DETACH);
        oci::remove_cgroups();
    }
}

/// The runtimes' ids must be able to pass through.
fn open_up(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711))
}

/// Binds the image where every id can reach it, in a mount namespace of the benchmark's own, so that nothing of it is
/// left on the host.
fn bind_privately(image: &Path, at: &Path) -> nix::Result<()> {
    let none = None::<&str>;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)?;
    nix::mount::mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    nix::mount::mount(Some(image), at, none, MsFlags::MS_BIND, none)?;
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    nix::mount::mount(none, at, none, read_only, none)
}

fn all_cpus() -> f64 {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A count of CPUs: small.
    #[allow(clippy::cast_precision_loss)]
    let count = count as f64;
    count
}
