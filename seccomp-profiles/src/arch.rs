//! The architectures that a sandbox runs on, and the system calls that each has.

/// An architecture of the kernel and of the programs inside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

/// A number with this bit is a call of the x32 ABI; it comes with the architecture value of x86_64.
pub(crate) const X32_BIT: u32 = 0x4000_0000;

impl Arch {
    /// The architecture that this crate is built for.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Self = Self::X86_64;
    /// The architecture that this crate is built for.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Self = Self::Aarch64;

    /// The value that the kernel puts into `seccomp_data.arch` (`AUDIT_ARCH_*` of `linux/audit.h`).
    #[must_use]
    pub const fn audit_value(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// The number of a call, or `None` where this architecture does not have it. The tables are those of Linux 6.17.
    #[must_use]
    pub fn number(self, name: &str) -> Option<u32> {
        let number = match self {
            Self::X86_64 => name.parse::<syscalls::x86_64::Sysno>().ok()?.id(),
            Self::Aarch64 => aarch64_number(name)?,
        };
        u32::try_from(number).ok()
    }
}

/// The table that we build on takes a few names of aarch64 from 32-bit architectures.
fn aarch64_number(name: &str) -> Option<i32> {
    /// Numbers that only 32-bit architectures have: calls with 64-bit times under names of their own.
    const ONLY_32_BIT: std::ops::RangeInclusive<i32> = 403..=423;

    let name = match name {
        "newfstatat" => "fstatat",
        "fstatat" => return None,
        name => name,
    };
    let number = name.parse::<syscalls::aarch64::Sysno>().ok()?.id();
    (!ONLY_32_BIT.contains(&number)).then_some(number)
}

/// Whether any architecture that these machines can run has a call of this name.
pub(crate) fn known_anywhere(name: &str) -> bool {
    name.parse::<syscalls::x86_64::Sysno>().is_ok()
        || name.parse::<syscalls::aarch64::Sysno>().is_ok()
        || name.parse::<syscalls::x86::Sysno>().is_ok()
        || name.parse::<syscalls::arm::Sysno>().is_ok()
}
