//! critest, run inside a stack with one runtime handler after another.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::error::{Result, StackError};
use crate::outcomes::Outcomes;
use crate::place::SOCKET;
use crate::stack::Stack;

/// Specs that pull from public registries, which is what they are about: nothing is pulled here. Those that a host
/// cannot run (AppArmor, SELinux, NRI) skip themselves.
const SKIP: &str = "Image Manager|Image Consistency|Image Identifier Consistency|Image Volume";
/// The same order each time, so that runs can be compared.
const SEED: &str = "1";

/// Runs every spec with `handler`; the reports and the log go to `folder`. Returns how the specs ended, and what the runtime
/// left behind, as phrases.
///
/// # Errors
/// Where the stack does not come up, or critest does not run to its end.
pub fn run(
    config: &Config,
    handler: &str,
    focus: Option<&str>,
    folder: &Path,
) -> Result<(Outcomes, Vec<String>)> {
    if !config.handlers.iter().any(|known| known.name == handler) {
        return Err(StackError::Setting(format!(
            "There is no handler {handler} in this stack."
        )));
    }
    fs::create_dir_all(folder).map_err(StackError::at("Making", folder))?;
    let folder = std::path::absolute(folder).map_err(StackError::at("Finding", folder))?;
    let file = |extension: &str| -> PathBuf { folder.join(format!("{handler}.{extension}")) };
    let report = file("json");
    // One of an earlier run must not pass for this one's.
    match fs::remove_file(&report) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(StackError::at("Removing", &report)(error));
        }
        _ => {}
    }
    let mut config = config.clone();
    config.keep_log = Some(file("containerd.log"));
    let log = File::create(file("log")).map_err(StackError::at("Writing", &file("log")))?;
    let errors = log.try_clone().map_err(StackError::at("Writing", &file("log")))?;

    let stack = Stack::up(&config)?;
    let mut command = stack.command(config.servers.program("critest"));
    command
        .args([
            "-runtime-endpoint",
            &format!("unix://{SOCKET}"),
            "-runtime-handler",
            handler,
        ])
        .args(["-ginkgo.no-color", "-ginkgo.seed", SEED, "-ginkgo.skip", SKIP])
        .arg("-ginkgo.json-report")
        .arg(&report)
        .arg("-ginkgo.junit-report")
        .arg(file("xml"))
        .stdin(std::process::Stdio::null())
        .stdout(log)
        .stderr(errors);
    if let Some(focus) = focus {
        command.args(["-ginkgo.focus", focus]);
    }
    let ran = command.status().map_err(StackError::doing("Starting critest"));
    unmount_litter(&stack);
    let left = match stack.down() {
        Ok(()) => Vec::new(),
        Err(StackError::Left(left)) => left,
        Err(error) => return Err(error),
    };
    // Its status says only that a spec failed; which ones is in the report.
    ran?;
    Ok((Outcomes::read(&report)?, left))
}

/// Specs of mount propagation make mounts in their own scratch, and leave them there when they fail: theirs, not the
/// runtime's.
fn unmount_litter(stack: &Stack) {
    const SCRIPT: &str =
        r#"awk '{print $5}' /proc/self/mountinfo | grep "^$TMPDIR/" | sort -r | xargs -r -n1 umount -l"#;
    let _ = stack.command("sh").args(["-c", SCRIPT]).status();
}
