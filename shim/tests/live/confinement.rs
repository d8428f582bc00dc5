//! How a process stands in its container: the first and one that is exec'ed are confined alike.

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::common::bundle::Exec;
use crate::common::host::field_of;
use crate::common::{Bench, Bundle, Code, Outcome, Shim, contains, equal, holds, host, root};
use crate::requests::refusal;
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_sandboxed_process_and_its_execs_are_confined_alike", sandbox),
        trial("the_pods_profile_is_stacked_below_ours", stacked),
        trial("a_profile_that_lets_no_other_follow_is_refused", profile_first),
        trial("an_exec_in_a_sandbox_is_never_root", exec_root),
        trial("an_exec_in_a_sandbox_gets_no_capability", exec_capability),
        trial("a_sandboxed_process_writes_in_its_scratch_only", scratch),
        trial(
            "by_the_spec_a_profile_holds_without_no_new_privileges_and_setuid_works",
            by_spec,
        ),
        trial(
            "by_the_spec_a_process_has_the_capabilities_of_its_spec",
            by_spec_capabilities,
        ),
        trial("a_process_gets_three_descriptors", descriptors),
        trial("the_umask_of_the_shim_reaches_no_container", umask),
    ]
}

/// Both write these, so that they are compared like for like.
const LOOK: &str = "cat /proc/self/status; echo fds $(ls /proc/self/fd | wc -l)";

/// What the first process and an exec'ed one say of themselves.
async fn both(bench: &Bench, shim: &Shim, bundle: &mut Bundle) -> Outcome<[String; 2]> {
    bundle.spec["process"]["args"] = json!(["sh", "-c", format!("{LOOK}; echo done; exec sleep 60")]);
    shim.run(bundle).await?;
    let first = bundle.stdout.until("done").await?;
    // It stays, so that the shim can look at it as well.
    let script = format!("{LOOK}; echo done; exec sleep 60");
    let mut exec = Exec::new(bench, bundle, "look", &["sh", "-c", &script])?;
    shim.exec(&bundle.id, &exec).await?;
    let second = exec.stdout.until("done").await?;
    shim.kill_and_delete(&bundle.id).await?;
    Ok([first, second])
}

/// Filters that this very process is under already, in a container of its own for example.
fn inherited() -> u32 {
    host::status(std::process::id(), "Seccomp_filters")
        .parse()
        .unwrap_or(0)
}

fn confined(said: &str, filters: u32) -> Outcome {
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        equal(field_of(said, set).as_str(), "0000000000000000", set)?;
    }
    equal(field_of(said, "NoNewPrivs").as_str(), "1", "NoNewPrivs")?;
    equal(field_of(said, "Seccomp").as_str(), "2", "Seccomp")?;
    equal(
        field_of(said, "Seccomp_filters").as_str(),
        (inherited() + filters).to_string(),
        "filters",
    )?;
    equal(field_of(said, "Uid").as_str(), "65534 65534 65534 65534", "uid")?;
    equal(field_of(said, "Groups").as_str(), "", "groups")
}

/// A profile as containerd's RuntimeDefault: what is listed, and EPERM for the rest.
fn runtime_default() -> Value {
    let allow = |names: &[&str]| json!({"names": names, "action": "SCMP_ACT_ALLOW"});
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [
            allow(&["read", "write", "readv", "writev", "open", "openat", "close", "stat", "fstat", "lstat", "newfstatat", "poll", "lseek"]),
            allow(&["mmap", "mprotect", "munmap", "brk", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "ioctl", "access", "faccessat"]),
            allow(&["pipe", "pipe2", "dup", "dup2", "dup3", "nanosleep", "clock_nanosleep", "getpid", "getppid", "clone", "fork", "vfork"]),
            allow(&["execve", "exit", "exit_group", "wait4", "kill", "uname", "fcntl", "getdents", "getdents64", "getcwd", "chdir"]),
            allow(&["readlink", "readlinkat", "umask", "getuid", "getgid", "geteuid", "getegid", "setpgid", "setsid", "getpgrp"]),
            allow(&["arch_prctl", "prctl", "seccomp", "set_tid_address", "set_robust_list", "rseq", "prlimit64", "getrandom", "futex"]),
            allow(&["sched_getaffinity", "sched_yield", "capget", "capset", "landlock_create_ruleset", "setuid", "setgid", "setgroups"]),
            allow(&["sendfile", "gettid", "tgkill", "getrlimit", "sysinfo", "statx", "sigaltstack", "close_range", "madvise"]),
        ],
    })
}

