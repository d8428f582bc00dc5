//! Isolation: the receipt agrees with what can be seen from inside, and runs do not see each other.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::case::{Case, Need, Want};
use crate::context::Context;
use crate::host::our_processes;
use crate::judge::{Expect, Outcome, describe};
use crate::verdict::{Stop, check, same};
use crate::view::Status;

/// Every case about isolation.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "isolation/receipt",
            &[24],
            "every field of the receipt is what the prober sees from inside",
            receipt,
        )
        .needs(&[Need::Driver]),
        Case::code(
            "isolation/receipt-names-waivers",
            &[],
            "the receipt says what was done without",
            receipt_waivers,
        )
        .needs(&[Need::Driver]),
        Case::refused(
            "isolation/network",
            &[14],
            "network",
            "an empty network: a loopback that nobody can reach, no routes",
        )
        .expect(Expect::Detail(empty_network))
        .control_args(&["plant"])
        .want(Want::Fails),
        Case::refused(
            "isolation/find-left-behind",
            &[38],
            "find-left-behind {token}",
            "nothing of another run is found",
        )
        .expect(Expect::Nothing)
        .control_args(&["plant"]),
        Case::code(
            "isolation/next-run",
            &[38],
            "what a run leaves everywhere is not there for the next",
            next_run,
        ),
        Case::code("isolation/run-beside", &[38], "nor for one beside it", run_beside).alone(),
        Case::code(
            "isolation/after-many-descriptors",
            &[32],
            "a run that left thousands of descriptors spoils nothing for the next",
            many_descriptors,
        ),
        Case::code(
            "isolation/inputs-are-copies",
            &[38, 36],
            "a script that changes its input changes a copy",
            inputs_are_copies,
        ),
        Case::code(
            "isolation/host-name",
            &[27],
            "the host's name does not show",
            host_name,
        ),
        Case::code(
            "isolation/session",
            &[],
            "the script leads a session and a group of its own",
            session,
        )
        .needs(&[Need::Runner]),
        Case::code(
            "isolation/host-ids",
            &[24],
            "on the host the script is nobody that exists, and no two runs are the same",
            host_ids,
        )
        .needs(&[Need::Root, Need::UserNamespace])
        .alone(),
        Case::refused(
            "isolation/no-tools",
            &[],
            "tools-of-the-builder",
            "no package manager, compiler or debugger in the image",
        )
        .expect(Expect::Nothing)
        .planted(&[crate::case::Planted {
            path: "/usr/bin/pip",
            mode: 0o755,
        }]),
    ]
}

