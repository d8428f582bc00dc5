//! What of each package goes into the image, and what must never be in it. Functions on paths, nothing else.

/// Libraries of glibc and libcap that only debuggers and profilers load.
const DEBUGGING_LIBRARIES: [&str; 6] = [
    "libBrokenLocale",
    "libc_malloc_debug",
    "libmemusage",
    "libpcprofile",
    "libpsx",
    "libthread_db",
];

/// Where an entry of a Debian package goes in the image, if anywhere.
pub(crate) fn place_debian(package: &str, path: &str) -> Option<String> {
    // Of the two variants only this one has Hangul; it lies where nothing that looks for fonts looks.
    const DROID: &str = "usr/share/fonts-droid-fallback/truetype/DroidSansFallback.ttf";
    if path == DROID {
        return Some("usr/share/fonts/truetype/droid/DroidSansFallback.ttf".into());
    }
    keep_debian(package, path).then(|| path.to_owned())
}

/// Whether an entry of a Debian package goes into the image. An allow-list: a new kind of file stays out.
fn keep_debian(package: &str, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        // Licences travel with the code. A package may link its directory to that of its source package.
        ["usr", "share", "doc", _] | ["usr", "share", "doc", _, "copyright"] => true,
        ["usr", "share", "common-licenses", ..] => true,
        ["usr", "share", "fonts", ..] => package != "fonts-droid-fallback",
        ["usr", "lib", "locale", "C.utf8", ..] => true,
        ["usr", "lib64", "ld-linux-x86-64.so.2"] => true,
        ["usr", "lib", "x86_64-linux-gnu", name] => {
            name.contains(".so")
                && !DEBUGGING_LIBRARIES
                    .iter()
                    .any(|library| name.starts_with(library))
        }
        ["usr", "bin", _] => matches!(package, "coreutils" | "dash"),
        _ => false,
    }
}

/// Whether an entry of CPython's library (path relative to `lib/python3.12`) goes into the image.
pub(crate) fn keep_stdlib(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let top = parts.first().copied().unwrap_or_default();
    // No test suites, no second package manager, no compiler configuration, no windows on a screen.
    if matches!(
        top,
        "test"
            | "idlelib"
            | "tkinter"
            | "ensurepip"
            | "lib2to3"
            | "turtledemo"
            | "turtle.py"
            | "site-packages"
            | "distutils"
            | "pydoc_data"
            | "curses"
            | "__hello__.py"
            | "__phello__"
    ) || top.starts_with("config-")
        || parts
            .iter()
            .any(|part| matches!(*part, "__pycache__" | "test" | "tests"))
        || matches!(extension(path), "pyc" | "a" | "h" | "exe")
    {
        return false;
    }
    if top == "lib-dynload" {
        let module = parts
            .last()
            .and_then(|name| name.split('.').next())
            .unwrap_or_default();
        return !module.starts_with("_test")
            && !module.starts_with("_xxtest")
            && !module.starts_with("xxlimited")
            && !matches!(
                module,
                "_ctypes_test"
                    | "xxsubtype"
                    | "_tkinter"
                    | "_curses"
                    | "_curses_panel"
                    | "readline"
                    | "nis"
                    | "ossaudiodev"
                    | "_crypt"
                    | "spwd"
                    | "_dbm"
                    | "_gdbm"
            );
    }
    true
}

/// Whether an entry of a wheel (path as it lies in site-packages) goes into the image.
pub(crate) fn keep_wheel(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    if parts
        .iter()
        .any(|part| matches!(*part, "__pycache__" | "tests" | "sample_data"))
    {
        return false;
    }
    if let Some(info) = parts.first().filter(|top| top.ends_with(".dist-info")) {
        // RECORD would list what is not there; the rest is what importlib.metadata reads, and licences.
        let rest = &path[info.len()..];
        return matches!(
            rest,
            "/METADATA" | "/WHEEL" | "/entry_points.txt" | "/top_level.txt"
        ) || [
            "/licenses/",
            "/LICENSE",
            "/LICENCE",
            "/COPYING",
            "/NOTICE",
            "/AUTHORS",
        ]
        .iter()
        .any(|prefix| rest.starts_with(prefix));
    }
    !matches!(
        extension(path),
        "pyc"
            | "pyi"
            | "pyx"
            | "pxd"
            | "pxi"
            | "a"
            | "lib"
            | "c"
            | "cc"
            | "cpp"
            | "h"
            | "hpp"
            | "sfd"
            | "exe"
    ) && parts.last() != Some(&"py.typed")
}

/// Why this path must not be in any image, if so. The last check before layers are written, whatever the rules
/// above let through.
pub(crate) fn forbidden(path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split('/').collect();
    let name = parts.last().copied().unwrap_or_default();
    let program = matches!(
        parts.as_slice(),
        ["usr", "bin" | "sbin" | "libexec", ..] | ["usr", "local", "bin", ..]
    );
    if parts
        .iter()
        .any(|part| matches!(*part, "ensurepip" | "node_modules"))
        || parts.windows(2).any(|pair| pair == ["site-packages", "pip"])
        || (program
            && starts_with_any(
                name,
                &["pip", "npm", "npx", "corepack", "yarn", "pnpm", "easy_install"],
            ))
    {
        return Some("a package installer");
    }
    if program && (starts_with_any(name, &["apt", "dpkg", "debconf"])) || path.starts_with("var/lib/dpkg") {
        return Some("Debian's package manager");
    }
    if program
        && (matches!(
            name,
            "cc" | "c++" | "gcc" | "g++" | "cpp" | "clang" | "ld" | "as" | "make" | "tcc" | "rustc"
        ) || starts_with_any(name, &["gcc-", "x86_64-linux-gnu-"]))
    {
        return Some("a compiler or linker");
    }
    if program
        && matches!(
            name,
            "su" | "sudo"
                | "doas"
                | "mount"
                | "umount"
                | "passwd"
                | "chsh"
                | "chfn"
                | "newgrp"
                | "gpasswd"
                | "setpriv"
                | "nsenter"
                | "unshare"
                | "chroot"
        )
    {
        return Some("a tool to change privileges");
    }
    // Run at every start of the interpreter.
    if path.ends_with(".pth") || matches!(name, "sitecustomize.py" | "usercustomize.py") {
        return Some("code that every start of Python would run");
    }
    None
}

