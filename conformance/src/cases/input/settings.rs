//! Bad limits, settings, stores and state directories.

use super::{Mounted, script};
use crate::case::{Case, Need};
use crate::context::Context;
use crate::invoke::write;
use crate::verdict::Stop;
use nix::mount::MsFlags;
use std::os::unix::fs::{PermissionsExt as _, symlink};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "input/limits",
            &[],
            "limits that are zero, negative, absurd or beyond the host are named",
            limits,
        ),
        Case::code(
            "input/config-file",
            &[],
            "a bad settings file is named, with its place",
            config_file,
        ),
        Case::code(
            "input/image-missing",
            &[],
            "an empty store is said to be empty",
            image_missing,
        ),
        Case::code(
            "input/store-corrupt",
            &[],
            "a store full of rubbish is no image",
            store_corrupt,
        ),
        Case::code(
            "input/state-not-writable",
            &[],
            "a state directory that cannot be used is named",
            state_not_writable,
        ),
        Case::code(
            "input/state-full",
            &[65],
            "and so is one that is full",
            state_full,
        )
        .needs(&[Need::Root])
        .alone(),
    ]
}

fn limits(c: &Context<'_>) -> Result<(), Stop> {
    let path = script(c)?;
    for (flag, values) in [
        (
            "--timeout",
            &[
                "0",
                "0s",
                "-1s",
                "soon",
                "",
                "1000h",
                "1e400s",
                "99999999999999999999s",
                "NaN",
            ][..],
        ),
        (
            "--memory",
            &["0", "-5", "lots", "1k", "1Pi", "99999999999999999999", "512 Mi b"],
        ),
        (
            "--cpus",
            &["0", "-1", "NaN", "inf", "1000", "half", "", "0.000001"],
        ),
        ("--pids", &["0", "-1", "99999999999", "1.5", "all"]),
        ("--scratch", &["0", "-1", "99Ti", "big"]),
    ] {
        for value in values {
            let ended = c.run_file(&path).flag(flag, *value).go()?;
            ended
                .refused(None, flag.trim_start_matches('-'))
                .map_err(|stop| match stop {
                    Stop::Failed { expected, observed } => {
                        Stop::failed(format!("{flag} {value}: {expected}"), observed)
                    }
                    skipped => skipped,
                })?;
        }
    }
    Ok(())
}

fn config_file(c: &Context<'_>) -> Result<(), Stop> {
    let config = c.dir.join("settings.toml");
    for (text, about) in [
        ("timeout = \"soon\"\n", "timeout"),
        ("nonsense = 1\n", "nonsense"),
        ("timeout = \n", "settings.toml"),
        ("memory = [\"a\"]\n", "memory"),
        ("cpus = -1\n", "cpus"),
    ] {
        write(&config, text.as_bytes())?;
        c.python("print('ran')\n")?
            .flag("--config", &config)
            .go()?
            .refused(None, about)?;
    }
    c.python("print('ran')\n")?
        .flag("--config", c.dir.join("missing.toml"))
        .go()?
        .refused(None, "missing.toml")
}

fn image_missing(c: &Context<'_>) -> Result<(), Stop> {
    let store = c.subdir("store")?;
    c.python("print('ran')\n")?
        .env("SANDGLASS_STORE", &store)
        .go()?
        .refused(None, "image")?;
    c.python("print('ran')\n")?
        .env("SANDGLASS_STORE", c.dir.join("no-store"))
        .go()?
        .refused(None, "image|store")
}

/// Files that a store might have, each with rubbish in it. Whatever a store of this project really holds, a run from
/// this one must be refused.
fn store_corrupt(c: &Context<'_>) -> Result<(), Stop> {
    let store = c.subdir("store")?;
    for name in [
        "index.json",
        "oci-layout",
        "latest",
        "current",
        "default",
        "images.json",
        "refs",
    ] {
        write(&store.join(name), b"{\"rubbish\": [")?;
    }
    std::fs::create_dir_all(store.join("blobs/sha256"))?;
    let digest = "0".repeat(64);
    write(&store.join("blobs/sha256").join(&digest), b"rubbish")?;
    for dir in ["rootfs", "images", "unpacked"] {
        std::fs::create_dir_all(store.join(dir).join(&digest))?;
    }
    c.python("print('ran')\n")?
        .env("SANDGLASS_STORE", &store)
        .go()?
        .refused(None, "image|store")?;
    c.python("print('ran')\n")?
        .env("SANDGLASS_STORE", &store)
        .flag("--image", format!("sha256:{digest}"))
        .go()?
        .refused(None, "image|store")
}

fn state_not_writable(c: &Context<'_>) -> Result<(), Stop> {
    write(&c.dir.join("file"), b"")?;
    symlink(c.subdir("real")?, c.dir.join("link"))?;
    let open = c.subdir("open")?;
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777))?;
    for state in [
        c.dir.join("file"),
        c.dir.join("link"),
        c.dir.join("a/b/c"),
        open,
        "/proc/self".into(),
        "relative".into(),
    ] {
        c.python("print('ran')\n")?
            .env("SANDGLASS_STATE", &state)
            .go()?
            .refused(None, &state.display().to_string())?;
    }
    Ok(())
}

fn state_full(c: &Context<'_>) -> Result<(), Stop> {
    let state = c.subdir("full")?;
    let _mounted = Mounted::tmpfs(&state, "size=64k,mode=0711", MsFlags::empty())?;
    // Fills it: this is meant to fail.
    let _ = std::fs::write(state.join("filler"), vec![0_u8; 64 << 10]);
    c.python("print('ran')\n")?
        .env("SANDGLASS_STATE", &state)
        .go()?
        .refused(None, "full|space")
}
