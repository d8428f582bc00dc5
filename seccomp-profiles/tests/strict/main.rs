//! The compiled profile against `strict.json`, read a second time by other code, and against what it must refuse.

// The allowance for tests covers only functions with #[test], not what they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use sandglass_seccomp::{Arch, strict_for};
use serde_json::Value;

use families::assert_answers;
use support::{ALLOW, Call, KILL_PROCESS, assert_loadable, errno, run_stack};

mod families;
#[path = "../support/mod.rs"]
mod support;

const ARCHES: [(Arch, &str); 2] = [(Arch::X86_64, "x86_64"), (Arch::Aarch64, "aarch64")];
const I386: u32 = 0x4000_0003;
const ARM: u32 = 0x4000_0028;
const X32_BIT: u32 = 0x4000_0000;
const NONE: [u64; 6] = [0; 6];
/// Far beyond the last call of any kernel.
const NUMBERS: u32 = 1024;

const EPERM: u32 = 1;
const ENOTTY: u32 = 25;
const ENOSYS: u32 = 38;
const EOPNOTSUPP: u32 = 95;
const EAFNOSUPPORT: u32 = 97;

fn number_of(name: &str) -> u32 {
    match name {
        "EPERM" => EPERM,
        "ENOTTY" => ENOTTY,
        "ENOSYS" => ENOSYS,
        "EOPNOTSUPP" => EOPNOTSUPP,
        "EAFNOSUPPORT" => EAFNOSUPPORT,
        other => panic!("{other} is no errno of the profile"),
    }
}

/// What the profile says of one call.
#[derive(Clone, Debug)]
enum Said {
    Allowed(Vec<Value>),
    Refused(u32),
}

/// The profile, as JSON values and by number.
fn read(arch: Arch, name: &str) -> BTreeMap<u32, Said> {
    let profile: Value = serde_json::from_str(include_str!("../../strict.json")).unwrap();
    let mut said = BTreeMap::new();
    let mut insert = |call: &str, what: Said| {
        let number = arch
            .number(call)
            .unwrap_or_else(|| panic!("{name} has no {call}"));
        assert!(said.insert(number, what).is_none(), "{call} is listed twice");
    };
    for call in profile["allow"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|g| g["calls"].as_array().unwrap())
    {
        if call.get("only").is_none_or(|only| only == name) {
            let requirements = call
                .get("require")
                .map_or(Vec::new(), |r| r.as_array().unwrap().clone());
            insert(call["syscall"].as_str().unwrap(), Said::Allowed(requirements));
        }
    }
    for group in profile["refuse"].as_array().unwrap() {
        let only = group["only"]
            .get(name)
            .map_or(Vec::new(), |only| only.as_array().unwrap().clone());
        for call in group["calls"].as_array().unwrap().iter().chain(&only) {
            insert(
                call.as_str().unwrap(),
                Said::Refused(number_of(group["errno"].as_str().unwrap())),
            );
        }
    }
    said
}

/// The answer to one call, straight from the JSON.
fn expected(profile: &BTreeMap<u32, Said>, nr: u32, args: &[u64; 6]) -> u32 {
    match profile.get(&nr) {
        None => errno(ENOSYS),
        Some(Said::Refused(number)) => errno(*number),
        Some(Said::Allowed(requirements)) => requirements
            .iter()
            .find(|requirement| {
                let arg = args[requirement["index"].as_u64().unwrap() as usize] & 0xffff_ffff;
                let values = |key: &str| {
                    let map = requirement.get(key).and_then(Value::as_object);
                    map.into_iter()
                        .flat_map(|map| map.values().map(|v| v.as_u64().unwrap()))
                        .collect::<Vec<_>>()
                };
                let (one_of, bits) = (values("one_of"), values("none_of_bits"));
                (!one_of.is_empty() && !one_of.contains(&arg)) || bits.iter().any(|bit| arg & bit != 0)
            })
            .map_or(ALLOW, |violated| {
                errno(number_of(violated["otherwise"].as_str().unwrap()))
            }),
    }
}

/// Values around everything that the profile compares with, with clean and with dirty upper halves.
fn values(profile: &BTreeMap<u32, Said>) -> Vec<u64> {
    let mut values = BTreeSet::from([
        0,
        1,
        2,
        u64::from(u32::MAX),
        u64::from(u32::MAX) - 1,
        0x8000_0000,
        17,
        0x0120_0011,
    ]);
    for said in profile.values() {
        let Said::Allowed(requirements) = said else {
            continue;
        };
        for map in requirements
            .iter()
            .flat_map(|r| [r.get("one_of"), r.get("none_of_bits")])
            .flatten()
        {
            for value in map.as_object().unwrap().values().map(|v| v.as_u64().unwrap()) {
                values.extend([value.saturating_sub(1), value, value + 1, value | 0x11]);
            }
        }
    }
    values
        .iter()
        .flat_map(|v| [*v, v | 1 << 32, v | 0xffff_ffff << 32])
        .collect()
}

