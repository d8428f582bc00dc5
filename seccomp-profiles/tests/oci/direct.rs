//! A section, evaluated directly: no tree, no halves, no instructions.

use std::collections::{BTreeMap, BTreeSet};

use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction as Action, LinuxSeccompArg, LinuxSeccompOperator as Op, LinuxSyscall,
};
use sandglass_seccomp::Arch;

use crate::support::{ALLOW, Call, KILL_PROCESS, errno};

/// A number with this bit is a call of the x32 ABI.
pub const X32_BIT: u32 = 0x4000_0000;

/// The answer of an action, by the numbers of `linux/seccomp.h`.
pub fn answer(action: Action, errno_ret: Option<u32>) -> u32 {
    match action {
        Action::ScmpActKill | Action::ScmpActKillThread => 0,
        Action::ScmpActKillProcess => KILL_PROCESS,
        Action::ScmpActTrap => 0x0003_0000,
        Action::ScmpActErrno => errno(errno_ret.unwrap_or(1)),
        Action::ScmpActTrace => 0x7ff0_0000 + errno_ret.unwrap_or(1),
        Action::ScmpActLog => 0x7ffc_0000,
        Action::ScmpActAllow => ALLOW,
        Action::ScmpActNotify => panic!("no filter notifies"),
    }
}

pub fn condition_holds(arg: &LinuxSeccompArg, args: &[u64; 6]) -> bool {
    let (actual, value) = (args[arg.index()], arg.value());
    match arg.op() {
        Op::ScmpCmpNe => actual != value,
        Op::ScmpCmpLt => actual < value,
        Op::ScmpCmpLe => actual <= value,
        Op::ScmpCmpEq => actual == value,
        Op::ScmpCmpGe => actual >= value,
        Op::ScmpCmpGt => actual > value,
        Op::ScmpCmpMaskedEq => actual & value == arg.value_two().unwrap_or(0),
    }
}

pub fn rule_matches(rule: &LinuxSyscall, args: &[u64; 6]) -> bool {
    let conditions = rule.args().as_deref().unwrap_or_default();
    let indices: BTreeSet<usize> = conditions.iter().map(|c| c.index()).collect();
    if indices.len() < conditions.len() {
        conditions
            .iter()
            .any(|condition| condition_holds(condition, args))
    } else {
        conditions
            .iter()
            .all(|condition| condition_holds(condition, args))
    }
}

/// A section, evaluated call by call.
pub struct Direct<'a> {
    arch: Arch,
    default: u32,
    /// What numbers above the highest one answer.
    newer: u32,
    pub by_number: BTreeMap<u32, Vec<&'a LinuxSyscall>>,
}

impl<'a> Direct<'a> {
    pub fn new(section: &'a LinuxSeccomp, arch: Arch, newer: bool) -> Self {
        let mut by_number: BTreeMap<u32, Vec<&LinuxSyscall>> = BTreeMap::new();
        for rule in section.syscalls().iter().flatten() {
            for number in rule.names().iter().filter_map(|name| arch.number(name)) {
                by_number.entry(number).or_default().push(rule);
            }
        }
        let default = answer(section.default_action(), section.default_errno_ret());
        let opens = matches!(
            section.default_action(),
            Action::ScmpActAllow | Action::ScmpActLog | Action::ScmpActTrace
        );
        let newer = if newer && !opens && !by_number.is_empty() {
            errno(38)
        } else {
            default
        };
        Self {
            arch,
            default,
            newer,
            by_number,
        }
    }

    /// Every answer that a rule gives to a call, or the default. More than one is a conflict.
    pub fn answers(&self, call: &Call) -> BTreeSet<u32> {
        if call.arch != self.arch.audit_value() || (self.arch == Arch::X86_64 && call.nr & X32_BIT != 0) {
            return BTreeSet::from([KILL_PROCESS]);
        }
        let rules = self.by_number.get(&call.nr).into_iter().flatten();
        let matching = rules.filter(|rule| rule_matches(rule, &call.args));
        let answers: BTreeSet<u32> = matching
            .map(|rule| answer(rule.action(), rule.errno_ret()))
            .collect();
        if !answers.is_empty() {
            return answers;
        }
        let is_newer = self
            .by_number
            .keys()
            .next_back()
            .is_some_and(|highest| call.nr > *highest);
        BTreeSet::from([if is_newer { self.newer } else { self.default }])
    }
}

/// Argument values that tell conditions apart: what a section compares with, its neighbours, and each with one half
/// of another value.
pub fn values(section: &LinuxSeccomp) -> Vec<u64> {
    let mut values = BTreeSet::from([0, 1, u64::MAX, 1 << 32, 0xffff_ffff]);
    for condition in section
        .syscalls()
        .iter()
        .flatten()
        .flat_map(|rule| rule.args().iter().flatten())
    {
        for value in [condition.value(), condition.value_two().unwrap_or(0)] {
            values.extend([
                value.wrapping_sub(1),
                value,
                value.wrapping_add(1),
                !value,
                value ^ 1 << 32,
                value ^ 1 << 63,
            ]);
        }
        values.insert(condition.value_two().unwrap_or(0) | !condition.value());
    }
    values.into_iter().collect()
}

/// Arguments of six values each, so that every value comes to every place and beside different others.
pub fn arguments(values: &[u64]) -> Vec<[u64; 6]> {
    let at = |n: usize| values[n % values.len()];
    (0..values.len() * 4)
        .map(|n| std::array::from_fn(|slot| at(n + slot * (1 + n / values.len() * 5))))
        .collect()
}
