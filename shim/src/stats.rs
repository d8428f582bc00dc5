//! What a container uses, from the kernel's control files, in containerd's messages.

use containerd_shim::protos::cgroups::metrics as v1;
use containerd_shim::protos::cgroups_v2::metrics as v2;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::protobuf::{Message, MessageField};
use sandglass_sandbox::cgroup::{PodCgroup, Version};

/// Nanoseconds of a tick of cpuacct.stat: USER_HZ is 100 on every architecture that Linux exports it for.
const TICK_NS: u64 = 10_000_000;

/// A source of control files: a container's cgroups, or a table in a test.
pub trait Files {
    /// The text of a control file.
    fn read(&self, controller: &str, file: &str) -> Option<String>;
}

impl Files for PodCgroup {
    fn read(&self, controller: &str, file: &str) -> Option<String> {
        PodCgroup::read(self, controller, file)
    }
}

/// The metrics of a container, as containerd unpacks them.
pub fn metrics(cgroup: &PodCgroup) -> Any {
    match cgroup.version() {
        Version::V1 => any("io.containerd.cgroups.v1.Metrics", &v1_metrics(cgroup)),
        Version::V2 => any("io.containerd.cgroups.v2.Metrics", &v2_metrics(cgroup)),
    }
}

fn any(name: &str, message: &impl Message) -> Any {
    // A message without required fields always encodes.
    Any {
        type_url: name.into(),
        value: message.write_to_bytes().unwrap_or_default(),
        ..Any::default()
    }
}

/// A number, or 0; `max` is the largest one.
fn number(files: &impl Files, controller: &str, file: &str) -> u64 {
    match files.read(controller, file).as_deref().map(str::trim) {
        Some("max") => u64::MAX,
        Some(text) => text.parse().unwrap_or(0),
        None => 0,
    }
}

/// The number behind a key.
fn of(text: &str, key: &str) -> u64 {
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    found.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn v1_metrics(files: &impl Files) -> v1::Metrics {
    let mut metrics = v1::Metrics::new();
    metrics.pids = MessageField::some(v1::PidsStat {
        current: number(files, "pids", "pids.current"),
        limit: limit(number(files, "pids", "pids.max")),
        ..Default::default()
    });
    let stat = files.read("cpuacct", "cpuacct.stat").unwrap_or_default();
    let per_cpu = files.read("cpuacct", "cpuacct.usage_percpu").unwrap_or_default();
    let throttled = files.read("cpu", "cpu.stat").unwrap_or_default();
    metrics.cpu = MessageField::some(v1::CPUStat {
        usage: MessageField::some(v1::CPUUsage {
            total: number(files, "cpuacct", "cpuacct.usage"),
            user: of(&stat, "user") * TICK_NS,
            kernel: of(&stat, "system") * TICK_NS,
            per_cpu: per_cpu
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect(),
            ..Default::default()
        }),
        throttling: MessageField::some(v1::Throttle {
            periods: of(&throttled, "nr_periods"),
            throttled_periods: of(&throttled, "nr_throttled"),
            throttled_time: of(&throttled, "throttled_time"),
            ..Default::default()
        }),
        ..Default::default()
    });
    metrics.memory = MessageField::some(v1_memory(files));
    let oom = files.read("memory", "memory.oom_control").unwrap_or_default();
    metrics.memory_oom_control = MessageField::some(v1::MemoryOomControl {
        oom_kill_disable: of(&oom, "oom_kill_disable"),
        under_oom: of(&oom, "under_oom"),
        oom_kill: of(&oom, "oom_kill"),
        ..Default::default()
    });
    let blkio = |file: &str| {
        files
            .read("blkio", file)
            .map(|text| blkio_entries(&text))
            .unwrap_or_default()
    };
    metrics.blkio = MessageField::some(v1::BlkIOStat {
        io_service_bytes_recursive: blkio("blkio.throttle.io_service_bytes_recursive"),
        io_serviced_recursive: blkio("blkio.throttle.io_serviced_recursive"),
        ..Default::default()
    });
    metrics
}

/// No limit is 0 in containerd's messages of processes.
fn limit(value: u64) -> u64 {
    if value == u64::MAX { 0 } else { value }
}

fn v1_memory(files: &impl Files) -> v1::MemoryStat {
    let stat = files.read("memory", "memory.stat").unwrap_or_default();
    let entry = |prefix: &str| {
        MessageField::some(v1::MemoryEntry {
            limit: number(files, "memory", &format!("memory.{prefix}limit_in_bytes")),
            usage: number(files, "memory", &format!("memory.{prefix}usage_in_bytes")),
            max: number(files, "memory", &format!("memory.{prefix}max_usage_in_bytes")),
            failcnt: number(files, "memory", &format!("memory.{prefix}failcnt")),
            ..Default::default()
        })
    };
    v1::MemoryStat {
        cache: of(&stat, "cache"),
        rss: of(&stat, "rss"),
        rss_huge: of(&stat, "rss_huge"),
        mapped_file: of(&stat, "mapped_file"),
        dirty: of(&stat, "dirty"),
        writeback: of(&stat, "writeback"),
        pg_pg_in: of(&stat, "pgpgin"),
        pg_pg_out: of(&stat, "pgpgout"),
        pg_fault: of(&stat, "pgfault"),
        pg_maj_fault: of(&stat, "pgmajfault"),
        inactive_anon: of(&stat, "inactive_anon"),
        active_anon: of(&stat, "active_anon"),
        inactive_file: of(&stat, "inactive_file"),
        active_file: of(&stat, "active_file"),
        unevictable: of(&stat, "unevictable"),
        hierarchical_memory_limit: of(&stat, "hierarchical_memory_limit"),
        hierarchical_swap_limit: of(&stat, "hierarchical_memsw_limit"),
        total_cache: of(&stat, "total_cache"),
        total_rss: of(&stat, "total_rss"),
        total_rss_huge: of(&stat, "total_rss_huge"),
        total_mapped_file: of(&stat, "total_mapped_file"),
        total_dirty: of(&stat, "total_dirty"),
        total_writeback: of(&stat, "total_writeback"),
        total_pg_pg_in: of(&stat, "total_pgpgin"),
        total_pg_pg_out: of(&stat, "total_pgpgout"),
        total_pg_fault: of(&stat, "total_pgfault"),
        total_pg_maj_fault: of(&stat, "total_pgmajfault"),
        total_inactive_anon: of(&stat, "total_inactive_anon"),
        total_active_anon: of(&stat, "total_active_anon"),
        total_inactive_file: of(&stat, "total_inactive_file"),
        total_active_file: of(&stat, "total_active_file"),
        total_unevictable: of(&stat, "total_unevictable"),
        usage: entry(""),
        swap: entry("memsw."),
        kernel: entry("kmem."),
        kernel_tcp: entry("kmem.tcp."),
        ..Default::default()
    }
}

/// `MAJOR:MINOR OP VALUE`, a line each, and a total that no device has.
fn blkio_entries(text: &str) -> Vec<v1::BlkIOEntry> {
    let entry = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, minor) = words.next()?.split_once(':')?;
        Some(v1::BlkIOEntry {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            op: words.next()?.to_owned(),
            value: words.next()?.parse().ok()?,
            ..Default::default()
        })
    };
    text.lines().filter_map(entry).collect()
}

