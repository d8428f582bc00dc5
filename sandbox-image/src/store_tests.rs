//! The store and the export, with images of a few bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use crate::build::BuildOptions;
use crate::error::ImageError;
use crate::layer;
use crate::lock::Lock;
use crate::oci::{self, Configuration, Descriptor, History, Manifest, Process, RootFs};
use crate::progress::Silent;
use crate::publish::{Blob, Writer};
use crate::store::{Image, Store, UNPACKED_LABEL};
use crate::tree::Tree;

/// Puts an image with one file into the store.
fn add(store: &Store, name: &str, content: &str) -> Image {
    let scratch = tempfile::tempdir().unwrap();
    let mut tree = Tree::default();
    tree.program("usr/bin/x", content).unwrap();
    let file = scratch.path().join("layer");
    let made = layer::write("the layer", &tree, 1, &file, &mut |_| {}).unwrap();
    let writer = Writer::lock(store).unwrap();
    let descriptor = Descriptor::new(oci::LAYER, &made.digest, made.bytes);
    writer
        .add_blob(&Blob {
            descriptor: descriptor.clone(),
            file,
        })
        .unwrap();
    let configuration = Configuration {
        created: "2026-01-01T00:00:00Z".into(),
        architecture: "amd64".into(),
        os: "linux".into(),
        config: Process {
            user: "65534:65534".into(),
            env: Vec::new(),
            entrypoint: vec!["/usr/bin/x".into()],
            working_dir: "/work".into(),
            labels: BTreeMap::from([(UNPACKED_LABEL.into(), made.unpacked.to_string())]),
        },
        rootfs: RootFs {
            kind: "layers".into(),
            diff_ids: vec![format!("sha256:{}", made.diff_id)],
        },
        history: vec![History {
            created: "2026-01-01T00:00:00Z".into(),
            created_by: made.name,
        }],
    };
    let config = writer
        .add_document(oci::CONFIG, &serde_json::to_vec(&configuration).unwrap())
        .unwrap();
    let manifest = Manifest {
        schema_version: 2,
        media_type: oci::MANIFEST.into(),
        config,
        layers: vec![descriptor.clone()],
        annotations: BTreeMap::new(),
    };
    let manifest = writer
        .add_document(oci::MANIFEST, &serde_json::to_vec(&manifest).unwrap())
        .unwrap();
    let layers = [store.layer_file(&descriptor).unwrap()];
    writer
        .add_rootfs(manifest.sha256().unwrap(), &layers, &|_| {})
        .unwrap();
    writer.publish(&manifest, name).unwrap()
}

fn store() -> (tempfile::TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path().join("store"));
    (root, store)
}

fn only_blob(store: &Store, image: &Image, media_type: &str) -> std::path::PathBuf {
    let (_, manifest) = store
        .manifest(image.digest.trim_start_matches("sha256:"))
        .unwrap();
    let all: Vec<Descriptor> = std::iter::once(manifest.config).chain(manifest.layers).collect();
    let found = all
        .iter()
        .find(|descriptor| descriptor.media_type == media_type)
        .unwrap();
    store.layer_file(found).unwrap().path
}

#[test]
fn an_image_is_found_by_name_and_by_digest() {
    let (_root, store) = store();
    let one = add(&store, "default", "one");
    let two = add(&store, "other", "two");
    assert_ne!(one.digest, two.digest);
    assert_eq!(store.resolve(None).unwrap(), one);
    assert_eq!(store.resolve(Some("other")).unwrap(), two);
    assert_eq!(store.resolve(Some(&one.digest)).unwrap(), one);
    assert_eq!(fs::read(one.rootfs.join("usr/bin/x")).unwrap(), b"one");
}

#[test]
fn equal_content_is_one_image_under_two_names() {
    let (_root, store) = store();
    let one = add(&store, "default", "same");
    assert_eq!(add(&store, "stable", "same"), one);
    let all = store.list().unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].names, ["default", "stable"]);
    assert_eq!(all[0].unpacked_bytes, 4);
    assert_eq!(all[0].layers.len(), 1);
    assert!(all[0].compressed_bytes > 0);
}

