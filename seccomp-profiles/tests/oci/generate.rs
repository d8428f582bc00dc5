//! Sections made up by proptest.

use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction as Action, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompBuilder,
    LinuxSeccompOperator as Op, LinuxSyscall, LinuxSyscallBuilder,
};
use proptest::prelude::*;
use proptest::sample::select;

pub const NAMES: [&str; 22] = [
    "read",
    "write",
    "openat",
    "socket",
    "clone",
    "clone3",
    "ioctl",
    "personality",
    "futex",
    "prctl",
    "seccomp",
    "open",
    "poll",
    "newfstatat",
    "fstatat64",
    "socketcall",
    "_llseek",
    "clock_gettime64",
    "statx",
    "io_setup",
    "getxattrat",
    "file_setattr",
];

pub fn any_action() -> impl Strategy<Value = (Action, Option<u32>)> {
    use Action as A;
    let plain = select(vec![
        A::ScmpActAllow,
        A::ScmpActAllow,
        A::ScmpActLog,
        A::ScmpActTrap,
        A::ScmpActKill,
        A::ScmpActKillThread,
        A::ScmpActKillProcess,
    ]);
    prop_oneof![
        plain.prop_map(|action| (action, None)),
        proptest::option::of(0..4096u32).prop_map(|errno| (A::ScmpActErrno, errno)),
        proptest::option::of(0..=0xffffu32).prop_map(|errno| (A::ScmpActTrace, errno)),
    ]
}

pub fn any_value() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..8u64,
        (0..64u32).prop_map(|bit| 1 << bit),
        (0..4u64).prop_map(|n| u64::MAX - n),
        (0..3u64).prop_map(|n| (1 << 32) + n - 1),
        Just(0x7e02_0000),
        any::<u64>(),
    ]
}

pub fn any_condition() -> impl Strategy<Value = LinuxSeccompArg> {
    use Op as O;
    let ops = vec![
        O::ScmpCmpNe,
        O::ScmpCmpLt,
        O::ScmpCmpLe,
        O::ScmpCmpEq,
        O::ScmpCmpGe,
        O::ScmpCmpGt,
        O::ScmpCmpMaskedEq,
    ];
    (0..6usize, select(ops), any_value(), any_value()).prop_map(|(index, op, value, two)| {
        let built = LinuxSeccompArgBuilder::default().index(index).op(op).value(value);
        // Only the masked comparison has a second value; elsewhere it means nothing.
        built
            .value_two(if op == O::ScmpCmpMaskedEq {
                two & value
            } else {
                two
            })
            .build()
            .unwrap()
    })
}

pub fn rule(
    names: Vec<String>,
    (action, errno): (Action, Option<u32>),
    conditions: Vec<LinuxSeccompArg>,
) -> LinuxSyscall {
    let mut rule = LinuxSyscallBuilder::default()
        .names(names)
        .action(action)
        .build()
        .unwrap();
    rule.set_errno_ret(errno);
    rule.set_args((!conditions.is_empty()).then_some(conditions));
    rule
}

pub fn section((action, errno): (Action, Option<u32>), rules: Vec<LinuxSyscall>) -> LinuxSeccomp {
    let mut section = LinuxSeccompBuilder::default()
        .default_action(action)
        .syscalls(rules)
        .build()
        .unwrap();
    section.set_default_errno_ret(errno);
    section
}

/// Names (few, so that rules meet), an action that belongs to the rule, and conditions.
pub fn any_rule() -> impl Strategy<Value = LinuxSyscall> {
    let names = proptest::collection::vec(select(NAMES.map(str::to_owned).to_vec()), 1..4);
    (
        names,
        any_action(),
        proptest::collection::vec(any_condition(), 0..4),
    )
        .prop_map(|(n, a, c)| rule(n, a, c))
}

/// Sections in which all rules of a name agree on the action.
pub fn agreeing_section() -> impl Strategy<Value = LinuxSeccomp> {
    let actions = proptest::collection::vec(any_action(), NAMES.len());
    let rules = (0..NAMES.len(), proptest::collection::vec(any_condition(), 0..4));
    (any_action(), actions, proptest::collection::vec(rules, 0..24)).prop_map(|(default, actions, rules)| {
        let rules = rules
            .into_iter()
            .map(|(n, conditions)| rule(vec![NAMES[n].to_owned()], actions[n], conditions));
        section(default, rules.collect())
    })
}

pub fn any_section() -> impl Strategy<Value = LinuxSeccomp> {
    (any_action(), proptest::collection::vec(any_rule(), 0..6))
        .prop_map(|(default, rules)| section(default, rules))
}
