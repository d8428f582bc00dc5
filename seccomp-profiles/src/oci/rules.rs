//! From a section to rules by number, with everything checked.

use std::collections::BTreeMap;

use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator, LinuxSyscall,
};

use super::condition::Test;
use super::error::{OciError, Place};
use crate::arch::{Arch, known_anywhere};

/// What a filter returns to the kernel.
pub(super) type Answer = u32;

/// One alternative of a rule: all tests must hold. No argument occurs twice.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub place: usize,
    pub answer: Answer,
    pub tests: Vec<(usize, Test)>,
}

/// A call with all its rules.
pub(super) struct Call {
    name: String,
    pub rules: Vec<Rule>,
}

/// A section, read.
pub(super) struct Rules {
    pub default: Answer,
    pub by_number: BTreeMap<u32, Call>,
    /// Names without a number here.
    pub ignored: Vec<String>,
    places: Vec<Place>,
}

/// More rules for one call than any program could hold.
const MOST: usize = crate::bpf::LONGEST / 2;

impl Rules {
    pub(super) fn read(section: &LinuxSeccomp, arch: Arch) -> Result<Self, OciError> {
        let default = answer(section.default_action(), section.default_errno_ret(), || {
            Place::Default
        })?;
        let mut rules = Self {
            default,
            by_number: BTreeMap::new(),
            ignored: Vec::new(),
            places: Vec::new(),
        };
        for (index, syscall) in section.syscalls().iter().flatten().enumerate() {
            rules.places.push(place(index, syscall));
            rules.add(index, syscall, arch)?;
        }
        rules.refuse_conflicts()?;
        Ok(rules)
    }

    fn add(&mut self, index: usize, syscall: &LinuxSyscall, arch: Arch) -> Result<(), OciError> {
        let place = || place(index, syscall);
        if syscall.names().is_empty() {
            return Err(OciError::NoNames { place: place() });
        }
        let answer = answer(syscall.action(), syscall.errno_ret(), place)?;
        let alternatives = alternatives(syscall.args().as_deref().unwrap_or_default(), place)?;
        for name in syscall.names() {
            match arch.number(name) {
                Some(number) => {
                    let named = || Call {
                        name: name.clone(),
                        rules: Vec::new(),
                    };
                    let call = self.by_number.entry(number).or_insert_with(named);
                    let new = alternatives.iter().map(|tests| Rule {
                        place: index,
                        answer,
                        tests: tests.clone(),
                    });
                    call.rules.extend(new);
                    if call.rules.len() > MOST {
                        return Err(OciError::TooLong);
                    }
                }
                None if precedence(answer) < precedence(self.default) && !known_anywhere(name) => {
                    return Err(OciError::UnknownCall {
                        place: place(),
                        name: name.clone(),
                    });
                }
                None => self.ignored.push(name.clone()),
            }
        }
        Ok(())
    }

