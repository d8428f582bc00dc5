//! Admission: whether a request may be carried out at all on this host. A function on values.

use sandglass_run::{HostCapacity, Request};

use crate::refusal::Refusal;

/// Checks a request and its limits.
///
/// # Errors
/// One refusal that names everything that is wrong; its code is that of the first. Limits come first: inputs are
/// measured by them.
pub fn admit(request: &Request, host: &HostCapacity) -> Result<(), Refusal> {
    let mut code = None;
    let mut messages = Vec::new();
    for error in request.limits.validate(host).err().unwrap_or_default() {
        code.get_or_insert("limit_not_allowed");
        messages.push(capitalised(&error.to_string()));
    }
    for error in request.validate().err().unwrap_or_default() {
        code.get_or_insert(error.code());
        messages.push(error.to_string());
    }
    match code {
        None => Ok(()),
        Some(code) => Err(Refusal::new(
            code,
            messages.join(" "),
            "Nothing was run; correct that and run it again.",
        )),
    }
}

/// What this host has, for the bounds of limits.
pub fn host_capacity() -> HostCapacity {
    let info = rustix::system::sysinfo();
    // `totalram` is an unsigned long: 32 bits on some machines.
    #[allow(clippy::useless_conversion)]
    let memory_bytes = u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit));
    let cpus = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
    let pids = std::fs::read_to_string("/proc/sys/kernel/pid_max")
        .ok()
        .and_then(|t| t.trim().parse().ok());
    // 32 768 is the kernel's own default (`PID_MAX_DEFAULT`).
    HostCapacity {
        memory_bytes,
        cpus: f64::from(cpus),
        pids: pids.unwrap_or(32_768),
    }
}

/// With a capital letter at its start.
pub(crate) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandglass_run::{Language, Limits};
    use std::time::Duration;

    fn request() -> Request {
        Request {
            run_id: "r".parse().unwrap(),
            person: "p".parse().unwrap(),
            language: Language::Python,
            script: b"pass".to_vec(),
            script_name: "main.py".into(),
            args: vec![],
            inputs: vec![],
            limits: Limits::default(),
            waivers: vec![],
        }
    }

    fn host() -> HostCapacity {
        HostCapacity {
            memory_bytes: 2 << 30,
            cpus: 2.0,
            pids: 32_768,
        }
    }

    #[test]
    fn a_plain_request_is_admitted() {
        assert_eq!(admit(&request(), &host()), Ok(()));
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let mut r = request();
        r.script.clear();
        r.limits.wall = Duration::ZERO;
        r.limits.cpus = 99.0;
        let refusal = admit(&r, &host()).unwrap_err();
        assert_eq!(refusal.code, "limit_not_allowed");
        for part in ["script is empty", "Timeout is 0s", "Cpus is 99", "from 0.01 to 2"] {
            assert!(refusal.message.contains(part), "{refusal}");
        }
    }

    #[test]
    fn a_limit_beyond_the_host_is_refused_by_name() {
        let mut r = request();
        r.limits.memory_bytes = 1 << 50;
        let refusal = admit(&r, &host()).unwrap_err();
        assert_eq!(refusal.code, "limit_not_allowed");
        assert!(
            refusal.message.contains("Memory is 1024Ti") && refusal.message.contains("2Gi"),
            "{refusal}"
        );
    }

    #[test]
    fn this_host_can_hold_the_defaults() {
        let host = host_capacity();
        assert!(
            host.memory_bytes > 64 << 20 && host.cpus >= 1.0 && host.pids > 300,
            "{host:?}"
        );
    }
}
