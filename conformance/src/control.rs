//! Controls: the same probe where nothing is confined. A case whose probe is "blocked" there as well proves nothing.
//!
//! A control runs as root with every capability that the suite has, in throw-away namespaces and on a throw-away
//! overlay of the image, so that what succeeds is gone with it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::case::{Control, Planted, Probe, Want};
use crate::context::{Canary, PROBER};
use crate::judge::{Line, Outcome, describe, find_line, judge, names};
use crate::verdict::Verdict;

/// Longest that a control may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// Makes the throw-away root and starts what stands behind it.
const ENTER: &str = r#"set -e
root=$1 lower=$2 stage=$3 canary=$4 host_network=$5; shift 5
mount --make-rprivate /
mount -t tmpfs tmpfs "$root"
mkdir "$root/up" "$root/scratch" "$root/new"
mount -t overlay -o "lowerdir=$lower,upperdir=$root/up,workdir=$root/scratch" overlay "$root/new"
cd "$root/new"
mkdir -p proc sys dev tmp work out
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
for d in tmp work out dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$d"; done
if [ -n "$canary" ]; then mkdir -p ".$canary"; mount --bind "$canary" ".$canary"; fi
cp "$stage"/* work/
[ "$host_network" = yes ] || echo 0 65534 > /proc/sys/net/ipv4/ping_group_range 2>/dev/null || true
"#;

/// The new root becomes the root of its mount namespace: in a mere chroot the kernel refuses user namespaces to everyone.
/// The shell is not turned into the command, so that PID 1 is not the prober.
const RUN: &str = r#"
mount --move . /
code=0
chroot . "$@" || code=$?
"#;

/// Where controls run.
#[derive(Debug)]
pub struct Unconfined {
    rootfs: PathBuf,
    dir: PathBuf,
}

/// One command to run there.
#[derive(Debug)]
pub struct Job<'a> {
    /// Files to find in `/work`.
    pub stage: &'a Path,
    /// A directory of the host that is seen at its own path.
    pub canary: Option<&'a Path>,
    /// Files that are planted.
    pub planted: &'a [Planted],
    /// Whether the host's network is seen.
    pub host_network: bool,
    /// Shell text that runs just before the command, inside the new root's directory.
    pub before: &'a str,
    /// Shell text that runs after it.
    pub after: &'a str,
    /// Whether the command gets the environment of the caller on top of a clean one.
    pub environment: bool,
    /// The command.
    pub argv: Vec<OsString>,
}

impl Unconfined {
    /// Controls on this image, with throw-away roots below `dir`.
    pub fn new(rootfs: &Path, dir: &Path) -> std::io::Result<Self> {
        let dir = dir.join("unconfined");
        std::fs::create_dir_all(&dir)?;
        Ok(Self {
            rootfs: rootfs.to_owned(),
            dir,
        })
    }

    /// The command line that runs a job in the throw-away root.
    pub fn command(&self, job: &Job<'_>) -> Command {
        let mut script = ENTER.to_owned();
        for planted in job.planted {
            let path = planted.path;
            script.push_str(&format!(
                "mkdir -p \"$(dirname .{path})\"; echo planted > .{path}; chmod {:o} .{path}\n",
                planted.mode
            ));
        }
        script.push_str(job.before);
        script.push_str(RUN);
        script.push_str(job.after);
        script.push_str("\nexit $code\n");
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--ipc",
            "--uts",
            "--cgroup",
        ]);
        if !job.host_network {
            command.arg("--net");
        }
        command
            .args(["--", "sh", "-c", &script, "control"])
            .arg(&self.dir)
            .arg(&self.rootfs)
            .arg(job.stage);
        command.arg(job.canary.map(Path::as_os_str).unwrap_or_default());
        command.arg(if job.host_network { "yes" } else { "no" });
        command.arg("/usr/bin/env");
        if !job.environment {
            command.arg("-i");
        }
        command.args(["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/work", "LANG=C.UTF-8"]);
        command
            .args(["sh", "-c", "cd /work && exec \"$@\"", "sh"])
            .args(&job.argv);
        command
    }

    /// Runs the prober there.
    pub fn probe(&self, args: &[String], control: &Control, canary: &Canary) -> Result<Line, String> {
        let stage = self.dir.with_file_name("unconfined-stage");
        std::fs::create_dir_all(&stage).map_err(|e| e.to_string())?;
        std::fs::write(stage.join("main.py"), PROBER).map_err(|e| e.to_string())?;
        let host_network = args.iter().any(|arg| arg == "{abstract}");
        let mut args = canary.fill_in(args);
        args.extend(control.more_args.iter().map(|&arg| arg.to_owned()));
        let mut argv: Vec<OsString> = vec!["python3".into(), "main.py".into()];
        argv.extend(args.iter().map(OsString::from));
        let before = if args.first().is_some_and(|probe| probe == "inherited-descriptors") {
            "exec 9</etc/passwd"
        } else {
            ""
        };
        let job = Job {
            stage: &stage,
            canary: canary.root(),
            planted: control.planted,
            host_network,
            before,
            after: "",
            environment: false,
            argv,
        };
        let output = bounded(self.command(&job))?;
        let probe = args.first().map(String::as_str).unwrap_or_default();
        find_line(probe, &String::from_utf8_lossy(&output.0))
            .map_err(|e| format!("{e}; stderr {:?}", String::from_utf8_lossy(&output.1)))
    }
}

/// Runs a command to its end, or ends it.
fn bounded(mut command: Command) -> Result<(Vec<u8>, Vec<u8>), String> {
    use std::io::Read as _;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{command:?}: {e}"))?;
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(pipe) = pipe {
                let _ = pipe.take(64 << 20).read_to_end(&mut bytes);
            }
            bytes
        })
    };
    let out = read(
        child
            .stdout
            .take()
            .map(|p| Box::new(p) as Box<dyn std::io::Read + Send>),
    );
    let err = read(
        child
            .stderr
            .take()
            .map(|p| Box::new(p) as Box<dyn std::io::Read + Send>),
    );
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("the control took longer than {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let joined =
        |thread: std::thread::JoinHandle<Vec<u8>>| thread.join().map_err(|_| "a reader ended".to_owned());
    Ok((joined(out)?, joined(err)?))
}

/// Judges the answer of a control: it must be the one that is written beside the case, and the case must fail on it.
pub fn judge_control(probe: &Probe, line: &Line) -> Verdict {
    let control = &probe.control;
    if let (Outcome::Blocked, Some(errno)) = (line.outcome, line.errno)
        && let Some((_, reason)) = control.absent.iter().find(|(absent, _)| *absent == errno)
    {
        return Verdict::Skipped {
            reason: (*reason).to_owned(),
        };
    }
    let verdict = judge(&probe.expect, line);
    let (right, expected) = match control.want {
        Want::Allowed => (
            line.outcome == Outcome::Allowed,
            "unconfined it is allowed".to_owned(),
        ),
        Want::Errno(errnos) => (
            line.outcome == Outcome::Blocked && line.errno.is_some_and(|errno| errnos.contains(&errno)),
            format!("unconfined the kernel itself answers {}", names(errnos)),
        ),
        Want::Fails => (
            line.outcome != Outcome::Error,
            "unconfined the probe can be made".to_owned(),
        ),
        Want::Works => (verdict.is_ok(), "unconfined it works as well".to_owned()),
    };
    if !right {
        return Verdict::Failed {
            expected,
            observed: describe(line),
        };
    }
    if verdict.is_ok() && !matches!(control.want, Want::Works) {
        return Verdict::Failed {
            expected: "the case fails where nothing is confined".to_owned(),
            observed: format!("it would pass: {}", describe(line)),
        };
    }
    Verdict::Passed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{ALLOWED, Body, Case};
    use nix::libc::{EACCES, EAFNOSUPPORT, EBADF, EPERM};
    use serde_json::Value;

    fn probe(case: Case) -> Probe {
        match case.body {
            Body::Probe(probe) => probe,
            _ => panic!("not a probe"),
        }
    }

    fn answer(outcome: Outcome, errno: Option<i32>) -> Line {
        Line {
            probe: "p".into(),
            outcome,
            errno,
            detail: Value::Null,
        }
    }

    #[test]
    fn a_control_must_succeed_and_the_case_must_fail_on_it() {
        let refused = probe(Case::refused("a/b", &[1], "p", ""));
        assert_eq!(
            judge_control(&refused, &answer(Outcome::Allowed, None)),
            Verdict::Passed
        );
        for blocked in [
            answer(Outcome::Blocked, Some(EPERM)),
            answer(Outcome::Error, None),
        ] {
            assert!(matches!(
                judge_control(&refused, &blocked),
                Verdict::Failed { .. }
            ));
        }
    }

    #[test]
    fn the_kernels_own_answer_counts_only_if_the_case_would_not_take_it() {
        let mut case = probe(Case::refused("a/b", &[1], "p", "").answers(&[EBADF]));
        assert_eq!(
            judge_control(&case, &answer(Outcome::Blocked, Some(EBADF))),
            Verdict::Passed
        );
        case.control.want = Want::Errno(&[EACCES]);
        let vacuous = judge_control(&case, &answer(Outcome::Blocked, Some(EACCES)));
        assert!(
            matches!(vacuous, Verdict::Failed { .. }),
            "EACCES is what the case takes for a refusal"
        );
    }

    #[test]
    fn what_this_kernel_lacks_is_skipped_and_never_passed() {
        let case = probe(Case::refused("a/b", &[1], "p", "").absent(&[(EAFNOSUPPORT, "no-such-family")]));
        assert_eq!(
            judge_control(&case, &answer(Outcome::Blocked, Some(EAFNOSUPPORT))),
            Verdict::Skipped {
                reason: "no-such-family".into()
            }
        );
    }

    #[test]
    fn a_case_that_passes_unconfined_is_found_out() {
        let case = probe(Case::probe(
            "a/b",
            &[1],
            "p",
            "",
            crate::judge::Expect::Detail(|_| Ok(())),
            ALLOWED,
        ));
        assert!(matches!(
            judge_control(&case, &answer(Outcome::Allowed, None)),
            Verdict::Failed { .. }
        ));
    }
}
