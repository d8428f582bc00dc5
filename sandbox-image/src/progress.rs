//! What a build tells the person who waits for it.

/// Receives the progress of a build. Steps run at the same time on several threads, hence `Sync` and `&self`.
pub trait Progress: Sync {
    /// A step began. `step` is a short phrase for a person ("fetch Debian packages"), unique within a build.
    fn started(&self, step: &str);
    /// A step has handled `done` of `total` bytes so far. Steps that cannot tell never call this.
    fn bytes(&self, step: &str, done: u64, total: u64) {
        let _ = (step, done, total);
    }
    /// A step ended well; `detail` says what came of it ("21 files, 15.2 MB", "from the cache").
    fn finished(&self, step: &str, detail: &str);
}

/// Tells nobody.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn started(&self, _: &str) {}
    fn finished(&self, _: &str, _: &str) {}
}

/// `12.3 MB`: sizes as package tools print them (powers of ten).
pub fn human_bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::human_bytes;

    #[test]
    fn sizes_read_as_a_person_expects() {
        assert_eq!(human_bytes(999), "999 B");
        assert_eq!(human_bytes(1_500), "1.5 kB");
        assert_eq!(human_bytes(126_400_000), "126.4 MB");
        assert_eq!(human_bytes(2_000_000_000), "2.00 GB");
    }
}
