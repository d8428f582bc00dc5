//! What a person sees while a run lives.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use sandglass_driver::events::store_in;
use sandglass_driver::outdir::StoreError;
use sandglass_driver::{Events, OutDir, Refusal, Store};
use sandglass_run::Stream;
use sandglass_run::capture::drop_marker;
use tokio::sync::Notify;

use crate::outlet::Outlet;

/// How often a reader that was not ready is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// Our two streams, shared between the run and what writes on when a reader becomes ready.
#[derive(Debug)]
pub struct Console<'fd> {
    stdout: RefCell<Outlet<'fd>>,
    stderr: RefCell<Outlet<'fd>>,
    waiting: Notify,
}

impl<'fd> Console<'fd> {
    /// A console on two descriptors; `sanitise` says for each whether it is a terminal to be protected.
    pub fn new(
        (stdout, sanitise_out): (BorrowedFd<'fd>, bool),
        (stderr, sanitise_err): (BorrowedFd<'fd>, bool),
    ) -> Self {
        Self {
            stdout: RefCell::new(Outlet::new(stdout, sanitise_out)),
            stderr: RefCell::new(Outlet::new(stderr, sanitise_err)),
            waiting: Notify::new(),
        }
    }

    fn show(&self, stream: Stream, bytes: &[u8]) {
        let mut outlet = match stream {
            Stream::Stdout => self.stdout.borrow_mut(),
            Stream::Stderr => self.stderr.borrow_mut(),
        };
        outlet.push(bytes);
        if !outlet.write_ready() {
            self.waiting.notify_one();
        }
    }

    /// Writes on what had to wait, as its readers become ready, and never returns.
    pub async fn write_on(&self) -> std::convert::Infallible {
        loop {
            self.waiting.notified().await;
            loop {
                let done = self.stdout.borrow_mut().write_ready() & self.stderr.borrow_mut().write_ready();
                if done {
                    break;
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }

    /// Writes all that still waits, however long the readers take; says which stream broke, and how.
    pub fn finish(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (name, outlet) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            let mut outlet = outlet.borrow_mut();
            outlet.finish();
            broken.extend(
                outlet
                    .error()
                    .map(|e| format!("The script's output could not be written to {name}: {e}.")),
            );
        }
        broken
    }
}

/// A listener that shows output and stores artifacts.
#[derive(Debug)]
pub struct Shown<'a, 'fd> {
    /// Where output goes; nowhere with `--json`.
    pub console: Option<&'a Console<'fd>>,
    /// Where artifacts go.
    pub out: Option<&'a OutDir>,
    /// Artifacts that could not be stored, and why.
    pub not_stored: Vec<(String, String)>,
}

impl Events for Shown<'_, '_> {
    fn admitted(&mut self) -> Result<(), Refusal> {
        self.out.map_or(Ok(()), OutDir::make)
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        if let Some(console) = self.console {
            console.show(stream, bytes);
        }
    }

    fn dropped(&mut self, stream: Stream, bytes: u64) {
        if let Some(console) = self.console {
            console.show(stream, drop_marker(bytes).as_bytes());
        }
    }

    fn artifact(&mut self, path: &str, _: u64) -> Result<Option<Box<dyn Store>>, StoreError> {
        store_in(self.out, path).inspect_err(|e| self.not_stored.push((path.to_owned(), e.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    #[test]
    fn what_had_to_wait_is_written_while_the_run_goes_on() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
        let console = Console::new((writer.as_fd(), false), (null.as_fd(), false));
        let mut shown = Shown {
            console: Some(&console),
            out: None,
            not_stored: vec![],
        };
        shown.output(Stream::Stdout, &vec![b'x'; 300_000]);
        let slow = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            let mut got = vec![0; 300_000];
            reader.read_exact(&mut got).unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let over = async {
                while !console.stdout.borrow_mut().write_ready() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                () = over => {}
                _ = console.write_on() => {}
                () = tokio::time::sleep(Duration::from_secs(5)) => panic!("nothing was written on"),
            }
        });
        slow.join().unwrap();
        assert!(console.finish().is_empty());
    }
}
