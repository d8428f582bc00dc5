//! The one call that no safe wrapper has.

#![allow(unsafe_code)]

/// Marks every descriptor from 3 on close-on-exec, so that PID 1 starts with its three pipes and nothing else.
///
/// # Errors
/// `ENOSYS` before Linux 5.11, which no kernel with a Landlock that we accept is.
pub(crate) fn cloexec_from_three() -> std::io::Result<()> {
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
