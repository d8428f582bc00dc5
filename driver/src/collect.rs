//! Artifacts on their way from the runner: hashed, typed and stored piece by piece, so that none is ever held
//! in memory.

use sandglass_run::protocol::{ArtifactStart, SkippedEntry, SkippedMore};
use sandglass_run::{Artifact, SkipReason, Skipped};
use sha2::{Digest, Sha256};

use crate::events::{Events, Store};
use crate::media::{SNIFF_BYTES, media_type};
use crate::outdir::StoreError;
use crate::slots::hex;

/// Collects what the runner hands back of `/out`. Order, names and sizes were checked before.
#[derive(Default)]
pub struct Collector {
    artifacts: Vec<Artifact>,
    skipped: Vec<Skipped>,
    open: Option<Open>,
}

/// The artifact whose bytes are coming.
struct Open {
    path: String,
    bytes: u64,
    hash: Sha256,
    head: Vec<u8>,
    store: Option<Box<dyn Store>>,
    failed: Option<SkipReason>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector")
            .field("artifacts", &self.artifacts)
            .field("skipped", &self.skipped)
            .finish()
    }
}

impl Collector {
    /// An artifact begins.
    pub fn start(&mut self, start: ArtifactStart, events: &mut dyn Events) {
        let (store, failed) = match events.artifact(&start.path, start.bytes) {
            Ok(store) => (store, None),
            Err(error) => {
                tracing::info!(path = start.path, %error, "an artifact was not stored");
                (None, Some(reason(&error)))
            }
        };
        let (hash, head) = (Sha256::new(), Vec::new());
        self.open = Some(Open {
            path: start.path,
            bytes: 0,
            hash,
            head,
            store,
            failed,
        });
    }

    /// Bytes of it.
    pub fn data(&mut self, bytes: &[u8]) {
        let Some(open) = &mut self.open else { return };
        if open.failed.is_some() {
            return;
        }
        open.bytes += bytes.len() as u64;
        open.hash.update(bytes);
        let room = SNIFF_BYTES - open.head.len();
        open.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if let Some(Err(error)) = open.store.as_mut().map(|store| store.write(bytes)) {
            tracing::info!(path = open.path, %error, "an artifact could not be written");
            open.failed = Some(SkipReason::NotStored);
            open.store = None;
        }
    }

    /// It ends.
    pub fn end(&mut self, complete: bool) {
        let Some(open) = self.open.take() else { return };
        let failed = open.failed.or((!complete).then_some(SkipReason::Changed));
        if let Some(reason) = failed {
            self.skipped.push(Skipped {
                path: open.path,
                reason,
            });
            return;
        }
        if let Some(store) = open.store {
            store.keep();
        }
        self.artifacts.push(Artifact {
            media_type: media_type(&open.path, &open.head),
            path: open.path,
            bytes: open.bytes,
            sha256: hex(&open.hash.finalize()),
        });
    }

    /// Something was not taken.
    pub fn skip(&mut self, entry: SkippedEntry) {
        self.skipped.push(Skipped {
            path: entry.path_lossy,
            reason: entry.reason,
        });
    }

    /// More was not taken than is listed.
    pub fn skip_more(&mut self, more: SkippedMore) {
        let path = format!("… and {} more", more.count);
        self.skipped.push(Skipped {
            path,
            reason: SkipReason::TooMany,
        });
    }

    /// What was collected. An artifact whose end never came is not among it, and nothing of it is stored.
    pub fn finish(self) -> (Vec<Artifact>, Vec<Skipped>) {
        (self.artifacts, self.skipped)
    }
}

fn reason(error: &StoreError) -> SkipReason {
    match error {
        StoreError::Exists => SkipReason::Exists,
        StoreError::NameInvalid => SkipReason::NameInvalid,
        StoreError::Io(_) => SkipReason::NotStored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Quiet;
    use crate::outdir::OutDir;

    fn collect(
        out: Option<&OutDir>,
        path: &str,
        pieces: &[&[u8]],
        complete: Option<bool>,
    ) -> (Vec<Artifact>, Vec<Skipped>) {
        let mut collector = Collector::default();
        let bytes = pieces.iter().map(|p| p.len() as u64).sum();
        collector.start(
            ArtifactStart {
                path: path.into(),
                bytes,
                mode: 0o755,
            },
            &mut Quiet(out),
        );
        for piece in pieces {
            collector.data(piece);
        }
        if let Some(complete) = complete {
            collector.end(complete);
        }
        collector.finish()
    }

    #[test]
    fn an_artifact_is_hashed_typed_and_stored() {
        let tmp = tempfile::tempdir().unwrap();
        let out = OutDir::open(tmp.path()).unwrap();
        let (artifacts, skipped) = collect(Some(&out), "t/a.csv", &[b"a,b\n", b"1,2\n"], Some(true));
        assert!(skipped.is_empty());
        assert_eq!(artifacts[0].bytes, 8);
        assert_eq!(artifacts[0].media_type, "text/csv");
        assert_eq!(
            artifacts[0].sha256,
            "492d5ea496056f1a6a6592241032fab764c321596317930b4fa0e1e8bc3b7470"
        );
        assert_eq!(std::fs::read(tmp.path().join("t/a.csv")).unwrap(), b"a,b\n1,2\n");
    }

    #[test]
    fn without_a_directory_an_artifact_is_still_hashed_and_listed() {
        let (artifacts, _) = collect(None, "x", &[b""], Some(true));
        assert_eq!(
            artifacts[0].sha256,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn an_existing_name_is_skipped_and_said() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("a"), b"precious").unwrap();
        let out = OutDir::open(tmp.path()).unwrap();
        let (artifacts, skipped) = collect(Some(&out), "a", &[b"new"], Some(true));
        assert!(artifacts.is_empty());
        assert_eq!(
            skipped,
            [Skipped {
                path: "a".into(),
                reason: SkipReason::Exists
            }]
        );
        assert_eq!(std::fs::read(tmp.path().join("a")).unwrap(), b"precious");
    }

    #[test]
    fn half_an_artifact_is_never_stored() {
        let tmp = tempfile::tempdir().unwrap();
        let out = OutDir::open(tmp.path()).unwrap();
        let (artifacts, skipped) = collect(Some(&out), "a", &[b"half"], Some(false));
        assert!(artifacts.is_empty());
        assert_eq!(
            skipped,
            [Skipped {
                path: "a".into(),
                reason: SkipReason::Changed
            }]
        );
        let (artifacts, _) = collect(Some(&out), "b", &[b"half"], None);
        assert!(artifacts.is_empty());
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_place_without_room_loses_that_artifact_and_says_so() {
        struct Full;
        impl Store for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<()> {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            fn keep(self: Box<Self>) {
                panic!("what was not written is never kept");
            }
        }
        struct Nowhere;
        impl Events for Nowhere {
            fn output(&mut self, _: sandglass_run::Stream, _: &[u8]) {}
            fn dropped(&mut self, _: sandglass_run::Stream, _: u64) {}
            fn artifact(&mut self, _: &str, _: u64) -> Result<Option<Box<dyn Store>>, StoreError> {
                Ok(Some(Box::new(Full)))
            }
        }
        let mut collector = Collector::default();
        collector.start(
            ArtifactStart {
                path: "a".into(),
                bytes: 1,
                mode: 0o644,
            },
            &mut Nowhere,
        );
        collector.data(b"x");
        collector.end(true);
        let (artifacts, skipped) = collector.finish();
        assert!(artifacts.is_empty());
        assert_eq!(skipped[0].reason, SkipReason::NotStored);
    }
}
