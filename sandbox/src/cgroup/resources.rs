//! What the `linux.resources` section of an OCI spec means in the kernel's control files: a pure function, for both
//! interfaces.

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType, LinuxResources, LinuxThrottleDevice};

use super::Version;

/// One value for one control file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The controller, by the kernel's name.
    pub controller: &'static str,
    /// The control file.
    pub file: String,
    /// What is written.
    pub value: String,
    /// Not an error where the kernel has no such file.
    pub optional: bool,
}

fn setting(controller: &'static str, file: &str, value: impl ToString) -> Setting {
    Setting {
        controller,
        file: file.to_owned(),
        value: value.to_string(),
        optional: false,
    }
}

fn optional(controller: &'static str, file: &str, value: impl ToString) -> Setting {
    Setting {
        optional: true,
        ..setting(controller, file, value)
    }
}

/// The settings of a section, in the order in which to write them.
pub fn settings(resources: &LinuxResources, version: Version) -> Vec<Setting> {
    let mut all = match version {
        Version::V1 => v1(resources),
        Version::V2 => v2(resources),
    };
    all.extend(pids(resources));
    all
}

/// Devices that every container may use, as every runtime allows them: null, zero, full, random, urandom, the terminal
/// of a process, pseudo terminals and their multiplexer. A node may be made of any, which needs a capability.
const ALWAYS: [&str; 10] = [
    "c *:* m",
    "b *:* m",
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
];

/// The rules of the device controller, which only v1 has as files: those of the section in their order, then what is
/// always allowed. A section without rules changes nothing.
pub fn device_rules(resources: &LinuxResources) -> Vec<Setting> {
    let rules = resources.devices().iter().flatten();
    let mut all: Vec<Setting> = rules
        .map(|rule| {
            let file = if rule.allow() {
                "devices.allow"
            } else {
                "devices.deny"
            };
            setting("devices", file, device_rule(rule))
        })
        .collect();
    if !all.is_empty() {
        all.extend(ALWAYS.map(|rule| setting("devices", "devices.allow", rule)));
    }
    all
}

fn device_rule(rule: &LinuxDeviceCgroup) -> String {
    let number = |n: Option<i64>| n.filter(|n| *n >= 0).map_or("*".to_owned(), |n| n.to_string());
    let kind = match rule.typ() {
        Some(LinuxDeviceType::C | LinuxDeviceType::U) => "c",
        Some(LinuxDeviceType::B) => "b",
        _ => "a",
    };
    let access = rule.access().clone().filter(|access| !access.is_empty());
    format!(
        "{kind} {}:{} {}",
        number(rule.major()),
        number(rule.minor()),
        access.unwrap_or_else(|| "rwm".into())
    )
}

fn unlimited(value: i64, word: &str) -> String {
    if value < 0 {
        word.to_owned()
    } else {
        value.to_string()
    }
}

fn pids(resources: &LinuxResources) -> Option<Setting> {
    let limit = resources.pids().as_ref()?.limit();
    let value = if limit > 0 {
        limit.to_string()
    } else {
        "max".into()
    };
    Some(setting("pids", "pids.max", value))
}

