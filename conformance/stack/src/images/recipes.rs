//! What is in each image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Ingredients;
use super::layer::Layer;
use crate::error::{Result, StackError};
use crate::settings::PAUSE;

/// The name of the busybox image for our own tests.
pub const BUSYBOX: &str = "localhost/sandglass-busybox:1";
/// The name of the sandbox image.
pub const SANDBOX: &str = "localhost/sandglass:1";
/// critest has these names built in; what it finds under them it does not pull.
const E2E: &str = "registry.k8s.io/e2e-test-images";
const CRI_TOOLS: &str = "gcr.io/k8s-staging-cri-tools";

/// One image.
#[derive(Debug, Clone)]
pub(super) struct Image {
    pub name: String,
    pub layers: Vec<Layer>,
    pub entrypoint: Vec<String>,
    pub command: Vec<String>,
    pub user: String,
}

impl Image {
    fn new(name: impl Into<String>, layers: &[&Layer]) -> Self {
        Self {
            name: name.into(),
            layers: layers.iter().map(|layer| (*layer).clone()).collect(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            user: String::new(),
        }
    }

    fn running(mut self, entrypoint: &[&str]) -> Self {
        self.entrypoint = entrypoint.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    fn shell(mut self) -> Self {
        self.command = vec!["sh".to_owned()];
        self
    }

    fn of_user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }
}

/// Every image but the sandbox's, which has a build of its own.
pub(super) fn all(from: &Ingredients) -> Result<Vec<Image>> {
    let guest = read(&from.guest)?;
    let ours = base(&from.busybox_static, &guest)?;
    let base = base(&from.busybox, &guest)?;
    let program = |path: &str, mode| Layer::default().file(path, mode, guest.as_slice());
    let group = Layer::default()
        .file(
            "etc/passwd",
            0o644,
            format!("{PASSWD}default-user:x:1000:1000::/home:/bin/sh\n"),
        )
        .file(
            "etc/group",
            0o644,
            format!("{GROUP}default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n"),
        );
    let user = |name: &str, user: &str| {
        Image::new(format!("{CRI_TOOLS}/{name}:latest"), &[&base])
            .shell()
            .of_user(user)
    };
    let hostnet = if cfg!(target_arch = "aarch64") {
        "hostnet-nginx-arm64"
    } else {
        "hostnet-nginx-amd64"
    };
    Ok(vec![
        Image::new(PAUSE, &[&program("pause", 0o755)])
            .running(&["/pause"])
            .of_user("65535:65535"),
        Image::new(BUSYBOX, &[&ours]).shell(),
        Image::new(format!("{E2E}/busybox:1.29-2"), &[&base]).shell(),
        // `pidof nginx` looks for the name of the file, a test of PID namespaces for these words.
        Image::new(
            format!("{E2E}/nginx:1.14-2"),
            &[&base, &program("usr/sbin/nginx", 0o755)],
        )
        .running(&["/usr/sbin/nginx", "master process"]),
        Image::new(
            format!("{E2E}/httpd:2.4.39-4"),
            &[&base, &program("httpd", 0o755)],
        )
        .running(&["/httpd"]),
        Image::new(
            format!("{E2E}/nonewprivs:1.3"),
            &[&base, &program("nonewprivs", 0o4755)],
        )
        .running(&["/nonewprivs"]),
        Image::new(
            format!("{CRI_TOOLS}/{hostnet}:latest"),
            &[&base, &program("hostnet", 0o755)],
        )
        .running(&["/hostnet"]),
        Image::new(
            format!("{CRI_TOOLS}/test-image-predefined-group:latest"),
            &[&base, &group],
        )
        .shell()
        .of_user("1000"),
        user("test-image-user-uid", "1002"),
        user("test-image-user-username", "www-data"),
        user("test-image-user-uid-group", "1003:users"),
        user("test-image-user-username-group", "www-data:100"),
    ])
}

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
    daemon:x:1:1:daemon:/usr/sbin:/bin/false\n\
    www-data:x:33:33:www-data:/var/www:/bin/false\n\
    nobody:x:65534:65534:nobody:/home:/bin/false\n";
const GROUP: &str = "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\nusers:x:100:\nnogroup:x:65534:\n";

/// busybox, with a second name for each of its programs. Hard links: a test masks `/bin/ls` alone.
fn base(busybox: &Path, guest: &[u8]) -> Result<Layer> {
    let mut layer = Layer::default();
    for folder in [
        "bin", "etc", "home", "lib", "sbin", "usr", "usr/bin", "usr/sbin", "var", "var/log", "run",
    ] {
        layer = layer.folder(folder, 0o755);
    }
    layer = layer
        .folder("root", 0o700)
        .folder("tmp", 0o1777)
        .symbolic_link("var/run", "/run")
        .file("etc/passwd", 0o644, PASSWD)
        .file("etc/group", 0o644, GROUP)
        .file("bin/busybox", 0o755, read(busybox)?);
    let applets = applets(busybox)?;
    for path in &applets {
        layer = layer.hard_link(path, "bin/busybox");
    }
    // Debian's busybox lacks them, and critest asks for them.
    for name in ["ipcs", "pgrep"] {
        let path = format!("usr/bin/{name}");
        if !applets.contains(&path) {
            layer = layer.file(&path, 0o755, guest);
        }
    }
    for library in libraries(busybox)? {
        let content = read(&library)?;
        layer = layer.file(library.to_string_lossy().trim_start_matches('/'), 0o755, content);
    }
    Ok(layer)
}

/// The programs that this busybox holds: it lists them itself.
fn applets(busybox: &Path) -> Result<Vec<String>> {
    let listed = ask(Command::new(busybox).arg("--list-full"))?;
    let applets: Vec<String> = listed
        .lines()
        .filter(|path| !path.ends_with("/busybox") && path.contains("bin/"))
        .map(str::to_owned)
        .collect();
    if applets.iter().any(|path| path == "bin/sh") {
        return Ok(applets);
    }
    Err(StackError::Setting(format!(
        "{} has no shell; give another busybox.",
        busybox.display()
    )))
}

/// The libraries that a program loads, none where it is static. Those of this host: the program is of its distribution.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    match ask(Command::new("ldd").env("LC_ALL", "C").arg(program)) {
        Ok(listed) => Ok(loaded(&listed)),
        Err(StackError::Program { said, .. }) if said.contains("not a dynamic executable") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The paths in what `ldd` prints.
fn loaded(listed: &str) -> Vec<PathBuf> {
    listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}

fn ask(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(StackError::doing(format!("Starting {name}")))?;
    crate::supervise::containerd::succeeded(&name, &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(StackError::at("Reading", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_named_with_their_loader() {
        let listed = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x0)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x0)\n";
        let paths = [
            Path::new("/lib/x86_64-linux-gnu/libc.so.6"),
            Path::new("/lib64/ld-linux-x86-64.so.2"),
        ];
        assert_eq!(loaded(listed), paths);
        assert_eq!(loaded("\tstatically linked\n"), Vec::<PathBuf>::new());
    }
}
