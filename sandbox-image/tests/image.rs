//! The real image. Ignored by default, since the first build fetches 150 MB; `make test` runs them with
//! `cargo test -p sandglass-image --test image -- --ignored`.
//!
//! The image is built once into a store that all tests share; its inputs and layers come from the ordinary cache.

// Everything here is a test; clippy's own exemption does not reach the functions that tests share.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sandglass_image::{BuildOptions, Built, Lock, Progress, Store, default_cache, human_bytes};

/// What the image may weigh: 5 % above what it weighed when this was written.
const UNPACKED_MAX: u64 = 380_000_000;
/// As above, for the compressed layers.
const COMPRESSED_MAX: u64 = 136_000_000;

struct Print;

impl Progress for Print {
    fn started(&self, step: &str) {
        eprintln!("> {step}");
    }
    fn finished(&self, step: &str, detail: &str) {
        eprintln!("< {step}: {detail}");
    }
}

/// An ELF header that passes for a runner; nothing runs it.
fn fake_runner(directory: &Path, salt: u128) -> PathBuf {
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(4096, 0);
    elf[18..20].copy_from_slice(&[62, 0]);
    elf.extend(salt.to_le_bytes());
    let path = directory.join(format!("runner-{salt}"));
    fs::write(&path, elf).unwrap();
    path
}

fn options(directory: &Path, cache: PathBuf) -> BuildOptions {
    BuildOptions {
        lock: Lock::shipped().unwrap(),
        name: "default".into(),
        runner: Some(fake_runner(directory, 1)),
        cpython: None,
        cache,
        offline: false,
    }
}

struct Shared {
    store: Store,
    built: Built,
}

/// Built once, in cargo's directory for tests, where the next test run replaces it.
fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("image");
        if directory.exists() {
            fs::remove_dir_all(&directory).unwrap();
        }
        fs::create_dir(&directory).unwrap();
        let store = Store::open(directory.join("store"));
        let built = store
            .build(&options(&directory, default_cache()), &Print)
            .unwrap();
        Shared { store, built }
    })
}

fn root() -> &'static Path {
    &shared().built.image.rootfs
}

/// Every entry of the root with its path inside the image.
fn entries() -> Vec<(String, PathBuf, fs::Metadata)> {
    fn walk(directory: &Path, inside: &str, found: &mut Vec<(String, PathBuf, fs::Metadata)>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let inside = format!("{inside}/{}", path.file_name().unwrap().to_str().unwrap());
            let metadata = fs::symlink_metadata(&path).unwrap();
            let is_dir = metadata.is_dir();
            found.push((inside.clone(), path.clone(), metadata));
            if is_dir {
                walk(&path, &inside, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(root(), "", &mut found);
    assert!(found.len() > 4000, "only {} entries", found.len());
    found
}

/// A second root of the same files, in whose `/tmp` tests may write.
fn playground() -> &'static Path {
    static PLAYGROUND: OnceLock<PathBuf> = OnceLock::new();
    PLAYGROUND.get_or_init(|| {
        let playground = shared().store.root().join("playground");
        fs::create_dir(&playground).unwrap();
        for (inside, path, metadata) in entries() {
            let target = playground.join(inside.trim_start_matches('/'));
            if metadata.is_dir() {
                fs::create_dir(&target).unwrap();
            } else if metadata.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(&path).unwrap(), &target).unwrap();
            } else {
                fs::hard_link(&path, &target).unwrap();
            }
        }
        playground
    })
}

/// Runs a shell script in the image with a `/tmp` of its own (`$TMPDIR`), without network; gives what it printed.
fn inside(script: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let tmp = format!("/tmp/{}", COUNT.fetch_add(1, Ordering::Relaxed));
    fs::create_dir(playground().join(tmp.trim_start_matches('/'))).unwrap();
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .args(["--net", "--pid", "--ipc", "--fork", "--kill-child", "--wd=/"])
        .arg(format!("--root={}", playground().display()))
        .args(["--", "/usr/bin/sh", "-euc", script])
        .env_clear()
        .envs([
            ("HOME", "/work"),
            ("PATH", "/usr/bin"),
            ("LC_ALL", "C.UTF-8"),
            ("MPLBACKEND", "Agg"),
        ])
        .envs([("PYTHONDONTWRITEBYTECODE", "1"), ("TMPDIR", &tmp)])
        .env("MPLCONFIGDIR", format!("{tmp}/.matplotlib"))
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{script}\n{}\n{out}\n{err}",
        output.status
    );
    format!("{out}{err}")
}