async fn sandbox(bench: &mut Bench) -> Outcome {
    let mut bundle = bench.bundle("a", &[])?;
    let shim = bench.shim(&bundle).await?;
    for said in both(bench, &shim, &mut bundle).await? {
        confined(&said, 1)?;
    }
    let log = bench.log();
    let receipts: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("isolation receipt"))
        .collect();
    equal(receipts.len(), 2, &format!("receipts in {log}"))?;
    for receipt in receipts {
        let abi = receipt
            .rsplit("landlock_abi=")
            .next()
            .and_then(|text| text.split(' ').next()?.parse::<u32>().ok());
        holds(abi.is_some_and(|abi| abi >= 6), || receipt.to_owned())?;
        contains(receipt, "capabilities=none")?;
        contains(receipt, "no_new_privileges=true")?;
    }
    Ok(())
}

async fn stacked(bench: &mut Bench) -> Outcome {
    let mut bundle = bench
        .bundle("a", &[])?
        .edited(|spec| spec["linux"]["seccomp"] = runtime_default());
    let shim = bench.shim(&bundle).await?;
    for said in both(bench, &shim, &mut bundle).await? {
        confined(&said, 2)?;
    }
    // What the pod's profile refuses stays refused, in both: here the making of a directory.
    let mut bundle = bench
        .script("b", "mkdir /tmp/x 2>&1; echo ready; exec sleep 60")?
        .edited(|spec| spec["linux"]["seccomp"] = runtime_default());
    shim.run(&bundle).await?;
    contains(&bundle.stdout.until("ready").await?, "Operation not permitted")?;
    let mut exec = Exec::new(bench, &bundle, "e", &["sh", "-c", "mkdir /tmp/y 2>&1"])?;
    shim.exec(&bundle.id, &exec).await?;
    contains(&exec.stdout.text().await?, "Operation not permitted")?;
    shim.kill_and_delete(&bundle.id).await
}

async fn profile_first(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["true"])?.edited(|spec| {
        spec["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{"names": ["seccomp"], "action": "SCMP_ACT_ERRNO"}],
        });
    });
    let shim = bench.shim(&bundle).await?;
    let answer = shim.create(&bundle).await;
    let refused = answer.err().ok_or("it was made")?;
    contains(&refused.sentence, "allow both in the profile")?;
    bench.nothing_of(&bundle)
}

async fn exec_root(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["sleep", "60"])?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let exec = Exec::new(bench, &bundle, "e", &["true"])?
        .edited(|process| process["user"] = json!({"uid": 0, "gid": 0}));
    refusal(
        shim.add_exec(&bundle.id, &exec).await,
        Code::INVALID_ARGUMENT,
        "process.user.uid is 0",
    )?;
    shim.kill_and_delete(&bundle.id).await
}

async fn exec_capability(bench: &mut Bench) -> Outcome {
    let bundle = bench.bundle("a", &["sleep", "60"])?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let exec = Exec::new(bench, &bundle, "e", &["true"])?
        .edited(|process| process["capabilities"]["effective"] = json!(["CAP_SYS_ADMIN"]));
    refusal(
        shim.add_exec(&bundle.id, &exec).await,
        Code::INVALID_ARGUMENT,
        "adds CAP_SYS_ADMIN",
    )?;
    // Asking for less than the table gives nothing back.
    let mut exec = Exec::new(bench, &bundle, "f", &["sh", "-c", LOOK])?
        .edited(|process| process["noNewPrivileges"] = json!(false));
    shim.exec(&bundle.id, &exec).await?;
    confined(&exec.stdout.text().await?, 1)?;
    shim.end(&bundle.id, "f").await?;
    shim.kill_and_delete(&bundle.id).await
}

async fn scratch(bench: &mut Bench) -> Outcome {
    let script = "for d in / /bin /dev /etc /home /proc /run /sys /usr /work /out /tmp /dev/shm; do \
                  if ( : > $d/x ) 2>/dev/null; then echo $d; fi; done; \
                  cp /bin/busybox /tmp/sh && chmod 755 /tmp/sh && /tmp/sh true || echo no execution";
    let mut bundle = bench.script("a", script)?;
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let text = bundle.stdout.text().await?;
    shim.end(&bundle.id, "").await?;
    // The spec's own tmpfs on /run belongs to root.
    equal(
        text.as_str(),
        "/work\n/out\n/tmp\n/dev/shm\nno execution\n",
        "where it could write",
    )
}

