//! The isolation receipt of a container: what the kernel says of its process, read back when it runs.

use sandglass_sandbox::container::Observed;

/// Writes the receipt of a process to the log, as one line of fields.
pub fn log(container: &str, exec: &str, observed: &Observed) {
    tracing::info!(
        container,
        exec,
        uid = observed.uid,
        capabilities = %observed.capabilities_word(),
        no_new_privileges = observed.no_new_privileges,
        seccomp_mode = observed.seccomp_mode,
        seccomp_filters = observed.seccomp_filters,
        landlock_abi = observed.landlock_abi.unwrap_or(0),
        "isolation receipt"
    );
}

/// What a process that was to be confined lacks, as one sentence. `None`: nothing.
pub fn lacks(observed: &Observed) -> Option<String> {
    let missing = [
        (observed.no_new_privileges, "no_new_privs"),
        (observed.capabilities == [0; 5], "empty capability sets"),
        (observed.seccomp_mode == 2, "a seccomp filter"),
        (observed.landlock_abi.is_some(), "Landlock"),
    ];
    let missing: Vec<&str> = missing
        .into_iter()
        .filter(|(held, _)| !held)
        .map(|(_, name)| name)
        .collect();
    (!missing.is_empty()).then(|| format!("the process runs without {}, and was ended", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Observed {
        Observed {
            uid: 65534,
            capabilities: [0; 5],
            no_new_privileges: true,
            seccomp_mode: 2,
            seccomp_filters: 2,
            landlock_abi: Some(7),
        }
    }

    #[test]
    fn a_confined_process_lacks_nothing() {
        assert_eq!(lacks(&whole()), None);
    }

    #[test]
    fn each_layer_that_was_not_observed_is_named() {
        for (observed, name) in [
            (
                Observed {
                    no_new_privileges: false,
                    ..whole()
                },
                "no_new_privs",
            ),
            (
                Observed {
                    capabilities: [0, 0, 0, 1, 0],
                    ..whole()
                },
                "capability",
            ),
            (
                Observed {
                    seccomp_mode: 0,
                    ..whole()
                },
                "seccomp",
            ),
            (
                Observed {
                    landlock_abi: None,
                    ..whole()
                },
                "Landlock",
            ),
        ] {
            let sentence = lacks(&observed).unwrap();
            assert!(sentence.contains(name), "{sentence}");
        }
    }
}