#[test]
fn a_missing_image_says_how_to_build_one() {
    let (_root, store) = store();
    let error = store.resolve(None).unwrap_err();
    assert!(matches!(error, ImageError::Missing { .. }));
    assert!(error.hint().contains("sandglass image build"), "{error}");
    let absent = format!("sha256:{}", "0".repeat(64));
    assert!(matches!(
        store.resolve(Some(&absent)),
        Err(ImageError::Missing { .. })
    ));
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn references_that_could_be_paths_are_refused() {
    let (_root, store) = store();
    for bad in [
        "",
        "../x",
        "a/b",
        ".hidden",
        "UPPER",
        "sha256:abc",
        "-x",
        "a\0b",
        &"x".repeat(65),
    ] {
        assert!(
            matches!(store.resolve(Some(bad)), Err(ImageError::BadReference(_))),
            "{bad:?}"
        );
    }
}

#[test]
fn a_name_that_points_to_nothing_is_damage_and_not_absence() {
    let (_root, store) = store();
    let image = add(&store, "default", "one");
    fs::rename(&image.rootfs, store.root().join("elsewhere")).unwrap();
    assert!(matches!(store.resolve(None), Err(ImageError::Corrupt { .. })));
    fs::write(store.root().join("names/default"), "garbage").unwrap();
    assert!(matches!(store.resolve(None), Err(ImageError::Corrupt { .. })));
}

#[test]
fn a_whole_image_verifies_and_every_damaged_part_of_it_does_not() {
    type Damage = fn(&Store, &Image);
    let damages: [(&str, Damage); 6] = [
        ("a layer", |store, image| {
            fs::write(only_blob(store, image, oci::LAYER), "x").unwrap()
        }),
        ("the configuration", |store, image| {
            fs::write(only_blob(store, image, oci::CONFIG), "{}").unwrap()
        }),
        ("the manifest", |store, image| {
            let hex = image.digest.trim_start_matches("sha256:");
            fs::write(store.root().join("images/blobs/sha256").join(hex), "{}").unwrap();
        }),
        ("a layer's absence", |store, image| {
            fs::remove_file(only_blob(store, image, oci::LAYER)).unwrap()
        }),
        ("the root", |_, image| {
            fs::write(image.rootfs.join("usr/bin/x"), "two").unwrap()
        }),
        ("the list", |store, image| {
            let hex = image.digest.trim_start_matches("sha256:");
            fs::write(store.root().join("rootfs").join(format!("{hex}.list")), "{}\n").unwrap();
        }),
    ];
    for (what, damage) in damages {
        let (_root, store) = store();
        let image = add(&store, "default", "one");
        let verified = store.verify(None).unwrap();
        assert_eq!((verified.blobs, verified.entries, verified.bytes), (3, 3, 3));
        damage(&store, &image);
        assert!(store.verify(None).is_err(), "damage to {what} was not noticed");
    }
}

#[test]
fn building_again_mends_a_damaged_root_and_a_damaged_blob() {
    let (_root, store) = store();
    let image = add(&store, "default", "one");
    fs::write(image.rootfs.join("usr/bin/x"), "bad").unwrap();
    fs::write(only_blob(&store, &image, oci::LAYER), "bad").unwrap();
    fs::write(store.root().join("images/index.json"), "bad").unwrap();
    assert!(store.verify(None).is_err());
    assert_eq!(add(&store, "default", "one"), image);
    store.verify(None).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn a_store_that_cannot_be_written_says_so() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "").unwrap();
    let error = Writer::lock(&Store::open(root.path().join("file/store")))
        .err()
        .unwrap();
    assert!(error.to_string().contains("file/store"), "{error}");
    // The kernel refuses new entries there to root, too.
    let denied = Writer::lock(&Store::open("/proc/sandglass-store")).err().unwrap();
    assert!(
        matches!(denied, ImageError::Io { .. } | ImageError::NotWritable { .. }),
        "{denied}"
    );
}

#[test]
fn what_a_killed_build_left_is_invisible_and_cleared() {
    let (_root, store) = store();
    let image = add(&store, "default", "one");
    let left = store.root().join("tmp/rootfs/usr");
    fs::create_dir_all(&left).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    add(&store, "default", "one");
    assert!(!left.exists());
    assert_eq!(store.resolve(None).unwrap(), image);
}

#[test]
fn builds_at_the_same_time_all_end_with_a_whole_store() {
    let (_root, store) = store();
    std::thread::scope(|scope| {
        for index in 0..8 {
            let store = &store;
            scope.spawn(move || add(store, &format!("name{index}"), &format!("content {}", index % 3)));
        }
    });
    let all = store.list().unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(all.iter().map(|details| details.names.len()).sum::<usize>(), 8);
    for index in 0..8 {
        store.verify(Some(&format!("name{index}"))).unwrap();
    }
}

#[test]
fn a_build_that_fails_leaves_the_store_as_it_was() {
    let (root, store) = store();
    let image = add(&store, "default", "one");
    let runner = root.path().join("runner");
    let mut options = BuildOptions {
        lock: Lock::shipped().unwrap(),
        name: "default".into(),
        runner: Some(runner.clone()),
        cpython: None,
        cache: root.path().join("cache"),
        offline: true,
    };
    let build = |options: &BuildOptions| store.build(options, &Silent).unwrap_err();
    assert!(matches!(build(&options), ImageError::Runner { .. }));
    options.runner = None;
    assert!(matches!(build(&options), ImageError::Offline(_)));
    options.name = "../x".into();
    assert!(matches!(build(&options), ImageError::BadReference(_)));
    options.name = "default".into();
    options.lock.platform = "linux/riscv64".into();
    assert!(matches!(build(&options), ImageError::Platform { .. }));
    assert_eq!(store.resolve(None).unwrap(), image);
    store.verify(None).unwrap();
}

#[test]
fn everybody_may_read_the_store_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let (_root, store) = store();
    let image = add(&store, "default", "one");
    for path in [
        store.root(),
        &store.root().join("rootfs"),
        &store.root().join("names"),
        &image.rootfs,
    ] {
        let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o755, "{}", path.display());
    }
}

