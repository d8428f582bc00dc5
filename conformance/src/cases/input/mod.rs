//! Bad input: each gets a clear error, exit status 125, and loses nothing.

mod files;
mod out;
mod scripts;
mod settings;

use crate::case::Case;
use crate::context::Context;
use crate::invoke::write;
use crate::verdict::Stop;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::path::{Path, PathBuf};

/// Every case of this group.
pub fn cases() -> Vec<Case> {
    [scripts::cases(), files::cases(), out::cases(), settings::cases()].concat()
}

fn script(c: &Context<'_>) -> Result<std::path::PathBuf, Stop> {
    let path = c.dir.join("script.py");
    write(&path, b"print('ran')\n")?;
    Ok(path)
}

fn mkfifo(path: &Path) -> Result<(), Stop> {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).map_err(|e| Stop::from(std::io::Error::from(e)))
}

/// A small file system that is taken away again.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: &Path, options: &str, flags: MsFlags) -> Result<Self, Stop> {
        mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options))
            .map_err(|e| Stop::from(std::io::Error::from(e)))?;
        Ok(Self(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
