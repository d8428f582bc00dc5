//! The root of every container here: a static busybox, and this very program as `/usr/probe`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the probe is in a container.
pub const PROBE: &str = "/usr/probe";

/// Names a static busybox that is not where it is looked for.
const VARIABLE: &str = "SANDGLASS_BUSYBOX";
/// Mount points and places that a hardened spec has.
const PLACES: [&str; 12] = [
    "bin", "dev", "etc", "out", "proc", "run", "sys", "tmp", "usr", "var", "work", "home",
];

/// The root that all share, read-only; made once for each run of the tests.
pub fn shared() -> Result<&'static Path, String> {
    static SHARED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = SHARED.get_or_init(|| {
        let root = place();
        make(&root).map(|()| root)
    });
    made.as_deref().map_err(Clone::clone)
}

/// Takes the shared root away, when all tests are over.
pub fn remove() {
    let _ = std::fs::remove_dir_all(place());
}

fn place() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shim-live-{}", std::process::id()))
}

/// Makes a root. Its files are links to the originals where that can be, so it must not be written to.
pub fn make(root: &Path) -> Result<(), String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    for place in PLACES {
        let path = root.join(place);
        std::fs::create_dir_all(&path).map_err(failed(&path))?;
    }
    for (from, to) in [
        (busybox()?, root.join("bin/busybox")),
        (own()?, root.join("usr/probe")),
    ] {
        let _ = std::fs::remove_file(&to);
        if std::fs::hard_link(&from, &to).is_err() {
            std::fs::copy(&from, &to).map_err(failed(&to))?;
        }
    }
    for name in applets(&root.join("bin/busybox"))? {
        let link = root.join("bin").join(name);
        if !link.is_symlink() {
            symlink("busybox", &link).map_err(failed(&link))?;
        }
    }
    for (name, body, mode) in [
        (
            "etc/passwd",
            "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/home:/bin/sh\n",
            0o644,
        ),
        ("etc/group", "root:x:0:\nnobody:x:65534:\n", 0o644),
        ("etc/plain", "not a program\n", 0o644),
        ("usr/self", "#!/proc/self/exe -info\n", 0o755),
    ] {
        let path = root.join(name);
        std::fs::write(&path, body).map_err(failed(&path))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).map_err(failed(&path))?;
    }
    Ok(())
}

/// What busybox can do, asked once, before there are tests: their reaping would take the end of this child.
fn applets(busybox: &Path) -> Result<&'static [String], String> {
    static APPLETS: OnceLock<Result<Vec<String>, String>> = OnceLock::new();
    let asked = APPLETS.get_or_init(|| {
        let output = Command::new(busybox)
            .arg("--list")
            .output()
            .map_err(|error| format!("{}: {error}", busybox.display()))?;
        let names = String::from_utf8_lossy(&output.stdout);
        Ok(names
            .lines()
            .filter(|name| *name != "busybox")
            .map(str::to_owned)
            .collect())
    });
    asked.as_deref().map_err(Clone::clone)
}

fn own() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("our own program: {error}"))
}

/// A busybox that needs no other file.
pub fn busybox() -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap_or(Path::new("/"));
    let places = [
        std::env::var_os(VARIABLE).map(PathBuf::from),
        Some(target.join("stack/busybox-static/bin/busybox")),
        // With a target triple, the directory for tests is one deeper.
        target
            .parent()
            .map(|target| target.join("stack/busybox-static/bin/busybox")),
        Some("/usr/bin/busybox".into()),
        Some("/bin/busybox".into()),
    ];
    places
        .into_iter()
        .flatten()
        .filter_map(|path| path.canonicalize().ok())
        .find(|path| is_static(path))
        .ok_or_else(|| {
            format!("no static busybox: install Debian's package busybox-static, or name one in {VARIABLE}")
        })
}

/// An ELF program without an interpreter, which is all that a container without libraries can run.
fn is_static(path: &Path) -> bool {
    const INTERPRETER: u32 = 3;
    let Ok(body) = std::fs::read(path) else {
        return false;
    };
    let bytes = |at: usize, count: usize| body.get(at..at + count);
    let number = |at: usize, count: usize| {
        bytes(at, count).map(|part| {
            part.iter()
                .rev()
                .fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte))
        })
    };
    // 64 bits, little endian: the offset, size and count of the program headers.
    let headers = || Some((number(32, 8)?, number(54, 2)?, number(56, 2)?));
    let Some((at, size, count)) = headers().filter(|_| body.starts_with(b"\x7fELF\x02\x01")) else {
        return false;
    };
    (0..count).all(|index| number(at + index * size, 4).is_some_and(|kind| kind != INTERPRETER as usize))
}
