//! Installing system-call filters in the calling thread: the compiled `strict` profile, and before it a spec's own.

/// Name of the profile, for the receipt.
pub use sandglass_seccomp::PROFILE_NAME;

/// How many filters the profile is: what the kernel's count must rise by.
pub fn count() -> usize {
    sandglass_seccomp::strict().len()
}

/// The programs that one process gets, in the order in which they are installed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters {
    /// What the OCI spec's own `linux.seccomp` section says. First, since `strict` refuses `seccomp(2)`.
    pub section: Option<Vec<sandglass_seccomp::SockFilter>>,
    /// The profile `strict`.
    pub strict: bool,
    /// The process shall not have `no_new_privs`; the installer then needs CAP_SYS_ADMIN.
    pub privileges_may_grow: bool,
}

impl Filters {
    /// The profile alone: what a run gets.
    pub(crate) fn strict() -> Self {
        Self {
            strict: true,
            ..Self::default()
        }
    }

    /// Installs them in the calling thread.
    ///
    /// # Errors
    /// The kernel refuses one, for example since the caller runs under a filter that forbids `seccomp`.
    pub(crate) fn install(&self) -> Result<(), String> {
        let apply = |program: &[sandglass_seccomp::SockFilter]| {
            seccompiler::apply_filter(program).map_err(|error| error.to_string())
        };
        if let Some(section) = &self.section {
            if self.privileges_may_grow {
                crate::sys::seccomp_with_privilege(section).map_err(|error| error.to_string())?;
            } else {
                apply(section)?;
            }
        }
        if self.strict {
            sandglass_seccomp::strict().iter().copied().try_for_each(apply)
        } else {
            Ok(())
        }
    }
}