fn v2_metrics(files: &impl Files) -> v2::Metrics {
    let mut metrics = v2::Metrics::new();
    metrics.pids = MessageField::some(v2::PidsStat {
        current: number(files, "pids", "pids.current"),
        limit: limit(number(files, "pids", "pids.max")),
        ..Default::default()
    });
    let cpu = files.read("cpu", "cpu.stat").unwrap_or_default();
    metrics.cpu = MessageField::some(v2::CPUStat {
        usage_usec: of(&cpu, "usage_usec"),
        user_usec: of(&cpu, "user_usec"),
        system_usec: of(&cpu, "system_usec"),
        nr_periods: of(&cpu, "nr_periods"),
        nr_throttled: of(&cpu, "nr_throttled"),
        throttled_usec: of(&cpu, "throttled_usec"),
        nr_bursts: of(&cpu, "nr_bursts"),
        burst_usec: of(&cpu, "burst_usec"),
        ..Default::default()
    });
    metrics.memory = MessageField::some(v2_memory(files));
    let events = files.read("memory", "memory.events").unwrap_or_default();
    metrics.memory_events = MessageField::some(v2::MemoryEvents {
        low: of(&events, "low"),
        high: of(&events, "high"),
        max: of(&events, "max"),
        oom: of(&events, "oom"),
        oom_kill: of(&events, "oom_kill"),
        oom_group_kill: of(&events, "oom_group_kill"),
        ..Default::default()
    });
    let io = files.read("io", "io.stat").unwrap_or_default();
    metrics.io = MessageField::some(v2::IOStat {
        usage: io.lines().filter_map(io_entry).collect(),
        ..Default::default()
    });
    metrics
}

/// `MAJOR:MINOR rbytes=… wbytes=… rios=… wios=… …`.
fn io_entry(line: &str) -> Option<v2::IOEntry> {
    let mut words = line.split_whitespace();
    let (major, minor) = words.next()?.split_once(':')?;
    let mut entry = v2::IOEntry {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        ..Default::default()
    };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let value = value.parse().unwrap_or(0);
        match key {
            "rbytes" => entry.rbytes = value,
            "wbytes" => entry.wbytes = value,
            "rios" => entry.rios = value,
            "wios" => entry.wios = value,
            _ => {}
        }
    }
    Some(entry)
}

