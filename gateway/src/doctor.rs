//! `sandglass doctor`.

use std::process::ExitCode;

use sandglass_driver::local::{LOCAL, findings_without_state};
use sandglass_driver::{Disabled, Driver, Finding, Local, Refusal};
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::cli::DoctorArgs;
use crate::config::{self, DriverName};
use crate::run::{print_json, say};
use crate::settings::Settings;
use crate::style::{Palette, paint};

/// What `doctor --json` prints.
#[derive(Debug, Serialize)]
struct Diagnosis {
    /// The version of this shape.
    schema: u32,
    /// The driver looked at.
    driver: &'static str,
    /// Whether a run would be accepted.
    ready: bool,
    /// Each layer.
    findings: Vec<Finding>,
}

/// Carries out `sandglass doctor`.
///
/// # Errors
/// A bad setting.
pub fn doctor(args: &DoctorArgs, settings: &Settings) -> Result<ExitCode, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| {
            Refusal::new(
                "internal",
                format!("No runtime could be made: {e}."),
                "Look at ulimit -a.",
            )
        })?;
    let waivers = config::waivers(settings)?;
    let (driver, findings) = match config::driver(settings)? {
        DriverName::Disabled => (Disabled.name(), runtime.block_on(Disabled.doctor(&waivers))),
        DriverName::Local => {
            let (images, runs_per_person) = (config::images(settings), config::runs_per_person(settings)?);
            let findings = match config::state_root(settings) {
                Ok(state_root) => {
                    let local = Local {
                        state_root,
                        images,
                        runs_per_person,
                    };
                    runtime.block_on(local.doctor(&waivers))
                }
                Err(refusal) => findings_without_state(refusal, &images, &waivers),
            };
            (LOCAL, findings)
        }
    };
    let ready = !findings.iter().any(Finding::hinders);
    let diagnosis = Diagnosis {
        schema: 1,
        driver,
        ready,
        findings,
    };
    if args.json {
        print_json(&diagnosis)
            .map_err(|e| Refusal::new("stdout", format!("stdout could not be written to: {e}."), ""))?;
    } else {
        use std::io::{IsTerminal, Write};
        let colours = std::io::stdout().is_terminal() && crate::style::colours_wanted();
        let text = show(&diagnosis, &Palette::new(colours));
        if let Err(e) = std::io::stdout().write_all(text.as_bytes()) {
            say(&format!("stdout could not be written to: {e}."));
        }
    }
    Ok(if ready {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn show(diagnosis: &Diagnosis, p: &Palette) -> String {
    let width = diagnosis
        .findings
        .iter()
        .map(|f| f.layer.width())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for f in &diagnosis.findings {
        let (mark, said) = match (f.waived, f.ok) {
            (true, true) => (paint(p.warn, "!"), "waived, though it could be had: "),
            (true, false) => (paint(p.warn, "!"), "waived: "),
            (false, true) => (paint(p.good, "✓"), ""),
            (false, false) => (paint(p.bad, "✗"), ""),
        };
        text.push_str(&format!(
            "{mark} {:<width$}  {said}{}\n",
            f.layer,
            crate::terminal::line(&f.found)
        ));
        if f.hinders() && !f.mend.is_empty() {
            text.push_str(&format!(
                "  {:<width$}  {} {}\n",
                "",
                paint(p.warn, "→"),
                crate::terminal::line(&f.mend)
            ));
        }
    }
    let verdict = if diagnosis.ready {
        paint(
            p.good,
            format!("A run with the {} driver would be accepted.", diagnosis.driver),
        )
    } else {
        paint(
            p.bad,
            format!("A run with the {} driver would be refused.", diagnosis.driver),
        )
    };
    text.push_str(&format!("\n{verdict}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_layer_is_shown_with_its_mend_and_decides_the_verdict() {
        let finding = |ok, layer: &str, mend: &str| Finding {
            layer: layer.into(),
            ok,
            waived: false,
            found: "f".into(),
            mend: mend.into(),
        };
        let findings = vec![
            finding(true, "seccomp", ""),
            finding(false, "landlock", "boot with it"),
        ];
        let diagnosis = Diagnosis {
            schema: 1,
            driver: "local",
            ready: false,
            findings,
        };
        let text = show(&diagnosis, &Palette::default());
        assert!(
            text.contains("✓ seccomp ") && text.contains("✗ landlock") && text.contains("→ boot with it"),
            "{text}"
        );
        assert!(text.contains("would be refused"), "{text}");
    }

    #[test]
    fn a_waived_layer_is_shown_as_waived_and_keeps_no_run_from_being_accepted() {
        let finding = |ok| Finding {
            layer: "memory".into(),
            ok,
            waived: true,
            found: "no hierarchy".into(),
            mend: "mount one".into(),
        };
        let diagnosis = |finding: Finding| Diagnosis {
            schema: 1,
            driver: "local",
            ready: !finding.hinders(),
            findings: vec![finding],
        };
        let text = show(&diagnosis(finding(false)), &Palette::default());
        assert!(text.contains("! memory  waived: no hierarchy"), "{text}");
        assert!(
            !text.contains(['✓', '✗', '→']) && text.contains("would be accepted"),
            "{text}"
        );
        let text = show(&diagnosis(finding(true)), &Palette::default());
        assert!(text.contains("waived, though it could be had"), "{text}");
    }
}
