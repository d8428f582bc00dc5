//! The families of hostile behaviour that this suite answers for, by the numbers of the field notes' list C2. Which case
//! covers which is written beside the cases; a test holds the two together.

/// Number and what it is about. 51 to 62 are about networks and clusters, and 66 about the web page: they are for
/// drivers and parts that come later.
pub const FAMILIES: &[(u8, &str)] = &[
    (1, "user and other namespaces by unshare and clone"),
    (2, "namespaces by clone3, which must look absent"),
    (3, "mounting, by the old and the new calls"),
    (4, "entering other namespaces"),
    (5, "another root"),
    (6, "ptrace"),
    (7, "the memory and descriptors of other processes"),
    (8, "bpf and performance counters"),
    (9, "userfaultfd"),
    (10, "io_uring"),
    (11, "kernel keyrings"),
    (12, "AF_ALG"),
    (13, "AF_VSOCK"),
    (14, "other socket families and raw sockets"),
    (15, "netlink"),
    (16, "the i386 and x32 entries"),
    (17, "file handles"),
    (18, "executing what a script made"),
    (19, "personality, segments, ports"),
    (20, "administration of the machine"),
    (21, "typing into terminals"),
    (22, "seccomp listeners"),
    (23, "no_new_privs and setuid files"),
    (24, "what the kernel says of the script"),
    (25, "device nodes"),
    (26, "writing outside scratch"),
    (27, "secrets and sockets of the host"),
    (28, "files of /proc and /sys that tell about the host"),
    (29, "settings of the kernel"),
    (30, "control groups"),
    (31, "other processes in /proc, and the executables of ours"),
    (32, "inherited descriptors"),
    (33, "links and descriptors across hierarchies"),
    (34, "what only Landlock stops"),
    (35, "hostile artifacts"),
    (36, "hostile inputs"),
    (37, "attributes of artifacts"),
    (38, "traces of one run in the next"),
    (39, "too many processes and threads"),
    (40, "children that refuse to die"),
    (41, "too much memory, of any kind"),
    (42, "too many files"),
    (43, "too much processor time, and priorities"),
    (44, "hostile output"),
    (45, "signals to PID 1, exit codes and signals of one's own"),
    (46, "core dumps"),
    (47, "clocks, timers and stopping oneself"),
    (48, "speculation"),
    (49, "dumpable processes and the memory of siblings"),
    (50, "the score of the out-of-memory killer"),
    (63, "injection through environment, names and arguments"),
    (64, "the cap of one person, and what belongs to others"),
    (
        65,
        "a disabled or missing driver, and processes of ours that are killed",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_family_has_a_case_and_every_number_exists() {
        let known: BTreeSet<u8> = FAMILIES.iter().map(|(number, _)| *number).collect();
        assert_eq!(known.len(), FAMILIES.len(), "a number is there twice");
        let covered: BTreeSet<u8> = crate::cases::all()
            .iter()
            .flat_map(|case| case.families.iter().copied())
            .collect();
        let open: Vec<_> = known.difference(&covered).collect();
        assert!(open.is_empty(), "no case covers the families {open:?}");
        let unknown: Vec<_> = covered.difference(&known).collect();
        assert!(
            unknown.is_empty(),
            "cases name families that are not there: {unknown:?}"
        );
    }
}
