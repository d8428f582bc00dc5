//! What the limits of a cgroup are called by systemd: a pure function of what goes into the control files, so that
//! both say the same. The names and units are those of systemd's D-Bus interface (`org.freedesktop.systemd1`).

use std::collections::BTreeMap;

use super::CPU_PERIOD_US;
use super::bus::Value;
use super::resources::Setting;

/// Files with one number, or `max`.
const NUMBERS: [(&str, &str); 7] = [
    ("cpu.weight", "CPUWeight"),
    ("memory.high", "MemoryHigh"),
    ("memory.low", "MemoryLow"),
    ("memory.max", "MemoryMax"),
    ("memory.min", "MemoryMin"),
    ("memory.swap.max", "MemorySwapMax"),
    ("pids.max", "TasksMax"),
];
/// Files with a list such as `0-3,7`.
const LISTS: [(&str, &str); 2] = [
    ("cpuset.cpus", "AllowedCPUs"),
    ("cpuset.mems", "AllowedMemoryNodes"),
];
/// The keys of `io.max`.
const RATES: [(&str, &str); 4] = [
    ("rbps", "IOReadBandwidthMax"),
    ("riops", "IOReadIOPSMax"),
    ("wbps", "IOWriteBandwidthMax"),
    ("wiops", "IOWriteIOPSMax"),
];
/// More CPUs or memory nodes than a kernel is built for.
const MOST: usize = 1 << 16;
const SECOND_US: u64 = 1_000_000;

type Properties = BTreeMap<&'static str, Value<'static>>;

/// The properties that say what the settings of cgroup v2 say. Files that systemd has no property for are left out: it
/// does not touch them.
///
/// # Errors
/// A value that has a property and is not in the form of one.
pub(super) fn properties(settings: &[Setting]) -> Result<Vec<(&'static str, Value<'static>)>, String> {
    let mut all = Properties::new();
    for Setting { file, value, .. } in settings {
        add(&mut all, file, value).ok_or_else(|| {
            format!(
                "linux.resources sets {file} to `{value}`, which systemd cannot be told: give plain numbers, or `max`"
            )
        })?;
    }
    Ok(all.into_iter().collect())
}

fn add(all: &mut Properties, file: &str, value: &str) -> Option<()> {
    if let Some(name) = find(&NUMBERS, file) {
        all.insert(name, Value::Number(number(value)?));
    } else if let Some(name) = find(&LISTS, file) {
        all.insert(name, Value::Bytes(bits(value)?));
    } else if file == "cpu.max" {
        let mut words = value.split_whitespace();
        let quota = number(words.next()?)?;
        let period = words
            .next()
            .map_or(Some(CPU_PERIOD_US), |word| word.parse().ok())?;
        all.insert("CPUQuotaPerSecUSec", Value::Number(in_a_second(quota, period)?));
        all.insert("CPUQuotaPeriodUSec", Value::Number(period));
    } else if file == "io.max" {
        let (device, rates) = value.split_once(' ')?;
        for rate in rates.split_whitespace() {
            let (key, rate) = rate.split_once('=')?;
            let none = Value::Numbers(Vec::new());
            if let Value::Numbers(pairs) = all.entry(find(&RATES, key)?).or_insert(none) {
                pairs.push((format!("/dev/block/{device}"), number(rate)?));
            }
        }
    }
    Some(())
}