async fn by_spec(bench: &mut Bench) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let mut bundle = bench.bundle("a", &[])?.by_spec().edited(|spec| {
        spec["process"]["user"] = json!({"uid": 1000, "gid": 1000});
        spec["process"]["capabilities"]["effective"] = json!([]);
        spec["process"]["capabilities"]["permitted"] = json!([]);
        spec["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}],
        });
    });
    bundle.mounts.clear();
    let rootfs = bundle.dir.join("rootfs");
    root::make(&rootfs)?;
    // A copy: the shared one is this test itself.
    let setuid = rootfs.join("usr/setuid");
    std::fs::copy("/proc/self/exe", &setuid)?;
    std::fs::set_permissions(&setuid, PermissionsExt::from_mode(0o4755))?;
    std::fs::create_dir(rootfs.join("free"))?;
    std::fs::set_permissions(rootfs.join("free"), PermissionsExt::from_mode(0o777))?;
    let look = "/usr/setuid ids; mkdir /free/x 2>&1; grep -E 'Seccomp|NoNewPrivs|CapEff' /proc/self/status";
    bundle.spec["process"]["args"] = json!(["sh", "-c", format!("{look}; echo done; exec sleep 60")]);
    // The probe answers to its own name only.
    let probe = format!("exec -a {} /usr/setuid ids", root::PROBE);
    bundle.spec["process"]["args"][2] = json!(format!("({probe}); {look}; echo done; exec sleep 60"));
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let first = bundle.stdout.until("done").await?;
    let mut exec = Exec::new(bench, &bundle, "e", &["sh", "-c", &format!("({probe}); {look}")])?;
    shim.exec(&bundle.id, &exec).await?;
    let second = exec.stdout.text().await?;
    for said in [first, second] {
        contains(&said, "1000 0\n")?;
        contains(&said, "Operation not permitted")?;
        equal(field_of(&said, "NoNewPrivs").as_str(), "0", "NoNewPrivs")?;
        equal(field_of(&said, "Seccomp").as_str(), "2", "Seccomp")?;
        equal(
            field_of(&said, "Seccomp_filters").as_str(),
            (inherited() + 1).to_string(),
            "filters",
        )?;
        equal(
            field_of(&said, "CapEff").as_str(),
            "0000000000000000",
            "capabilities: that for the filter is given up",
        )?;
    }
    shim.end(&bundle.id, "e").await?;
    shim.kill_and_delete(&bundle.id).await
}

async fn by_spec_capabilities(bench: &mut Bench) -> Outcome {
    for seccomp in [false, true] {
        let mut bundle = bench
            .bundle(&format!("a-{seccomp}"), &[])?
            .by_spec()
            .edited(|spec| {
                for set in ["bounding", "effective", "permitted"] {
                    spec["process"]["capabilities"][set] = json!(["CAP_CHOWN", "CAP_KILL"]);
                }
                if seccomp {
                    spec["linux"]["seccomp"] = json!({"defaultAction": "SCMP_ACT_ALLOW"});
                }
            });
        let shim = bench.shim(&bundle).await?;
        for said in both(bench, &shim, &mut bundle).await? {
            for set in ["CapPrm", "CapEff", "CapBnd"] {
                equal(field_of(&said, set).as_str(), "0000000000000021", set)?;
            }
            equal(field_of(&said, "NoNewPrivs").as_str(), "0", "NoNewPrivs")?;
            let filters = inherited() + u32::from(seccomp);
            equal(
                field_of(&said, "Seccomp_filters").as_str(),
                filters.to_string(),
                "filters",
            )?;
        }
    }
    Ok(())
}

async fn descriptors(bench: &mut Bench) -> Outcome {
    // One that whoever starts the shim forgot to close.
    let leaked = rustix::io::dup(std::fs::File::open("/etc")?)?;
    for by_spec in [false, true] {
        let mut bundle = bench.bundle(&format!("a-{by_spec}"), &[])?;
        if by_spec {
            bundle = bundle.by_spec();
        }
        let shim = bench.shim(&bundle).await?;
        for said in both(bench, &shim, &mut bundle).await? {
            // `ls` has one for the directory that it reads.
            contains(&said, "fds 4\n")?;
        }
    }
    drop(leaked);
    Ok(())
}

async fn umask(bench: &mut Bench) -> Outcome {
    for (name, asked, found) in [("none", None, "0022"), ("some", Some(0o077), "0077")] {
        let mut bundle = bench.bundle(name, &[])?;
        if let Some(asked) = asked {
            bundle.spec["process"]["user"]["umask"] = json!(asked);
        }
        let shim = bench.shim(&bundle).await?;
        for said in both(bench, &shim, &mut bundle).await? {
            equal(field_of(&said, "Umask").as_str(), found, "umask")?;
        }
    }
    Ok(())
}