const SEED_FONT_CACHE: &str = "mkdir $MPLCONFIGDIR; cp /usr/share/sandglass/matplotlib/* $MPLCONFIGDIR;";

#[test]
#[ignore = "builds the real image"]
fn two_builds_from_two_folders_with_two_caches_give_one_digest() {
    let first = shared();
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("a/cache/elsewhere");
    // The inputs only, as if just fetched: every layer is made anew.
    fs::create_dir_all(cache.join("blobs")).unwrap();
    for input in Lock::shipped().unwrap().inputs {
        let blob = default_cache().join("blobs").join(&input.sha256);
        // Absent where the first build found its layers finished.
        if blob.exists() {
            fs::copy(&blob, cache.join("blobs").join(&input.sha256)).unwrap();
        }
    }
    let store = Store::open(directory.path().join("b/store"));
    let second = store.build(&options(directory.path(), cache), &Print).unwrap();
    assert_eq!(second.cached, 0);
    assert_eq!(first.built.layers, second.layers);
    assert_eq!(first.built.image.digest, second.image.digest);
}

#[test]
#[ignore = "builds the real image"]
fn a_new_runner_makes_one_small_layer_and_takes_seconds() {
    let first = shared();
    let directory = tempfile::tempdir().unwrap();
    let mut changed = options(directory.path(), default_cache());
    // One that no earlier test run has left in the cache.
    let salt = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    changed.runner = Some(fake_runner(directory.path(), salt));
    changed.name = "other".into();
    changed.offline = true;
    let start = Instant::now();
    let built = first.store.build(&changed, &Print).unwrap();
    println!(
        "a rebuild with another runner took {:.2} s",
        start.elapsed().as_secs_f64()
    );
    assert_eq!(built.cached, 4);
    assert_ne!(built.image.digest, first.built.image.digest);
    first.store.verify(Some("other")).unwrap();
}

#[test]
#[ignore = "builds the real image"]
fn the_weight_is_stated_and_bounded() {
    let details = shared().store.list().unwrap();
    let image = details
        .iter()
        .find(|details| details.image == shared().built.image)
        .unwrap();
    for (name, compressed, unpacked) in &shared().built.layers {
        println!(
            "{name}: {} compressed, {} unpacked",
            human_bytes(*compressed),
            human_bytes(*unpacked)
        );
    }
    println!(
        "the image: {} compressed, {} unpacked",
        human_bytes(image.compressed_bytes),
        human_bytes(image.unpacked_bytes)
    );
    assert!(image.compressed_bytes < COMPRESSED_MAX);
    assert!(image.unpacked_bytes < UNPACKED_MAX);
}

#[test]
#[ignore = "builds the real image"]
fn no_installer_package_manager_compiler_or_privileged_tool_is_in_it() {
    let names = [
        "pip", "pip3", "pip3.12", "npm", "npx", "corepack", "yarn", "apt", "apt-get", "dpkg", "dpkg-deb",
        "gcc", "cc", "g++", "c++", "clang", "ld", "as", "make", "tcc", "su", "sudo", "mount", "umount",
        "chroot", "unshare", "nsenter", "passwd",
    ];
    let directories = [
        "ensurepip",
        "pip",
        "setuptools",
        "node_modules",
        "idlelib",
        "tkinter",
        "test",
        "lib2to3",
    ];
    for (inside, path, metadata) in entries() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let program =
            metadata.is_symlink() || metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
        assert!(!(program && names.contains(&name)), "{inside}");
        let module = Path::new(&inside).parent().unwrap();
        let importable = module == Path::new("/usr/lib/python3.12")
            || module == Path::new("/usr/lib/python3.12/site-packages");
        assert!(!(importable && directories.contains(&name)), "{inside}");
        assert!(
            !inside.contains("/node_modules/") && !inside.contains("/ensurepip/"),
            "{inside}"
        );
        assert!(
            !inside.starts_with("/var/lib/dpkg") && !inside.starts_with("/etc/apt"),
            "{inside}"
        );
        assert!(!name.ends_with(".pth") && name != "sitecustomize.py", "{inside}");
    }
}

