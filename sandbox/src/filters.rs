//! Installing the compiled `strict` profile in the calling thread.

/// Name of the profile, for the receipt.
pub use sandglass_seccomp::PROFILE_NAME;

/// How many filters the profile is: what the kernel's count must rise by.
pub fn count() -> usize {
    sandglass_seccomp::strict().len()
}

/// Installs the filters, the first of the stack first.
///
/// # Errors
/// The kernel refuses one, for example since the caller runs under a filter that forbids `seccomp`.
pub(crate) fn install() -> Result<(), seccompiler::Error> {
    sandglass_seccomp::strict()
        .iter()
        .copied()
        .try_for_each(seccompiler::apply_filter)
}
