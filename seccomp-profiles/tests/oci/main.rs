//! Translated sections against their rules, evaluated directly, over every number and sampled arguments.

// The allowance for tests covers only functions with #[test], not what they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction as Action, LinuxSeccompArgBuilder, LinuxSeccompOperator as Op,
    LinuxSyscall,
};
use proptest::prelude::*;
use proptest::sample::select;
use sandglass_seccomp::Arch;
use sandglass_seccomp::oci::{OciError, Options, Translation, translate};

use direct::{Direct, X32_BIT, arguments, values};
use generate::{agreeing_section, any_section, rule, section};
use support::{ALLOW, Call, KILL_PROCESS, assert_loadable, errno, run};

mod direct;
mod generate;
#[path = "../support/mod.rs"]
mod support;

const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];
/// Far beyond the last call of any kernel.
const NUMBERS: u32 = 1024;

/// Compares a translation with its section over every number.
fn compare(
    section: &LinuxSeccomp,
    arch: Arch,
    newer: bool,
    translation: &Translation,
) -> Result<(), TestCaseError> {
    assert_loadable(&translation.program);
    let samples = arguments(&values(section));
    let direct = Direct::new(section, arch, newer);
    let mut calls = Vec::new();
    for nr in (0..NUMBERS).chain([X32_BIT - 1, X32_BIT, X32_BIT | 39, u32::MAX]) {
        let few = if direct.by_number.contains_key(&nr) {
            samples.len()
        } else {
            2
        };
        calls.extend(samples[..few].iter().map(|args| Call::new(arch, nr, *args)));
    }
    for foreign in [0x4000_0003, 0x4000_0028, 0xc000_003e, 0xc000_00b7, 0] {
        calls.extend([0, 1, 57, 435].map(|nr| Call {
            nr,
            arch: foreign,
            args: [0; 6],
        }));
    }
    for call in calls {
        let wanted = direct.answers(&call);
        prop_assert_eq!(
            wanted.len(),
            1,
            "a conflict was not seen: {:?} {:x?}",
            &call,
            wanted
        );
        let got = run(&translation.program, &call).value;
        prop_assert!(
            wanted.contains(&got),
            "{:?} answers {:#x}, not {:x?}",
            call,
            got,
            wanted
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sections_answer_as_their_rules_say(section in agreeing_section(), arch in select(ARCHES.to_vec()), newer: bool) {
        let translation = translate(&section, arch, Options { enosys_for_newer: newer });
        compare(&section, arch, newer, &translation.unwrap())?;
    }

    #[test]
    fn what_is_refused_is_ambiguous_and_the_rest_is_exact(section in any_section(), arch in select(ARCHES.to_vec())) {
        match translate(&section, arch, Options::default()) {
            Ok(translation) => compare(&section, arch, false, &translation)?,
            Err(OciError::Conflict { call, arguments, .. }) => {
                let call = Call::new(arch, arch.number(&call).unwrap(), *arguments);
                let answers = Direct::new(&section, arch, false).answers(&call);
                prop_assert!(answers.len() > 1, "{:?} is no conflict: {:x?}", call, answers);
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

fn parse(json: &str) -> LinuxSeccomp {
    serde_json::from_str(json).unwrap()
}

fn docker() -> LinuxSeccomp {
    parse(include_str!("../fixtures/docker-default.json"))
}

fn ask(translation: &Translation, arch: Arch, name: &str, args: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    run(
        &translation.program,
        &Call::new(arch, arch.number(name).unwrap(), all),
    )
    .value
}

#[test]
fn dockers_default_profile_answers_as_its_rules_say() {
    for arch in ARCHES {
        for newer in [false, true] {
            let translation = translate(
                &docker(),
                arch,
                Options {
                    enosys_for_newer: newer,
                },
            )
            .unwrap();
            compare(&docker(), arch, newer, &translation).unwrap();
        }
    }
}

#[test]
fn dockers_default_profile_answers_as_it_does_in_docker() {
    for arch in ARCHES {
        let docker = translate(&docker(), arch, Options::default()).unwrap();
        let ask = |name, args: &[u64]| ask(&docker, arch, name, args);
        for (family, wanted) in [
            (1, ALLOW),
            (2, ALLOW),
            (10, ALLOW),
            (16, ALLOW),
            (38, errno(1)),
            (40, errno(1)),
        ] {
            assert_eq!(ask("socket", &[family]), wanted, "family {family}");
        }
        assert_eq!(ask("clone", &[0x003d_0f00]), ALLOW);
        assert_eq!(ask("clone", &[0x1000_0011]), errno(1));
        assert_eq!(ask("clone3", &[]), errno(38));
        assert_eq!(ask("personality", &[0xffff_ffff]), ALLOW);
        assert_eq!(ask("personality", &[0x4_0000]), errno(1), "ADDR_NO_RANDOMIZE");
        for name in [
            "unshare",
            "mount",
            "keyctl",
            "bpf",
            "io_uring_setup",
            "userfaultfd",
        ] {
            assert_eq!(ask(name, &[]), errno(1), "{name}");
        }
        for name in ["ptrace", "memfd_create", "mknodat"] {
            assert_eq!(ask(name, &[]), ALLOW, "{name}");
        }
    }
}

#[test]
fn newer_calls_answer_enosys_only_where_asked_for() {
    let newest = Call::new(
        Arch::X86_64,
        Arch::X86_64.number("removexattrat").unwrap() + 1,
        [0; 6],
    );
    for (newer, wanted) in [(false, errno(1)), (true, errno(38))] {
        let translation = translate(
            &docker(),
            Arch::X86_64,
            Options {
                enosys_for_newer: newer,
            },
        )
        .unwrap();
        assert_eq!(run(&translation.program, &newest).value, wanted);
        assert_eq!(
            ask(&translation, Arch::X86_64, "keyctl", &[]),
            errno(1),
            "an older call keeps its answer"
        );
    }
}

#[test]
fn dockers_default_profile_is_counted_in_the_readme() {
    let docker = docker();
    let direct = Direct::new(&docker, Arch::X86_64, false);
    let opens = |rules: &&Vec<&LinuxSyscall>| rules.iter().any(|rule| rule.action() == Action::ScmpActAllow);
    let count = direct.by_number.values().filter(opens).count();
    println!("Docker's default on x86_64: {count} calls allowed");
    let row = format!("| Docker's default, x86_64, no capabilities | {count} |");
    assert!(
        include_str!("../../README.md").contains(&row),
        "README.md has no row {row:?}"
    );
}

#[test]
fn foreign_architectures_stay_closed_and_are_reported() {
    let translation = translate(&docker(), Arch::X86_64, Options::default()).unwrap();
    let closed: Vec<String> = translation.closed.iter().map(ToString::to_string).collect();
    assert_eq!(closed, ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]);
    for (nr, arch) in [(20, 0x4000_0003), (39 | X32_BIT, Arch::X86_64.audit_value())] {
        assert_eq!(
            run(
                &translation.program,
                &Call {
                    nr,
                    arch,
                    args: [0; 6]
                }
            )
            .value,
            KILL_PROCESS
        );
    }
}

#[test]
fn a_section_tells_whether_further_filters_can_follow() {
    let follow = |json| {
        translate(&parse(json), Arch::X86_64, Options::default())
            .unwrap()
            .lets_filters_follow
    };
    assert!(
        translate(&docker(), Arch::X86_64, Options::default())
            .unwrap()
            .lets_filters_follow
    );
    assert!(follow(r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#));
    assert!(!follow(
        r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["prctl"], "action": "SCMP_ACT_ALLOW"}]}"#
    ));
    assert!(!follow(
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["seccomp"], "action": "SCMP_ACT_ERRNO",
            "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]}]}"#
    ));
}

#[test]
fn names_that_another_architecture_has_are_passed_over() {
    let json = r#"{"defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["socketcall", "read", "newfstatat", "open"], "action": "SCMP_ACT_ERRNO"}]}"#;
    let on = |arch| translate(&parse(json), arch, Options::default()).unwrap();
    assert_eq!(on(Arch::X86_64).ignored, ["socketcall"]);
    assert_eq!(on(Arch::Aarch64).ignored, ["socketcall", "open"]);
    assert_eq!(
        ask(&on(Arch::Aarch64), Arch::Aarch64, "newfstatat", &[]),
        errno(1)
    );
    for name in ["fstatat", "futex_time64", "clock_gettime64"] {
        assert_eq!(Arch::Aarch64.number(name), None, "{name} is a call of 32-bit Arm");
    }
    // A name that nobody has opens nothing, but restricts nothing either.
    let opens = r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["nonesuch"], "action": "SCMP_ACT_ALLOW"}]}"#;
    assert_eq!(
        translate(&parse(opens), Arch::X86_64, Options::default())
            .unwrap()
            .ignored,
        ["nonesuch"]
    );
}

#[test]
fn conditions_on_one_argument_are_alternatives() {
    let json = r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_ALLOW",
        "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}, {"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}]}]}"#;
    let translation = translate(&parse(json), Arch::X86_64, Options::default()).unwrap();
    let answers = [0, 1, 2, 3].map(|family| ask(&translation, Arch::X86_64, "socket", &[family]));
    assert_eq!(answers, [errno(1), ALLOW, ALLOW, errno(1)]);
}