fn v1(resources: &LinuxResources) -> Vec<Setting> {
    let mut all = Vec::new();
    if let Some(memory) = resources.memory() {
        let mut put = |file: &str, value: Option<i64>| {
            all.extend(value.map(|value| setting("memory", file, unlimited(value, "-1"))));
        };
        put("memory.limit_in_bytes", memory.limit());
        put("memory.soft_limit_in_bytes", memory.reservation());
        // Absent where the kernel does not account swap: then there is none to limit, or all of it is free to use.
        all.extend(
            memory
                .swap()
                .map(|swap| optional("memory", "memory.memsw.limit_in_bytes", unlimited(swap, "-1"))),
        );
        all.extend(
            memory
                .swappiness()
                .map(|value| setting("memory", "memory.swappiness", value)),
        );
        if memory.disable_oom_killer() == Some(true) {
            all.push(setting("memory", "memory.oom_control", 1));
        }
    }
    if let Some(cpu) = resources.cpu() {
        all.extend(cpu.shares().map(|value| setting("cpu", "cpu.shares", value)));
        all.extend(
            cpu.period()
                .filter(|p| *p > 0)
                .map(|value| setting("cpu", "cpu.cfs_period_us", value)),
        );
        all.extend(
            cpu.quota()
                .filter(|q| *q != 0)
                .map(|value| setting("cpu", "cpu.cfs_quota_us", value)),
        );
        all.extend(
            cpu.realtime_period()
                .filter(|p| *p > 0)
                .map(|value| setting("cpu", "cpu.rt_period_us", value)),
        );
        all.extend(
            cpu.realtime_runtime()
                .filter(|r| *r != 0)
                .map(|value| setting("cpu", "cpu.rt_runtime_us", value)),
        );
        all.extend(cpu.idle().map(|value| optional("cpu", "cpu.idle", value)));
        all.extend(cpuset(cpu));
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        let size = limit.page_size();
        all.push(setting(
            "hugetlb",
            &format!("hugetlb.{size}.limit_in_bytes"),
            limit.limit(),
        ));
        all.push(optional(
            "hugetlb",
            &format!("hugetlb.{size}.rsvd.limit_in_bytes"),
            limit.limit(),
        ));
    }
    if let Some(io) = resources.block_io() {
        all.extend(
            io.weight()
                .filter(|w| *w > 0)
                .map(|weight| optional("blkio", "blkio.bfq.weight", weight)),
        );
        let throttled = [
            (io.throttle_read_bps_device(), "blkio.throttle.read_bps_device"),
            (io.throttle_write_bps_device(), "blkio.throttle.write_bps_device"),
            (io.throttle_read_iops_device(), "blkio.throttle.read_iops_device"),
            (
                io.throttle_write_iops_device(),
                "blkio.throttle.write_iops_device",
            ),
        ];
        for (devices, file) in throttled {
            for device in devices.iter().flatten() {
                let value = format!("{}:{} {}", device.major(), device.minor(), device.rate());
                all.push(setting("blkio", file, value));
            }
        }
    }
    if let Some(network) = resources.network() {
        all.extend(
            network
                .class_id()
                .map(|class| setting("net_cls", "net_cls.classid", class)),
        );
        for priority in network.priorities().iter().flatten() {
            let value = format!("{} {}", priority.name(), priority.priority());
            all.push(setting("net_prio", "net_prio.ifpriomap", value));
        }
    }
    all
}

fn cpuset(cpu: &oci_spec::runtime::LinuxCpu) -> Vec<Setting> {
    let named = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    let cpus = named(cpu.cpus()).map(|value| setting("cpuset", "cpuset.cpus", value));
    let mems = named(cpu.mems()).map(|value| setting("cpuset", "cpuset.mems", value));
    cpus.into_iter().chain(mems).collect()
}

fn v2(resources: &LinuxResources) -> Vec<Setting> {
    let mut all = Vec::new();
    if let Some(memory) = resources.memory() {
        let limit = memory.limit().filter(|limit| *limit != 0);
        all.extend(limit.map(|limit| setting("memory", "memory.max", unlimited(limit, "max"))));
        // The section counts memory and swap together, the kernel swap alone.
        if let Some(both) = memory.swap().filter(|both| *both != 0) {
            let swap = match limit {
                _ if both < 0 => "max".to_owned(),
                Some(limit) if limit >= 0 => (both - limit).max(0).to_string(),
                _ => "max".to_owned(),
            };
            all.push(optional("memory", "memory.swap.max", swap));
        }
        all.extend(
            memory
                .reservation()
                .map(|low| setting("memory", "memory.low", unlimited(low, "max"))),
        );
    }
    if let Some(cpu) = resources.cpu() {
        let shares = cpu.shares().filter(|shares| *shares > 0);
        all.extend(shares.map(|shares| setting("cpu", "cpu.weight", weight(shares))));
        if cpu.quota().is_some() || cpu.period().is_some() {
            let quota = cpu
                .quota()
                .filter(|quota| *quota > 0)
                .map_or("max".to_owned(), |q| q.to_string());
            let period = cpu.period().filter(|p| *p > 0).unwrap_or(super::CPU_PERIOD_US);
            all.push(setting("cpu", "cpu.max", format!("{quota} {period}")));
        }
        all.extend(cpu.burst().map(|burst| optional("cpu", "cpu.max.burst", burst)));
        all.extend(cpu.idle().map(|idle| optional("cpu", "cpu.idle", idle)));
        all.extend(cpuset(cpu));
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        let size = limit.page_size();
        all.push(setting("hugetlb", &format!("hugetlb.{size}.max"), limit.limit()));
        all.push(optional(
            "hugetlb",
            &format!("hugetlb.{size}.rsvd.max"),
            limit.limit(),
        ));
    }
    if let Some(io) = resources.block_io() {
        let io_weight = |weight: u16| 1 + u64::from(weight.saturating_sub(10)) * 9999 / 990;
        all.extend(
            io.weight()
                .filter(|w| *w > 0)
                .map(|weight| optional("io", "io.weight", io_weight(weight))),
        );
        let throttled: [(&Option<Vec<LinuxThrottleDevice>>, &str); 4] = [
            (io.throttle_read_bps_device(), "rbps"),
            (io.throttle_write_bps_device(), "wbps"),
            (io.throttle_read_iops_device(), "riops"),
            (io.throttle_write_iops_device(), "wiops"),
        ];
        for (devices, key) in throttled {
            for device in devices.iter().flatten() {
                let value = format!("{}:{} {key}={}", device.major(), device.minor(), device.rate());
                all.push(setting("io", "io.max", value));
            }
        }
    }
    // The section's own way to say anything else; the controller is the part of the name before the dot.
    let mut unified: Vec<_> = resources.unified().iter().flatten().collect();
    unified.sort();
    all.extend(
        unified
            .into_iter()
            .map(|(file, value)| setting("unified", file, value)),
    );
    all
}

