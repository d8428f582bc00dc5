//! The disk is full: an error that says so, and nothing left.

use std::path::Path;

use libtest_mimic::Trial;
use nix::mount::{MntFlags, MsFlags};

use crate::common::bundle::Exec;
use crate::common::shim::{bootstrap, call};
use crate::common::{Bench, Code, Outcome, contains, equal, holds, host, until};
use crate::requests::refusal;
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_full_disk_is_an_error_and_leaves_nothing", disk_full),
        trial("a_full_disk_during_exec_leaves_the_container", disk_full_in_exec),
        trial("start_on_a_full_disk_leaves_no_shim", disk_full_at_start),
    ]
}

/// A small disk of its own below a bundle.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(at: &'a Path, bytes: u32) -> Outcome<Self> {
        nix::mount::mount(
            Some("tmpfs"),
            at,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(format!("size={bytes}").as_str()),
        )?;
        Ok(Self(at))
    }

    /// Leaves as many bytes as that.
    fn fill(&self, leave: u64) -> Outcome {
        let free = nix::sys::statvfs::statvfs(self.0)?;
        let bytes = (free.blocks_available() * free.fragment_size()).saturating_sub(leave);
        std::fs::write(self.0.join("full"), vec![0; usize::try_from(bytes)?])?;
        Ok(())
    }

    fn free(&self) -> Outcome {
        Ok(std::fs::remove_file(self.0.join("full"))?)
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.0, MntFlags::MNT_DETACH);
    }
}

async fn disk_full(bench: &mut Bench) -> Outcome {
    let first = bench.bundle("first", &["true"])?;
    let shim = bench.shim(&first).await?;
    let mut failed = 0;
    // More of it each time, so that each step of making a container meets the end of the disk once.
    for pages in 0..12 {
        let bundle = bench.bundle(&format!("a{pages}"), &["sleep", "60"])?;
        let dir = bundle.dir.clone();
        std::fs::remove_dir(dir.join("rootfs"))?;
        let disk = Disk::mount(&dir, 1 << 20)?;
        std::fs::create_dir(dir.join("rootfs"))?;
        bundle.write()?;
        disk.fill(pages * 4096)?;
        match shim.create_as(&bundle.request()).await {
            Ok(_) => shim.kill_and_delete(&bundle.id).await?,
            Err(refused) => {
                failed += 1;
                equal(refused.code, Code::UNKNOWN, "status")?;
                contains(&refused.sentence, "No space left on device")?;
            }
        }
        let left: Vec<String> = bench
            .left_of(&bundle)
            .into_iter()
            .filter(|name| name != "full")
            .collect();
        equal(left, Vec::<String>::new(), "what is left on a full disk")?;
        disk.free()?;
        shim.run(&bundle).await?;
        shim.kill_and_delete(&bundle.id).await?;
    }
    holds(failed > 2, || {
        format!("{failed} creates failed on a full disk: nothing was shown")
    })
}

async fn disk_full_in_exec(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["sleep", "60"])?;
    let dir = bundle.dir.clone();
    let disk = Disk::mount(&dir, 1 << 20)?;
    std::fs::create_dir(dir.join("rootfs"))?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    disk.fill(0)?;
    let exec = Exec::new(bench, &bundle, "e", &["true"])?;
    refusal(
        shim.add_exec(&bundle.id, &exec).await,
        Code::UNKNOWN,
        "No space left on device",
    )?;
    refusal(shim.state(&bundle.id, "e").await, Code::NOT_FOUND, "not found")?;
    disk.free()?;
    shim.exec(&bundle.id, &exec).await?;
    equal(shim.end(&bundle.id, "e").await?, 0, "status")?;
    // Noted with room, started without.
    let exec = Exec::new(bench, &bundle, "f", &["true"])?;
    shim.add_exec(&bundle.id, &exec).await?;
    disk.fill(0)?;
    match shim.start_process(&bundle.id, "f").await {
        Ok(_) => equal(shim.end(&bundle.id, "f").await?, 0, "status")?,
        Err(refused) => {
            contains(&refused.sentence, "No space left on device")?;
            shim.delete(&bundle.id, "f").await?;
        }
    }
    // And everything can be taken away without any.
    shim.kill_and_delete(&bundle.id).await?;
    disk.free()?;
    holds(!dir.join("sandglass").exists(), || "the state is left".into())?;
    shim.shut_down().await
}

async fn disk_full_at_start(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["true"])?;
    let dir = bundle.dir.clone();
    let disk = Disk::mount(&dir, 1 << 20)?;
    bundle.write()?;
    disk.fill(0)?;
    let input = bootstrap(bench, &bundle.id, &bench.sockets(), None)?;
    let output = call(bench, &bundle.id, &dir, &[], "start", &input).await?;
    holds(!output.status.success(), || {
        "a shim whose address nobody can find was started".into()
    })?;
    contains(
        &String::from_utf8_lossy(&output.stderr),
        "No space left on device",
    )?;
    until("the end of the shim", || host::processes(bench.tag()).is_empty()).await?;
    drop(disk);
    equal(host::files(&bench.sockets()), Vec::<String>::new(), "sockets")
}
