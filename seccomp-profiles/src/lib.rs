//! The system-call profiles, compiled ahead, and the translation of an OCI seccomp section.
//!
//! - [`strict`] is the profile of every sandbox: an allow-list, compiled when this crate is built from `strict.json`,
//!   which carries a reason for each call. README.md beside it tells how to read it.
//! - [`oci`] translates the `linux.seccomp` section of an OCI spec into the same kind of program, for a runtime that
//!   is handed one.
//!
//! This crate installs nothing: a caller hands each program to `seccompiler::apply_filter`, in order, when the thread
//! has done all else.
//!
//! ```no_run
//! for program in sandglass_seccomp::strict() {
//!     seccompiler::apply_filter(program)?;
//! }
//! # Ok::<(), seccompiler::Error>(())
//! ```

#![forbid(unsafe_code)]

pub use arch::Arch;
/// One instruction of classic BPF, laid out as the kernel's `struct sock_filter`.
pub use seccompiler::sock_filter as SockFilter;

mod arch;
mod bpf;
pub mod oci;

include!(concat!(env!("OUT_DIR"), "/strict.rs"));

/// The programs of the profile [`PROFILE_NAME`] for the architecture that this crate is built for, in the order to
/// install them: all, or the profile is not in force.
///
/// `seccomp(2)` is among the calls that they refuse, so any filter from elsewhere is installed before.
#[must_use]
pub fn strict() -> &'static [&'static [SockFilter]] {
    strict_for(Arch::NATIVE)
}

/// As [`strict`], for an architecture by name.
#[must_use]
pub fn strict_for(arch: Arch) -> &'static [&'static [SockFilter]] {
    match arch {
        Arch::X86_64 => STRICT_X86_64,
        Arch::Aarch64 => STRICT_AARCH64,
    }
}

/// One instruction of the generated tables.
const fn i(code: u16, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter { code, jt, jf, k }
}