/// CPU shares (2 to 262144) as a weight (1 to 10000), such that the defaults 1024 and 100 meet: the curve that
/// Kubernetes and the other runtimes agreed on.
fn weight(shares: u64) -> u64 {
    let shares = shares.clamp(2, 262_144);
    if shares == 262_144 {
        return 10_000;
    }
    // Below 2^53, so exact.
    #[allow(clippy::cast_precision_loss)]
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    // Between 1 and 10000.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let weight = 10_f64.powf(exponent).ceil() as u64;
    weight.clamp(1, 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> LinuxResources {
        serde_json::from_str(json).unwrap()
    }

    fn lines(json: &str, version: Version) -> Vec<String> {
        settings(&read(json), version)
            .into_iter()
            .map(|s| format!("{} {}={}", s.controller, s.file, s.value))
            .collect()
    }

    #[test]
    fn a_pods_limits_become_v1_files() {
        let json = r#"{"memory":{"limit":1024,"swap":1024},"cpu":{"shares":512,"quota":50000,"period":100000,"cpus":"0-1","mems":"0"},"pids":{"limit":7}}"#;
        assert_eq!(
            lines(json, Version::V1),
            [
                "memory memory.limit_in_bytes=1024",
                "memory memory.memsw.limit_in_bytes=1024",
                "cpu cpu.shares=512",
                "cpu cpu.cfs_period_us=100000",
                "cpu cpu.cfs_quota_us=50000",
                "cpuset cpuset.cpus=0-1",
                "cpuset cpuset.mems=0",
                "pids pids.max=7",
            ]
        );
    }

    #[test]
    fn a_pods_limits_become_v2_files() {
        let json = r#"{"memory":{"limit":1024,"swap":1024},"cpu":{"shares":1024,"quota":50000,"period":100000},"pids":{"limit":0},"unified":{"memory.high":"5"}}"#;
        assert_eq!(
            lines(json, Version::V2),
            [
                "memory memory.max=1024",
                "memory memory.swap.max=0",
                "cpu cpu.weight=100",
                "cpu cpu.max=50000 100000",
                "unified memory.high=5",
                "pids pids.max=max",
            ]
        );
    }

    #[test]
    fn shares_span_the_whole_range_of_weights() {
        for (shares, expected) in [(0, 1), (2, 1), (1024, 100), (262_144, 10_000), (u64::MAX, 10_000)] {
            assert_eq!(weight(shares), expected, "{shares}");
        }
    }

    #[test]
    fn no_limit_is_the_word_of_each_interface() {
        let json = r#"{"memory":{"limit":-1,"swap":-1},"cpu":{"quota":-1}}"#;
        assert_eq!(
            lines(json, Version::V1),
            [
                "memory memory.limit_in_bytes=-1",
                "memory memory.memsw.limit_in_bytes=-1",
                "cpu cpu.cfs_quota_us=-1"
            ]
        );
        assert_eq!(
            lines(json, Version::V2),
            [
                "memory memory.max=max",
                "memory memory.swap.max=max",
                "cpu cpu.max=max 100000"
            ]
        );
    }

    #[test]
    fn device_rules_keep_their_order_and_their_wildcards() {
        let json = r#"{"devices":[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","major":1,"minor":3,"access":"rwm"},{"allow":true,"type":"c","major":136,"access":"rw"}]}"#;
        let rules: Vec<String> = device_rules(&read(json))
            .into_iter()
            .map(|s| format!("{} {}", s.file, s.value))
            .take(3)
            .collect();
        assert_eq!(
            rules,
            [
                "devices.deny a *:* rwm",
                "devices.allow c 1:3 rwm",
                "devices.allow c 136:* rw"
            ]
        );
        assert!(device_rules(&read("{}")).is_empty());
    }

    #[test]
    fn nothing_asked_is_nothing_written() {
        assert!(lines("{}", Version::V1).is_empty());
        assert!(lines("{}", Version::V2).is_empty());
    }
}