fn find(among: &[(&str, &'static str)], file: &str) -> Option<&'static str> {
    among
        .iter()
        .find(|(known, _)| *known == file)
        .map(|(_, name)| *name)
}

fn number(text: &str) -> Option<u64> {
    match text.trim() {
        "max" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// A quota of a period as that of a second.
fn in_a_second(quota: u64, period: u64) -> Option<u64> {
    match quota {
        u64::MAX => Some(u64::MAX),
        quota => quota.checked_mul(SECOND_US)?.checked_div(period),
    }
}

/// A list as a set of bits, the lowest of the first byte for 0.
fn bits(list: &str) -> Option<Vec<u8>> {
    let mut bits = Vec::new();
    for range in list.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        bits.resize(bits.len().max(last / 8 + 1), 0);
        (first..=last).for_each(|one| bits[one / 8] |= 1 << (one % 8));
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Version;
    use crate::cgroup::resources::settings;

    fn told(resources: &str) -> Result<Vec<(&'static str, Value<'static>)>, String> {
        properties(&settings(&serde_json::from_str(resources).unwrap(), Version::V2))
    }

    #[test]
    fn a_pods_limits_become_properties() {
        let json = r#"{"memory":{"limit":1024,"swap":1536,"reservation":512},
            "cpu":{"shares":1024,"quota":25000,"period":50000,"cpus":"0-3,9","mems":"0"},"pids":{"limit":7}}"#;
        assert_eq!(
            told(json).unwrap(),
            [
                ("AllowedCPUs", Value::Bytes(vec![0b1111, 0b10])),
                ("AllowedMemoryNodes", Value::Bytes(vec![1])),
                ("CPUQuotaPerSecUSec", Value::Number(500_000)),
                ("CPUQuotaPeriodUSec", Value::Number(50_000)),
                ("CPUWeight", Value::Number(100)),
                ("MemoryLow", Value::Number(512)),
                ("MemoryMax", Value::Number(1024)),
                ("MemorySwapMax", Value::Number(512)),
                ("TasksMax", Value::Number(7)),
            ]
        );
    }

    #[test]
    fn what_is_unlimited_in_the_files_is_so_for_systemd() {
        let json = r#"{"memory":{"limit":-1,"swap":-1},"cpu":{"quota":-1},"pids":{"limit":-1}}"#;
        assert_eq!(
            told(json).unwrap(),
            [
                ("CPUQuotaPerSecUSec", Value::Number(u64::MAX)),
                ("CPUQuotaPeriodUSec", Value::Number(100_000)),
                ("MemoryMax", Value::Number(u64::MAX)),
                ("MemorySwapMax", Value::Number(u64::MAX)),
                ("TasksMax", Value::Number(u64::MAX)),
            ]
        );
    }

    #[test]
    fn a_limit_that_is_not_set_is_not_lifted() {
        assert_eq!(
            told(r#"{"cpu":{"shares":1024}}"#).unwrap(),
            [("CPUWeight", Value::Number(100))]
        );
        assert_eq!(told("{}").unwrap(), []);
    }

    #[test]
    fn rates_are_told_by_property_and_device() {
        let json = r#"{"blockIO":{"throttleReadBpsDevice":[{"major":8,"minor":0,"rate":5},{"major":8,"minor":16,"rate":6}]},
            "unified":{"io.max":"8:0 wiops=max"}}"#;
        let pairs = |of: &[(&str, u64)]| {
            Value::Numbers(
                of.iter()
                    .map(|(name, rate)| ((*name).to_owned(), *rate))
                    .collect(),
            )
        };
        assert_eq!(
            told(json).unwrap(),
            [
                (
                    "IOReadBandwidthMax",
                    pairs(&[("/dev/block/8:0", 5), ("/dev/block/8:16", 6)])
                ),
                ("IOWriteIOPSMax", pairs(&[("/dev/block/8:0", u64::MAX)])),
            ]
        );
    }

    #[test]
    fn what_the_section_says_by_file_counts_as_well() {
        let json =
            r#"{"unified":{"memory.high":"5","cpu.max":"20000","hugetlb.2MB.max":"0","cpuset.cpus":""}}"#;
        assert_eq!(
            told(json).unwrap(),
            [
                ("AllowedCPUs", Value::Bytes(Vec::new())),
                ("CPUQuotaPerSecUSec", Value::Number(200_000)),
                ("CPUQuotaPeriodUSec", Value::Number(100_000)),
                ("MemoryHigh", Value::Number(5)),
            ]
        );
    }

    #[test]
    fn a_value_that_systemd_cannot_be_told_is_refused() {
        for (file, value) in [
            ("memory.max", "1G"),
            ("pids.max", ""),
            ("cpu.max", "1000 0"),
            ("cpu.max", "18446744073709551614 1"),
            ("cpuset.cpus", "3-1"),
            ("cpuset.cpus", "4294967295"),
            ("io.max", "8:0"),
            ("io.max", "8:0 rate=1"),
        ] {
            let json = format!(r#"{{"unified":{{"{file}":"{value}"}}}}"#);
            let sentence = told(&json).unwrap_err();
            assert!(sentence.contains(file), "{sentence}");
        }
    }
}
