//! What the tests that need a stack share.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use sandglass_stack::Servers;

/// What `make stack` made.
pub fn servers() -> Servers {
    let root = std::env::var_os("SANDGLASS_STACK").expect("SANDGLASS_STACK names what `make stack` made");
    Servers::at(PathBuf::from(root)).unwrap()
}

/// What a program printed that succeeded.
pub fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Every folder of control groups whose name is a stack's.
pub fn groups(name: &str) -> Vec<PathBuf> {
    let found = Command::new("find")
        .args(["/sys/fs/cgroup", "-name", name])
        .output()
        .unwrap();
    String::from_utf8_lossy(&found.stdout)
        .lines()
        .map(PathBuf::from)
        .collect()
}

/// Waits until `there` is so; `false` where it is not in time.
pub fn within(patience: Duration, mut there: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if there() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
