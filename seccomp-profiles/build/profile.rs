//! What `strict.json` may say. Anything else in it stops the build.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// A whole profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    #[serde(rename = "profile")]
    pub name: String,
    #[serde(rename = "about")]
    _about: String,
    /// What a call answers that is not in the profile.
    pub default: Errno,
    pub allow: Vec<AllowGroup>,
    pub refuse: Vec<RefuseGroup>,
    /// Calls that answer the default, listed for the reader.
    pub missing: Vec<MissingGroup>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowGroup {
    #[serde(rename = "group")]
    _group: String,
    pub calls: Vec<Allowed>,
}

/// One allowed call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    pub syscall: String,
    /// The one architecture that has this call.
    pub only: Option<String>,
    pub comment: String,
    /// Every one of these must hold.
    #[serde(default)]
    pub require: Vec<Requirement>,
}

/// What the low 32 bits of one argument must be. All arguments that the profile looks at are 32 bits wide for the
/// kernel, which drops the rest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    pub index: u8,
    /// Names and values of which the argument must be one.
    #[serde(default)]
    pub one_of: BTreeMap<String, u32>,
    /// Names and values of single bits that must all be clear.
    #[serde(default)]
    pub none_of_bits: BTreeMap<String, u32>,
    /// The answer where the requirement does not hold.
    pub otherwise: Errno,
    pub comment: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefuseGroup {
    #[serde(rename = "group")]
    _group: String,
    pub errno: Errno,
    pub comment: String,
    pub calls: Vec<String>,
    /// Further calls, by the one architecture that has them.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissingGroup {
    pub comment: String,
    pub calls: Vec<String>,
}

/// The answers that a profile may use. The numbers are the same on both architectures.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u32)]
#[allow(clippy::upper_case_acronyms)]
pub enum Errno {
    EPERM = 1,
    ENOTTY = 25,
    ENOSYS = 38,
    EOPNOTSUPP = 95,
    EAFNOSUPPORT = 97,
}

impl Profile {
    fn allowed(&self) -> impl Iterator<Item = &Allowed> {
        self.allow.iter().flat_map(|group| &group.calls)
    }

    /// Checks what the types cannot say.
    pub fn check(&self) -> Result<(), String> {
        let refused = self.refuse.iter().flat_map(RefuseGroup::all);
        let missing = self.missing.iter().flat_map(|group| &group.calls);
        let mut seen = BTreeSet::new();
        for call in self
            .allowed()
            .map(|call| &call.syscall)
            .chain(refused)
            .chain(missing)
        {
            if !seen.insert(call) {
                return Err(format!("{call} is listed twice"));
            }
        }

        let allowed = self.allowed().map(|call| &call.comment);
        let refused = self.refuse.iter().map(|group| &group.comment);
        let missing = self.missing.iter().map(|group| &group.comment);
        if allowed
            .chain(refused)
            .chain(missing)
            .any(|comment| comment.trim().is_empty())
        {
            return Err("every call and every group needs a comment with its reason".to_owned());
        }
        if self.refuse.iter().any(|group| group.errno == self.default) {
            return Err("a refused group answers the default; list it under \"missing\"".to_owned());
        }

        let only = self.allowed().filter_map(|call| call.only.as_ref());
        for arch in only.chain(self.refuse.iter().flat_map(|group| group.only.keys())) {
            if !crate::ARCHITECTURES.iter().any(|(name, _)| name == arch) {
                return Err(format!("{arch} is no architecture of this profile"));
            }
        }
        for call in self.allowed() {
            for requirement in &call.require {
                requirement
                    .check()
                    .map_err(|error| format!("{}: {error}", call.syscall))?;
            }
        }
        Ok(())
    }
}

impl RefuseGroup {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.calls.iter().chain(self.only.values().flatten())
    }
}

impl Requirement {
    fn check(&self) -> Result<(), &'static str> {
        if self.one_of.is_empty() == self.none_of_bits.is_empty() {
            return Err("a requirement is either \"one_of\" or \"none_of_bits\"");
        }
        if self.none_of_bits.values().any(|bit| bit.count_ones() != 1) {
            return Err("a value of \"none_of_bits\" is not a single bit");
        }
        if self.comment.trim().is_empty() {
            return Err("a requirement has no comment");
        }
        Ok(())
    }
}
