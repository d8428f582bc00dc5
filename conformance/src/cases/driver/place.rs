//! Where a command line lies, and what a run that waits takes of the host.

use super::{SLEEPER, stop};
use crate::case::{Case, Need};
use crate::context::Context;
use crate::invoke::{lossy, write};
use crate::verdict::{Stop, check, same};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "driver/in-a-chroot",
            &[],
            "root in a chroot gets the same sandbox, though the kernel makes no user namespace there",
            in_a_chroot,
        )
        .needs(&[Need::Root]),
        Case::code(
            "driver/memory-while-waiting",
            &[],
            "supervisor and runner of a run that waits hold at most 4 MiB",
            memory_while_waiting,
        )
        .needs(&[Need::Root])
        // Pages that several share are counted in parts: alone is the worst.
        .alone(),
    ]
}

/// Makes a minimal tree in a mount namespace of its own, which takes all of it away when the command ends: the program,
/// the script, the store, the state directory, and what the kernel shows. Its root is a mount, or a directory like any
/// other. Mounts are shared there, as systemd leaves them, so what a run did to its own tree would be seen afterwards.
const ENTER: &str = r#"
root=$1 tree=$2 program=$3 script=$4 store=$5 state=$6
shift 6
if [ "$root" = mount ]; then mount -t tmpfs tmpfs "$tree"; fi
cd "$tree"
mkdir proc dev sys store state
for place in proc dev sys; do mount --rbind "/$place" "$place"; done
mount --bind "$store" store
mount --bind "$state" state
cp "$program" sandglass
cp "$script" script.py
before=$(wc -l </proc/self/mountinfo)
code=0
chroot . /sandglass run "$@" /script.py || code=$?
after=$(wc -l </proc/self/mountinfo)
if [ "$before" != "$after" ]; then echo "$before mounts became $after" >&2; exit 99; fi
exit "$code"
"#;

fn in_a_chroot(c: &Context<'_>) -> Result<(), Stop> {
    let script = c.dir.join("script.py");
    write(&script, b"print('ran')\n")?;
    let ended = c.run_file(&script).go()?;
    ended.succeeded()?;
    let usual: Value =
        serde_json::from_slice(&ended.stdout).map_err(|e| Stop::failed("JSON", e.to_string()))?;
    for root in ["mount", "directory"] {
        let report = in_tree(c, root, &script)?;
        same("status", &Value::from("succeeded"), &report["status"])?;
        same("stdout", &Value::from("ran\n"), &report["stdout"]["text"])?;
        let what = format!("the receipt of a run outside of a chroot (its root is a {root})");
        same(&what, &usual["isolation"], &report["isolation"])?;
    }
    Ok(())
}

fn in_tree(c: &Context<'_>, root: &str, script: &Path) -> Result<Value, Stop> {
    let store =
        std::env::var_os("SANDGLASS_STORE").map_or_else(|| "/var/lib/sandglass".into(), PathBuf::from);
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "shared", "sh", "-euc", ENTER, "sh"])
        .arg(root)
        .arg(c.subdir(root)?)
        .arg(&c.config.sandglass)
        .arg(script)
        .arg(store)
        .arg(c.config.state_dir())
        .args(["--json", "--driver", &c.config.driver])
        .args(["--run-id", &c.run_id(), "--person", &c.person()])
        .env("SANDGLASS_STORE", "/store")
        .env("SANDGLASS_STATE", "/state")
        .stdin(Stdio::null())
        .output()?;
    let said = || format!("{} {}", lossy(&output.stdout), lossy(&output.stderr));
    let report = serde_json::from_slice(&output.stdout)
        .map_err(|e| Stop::failed("one report", format!("{e}: {}", said())))?;
    check(
        output.status.code() == Some(0),
        "exit status 0 and no mount more than before",
        said(),
    )?;
    Ok(report)
}

/// After a second of waiting the supervisor gives back what it does not need to wait.
const SETTLED: Duration = Duration::from_millis(1_500);
/// KiB.
const MOST: u64 = 4 << 10;

fn memory_while_waiting(c: &Context<'_>) -> Result<(), Stop> {
    let live = c.python(SLEEPER)?.plain().start()?;
    live.wait_for("started")?;
    std::thread::sleep(SETTLED);
    let worker = only_child(&live.pid().to_string())?;
    let runner = only_child(&worker)?;
    let held = [pss_kib(&worker)?, pss_kib(&runner)?];
    stop(live)?;
    check(
        held.iter().sum::<u64>() <= MOST && held.iter().all(|kib| *kib > 0),
        format!("at most {MOST} KiB"),
        format!("supervisor and runner: {held:?} KiB"),
    )
}

fn only_child(pid: &str) -> Result<String, Stop> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let mut words = children.split_whitespace();
    match (words.next(), words.next()) {
        (Some(only), None) => Ok(only.to_owned()),
        _ => Err(Stop::failed(format!("process {pid} has one child"), children)),
    }
}

/// `Pss:` of smaps_rollup (proc_pid_smaps(5)).
fn pss_kib(pid: &str) -> Result<u64, Stop> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    text.lines()
        .find_map(|line| {
            line.strip_prefix("Pss:")?
                .trim()
                .strip_suffix("kB")?
                .trim()
                .parse()
                .ok()
        })
        .ok_or_else(|| Stop::failed("a proportional set size", text))
}
