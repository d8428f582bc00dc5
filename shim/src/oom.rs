//! Hearing of kills for want of memory when they happen, and not only at the end of a container.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use sandglass_sandbox::cgroup::{Version, arm_v1_oom};
use tokio::io::unix::AsyncFd;

use crate::container::Container;

/// Watches a container's memory until it is gone. A host without a memory controller has nothing to watch.
pub fn watch(container: &Arc<Container>) {
    let Some((path, version)) = container.cgroup().oom_file() else {
        return;
    };
    match bell(&path, version).and_then(crate::watched::readable) {
        Ok(bell) => {
            tokio::spawn(listen(bell, Arc::downgrade(container)));
        }
        Err(error) => {
            tracing::warn!(container = container.id, %error, "kills for want of memory will be told at the end only")
        }
    }
}

/// A descriptor that becomes readable at a kill, and when the cgroup goes away.
fn bell(path: &Path, version: Version) -> std::io::Result<OwnedFd> {
    match version {
        Version::V1 => {
            let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
            let event: OwnedFd = event.into();
            arm_v1_oom(path, &event)?;
            Ok(event)
        }
        Version::V2 => {
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
            inotify.add_watch(path, AddWatchFlags::IN_MODIFY)?;
            inotify.as_fd().try_clone_to_owned()
        }
    }
}

async fn listen(bell: AsyncFd<OwnedFd>, container: Weak<Container>) {
    while let Ok(mut guard) = bell.readable().await {
        let mut rung = [0_u8; 4096];
        let _ = rustix::io::read(bell.get_ref(), &mut rung);
        guard.clear_ready();
        let Some(container) = container.upgrade() else {
            return;
        };
        // On v1 it rings before the kill is counted; the end of the container looks again.
        if container.cgroup().oom_kills().is_none() {
            return;
        }
        container.tell_oom();
    }
}