fn receipt(c: &Context<'_>) -> Result<(), Stop> {
    let (status, report) = c.probe(&["status", "self"])?;
    let receipt = report
        .isolation
        .as_ref()
        .ok_or_else(|| Stop::failed("a receipt", "isolation is null"))?;
    let field = |name: &str| {
        status
            .detail
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let uid = field("Uid")
        .split_whitespace()
        .next()
        .and_then(|uid| uid.parse().ok())
        .unwrap_or(u64::MAX);
    same("uid", &uid, &receipt.uid)?;
    same("uid", &65_534, &uid)?;
    let empty = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
        .iter()
        .all(|set| field(set) == "0000000000000000");
    same("capabilities are none", &empty, &(receipt.capabilities == "none"))?;
    check(empty, "no capabilities inside", format!("{}", status.detail))?;
    same("supplementary groups", &String::new(), &field("Groups"))?;
    same(
        "no_new_privileges",
        &(field("NoNewPrivs") == "1"),
        &receipt.no_new_privileges,
    )?;
    same(
        "a seccomp filter",
        &(field("Seccomp") == "2"),
        &(receipt.seccomp_profile == "strict"),
    )?;
    let (facts, _) = c.probe(&["host-facts"])?;
    // A namespace of its own has a map that is not the identity of the first one.
    let mapped = facts
        .detail
        .get("uid_map")
        .and_then(Value::as_array)
        .is_some_and(|m| m.get(2).and_then(Value::as_str) != Some("4294967295"));
    same("user_namespace", &mapped, &receipt.user_namespace)?;
    let (network, _) = c.probe(&["network"])?;
    same(
        "network is none",
        &empty_network(&network.detail).is_ok(),
        &(receipt.network == "none"),
    )?;
    let (mounts, _) = c.probe(&["mountinfo"])?;
    let text = |mount: &Value, name: &str| {
        mount
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let root = mounts
        .detail
        .as_array()
        .and_then(|m| m.iter().rfind(|m| text(m, "path") == "/").cloned())
        .unwrap_or(Value::Null);
    same(
        "root_read_only",
        &text(&root, "options").split(',').any(|o| o == "ro"),
        &receipt.root_read_only,
    )?;
    // Landlock shows only in what it does: mode and owner of these files would let us write them.
    let (own, _) = c.probe(&["own-proc-for-writing"])?;
    let landlocked = own.outcome == Outcome::Blocked;
    same(
        "landlock_abi",
        &landlocked,
        &receipt.landlock_abi.is_some_and(|abi| abi > 0),
    )?;
    check(
        landlocked || c.config.lacks(Need::Landlock).is_some(),
        "Landlock in force",
        describe(&own),
    )?;
    let digest = receipt.image.strip_prefix("sha256:").unwrap_or_default();
    check(
        digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()),
        "the image by digest",
        &receipt.image,
    )?;
    same("driver", &c.config.driver, &receipt.driver)
}

fn receipt_waivers(c: &Context<'_>) -> Result<(), Stop> {
    let with = |more: &str| {
        let mut waived = c.config.waived.clone();
        if !more.is_empty() && !waived.iter().any(|w| w == more) {
            waived.push(more.to_owned());
        }
        let invocation = c.python("pass\n")?;
        let ended = if waived.is_empty() {
            invocation.go()?
        } else {
            invocation.flag("--waive", waived.join(",")).go()?
        };
        ended.succeeded()?;
        let mut told = ended
            .report()?
            .isolation
            .clone()
            .map(|i| i.waived)
            .unwrap_or_default();
        told.sort();
        waived.sort();
        same("waived", &waived, &told)
    };
    with("")?;
    with("cpu")
}

fn empty_network(detail: &Value) -> Result<(), String> {
    let list = |name: &str| {
        detail
            .get(name)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    if list("interfaces") != [Value::from("lo")] {
        return Err(format!("interfaces {:?}", list("interfaces")));
    }
    for name in ["routes", "routes6", "unix"] {
        if !list(name).is_empty() {
            return Err(format!("{name} {:?}", list(name)));
        }
    }
    Ok(())
}

/// The first run says where it could leave the token; that it left it in scratch at least is checked, so that the
/// second has something to find.
fn next_run(c: &Context<'_>) -> Result<(), Stop> {
    let (left, _) = c.probe(&["leave-behind", &c.canary.token])?;
    let places = left.detail.as_array().map_or(0, Vec::len);
    check(
        places >= 4,
        "the first run leaves the token in all of scratch",
        describe(&left),
    )?;
    let (found, _) = c.probe(&["find-left-behind", &c.canary.token])?;
    check(
        found.outcome == Outcome::Blocked,
        "the next run finds nothing",
        describe(&found),
    )?;
    let (empty, _) = c.probe(&["scratch-is-empty"])?;
    check(
        empty.outcome == Outcome::Blocked,
        "scratch starts empty",
        describe(&empty),
    )
}

fn run_beside(c: &Context<'_>) -> Result<(), Stop> {
    let first = c
        .prober(&["leave-behind", &c.canary.token, "4"])?
        .plain()
        .start()?;
    first.wait_for("planted")?;
    let (found, _) = c.probe(&["find-left-behind", &c.canary.token])?;
    check(
        found.outcome == Outcome::Blocked,
        "a run beside it finds nothing",
        describe(&found),
    )?;
    let (seen, _) = c.probe(&["processes-seen"])?;
    let names = seen
        .detail
        .get("pids")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    check(names <= 2, "and sees no process of it", describe(&seen))?;
    check(
        !first.gone(),
        "the first run was alive while the second looked",
        "it had ended",
    )?;
    same("exit status of the first run", &Some(0), &first.wait()?.code)
}

fn many_descriptors(c: &Context<'_>) -> Result<(), Stop> {
    let text = "import os, resource\nlimit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\nresource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))\nheld = []\ntry:\n    while True: held.append(os.open('/dev/null', os.O_RDWR))\nexcept OSError as e:\n    os.write(1, b'%d %d' % (len(held) > 200, e.errno))\nos._exit(0)\n";
    let ended = c.python(text)?.go()?;
    same("a limit of descriptors (EMFILE)", &"1 24", &ended.succeeded()?)?;
    let (line, _) = c.probe(&["inherited-descriptors", "self"])?;
    check(
        line.outcome == Outcome::Blocked,
        "nothing but 0, 1 and 2 in the next run",
        describe(&line),
    )
}

fn inputs_are_copies(c: &Context<'_>) -> Result<(), Stop> {
    let input = c.dir.join("data.csv");
    crate::invoke::write(&input, b"original\n")?;
    let change = "f = open('/work/data.csv', 'r+')\nf.write('CHANGED!')\nf.flush()\nimport mmap\nm = mmap.mmap(f.fileno(), 8)\nm[0:1] = b'X'\nm.flush()\n";
    c.python(change)?
        .input(&input)
        .go()?
        .ended(Status::Succeeded, 0)?;
    same(
        "the file of the host",
        &"original\n".to_owned(),
        &std::fs::read_to_string(&input)?,
    )?;
    let ended = c
        .python("print(open('data.csv').read(), end='')\n")?
        .input(&input)
        .go()?;
    same("what the next run reads", &"original\n", &ended.succeeded()?)
}

fn host_name(c: &Context<'_>) -> Result<(), Stop> {
    let (facts, _) = c.probe(&["host-facts"])?;
    let inside = facts
        .detail
        .get("hostname")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let outside = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    check(
        !inside.is_empty() && inside != outside.trim(),
        "another name than the host's",
        inside,
    )
}

fn session(c: &Context<'_>) -> Result<(), Stop> {
    let (facts, _) = c.probe(&["host-facts"])?;
    let number = |name: &str| facts.detail.get(name).and_then(Value::as_i64);
    same("session", &number("pid"), &number("sid"))?;
    same("process group", &number("pid"), &number("pgid"))?;
    check(
        number("pid") != Some(1),
        "the script is not PID 1",
        describe(&facts),
    )
}

fn host_ids(c: &Context<'_>) -> Result<(), Stop> {
    let start = |name: &str| -> Result<_, Stop> {
        let live = c
            .script(
                name,
                "import time\nprint('started', flush=True)\ntime.sleep(600)\n",
            )?
            .plain()
            .start()?;
        live.wait_for("started")?;
        Ok(live)
    };
    let (first, second) = (start("first.py")?, start("second.py")?);
    let ids: Vec<u32> = our_processes()
        .into_iter()
        .filter(|p| p.name.starts_with("python"))
        .map(|p| p.uid)
        .collect();
    for live in [first, second] {
        live.signal(Signal::SIGTERM)?;
        same("exit status of a cancelled run", &Some(130), &live.wait()?.code)?;
    }
    check(
        ids.len() == 2,
        "two scripts among our processes",
        format!("uids {ids:?}"),
    )?;
    check(
        ids.iter().all(|uid| *uid >= 65_536),
        "uids of the host that no account has",
        format!("{ids:?}"),
    )?;
    check(ids.first() != ids.last(), "different uids", format!("{ids:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_interface_a_route_or_a_socket_of_the_host_is_found() {
        let good = json!({"interfaces": ["lo"], "routes": [], "routes6": [], "unix": []});
        assert!(empty_network(&good).is_ok());
        for (name, value) in [
            ("interfaces", json!(["lo", "eth0"])),
            ("interfaces", json!([])),
            ("routes", json!(["eth0"])),
            ("unix", json!(["@x"])),
        ] {
            let mut bad = good.clone();
            bad[name] = value;
            assert!(empty_network(&bad).is_err(), "{name}");
        }
    }
}
