//! From a profile to a stack of filters, through seccompiler.
//!
//! seccompiler compiles filters that have one answer besides "allow", so every errno gets a filter of its own. Each
//! number is refused by one filter at most, whatever order they are installed in:
//!
//! - one filter for each errno, which answers it for the calls of `refuse` and for allowed calls whose requirement
//!   does not hold, and lets everything else pass;
//! - one filter that knows every number of the first two lists and answers the default for any other.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, TargetArch};
use serde_json::{Value, json};

use crate::profile::{Errno, Profile, Requirement};

/// The filters of `profile` for one architecture, in the order to install them. The one that refuses everything
/// unknown comes last, since no further filter can be installed behind it.
pub fn compile(profile: &Profile, arch: &str) -> Result<Vec<BpfProgram>, Box<dyn std::error::Error>> {
    let mut known = Vec::new();
    let mut refusals: BTreeMap<Errno, Vec<Value>> = BTreeMap::new();

    for group in &profile.refuse {
        for call in group
            .calls
            .iter()
            .chain(group.only.get(arch).into_iter().flatten())
        {
            refusals
                .entry(group.errno)
                .or_default()
                .push(json!({ "syscall": call }));
            known.push(json!({ "syscall": call }));
        }
    }
    let allowed = profile.allow.iter().flat_map(|group| &group.calls);
    for call in allowed.filter(|call| call.only.as_deref().is_none_or(|only| only == arch)) {
        known.push(json!({ "syscall": call.syscall }));
        for requirement in &call.require {
            let rules = violations(requirement);
            let rules = rules
                .into_iter()
                .map(|args| json!({ "syscall": call.syscall, "args": args }));
            refusals.entry(requirement.otherwise).or_default().extend(rules);
        }
    }

    let mut filters = BTreeMap::new();
    for (errno, rules) in refusals {
        filters.insert(
            format!("{errno:?}"),
            filter(json!("allow"), json!({ "errno": errno as u32 }), rules),
        );
    }
    // seccompiler hands back a map; its order is that of the names.
    const LAST: &str = "~";
    filters.insert(
        LAST.to_owned(),
        filter(json!({ "errno": profile.default as u32 }), json!("allow"), known),
    );

    let compiled =
        seccompiler::compile_from_json(json!(filters).to_string().as_bytes(), TargetArch::try_from(arch)?)?;
    Ok(compiled
        .into_iter()
        .collect::<BTreeMap<_, _>>()
        .into_values()
        .collect())
}

fn filter(otherwise: Value, matched: Value, rules: Vec<Value>) -> Value {
    json!({ "mismatch_action": otherwise, "match_action": matched, "filter": rules })
}

/// The negation of a requirement, as alternatives of conjunctions: what seccompiler takes as rules.
fn violations(requirement: &Requirement) -> Vec<Vec<Value>> {
    let condition =
        |op: Value, val: u32| json!({ "index": requirement.index, "type": "dword", "op": op, "val": val });
    if requirement.one_of.is_empty() {
        let bits = requirement.none_of_bits.values();
        bits.map(|&bit| vec![condition(json!({ "masked_eq": bit }), bit)])
            .collect()
    } else {
        vec![
            requirement
                .one_of
                .values()
                .map(|&value| condition(json!("ne"), value))
                .collect(),
        ]
    }
}
