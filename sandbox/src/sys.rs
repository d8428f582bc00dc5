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