fn exported(store: &Store, tag: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.export(None, tag, &mut bytes).unwrap();
    bytes
}

fn entries(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut data = Vec::new();
        entry.read_to_end(&mut data).unwrap();
        found.insert(path, data);
    }
    found
}

#[test]
fn an_export_is_the_same_each_time_and_complete_for_oci_and_docker() {
    let (_root, store) = store();
    let image = add(&store, "default", "one");
    let archive = exported(&store, "localhost/sandglass:1");
    assert_eq!(archive, exported(&store, "localhost/sandglass:1"));
    let files = entries(&archive);
    assert_eq!(files["oci-layout"], oci::LAYOUT.as_bytes());
    let index: oci::Index = serde_json::from_slice(&files["index.json"]).unwrap();
    assert_eq!(index.manifests.len(), 1);
    assert_eq!(index.manifests[0].digest, image.digest);
    assert_eq!(index.manifests[0].annotations[oci::REF_NAME], "1");
    let docker: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    assert_eq!(docker[0]["RepoTags"][0], "localhost/sandglass:1");
    for path in [&docker[0]["Config"], &docker[0]["Layers"][0]] {
        let path = path.as_str().unwrap();
        let name = Path::new(path).file_name().unwrap().to_str().unwrap();
        assert_eq!(crate::digest::sha256_hex(&files[path]), name);
    }
}

#[test]
fn a_damaged_layer_is_not_exported() {
    let (_root, store) = store();
    let image = add(&store, "default", "one");
    let layer = only_blob(&store, &image, oci::LAYER);
    let mut bytes = fs::read(&layer).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&layer, bytes).unwrap();
    let found = store.export(None, "localhost/sandglass:1", &mut Vec::new());
    assert!(
        matches!(found, Err(ImageError::DigestMismatch { .. })),
        "{found:?}"
    );
}

#[test]
fn tags_that_other_programs_would_misread_are_refused() {
    let (_root, store) = store();
    add(&store, "default", "one");
    for bad in ["", "sandglass", "a b:1", "x:1/2", ":1", "x:", "X:1", "-x:1"] {
        let found = store.export(None, bad, &mut Vec::new());
        assert!(matches!(found, Err(ImageError::BadReference(_))), "{bad:?}");
    }
}

#[test]
fn a_removed_image_is_gone_with_its_names_and_only_its_own_blobs() {
    let (_root, store) = store();
    let (one, two) = (add(&store, "one", "1"), add(&store, "two", "2"));
    let again = add(&store, "again", "1");
    assert_eq!(one.digest, again.digest);
    let removed = store.remove(&one.digest).unwrap();
    assert_eq!(removed.names, ["again", "one"]);
    assert!(removed.image);
    assert!(!one.rootfs.exists() && matches!(store.resolve(Some("one")), Err(ImageError::Missing { .. })));
    assert_eq!(store.list().unwrap().len(), 1);
    store.verify(Some("two")).unwrap();
    assert_eq!(store.remove("two").unwrap().digest, two.digest);
    let left = |place: &str| fs::read_dir(store.root().join(place)).unwrap().count();
    assert_eq!(
        ["images/blobs/sha256", "rootfs", "names", "tmp"].map(left),
        [0; 4]
    );
    assert!(matches!(store.remove("two"), Err(ImageError::Missing { .. })));
    // A store that was emptied takes the next image.
    add(&store, "one", "1");
    store.verify(Some("one")).unwrap();
}

#[test]
fn one_of_several_names_goes_without_its_image() {
    let (_root, store) = store();
    let image = add(&store, "one", "1");
    add(&store, "two", "1");
    let removed = store.remove("one").unwrap();
    assert_eq!((removed.image, removed.names), (false, vec!["one".to_owned()]));
    store.verify(Some("two")).unwrap();
    assert_eq!(store.resolve(Some("two")).unwrap(), image);
}

#[test]
fn an_image_in_use_is_not_removed_and_a_removed_one_is_not_used() {
    let (_root, store) = store();
    let image = add(&store, "one", "1");
    let (first, second) = (image.hold().unwrap(), image.hold().unwrap());
    drop(first);
    assert!(matches!(store.remove("one"), Err(ImageError::InUse { .. })));
    store.verify(Some("one")).unwrap();
    drop(second);
    store.remove("one").unwrap();
    assert!(image.hold().is_err());
}

#[test]
fn removing_takes_no_paths_and_makes_no_store() {
    let (_root, store) = store();
    for hostile in ["../x", "", "sha256:..", "/etc"] {
        assert!(
            matches!(store.remove(hostile), Err(ImageError::BadReference(_))),
            "{hostile}"
        );
    }
    assert!(matches!(store.remove("one"), Err(ImageError::Missing { .. })));
    assert!(!store.root().exists());
}

#[test]
fn an_image_whose_root_is_gone_can_be_removed() {
    let (_root, store) = store();
    let image = add(&store, "one", "1");
    fs::remove_dir_all(&image.rootfs).unwrap();
    assert!(store.remove("one").unwrap().image);
    assert!(store.list().unwrap().is_empty());
}