#[test]
#[ignore = "builds the real image"]
fn nothing_in_it_is_setuid_setgid_privileged_special_or_writable() {
    for (inside, path, metadata) in entries() {
        let mode = metadata.permissions().mode() & 0o7777;
        let kind = metadata.file_type();
        assert!(
            kind.is_dir() || kind.is_file() || kind.is_symlink(),
            "{inside} is special"
        );
        assert!(
            !kind.is_block_device() && !kind.is_char_device() && !kind.is_fifo(),
            "{inside}"
        );
        if inside == "/tmp" {
            assert_eq!(mode, 0o1777);
        } else if !kind.is_symlink() {
            assert_eq!(mode & 0o7022, 0, "{inside} has mode {mode:o}");
            assert_eq!(mode & 0o444, 0o444, "{inside} has mode {mode:o}");
        }
        if kind.is_file() {
            let mut buffer = [0_u8; 64];
            let found = rustix::fs::lgetxattr(&path, "security.capability", &mut buffer);
            assert!(found.is_err(), "{inside} has file capabilities");
        }
    }
}

#[test]
#[ignore = "builds the real image"]
fn every_link_leads_to_something_in_the_image() {
    let mut links = 0;
    for (inside, path, metadata) in entries() {
        if metadata.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            assert!(target.is_relative(), "{inside} -> {}", target.display());
            let real = fs::canonicalize(&path).unwrap_or_else(|e| panic!("{inside}: {e}"));
            assert!(
                real.starts_with(fs::canonicalize(root()).unwrap()),
                "{inside} leads out"
            );
            links += 1;
        }
    }
    assert!(links > 10);
}

#[test]
#[ignore = "builds the real image"]
fn every_shared_object_and_program_finds_its_libraries() {
    let said = inside(
        "find() { for f in \"$1\"/* \"$1\"/.[!.]*; do if [ -L \"$f\" ]; then :; elif [ -d \"$f\" ]; then find \"$f\"; \
         else case $f in *.so|*.so.*|/usr/bin/*) check \"$f\";; esac; fi; done; }; \
         check() { [ \"$(head -c 4 \"$1\" | tail -c 3)\" = ELF ] || return 0; echo checked; \
         /usr/lib64/ld-linux-x86-64.so.2 --list \"$1\" 2>&1 | while read -r line; do \
         case $line in *'not found'*|*'error while'*) echo \"MISSING $1: $line\";; esac; done; }; \
         for d in /usr/bin /usr/lib; do find $d; done",
    );
    let missing: Vec<&str> = said.lines().filter(|line| line.starts_with("MISSING")).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(said.matches("checked").count() > 300, "{said}");
}

#[test]
#[ignore = "builds the real image"]
fn bytecode_is_there_for_every_source_and_is_not_checked_against_it() {
    let (mut sources, mut checked) = (0, 0);
    for (inside, path, _) in entries() {
        if let Some(stem) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".py") {
            if !inside.starts_with("/usr/lib/python3.12/") {
                continue;
            }
            sources += 1;
            let compiled = path.with_file_name(format!("__pycache__/{stem}.cpython-312.pyc"));
            let bytes = fs::read(&compiled).unwrap_or_else(|e| panic!("{}: {e}", compiled.display()));
            // After the magic number: bit 0 says that a hash follows, bit 1 that it be checked (PEP 552).
            assert_eq!(bytes[4..8], [1, 0, 0, 0], "{}", compiled.display());
            checked += 1;
        }
    }
    assert!(sources > 1500);
    assert_eq!(sources, checked);
    let traced = inside("python3 -c 'import os, json; print(json.dumps.__code__.co_filename)'");
    assert_eq!(traced.trim(), "/usr/lib/python3.12/json/__init__.py");
}

