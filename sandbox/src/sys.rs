//! The calls that no safe wrapper has.

#![allow(unsafe_code)]

/// Takes the pages of a mapping out of this process.
///
/// # Errors
/// What the kernel says of the advice.
pub(crate) fn drop_clean_pages(mapping: std::ops::Range<usize>) -> std::io::Result<()> {
    let start = std::ptr::with_exposed_provenance_mut(mapping.start);
    // SAFETY: the caller read in /proc/self/smaps that the range is a private mapping of a file, that it cannot be
    // written to and that no page of it differs from the file. MADV_DONTNEED then changes no byte that anyone can
    // read: the next access finds the file's page again. Nothing is unmapped, and no reference becomes invalid.
    let result = unsafe { nix::libc::madvise(start, mapping.len(), nix::libc::MADV_DONTNEED) };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Marks every descriptor from 3 on close-on-exec, so that PID 1 starts with its three pipes and nothing else.
///
/// # Errors
/// `ENOSYS` before Linux 5.11, which no kernel with a Landlock that we accept is.
pub fn cloexec_from_three() -> std::io::Result<()> {
    // SAFETY: close_range(2) with CLOSE_RANGE_CLOEXEC takes three integers, reads and writes no memory of ours
    // and closes nothing: it only sets a flag on descriptors, which the execve that follows acts on.
    let result = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_close_range,
            3_u32,
            u32::MAX,
            nix::libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Installs a filter without `no_new_privs`, which needs CAP_SYS_ADMIN in the caller's user namespace.
///
/// # Errors
/// EACCES without the capability, EINVAL for a program that the kernel does not take.
pub(crate) fn seccomp_with_privilege(program: &[sandglass_seccomp::SockFilter]) -> std::io::Result<()> {
    let too_long = |_| std::io::Error::from(std::io::ErrorKind::InvalidInput);
    let program = nix::libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(too_long)?,
        filter: program.as_ptr().cast::<nix::libc::sock_filter>().cast_mut(),
    };
    // SAFETY: seccomp(2) with SECCOMP_SET_MODE_FILTER reads `len` instructions at `filter` and keeps no pointer. Both
    // describe the caller's slice, which lives through the call; SockFilter is laid out as the kernel's sock_filter.
    let result = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_seccomp,
            nix::libc::SECCOMP_SET_MODE_FILTER,
            0_u32,
            &raw const program,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Sets attributes of a mount, which rustix has no function for.
///
/// # Errors
/// The kernel is older than 5.12, or the mount is locked.
pub(crate) fn set_mount_attributes(
    mount: &std::os::fd::OwnedFd,
    attributes: rustix::mount::MountAttrFlags,
) -> std::io::Result<()> {
    let asked = nix::libc::mount_attr {
        attr_set: u64::from(attributes.bits()),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    mount_setattr(mount, false, &asked)
}

/// Maps the ids of a mount that is in no tree yet as a user namespace does, and sets attributes; with those below it
/// where `recursive`.
///
/// # Errors
/// EINVAL where the file system has no mapped ids, EPERM where they are mapped already or the namespace is our own.
pub(crate) fn map_mount_ids(
    mount: &std::os::fd::OwnedFd,
    user_namespace: std::os::fd::BorrowedFd<'_>,
    attributes: rustix::mount::MountAttrFlags,
    recursive: bool,
) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let userns_fd = u64::try_from(user_namespace.as_raw_fd()).map_err(std::io::Error::other)?;
    let asked = nix::libc::mount_attr {
        attr_set: u64::from(attributes.bits()) | nix::libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd,
    };
    mount_setattr(mount, recursive, &asked)
}

/// Sets the propagation of a mount, and of those below it where `recursive`: one of the kernel's `MS_` values.
///
/// # Errors
/// The descriptor is not on the root of a mount.
pub(crate) fn set_mount_propagation(
    mount: &std::os::fd::OwnedFd,
    propagation: u64,
    recursive: bool,
) -> std::io::Result<()> {
    let asked = nix::libc::mount_attr {
        attr_set: 0,
        attr_clr: 0,
        propagation,
        userns_fd: 0,
    };
    mount_setattr(mount, recursive, &asked)
}

fn mount_setattr(
    mount: &std::os::fd::OwnedFd,
    recursive: bool,
    asked: &nix::libc::mount_attr,
) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let flags = nix::libc::AT_EMPTY_PATH | if recursive { nix::libc::AT_RECURSIVE } else { 0 };
    // SAFETY: mount_setattr(2) reads an empty path, which is a literal with its NUL, and `size` bytes of the structure,
    // which lives through the call and is the kernel's own, whole.
    let result = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(asked),
            size_of::<nix::libc::mount_attr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// The user namespace that a namespace belongs to: whoever has CAP_SYS_ADMIN there may join it (ioctl_ns(2)).
///
/// # Errors
/// ENOTTY for a descriptor of something else; EPERM where that is none of the caller's own or below.
pub(crate) fn owner_of_namespace(
    namespace: std::os::fd::BorrowedFd<'_>,
) -> std::io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    // SAFETY: NS_GET_USERNS takes no argument and touches no memory of ours. The descriptor is borrowed, so it is open.
    let found = unsafe { nix::libc::ioctl(namespace.as_raw_fd(), nix::libc::NS_GET_USERNS) };
    if found < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

/// Sends any signal of the kernel to a process, real-time ones included, which the signal types of the libraries leave
/// out. `Ok(false)`: the process is gone.
///
/// # Errors
/// EINVAL for a number that is no signal; EPERM.
pub fn signal_process(pidfd: std::os::fd::BorrowedFd<'_>, number: i32) -> std::io::Result<bool> {
    use std::os::fd::AsRawFd;
    // SAFETY: pidfd_send_signal(2) with no siginfo takes integers and a null pointer, and touches no memory of ours. The
    // descriptor is borrowed, so it is open.
    let result = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            number,
            std::ptr::null::<nix::libc::siginfo_t>(),
            0_u32,
        )
    };
    match result {
        0 => Ok(true),
        _ => match std::io::Error::last_os_error() {
            error if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(false),
            error => Err(error),
        },
    }
}

/// The id of some child that has ended and that nobody waited for yet. It stays a zombie.
pub fn some_zombie() -> Option<i32> {
    // SAFETY: siginfo_t is plain data, for which zeroes are a value; waitid(2) writes one, which lives through the call.
    // si_pid reads the member that waitid fills, or the zero where there was no child.
    let pid = unsafe {
        let mut found: nix::libc::siginfo_t = std::mem::zeroed();
        let options = nix::libc::WEXITED | nix::libc::WNOHANG | nix::libc::WNOWAIT;
        match nix::libc::waitid(nix::libc::P_ALL, 0, &raw mut found, options) {
            0 => found.si_pid(),
            _ => 0,
        }
    };
    (pid > 0).then_some(pid)
}