    /// Rules of one call with different actions must exclude each other: what applies where two of them match is
    /// defined nowhere, and runtimes differ.
    fn refuse_conflicts(&self) -> Result<(), OciError> {
        for Call { name, rules } in self.by_number.values() {
            for (position, first) in rules.iter().enumerate() {
                for second in rules[position + 1..]
                    .iter()
                    .filter(|second| second.answer != first.answer)
                {
                    if let Some(arguments) = common_arguments(first, second) {
                        return Err(OciError::Conflict {
                            call: name.clone(),
                            first: self.places[first.place].clone(),
                            second: self.places[second.place].clone(),
                            arguments: Box::new(arguments),
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

fn place(index: usize, syscall: &LinuxSyscall) -> Place {
    let names = match syscall.names().as_slice() {
        [] => "no names".to_owned(),
        [name] => name.clone(),
        [name, others @ ..] => format!("{name} and {} others", others.len()),
    };
    Place::Rule { index, names }
}

/// Which of two answers the kernel would take: the lesser.
fn precedence(answer: Answer) -> i32 {
    (answer & 0xffff_0000).cast_signed()
}

/// The value that a filter returns for an action (`SECCOMP_RET_*` of `linux/seccomp.h`).
fn answer(
    action: LinuxSeccompAction,
    errno: Option<u32>,
    place: impl Fn() -> Place,
) -> Result<Answer, OciError> {
    use LinuxSeccompAction as A;
    /// Without an errno of its own, an action that takes one returns EPERM.
    const EPERM: u32 = 1;

    // Beyond these the kernel would cut the value off.
    let most = match action {
        A::ScmpActErrno => 4095,
        A::ScmpActTrace => 0xffff,
        _ if errno.is_some() => {
            return Err(OciError::ErrnoWithoutUse {
                place: place(),
                action,
            });
        }
        _ => 0,
    };
    let data = errno.unwrap_or(EPERM.min(most));
    if data > most {
        return Err(OciError::ErrnoTooLarge {
            place: place(),
            value: data,
            most,
        });
    }
    Ok(match action {
        A::ScmpActKill | A::ScmpActKillThread => 0,
        A::ScmpActKillProcess => 0x8000_0000,
        A::ScmpActTrap => 0x0003_0000,
        A::ScmpActErrno => 0x0005_0000 | data,
        A::ScmpActTrace => 0x7ff0_0000 | data,
        A::ScmpActLog => 0x7ffc_0000,
        A::ScmpActAllow => 0x7fff_0000,
        A::ScmpActNotify => return Err(OciError::Notify { place: place() }),
    })
}

/// The conjunctions of which one must hold. Conditions form one conjunction, unless two of them look at the same
/// argument: then each stands for itself, as runc and crun have it.
fn alternatives(
    args: &[LinuxSeccompArg],
    place: impl Fn() -> Place,
) -> Result<Vec<Vec<(usize, Test)>>, OciError> {
    let tests = args
        .iter()
        .map(|arg| test(arg, &place))
        .collect::<Result<Vec<_>, _>>()?;
    let twice = (0..tests.len()).any(|n| tests[..n].iter().any(|(index, _)| *index == tests[n].0));
    Ok(if twice {
        tests.into_iter().map(|test| vec![test]).collect()
    } else {
        vec![tests]
    })
}

fn test(arg: &LinuxSeccompArg, place: impl Fn() -> Place) -> Result<(usize, Test), OciError> {
    use LinuxSeccompOperator as Op;
    if arg.index() > 5 {
        return Err(OciError::NoSuchArgument {
            place: place(),
            index: arg.index(),
        });
    }
    let value = arg.value();
    let test = match arg.op() {
        Op::ScmpCmpEq => Test::Equal(value),
        Op::ScmpCmpNe => Test::NotEqual(value),
        Op::ScmpCmpGe => Test::AtLeast(value),
        Op::ScmpCmpGt => Test::Above(value),
        Op::ScmpCmpLe => Test::AtMost(value),
        Op::ScmpCmpLt => Test::Below(value),
        Op::ScmpCmpMaskedEq => {
            let (mask, value) = (value, arg.value_two().unwrap_or(0));
            if value & !mask != 0 {
                return Err(OciError::OutsideMask {
                    place: place(),
                    mask,
                    value,
                });
            }
            Test::Masked(mask, value)
        }
    };
    Ok((arg.index(), test))
}

/// Arguments that both rules match. Arguments do not depend on each other, so each is looked at alone.
fn common_arguments(first: &Rule, second: &Rule) -> Option<[u64; 6]> {
    const ANY: Test = Test::AtLeast(0);
    let of = |rule: &Rule, slot| {
        rule.tests
            .iter()
            .find(|(index, _)| *index == slot)
            .map_or(ANY, |(_, test)| *test)
    };
    let mut arguments = [0; 6];
    for (slot, value) in arguments.iter_mut().enumerate() {
        *value = of(first, slot).common(of(second, slot))?;
    }
    Some(arguments)
}
