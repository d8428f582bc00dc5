//! What no pod can ask for by itself, but a client of containerd can, or a node that is set up for it.

use std::process::Command;

use super::{handler, refused};
use crate::case::Case;
use crate::context::Context;
use crate::pods::said;
use crate::runtime::{Handler, Runtime};
use crate::verdict::{Stop, check};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::code(
            "pods/reserved-annotation",
            &[],
            "an annotation that instructs a runtime is refused",
            |c| {
                refuses(
                    c,
                    "annotations[\"run.oci.handler\"]",
                    &["--annotation", "run.oci.handler=krun"],
                )
            },
        ),
        Case::code(
            "pods/annotation-of-cdi",
            &[],
            "one that asks for a device is refused",
            |c| {
                refuses(
                    c,
                    "annotations[\"cdi.k8s.io/gpu\"]",
                    &["--annotation", "cdi.k8s.io/gpu=vendor.com/gpu=0"],
                )
            },
        ),
        Case::code(
            "pods/joined-namespace",
            &[],
            "the node's own namespace, joined by its path, is refused",
            |c| {
                // The suite is in the node's.
                let own = format!("ipc:/proc/{}/ns/ipc", std::process::id());
                refuses(c, "linux.namespaces[ipc]", &["--with-ns", &own])
            },
        ),
        Case::code(
            "pods/shared-root",
            &[],
            "a root whose mounts pass to the node is refused",
            |c| refuses(c, "linux.rootfsPropagation", &["--rootfs-propagation", "shared"]),
        ),
        Case::code(
            "pods/user-namespace",
            &[],
            "a user namespace, which this runtime does not make, is refused",
            |c| {
                refuses(
                    c,
                    "linux.namespaces[user]",
                    &[
                        "--uidmap",
                        "0:100000:65536",
                        "--gidmap",
                        "0:100000:65536",
                        "--remap-labels",
                    ],
                )
            },
        ),
        Case::code(
            "pods/exec-as-root",
            &[],
            "an exec as root is refused, and the container goes on",
            exec_as_root,
        ),
    ]
}

fn ctr(handler: Handler, words: &[&str]) -> Command {
    let mut command = Command::new("ctr");
    command.args(words).args(match handler {
        Handler::Runc => ["--runtime", "io.containerd.runc.v2"],
        Handler::Sandglass | Handler::SandglassSpec => ["--runtime", "io.containerd.sandglass.v1"],
    });
    command
}

fn runtime<'a>(c: &'a Context<'_>) -> Result<&'a Runtime, Stop> {
    c.config
        .runtime
        .as_ref()
        .ok_or_else(|| Stop::failed("a runtime under test", "none"))
}

/// Asks for a container with these flags: refused by the handler under test, accepted by runc.
fn refuses(c: &Context<'_>, field: &str, flags: &[&str]) -> Result<(), Stop> {
    let image = &runtime(c)?.image;
    let ask = |handler: Handler| {
        let mut command = ctr(handler, &["run", "--rm", "--user", "65534:65534", "--cwd", "/"]);
        said(command.args(flags).args([image.as_str(), &c.run_id(), "true"]))
    };
    let runc = ask(Handler::Runc)?;
    check(runc.is_ok(), "runc accepts the container", format!("{runc:?}"))?;
    refused(field, ask(handler(c))?.map(drop))
}

fn exec_as_root(c: &Context<'_>) -> Result<(), Stop> {
    let image = &runtime(c)?.image;
    let ask = |handler: Handler| -> Result<_, Stop> {
        let id = c.run_id();
        let mut run = ctr(
            handler,
            &["run", "--detach", "--user", "65534:65534", "--cwd", "/"],
        );
        let made = said(run.args([image.as_str(), &id, "sleep", "600"]))?;
        let exec = |user: &str| {
            let words = ["task", "exec", "--exec-id", "x", "--user", user, &id, "true"];
            said(Command::new("ctr").args(words))
        };
        let asked = (exec("0:0")?, exec("65534:65534")?);
        said(Command::new("ctr").args(["task", "rm", "--force", &id]))?.ok();
        said(Command::new("ctr").args(["container", "rm", &id]))?.ok();
        check(made.is_ok(), "a container is made", format!("{made:?}"))?;
        check(
            asked.1.is_ok(),
            "an exec as nobody works afterwards",
            format!("{:?}", asked.1),
        )?;
        Ok(asked.0.map(drop))
    };
    let runc = ask(Handler::Runc)?;
    check(runc.is_ok(), "runc accepts the exec", format!("{runc:?}"))?;
    refused("process.user.uid", ask(handler(c))?)
}
