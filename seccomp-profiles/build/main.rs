//! Compiles `strict.json` into tables that the crate holds as they are: at run time nothing is parsed, compiled or
//! copied.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

#[path = "../src/bpf.rs"]
#[expect(dead_code, reason = "the translation of an OCI section uses more of it")]
mod bpf;
mod compile;
mod link;
mod profile;

/// What the profile is compiled for, with the value of `seccomp_data.arch`.
const ARCHITECTURES: [(&str, u32); 2] = [("x86_64", 0xc000_003e), ("aarch64", 0xc000_00b7)];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/bpf.rs");
    println!("cargo::rerun-if-changed=strict.json");

    let source = std::fs::read("strict.json")?;
    let profile: profile::Profile = serde_json::from_slice(&source)?;
    profile.check().map_err(|error| format!("strict.json: {error}"))?;

    let mut out = String::new();
    writeln!(
        out,
        "/// The name of the profile that [`strict`] holds, as the receipt of a run gives it."
    )?;
    writeln!(out, "pub const PROFILE_NAME: &str = {:?};", profile.name)?;
    writeln!(out, "/// SHA-256 of `strict.json`, in hexadecimal.")?;
    writeln!(
        out,
        "pub const STRICT_SHA256: &str = \"{:x}\";",
        Sha256::digest(&source)
    )?;
    for (arch, audit_value) in ARCHITECTURES {
        let program = link::link(&compile::compile(&profile, arch)?, audit_value)?;
        writeln!(
            out,
            "static STRICT_{}: &[&[SockFilter]] = &[&[",
            arch.to_uppercase()
        )?;
        for i in program {
            writeln!(out, "    i({:#x}, {}, {}, {:#x}),", i.code, i.jt, i.jf, i.k)?;
        }
        writeln!(out, "]];")?;
    }
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("strict.rs"), out)?;
    Ok(())
}
