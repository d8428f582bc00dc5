//! What a person writes: sizes, durations, numbers of CPUs, waivers, names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandglass_run::name::{check_artifact_path, check_file_name, is_printable, printable};
use sandglass_run::parse::{format_bytes, format_duration};
use sandglass_run::{
    HostCapacity, Language, Limits, Person, RunId, Waiver, parse_bytes, parse_cpus, parse_duration,
};

fuzz_target!(|input: &[u8]| {
    assert!(is_printable(&printable(input, 40)) && printable(input, 40).len() <= 40);
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let mut limits = Limits::default();
    if let Ok(bytes) = parse_bytes(text) {
        assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
        limits.memory_bytes = bytes;
    }
    if let Ok(duration) = parse_duration(text) {
        assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        limits.wall = duration;
    }
    if let Ok(cpus) = parse_cpus(text) {
        assert!(cpus.is_finite() && cpus >= 0.0);
        limits.cpus = cpus;
    }
    let host = HostCapacity {
        memory_bytes: 1 << 34,
        cpus: 4.0,
        pids: 32_768,
    };
    if limits.validate(&host).is_ok() {
        assert!(limits.memory_bytes > 0 && limits.memory_bytes <= host.memory_bytes);
        assert!(limits.cpus > 0.0 && limits.cpus <= host.cpus);
        assert!(!limits.wall.is_zero() && limits.wall <= Limits::MAX_WALL);
    }
    if check_file_name(text).is_ok() {
        assert!(!text.contains('/') && text != ".." && is_printable(text));
    }
    if check_artifact_path(text).is_ok() {
        assert!(!text.starts_with('/') && text.split('/').all(|part| check_file_name(part).is_ok()));
    }
    if let Ok(id) = text.parse::<RunId>() {
        assert_eq!(check_file_name(id.as_str()), Ok(()));
    }
    if let Ok(person) = text.parse::<Person>() {
        assert_eq!(check_file_name(person.as_str()), Ok(()));
    }
    let _ = text.parse::<Language>();
    let _ = Waiver::parse_list(text);
});