#[test]
fn comparisons_take_all_64_bits() {
    let json = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_KILL_PROCESS",
        "args": [{"index": 0, "value": 4294967298, "op": "SCMP_CMP_EQ"}]}]}"#;
    let translation = translate(&parse(json), Arch::X86_64, Options::default()).unwrap();
    let answers =
        [2, 1 << 32, (1 << 32) + 2].map(|value| ask(&translation, Arch::X86_64, "socket", &[value]));
    assert_eq!(answers, [ALLOW, ALLOW, KILL_PROCESS]);
}

/// Sections without an exact translation, each with what its error says.
#[test]
fn what_cannot_be_expressed_is_refused_by_name() {
    let with = |default: &str, rest: &str| format!(r#"{{"defaultAction": "{default}", {rest}}}"#);
    let rule = |rest: &str| {
        with(
            "SCMP_ACT_ALLOW",
            &format!(r#""syscalls": [{{"names": ["read"], {rest}}}]"#),
        )
    };
    let cases = [
        (
            rule(r#""action": "SCMP_ACT_NOTIFY""#),
            "linux.seccomp.syscalls[0] (read) asks for SCMP_ACT_NOTIFY",
        ),
        (
            with("SCMP_ACT_NOTIFY", r#""syscalls": []"#),
            "linux.seccomp.defaultAction asks for SCMP_ACT_NOTIFY",
        ),
        (
            with("SCMP_ACT_ALLOW", r#""listenerPath": "/run/agent""#),
            "names a listener",
        ),
        (
            with("SCMP_ACT_ALLOW", r#""flags": ["SECCOMP_FILTER_FLAG_LOG"]"#),
            "SECCOMP_FILTER_FLAG_LOG",
        ),
        (
            with("SCMP_ACT_ALLOW", r#""flags": ["SECCOMP_FILTER_FLAG_SPEC_ALLOW"]"#),
            "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
        ),
        (
            with("SCMP_ACT_ALLOW", r#""defaultErrnoRet": 1"#),
            "SCMP_ACT_ALLOW returns none",
        ),
        (
            rule(r#""action": "SCMP_ACT_TRAP", "errnoRet": 5"#),
            "SCMP_ACT_TRAP returns none",
        ),
        (
            rule(r#""action": "SCMP_ACT_ERRNO", "errnoRet": 4096"#),
            "more than 4095",
        ),
        (
            rule(r#""action": "SCMP_ACT_TRACE", "errnoRet": 65536"#),
            "more than 65535",
        ),
        (
            with(
                "SCMP_ACT_ALLOW",
                r#""syscalls": [{"names": [], "action": "SCMP_ACT_ERRNO"}]"#,
            ),
            "names no system call",
        ),
        (
            with(
                "SCMP_ACT_ALLOW",
                r#""syscalls": [{"names": ["read", "raed"], "action": "SCMP_ACT_ERRNO"}]"#,
            ),
            "(read and 1 others) restricts \"raed\"",
        ),
        (
            rule(r#""action": "SCMP_ACT_ERRNO", "args": [{"index": 6, "value": 0, "op": "SCMP_CMP_EQ"}]"#),
            "looks at argument 6",
        ),
        (
            rule(
                r#""action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 1, "valueTwo": 3, "op": "SCMP_CMP_MASKED_EQ"}]"#,
            ),
            "compares with 0x3 under the mask 0x1",
        ),
        (
            with(
                "SCMP_ACT_ALLOW",
                r#""syscalls": [{"names": ["read"], "action": "SCMP_ACT_TRAP"}, {"names": ["read"], "action": "SCMP_ACT_ERRNO",
                   "args": [{"index": 2, "value": 9, "op": "SCMP_CMP_GT"}]}]"#,
            ),
            "syscalls[0] (read) and linux.seccomp.syscalls[1] (read) give different actions to read, for example with \
             the arguments [0, 0, a, 0, 0, 0]",
        ),
    ];
    for (json, wanted) in cases {
        let error = translate(&parse(&json), Arch::X86_64, Options::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{json}\ngives {error}");
    }
}

#[test]
fn a_section_too_long_for_the_kernel_is_refused() {
    let condition = |value: u64| {
        LinuxSeccompArgBuilder::default()
            .index(0usize)
            .op(Op::ScmpCmpEq)
            .value(value)
            .build()
            .unwrap()
    };
    let rules = |count: u64| {
        (0..count).map(|n| {
            rule(
                vec!["read".into()],
                (Action::ScmpActTrap, None),
                vec![condition(n)],
            )
        })
    };
    let translated = |count| {
        let section = section((Action::ScmpActAllow, None), rules(count).collect());
        translate(&section, Arch::X86_64, Options::default())
    };
    compare(
        &section((Action::ScmpActAllow, None), rules(300).collect()),
        Arch::X86_64,
        false,
        &translated(300).unwrap(),
    )
    .unwrap();
    for count in [1000, 100_000] {
        assert!(
            matches!(translated(count), Err(OciError::TooLong)),
            "{count} rules"
        );
    }
}
