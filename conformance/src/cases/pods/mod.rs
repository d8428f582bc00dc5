//! Pods that ask for what contradicts a sandbox: refused with a sentence that names the field, and the same pod accepted
//! by runc, so that nothing but that field is the reason.

mod client;
mod host;
mod rights;

use crate::case::{Case, Need};
use crate::context::Context;
use crate::pods::Pod;
use crate::runtime::Handler;
use crate::verdict::{Stop, check};

/// Every case of this group. None of them depends on what scripts are.
pub fn cases() -> Vec<Case> {
    let mut all = vec![Case::code(
        "pods/ordinary",
        &[],
        "an ordinary pod with its volume is accepted by every runtime",
        ordinary,
    )];
    all.extend(host::cases());
    all.extend(rights::cases());
    all.extend(client::cases());
    all.into_iter().map(|case| case.needs(&[Need::Pods])).collect()
}

/// The handler under test.
fn handler(c: &Context<'_>) -> Handler {
    c.config
        .runtime
        .as_ref()
        .map_or(Handler::Sandglass, |runtime| runtime.handler)
}

fn ordinary(c: &Context<'_>) -> Result<(), Stop> {
    let mut pod = Pod::ordinary(c)?;
    let volume = pod.volume("kubernetes.io~empty-dir", "scratch")?;
    pod.mount(&volume, "/data", &serde_json::Value::Null);
    pod.pod["linux"]["sysctls"]["net.ipv4.ip_unprivileged_port_start"] = "1024".into();
    for handler in [Handler::Runc, handler(c)] {
        accepted(handler, &pod.ask(c, handler)?)?;
    }
    Ok(())
}

/// A case: an ordinary pod, but for what `edit` asks for, is refused by the handler under test and accepted by runc.
fn refuses(
    c: &Context<'_>,
    field: &str,
    edit: impl FnOnce(&mut Pod) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut pod = Pod::ordinary(c)?;
    edit(&mut pod)?;
    accepted(Handler::Runc, &pod.ask(c, Handler::Runc)?)?;
    refused(field, pod.ask(c, handler(c))?)
}

fn accepted(handler: Handler, asked: &Result<(), String>) -> Result<(), Stop> {
    let observed = asked.as_ref().err().map_or("", String::as_str);
    check(
        asked.is_ok(),
        format!("{} accepts the pod", handler.name()),
        observed,
    )
}

/// One sentence that names the field and says what to do.
fn refused(field: &str, asked: Result<(), String>) -> Result<(), Stop> {
    let expected = format!("refused with a sentence about {field}");
    match asked {
        Ok(()) => Err(Stop::failed(expected, "it was accepted")),
        Err(said) => {
            // Clients print what they were told as a quoted text.
            let said = said.replace('\\', "");
            let clear = said.contains(field) && said.contains("or give the pod another RuntimeClass");
            check(clear, expected, said)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sentence_about_the_field_is_a_refusal() {
        let says = |said: &str| refused("linux.devices", Err(said.to_owned()));
        let good =
            "rpc error: linux.devices adds \"/dev/x\": remove it, or give the pod another RuntimeClass";
        assert!(says(good).is_ok());
        assert!(says(&good.replace('"', "\\\"")).is_ok(), "a quoted one");
        assert!(says(&good.replace("devices", "sysctl")).is_err());
        assert!(
            says("linux.devices: no such file").is_err(),
            "an error of another kind"
        );
        assert!(refused("linux.devices", Ok(())).is_err());
    }
}