fn v2_memory(files: &impl Files) -> v2::MemoryStat {
    let stat = files.read("memory", "memory.stat").unwrap_or_default();
    v2::MemoryStat {
        anon: of(&stat, "anon"),
        file: of(&stat, "file"),
        kernel_stack: of(&stat, "kernel_stack"),
        slab: of(&stat, "slab"),
        sock: of(&stat, "sock"),
        shmem: of(&stat, "shmem"),
        file_mapped: of(&stat, "file_mapped"),
        file_dirty: of(&stat, "file_dirty"),
        file_writeback: of(&stat, "file_writeback"),
        anon_thp: of(&stat, "anon_thp"),
        inactive_anon: of(&stat, "inactive_anon"),
        active_anon: of(&stat, "active_anon"),
        inactive_file: of(&stat, "inactive_file"),
        active_file: of(&stat, "active_file"),
        unevictable: of(&stat, "unevictable"),
        slab_reclaimable: of(&stat, "slab_reclaimable"),
        slab_unreclaimable: of(&stat, "slab_unreclaimable"),
        pgfault: of(&stat, "pgfault"),
        pgmajfault: of(&stat, "pgmajfault"),
        workingset_refault: of(&stat, "workingset_refault_anon") + of(&stat, "workingset_refault_file"),
        workingset_activate: of(&stat, "workingset_activate_anon") + of(&stat, "workingset_activate_file"),
        workingset_nodereclaim: of(&stat, "workingset_nodereclaim"),
        pgrefill: of(&stat, "pgrefill"),
        pgscan: of(&stat, "pgscan"),
        pgsteal: of(&stat, "pgsteal"),
        pgactivate: of(&stat, "pgactivate"),
        pgdeactivate: of(&stat, "pgdeactivate"),
        pglazyfree: of(&stat, "pglazyfree"),
        pglazyfreed: of(&stat, "pglazyfreed"),
        thp_fault_alloc: of(&stat, "thp_fault_alloc"),
        thp_collapse_alloc: of(&stat, "thp_collapse_alloc"),
        usage: number(files, "memory", "memory.current"),
        usage_limit: number(files, "memory", "memory.max"),
        max_usage: number(files, "memory", "memory.peak"),
        swap_usage: number(files, "memory", "memory.swap.current"),
        swap_limit: number(files, "memory", "memory.swap.max"),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table(&'static [(&'static str, &'static str)]);

    impl Files for Table {
        fn read(&self, _: &str, file: &str) -> Option<String> {
            self.0
                .iter()
                .find(|(name, _)| *name == file)
                .map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn cpu_time_on_v1_is_what_cpuacct_counts() {
        let metrics = v1_metrics(&Table(&[
            ("cpuacct.usage", "1500000000\n"),
            ("cpuacct.stat", "user 100\nsystem 50\n"),
            ("cpuacct.usage_percpu", "7 8 \n"),
            ("cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 9\n"),
        ]));
        let usage = &metrics.cpu.usage;
        assert_eq!(
            (usage.total, usage.user, usage.kernel),
            (1_500_000_000, 1_000_000_000, 500_000_000)
        );
        assert_eq!(usage.per_cpu, [7, 8]);
        assert_eq!(metrics.cpu.throttling.throttled_time, 9);
    }

    #[test]
    fn memory_on_v1_has_usage_limit_and_peak() {
        let metrics = v1_metrics(&Table(&[
            ("memory.usage_in_bytes", "10"),
            ("memory.limit_in_bytes", "20"),
            ("memory.max_usage_in_bytes", "15"),
            ("memory.stat", "cache 1\nrss 2\ntotal_inactive_file 3\n"),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
        ]));
        let memory = &metrics.memory;
        assert_eq!(
            (memory.usage.usage, memory.usage.limit, memory.usage.max),
            (10, 20, 15)
        );
        assert_eq!((memory.cache, memory.rss, memory.total_inactive_file), (1, 2, 3));
        assert_eq!(metrics.memory_oom_control.oom_kill, 2);
    }

    #[test]
    fn v2_has_cpu_memory_processes_and_io() {
        let metrics = v2_metrics(&Table(&[
            ("cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\n"),
            ("memory.current", "10"),
            ("memory.max", "max"),
            ("memory.events", "low 0\noom 1\noom_kill 1\n"),
            ("pids.current", "3"),
            ("pids.max", "max"),
            ("io.stat", "8:0 rbytes=5 wbytes=6 rios=1 wios=2 dbytes=0 dios=0\n"),
        ]));
        assert_eq!((metrics.cpu.usage_usec, metrics.cpu.user_usec), (30, 20));
        assert_eq!((metrics.memory.usage, metrics.memory.usage_limit), (10, u64::MAX));
        assert_eq!((metrics.pids.current, metrics.pids.limit), (3, 0));
        assert_eq!(metrics.memory_events.oom_kill, 1);
        assert_eq!((metrics.io.usage[0].rbytes, metrics.io.usage[0].wios), (5, 2));
    }

    #[test]
    fn a_host_that_gives_nothing_gives_zeroes() {
        assert_eq!(v1_metrics(&Table(&[])).memory.usage.usage, 0);
        assert_eq!(v2_metrics(&Table(&[])).memory.usage, 0);
    }
}
