//! What comes out: of a FIFO, or of a client that runs beside the test.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};

use rustix::fs::OFlags;

use crate::common::within;
use crate::node::{Node, PATIENCE};

/// A reader of a process's FIFO, in containerd's place.
pub struct Fifo {
    file: File,
    heard: Vec<u8>,
}

impl Fifo {
    /// Opens the FIFO `name` in the one folder that the client made below `folder`.
    pub fn open(folder: &Path, name: &str) -> Self {
        let made = fs::read_dir(folder).unwrap().flatten();
        let path = made.map(|made| made.path().join(name)).find(|path| path.exists());
        let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let file = File::options()
            .read(true)
            .custom_flags(nonblock)
            .open(path.expect("there is such a FIFO"))
            .unwrap();
        Self {
            file,
            heard: Vec::new(),
        }
    }

    /// Reads until there are so many lines more.
    pub fn more(&mut self, lines: usize) {
        let count = |heard: &[u8]| heard.iter().filter(|byte| **byte == b'\n').count();
        let wanted = count(&self.heard) + lines;
        let there = within(PATIENCE, || {
            assert!(self.read(), "the FIFO ended");
            count(&self.heard) >= wanted
        });
        assert!(there, "{}", String::from_utf8_lossy(&self.heard));
    }

    /// Reads until there is a word.
    pub fn has(&mut self, word: &str) {
        let there = within(PATIENCE, || {
            assert!(self.read(), "the FIFO ended");
            String::from_utf8_lossy(&self.heard).contains(word)
        });
        assert!(there, "{}", String::from_utf8_lossy(&self.heard));
    }

    /// Reads until its last writer is gone, which must be soon.
    pub fn ends(&mut self) {
        assert!(within(PATIENCE, || !self.read()), "the FIFO has a writer still");
    }

    /// All that came, with nobody to read on.
    pub fn heard(self) -> String {
        String::from_utf8(self.heard).unwrap()
    }

    /// Reads what is there; `false` at the end.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.heard.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// A client that runs beside the test. It is killed where the test forgets it.
pub struct Client {
    child: Child,
    output: PathBuf,
}

impl Client {
    /// Starts `ctr` inside; its output is called `name`.
    pub fn ctr(node: &Node, name: &str, arguments: &[&str]) -> Self {
        let output = node.folder("clients").join(name);
        let child = node
            .stack
            .command("ctr")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(File::create(&output).unwrap())
            .spawn()
            .unwrap();
        Self { child, output }
    }

    /// One that writes down every event of containerd's from here on.
    pub fn events(node: &Node) -> Self {
        let client = Self::ctr(node, "events", &["events"]);
        let mut mark = 0;
        let listens = within(PATIENCE, || {
            mark += 1;
            node.ok(
                "ctr",
                &["namespaces", "label", "default", &format!("mark={mark}")],
            );
            client.said().contains("/namespaces/update")
        });
        assert!(listens, "no event arrives");
        client
    }

    /// What it has printed so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    /// Waits until what it has printed is as wanted.
    pub fn says(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let said = within(PATIENCE, || wanted(&self.said()));
        assert!(said, "{what}: {}", self.said());
    }

    /// Waits until an event comes whose line has all of `words`.
    pub fn tells(&self, words: &[&str]) {
        let all = |line: &str| words.iter().all(|word| line.contains(word));
        self.says(&format!("no event with {words:?}"), |said| said.lines().any(all));
    }

    /// Waits until it ends by itself.
    pub fn ends(&mut self) -> ExitStatus {
        let mut status = None;
        within(PATIENCE, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.expect("the client ends")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