#[test]
#[ignore = "builds the real image"]
fn pyplot_takes_the_seeded_font_cache_and_does_not_rebuild_it() {
    let import =
        "python3 -c 'import logging; logging.basicConfig(level=logging.DEBUG); import matplotlib.pyplot'";
    let seeded = inside(&format!("{SEED_FONT_CACHE} {import}"));
    assert!(
        seeded.contains("Using fontManager instance from /tmp/"),
        "{seeded}"
    );
    assert!(!seeded.contains("generated new fontManager"), "{seeded}");
    // The control: without the seed the same import rebuilds.
    let bare = inside(&format!("mkdir $MPLCONFIGDIR; {import}"));
    assert!(bare.contains("generated new fontManager"), "{bare}");
}

#[test]
#[ignore = "builds the real image"]
fn the_seeded_font_cache_lists_exactly_the_fonts_that_matplotlib_finds_and_a_bold_fallback() {
    let said = inside(&format!(
        "{SEED_FONT_CACHE} python3 -c '
import matplotlib.font_manager as fm, os
key = lambda fonts: sorted((f.fname, f.name, f.style, f.weight) for f in fonts)
seeded = fm.fontManager
fresh = fm.FontManager()
fallback = (\"/usr/share/fonts/truetype/droid/DroidSansFallback.ttf\", \"Droid Sans Fallback\", \"normal\")
assert key(seeded.ttflist) == sorted([*key(fresh.ttflist), (*fallback, 700)]), \"and the fallback as bold\"
assert key(seeded.afmlist) == key(fresh.afmlist)
assert all(os.path.isfile(f.fname) for f in seeded.ttflist + seeded.afmlist)
print(len(seeded.ttflist), \"fonts\")'"
    ));
    assert!(said.contains("fonts"), "{said}");
}

#[test]
#[ignore = "builds the real image"]
fn charts_and_documents_show_cjk_text_without_a_warning() {
    let said = inside(&format!(
        "{SEED_FONT_CACHE} python3 -W error::UserWarning -c '
import io, matplotlib.pyplot as plt
figure, axes = plt.subplots(); axes.plot([-1, 1]); axes.set_title(\"中文 日本語 한국어 \u{2212}1\")
figure.savefig(io.BytesIO(), format=\"png\"); figure.savefig(io.BytesIO(), format=\"pdf\")
from PIL import Image, ImageDraw, ImageFont
font = ImageFont.truetype(\"DroidSansFallback.ttf\", 20)
image = Image.new(\"L\", (200, 40)); ImageDraw.Draw(image).text((0, 0), \"中文 한국어\", font=font, fill=255)
assert image.getbbox()
from pypdf import PdfReader
import fpdf
pdf = fpdf.FPDF(); pdf.add_font(\"cjk\", fname=\"/usr/share/fonts/truetype/droid/DroidSansFallback.ttf\")
pdf.add_page(); pdf.set_font(\"cjk\"); pdf.cell(text=\"中文 日本語\")
assert \"中文 日本語\" in PdfReader(io.BytesIO(bytes(pdf.output()))).pages[0].extract_text()
print(\"drawn\")'"
    ));
    assert!(said.contains("drawn"), "{said}");
}

#[test]
#[ignore = "builds the real image"]
fn both_interpreters_the_shell_and_its_tools_start() {
    let said = inside(
        "test -x /usr/libexec/sandglass-runner; python --version; node --version; python3 -m pip 2>&1 | head -n 1; \
         python3 -c 'import sys; print(sys.prefix, sys.flags.dev_mode, sys.path)'; \
         printf 'b\\na\\n' | sort | head -n 1; id -u; date -u +%Y | wc -c; sha256sum /etc/passwd | wc -w",
    );
    assert!(said.contains("Python 3.12."), "{said}");
    assert!(said.contains("v20."), "{said}");
    assert!(said.contains("No module named pip"), "{said}");
    assert!(said.contains("/usr/lib/python3.12/site-packages"), "{said}");
    assert!(said.contains("\na\n"), "{said}");
}

#[test]
#[ignore = "builds the real image"]
fn the_built_image_verifies_and_resolves_in_microseconds() {
    let verified = shared().store.verify(None).unwrap();
    assert!(verified.entries > 4000 && verified.bytes > 300_000_000);
    let start = Instant::now();
    for _ in 0..1000 {
        shared().store.resolve(None).unwrap();
    }
    let each = start.elapsed() / 1000;
    println!("resolve takes {each:?}");
    assert!(each.as_micros() < 500, "{each:?}");
}
