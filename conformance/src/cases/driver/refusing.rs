//! A driver that is disabled, unknown or not there.

use crate::case::Case;
use crate::context::Context;
use crate::invoke::lossy;
use crate::verdict::{Stop, check, same};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "driver/disabled",
            &[65],
            "the disabled driver refuses, clearly, before anything else",
            disabled,
        ),
        Case::code(
            "driver/disabled-comes-first",
            &[65],
            "even before it looks at the script",
            disabled_first,
        ),
        Case::code(
            "driver/unknown",
            &[65],
            "a driver that does not exist is an error, never another driver",
            unknown,
        ),
        Case::code(
            "driver/not-available",
            &[65],
            "nor is one that is not there replaced by a weaker one",
            not_available,
        ),
    ]
}

fn disabled(c: &Context<'_>) -> Result<(), Stop> {
    let script = c.dir.join("script.py");
    crate::invoke::write(&script, b"print('ran')\n")?;
    c.run_bare(&script)
        .flag("--driver", "disabled")
        .go()?
        .refused(Some("driver_disabled"), "disabled")?;
    let plain = c.run_bare(&script).flag("--driver", "disabled").plain().go()?;
    same("exit status without --json", &Some(125), &plain.code)?;
    check(
        plain.stdout.is_empty() && lossy(&plain.stderr).contains("disabled"),
        "a sentence on stderr only",
        lossy(&plain.stderr),
    )
}

fn disabled_first(c: &Context<'_>) -> Result<(), Stop> {
    c.run_bare("/does/not/exist.py")
        .flag("--driver", "disabled")
        .go()?
        .refused(Some("driver_disabled"), "disabled")
}

fn unknown(c: &Context<'_>) -> Result<(), Stop> {
    let script = c.dir.join("script.py");
    crate::invoke::write(&script, b"print('ran')\n")?;
    for name in ["nonsense", "LOCAL", "", "local,disabled", "../local"] {
        c.run_bare(&script)
            .flag("--driver", name)
            .go()?
            .refused(None, "driver")?;
    }
    Ok(())
}

/// Drivers that may exist: either the run is carried out by them, or it is refused; the receipt tells.
fn not_available(c: &Context<'_>) -> Result<(), Stop> {
    let script = c.dir.join("script.py");
    crate::invoke::write(&script, b"print('ran')\n")?;
    for name in ["docker", "kubernetes"] {
        if c.config.driver == name {
            continue;
        }
        let ended = c
            .run_bare(&script)
            .flag("--driver", name)
            .env("DOCKER_HOST", "unix:///does/not/exist")
            .env("KUBECONFIG", "/does/not/exist")
            .go()?;
        ended.refused(None, name)?;
    }
    Ok(())
}