#[test]
fn every_number_answers_what_the_json_says() {
    for (arch, name) in ARCHES {
        let profile = read(arch, name);
        let values = values(&profile);
        for nr in (0..NUMBERS).chain([0x3fff_ffff, 0x7fff_ffff, u32::MAX]) {
            let looks_at: Vec<usize> = match profile.get(&nr) {
                Some(Said::Allowed(r)) => r.iter().map(|r| r["index"].as_u64().unwrap() as usize).collect(),
                _ => Vec::new(),
            };
            // All pairs of values in the arguments that matter (no call has more than two), and noise elsewhere.
            for &first in &values {
                for &second in if looks_at.len() > 1 {
                    values.as_slice()
                } else {
                    &[7]
                } {
                    let mut args = [first ^ 0x5a5a, second, first, second, first, second];
                    for (slot, value) in looks_at.iter().zip([first, second]) {
                        args[*slot] = value;
                    }
                    let got = run_stack(strict_for(arch), &Call::new(arch, nr, args)).value;
                    assert_eq!(
                        got,
                        expected(&profile, nr, &args),
                        "{name}: call {nr}, arguments {args:x?}"
                    );
                }
            }
        }
    }
}

#[test]
fn only_a_foreign_abi_ends_the_process() {
    for (arch, name) in ARCHES {
        for nr in 0..NUMBERS {
            for foreign in [
                I386,
                ARM,
                Arch::X86_64.audit_value(),
                Arch::Aarch64.audit_value(),
                0,
            ] {
                let value = run_stack(
                    strict_for(arch),
                    &Call {
                        nr,
                        arch: foreign,
                        args: NONE,
                    },
                )
                .value;
                if foreign == arch.audit_value() {
                    assert!(
                        value == ALLOW || value & 0xffff_0000 == errno(0),
                        "{name}: call {nr} gives {value:#x}"
                    );
                } else {
                    assert_eq!(value, KILL_PROCESS, "{name}: call {nr} of ABI {foreign:#x}");
                }
            }
        }
    }
}

#[test]
fn x32_numbers_are_refused() {
    for nr in 0..NUMBERS {
        for value in [0, 1, u64::MAX] {
            let call = Call::new(Arch::X86_64, nr | X32_BIT, [value; 6]);
            assert_eq!(
                run_stack(strict_for(Arch::X86_64), &call).value,
                errno(ENOSYS),
                "x32 call {nr}"
            );
        }
    }
}

#[test]
fn programs_are_such_as_the_kernel_takes() {
    for (arch, _) in ARCHES {
        strict_for(arch)
            .iter()
            .for_each(|program| assert_loadable(program));
    }
}

#[test]
fn calls_without_requirement_never_run_a_filter_again() {
    for (arch, name) in ARCHES {
        for (nr, said) in read(arch, name) {
            if let Said::Allowed(requirements) = said {
                let run = run_stack(strict_for(arch), &Call::new(arch, nr, NONE));
                assert_eq!(
                    run.looked_at_arguments,
                    !requirements.is_empty(),
                    "{name}: call {nr}"
                );
            }
        }
    }
}

#[test]
fn counts_are_those_of_the_readme() {
    let readme = include_str!("../../README.md");
    for (arch, name) in ARCHES {
        let profile = read(arch, name);
        let allowed = profile
            .values()
            .filter(|said| matches!(said, Said::Allowed(_)))
            .count();
        let refused = profile.len() - allowed;
        // Counted once more, from the programs: a number counts that is allowed for any of the values.
        let values = values(&profile);
        let passes = |nr| {
            values
                .iter()
                .any(|value| run_stack(strict_for(arch), &Call::new(arch, nr, [*value; 6])).value == ALLOW)
                || run_stack(strict_for(arch), &Call::new(arch, nr, [0; 6])).value == ALLOW
        };
        let compiled = (0..NUMBERS).filter(|nr| passes(*nr)).count();
        // ioctl and its like pass only for arguments of their own, all of which are among the values.
        assert_eq!(compiled, allowed, "{name}");
        println!("{name}: {allowed} calls allowed, {refused} refused by name");
        assert!(allowed < 150, "{name} allows {allowed} calls");
        let row = format!("| `strict`, {name} | {allowed} |");
        assert!(readme.contains(&row), "README.md has no row {row:?}");
    }
}

#[test]
fn calls_that_the_json_calls_missing_answer_enosys() {
    let profile: Value = serde_json::from_str(include_str!("../../strict.json")).unwrap();
    let calls = profile["missing"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|g| g["calls"].as_array().unwrap());
    let calls: Vec<&str> = calls.map(|call| call.as_str().unwrap()).collect();
    assert!(calls.len() > 20);
    for call in &calls {
        assert!(
            ARCHES.iter().any(|(arch, _)| arch.number(call).is_some()),
            "there is no {call}"
        );
    }
    assert_answers(errno(ENOSYS), &calls);
}

/// What a call costs where the kernel's cache does not answer: before Linux 5.11, and for calls with a requirement.
#[test]
fn instructions_per_call_stay_bounded() {
    let arch = Arch::X86_64;
    let cost = |call: &str, args: [u64; 6]| {
        let nr = arch.number(call).unwrap();
        run_stack(strict_for(arch), &Call::new(arch, nr, args)).instructions
    };
    let rows = [
        ("read", NONE),
        ("mmap", NONE),
        ("futex", NONE),
        ("newfstatat", NONE),
        ("ioctl", [0, 0x5401, 0, 0, 0, 0]),
        ("clone", [0x003d_0f00, 0, 0, 0, 0, 0]),
        ("socket", [1, 1, 0, 0, 0, 0]),
        ("prctl", [15, 0, 0, 0, 0, 0]),
    ];
    for (call, args) in rows {
        let instructions = cost(call, args);
        println!("{call}: {instructions} instructions");
        assert!(instructions < 50, "{call} takes {instructions}");
    }
}