fn starts_with_any(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn extension(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_packages_give_programs_libraries_fonts_and_licences() {
        for (package, path) in [
            ("coreutils", "usr/bin/sort"),
            ("dash", "usr/bin/sh"),
            ("libc6", "usr/lib64/ld-linux-x86-64.so.2"),
            ("libc6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
            ("libssl3t64", "usr/lib/x86_64-linux-gnu/libcrypto.so.3"),
            ("libc-bin", "usr/lib/locale/C.utf8/LC_CTYPE"),
            (
                "fonts-dejavu-core",
                "usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
            ),
            ("dash", "usr/share/doc/dash/copyright"),
            ("libgcc-s1", "usr/share/doc/libgcc-s1"),
        ] {
            assert!(keep_debian(package, path), "{package} {path}");
        }
        for (package, path) in [
            ("coreutils", "usr/share/man/man1/ls.1.gz"),
            ("coreutils", "usr/share/locale/de/LC_MESSAGES/coreutils.mo"),
            ("coreutils", "usr/sbin/chroot"),
            ("coreutils", "usr/share/doc/coreutils/changelog.Debian.gz"),
            ("libc6", "usr/lib/x86_64-linux-gnu/gconv/BIG5.so"),
            ("libc6", "usr/lib/x86_64-linux-gnu/libmemusage.so"),
            ("libc-bin", "usr/bin/getent"),
            ("libssl3t64", "usr/lib/x86_64-linux-gnu/engines-3/afalg.so"),
            ("apt", "usr/bin/apt"),
            ("mount", "usr/bin/su"),
            ("dash", "etc/shells"),
        ] {
            assert!(!keep_debian(package, path), "{package} {path}");
        }
    }

    #[test]
    fn the_cjk_font_with_hangul_lies_among_the_fonts_and_the_one_without_is_left_out() {
        let truetype = "usr/share/fonts-droid-fallback/truetype/DroidSansFallback.ttf";
        assert_eq!(
            place_debian("fonts-droid-fallback", truetype).as_deref(),
            Some("usr/share/fonts/truetype/droid/DroidSansFallback.ttf")
        );
        let full = "usr/share/fonts/truetype/droid/DroidSansFallbackFull.ttf";
        assert_eq!(place_debian("fonts-droid-fallback", full), None);
        assert_eq!(
            place_debian("dash", "usr/bin/dash").as_deref(),
            Some("usr/bin/dash")
        );
    }

    #[test]
    fn the_standard_library_comes_without_tests_installers_and_screens() {
        for path in [
            "os.py",
            "unittest/case.py",
            "lib-dynload/_ssl.cpython-312-x86_64-linux-gnu.so",
            "venv/__init__.py",
        ] {
            assert!(keep_stdlib(path), "{path}");
        }
        for path in [
            "test/test_os.py",
            "ensurepip/_bundled/pip-23.2.1-py3-none-any.whl",
            "config-3.12-x86_64-linux-gnu/libpython3.12.a",
            "site-packages/pip/__init__.py",
            "__pycache__/os.cpython-312.pyc",
            "lib-dynload/_testcapi.cpython-312-x86_64-linux-gnu.so",
            "lib-dynload/_curses.cpython-312-x86_64-linux-gnu.so",
            "tkinter/__init__.py",
        ] {
            assert!(!keep_stdlib(path), "{path}");
        }
    }

    #[test]
    fn wheels_come_without_tests_headers_and_stubs_and_keep_metadata_and_licences() {
        for path in [
            "numpy/__init__.py",
            "numpy/testing/__init__.py",
            "numpy.libs/libscipy_openblas64_.so",
            "numpy-2.0.dist-info/METADATA",
            "numpy-2.0.dist-info/licenses/LICENSE.txt",
            "matplotlib/mpl-data/matplotlibrc",
        ] {
            assert!(keep_wheel(path), "{path}");
        }
        for path in [
            "numpy/tests/test_public_api.py",
            "numpy/_core/include/numpy/ndarraytypes.h",
            "numpy/_core/lib/libnpymath.a",
            "numpy/__init__.pyi",
            "numpy-2.0.dist-info/RECORD",
            "matplotlib/mpl-data/sample_data/topobathy.npz",
        ] {
            assert!(!keep_wheel(path), "{path}");
        }
    }

    #[test]
    fn what_the_image_must_never_carry_is_named() {
        for path in [
            "usr/bin/pip3",
            "usr/bin/npm",
            "usr/bin/npx",
            "usr/bin/corepack",
            "usr/lib/python3.12/ensurepip/__init__.py",
            "usr/lib/python3.12/site-packages/pip/__main__.py",
            "usr/bin/apt-get",
            "usr/bin/dpkg",
            "usr/bin/gcc",
            "usr/bin/cc",
            "usr/bin/su",
            "usr/lib/python3.12/site-packages/x.pth",
        ] {
            assert!(forbidden(path).is_some(), "{path}");
        }
        for path in [
            "usr/bin/python3",
            "usr/bin/node",
            "usr/bin/cat",
            "usr/lib/python3.12/site-packages/numpy/f2py/cfuncs.py",
        ] {
            assert_eq!(forbidden(path), None, "{path}");
        }
    }
}
