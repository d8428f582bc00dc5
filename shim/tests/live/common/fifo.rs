//! containerd's ends of a process's streams.

use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use super::{Outcome, until, within};

/// A FIFO that a process's output comes through.
pub struct Output {
    pub path: PathBuf,
    receiver: pipe::Receiver,
}

impl Output {
    /// Makes it and opens it as containerd does, before the process is made.
    pub fn make(path: &Path) -> Outcome<Self> {
        nix::unistd::mkfifo(path, Mode::S_IRWXU)?;
        Self::open(path)
    }

    /// Opens one that is there, as a containerd that was restarted.
    pub fn open(path: &Path) -> Outcome<Self> {
        Ok(Self {
            path: path.to_owned(),
            receiver: pipe::OpenOptions::new().open_receiver(path)?,
        })
    }

    /// All of it. Only once the process was made: before, there is no writer, which looks like the end.
    pub async fn read(&mut self) -> Outcome<Vec<u8>> {
        let mut all = Vec::new();
        within(30, "the end of an output", self.receiver.read_to_end(&mut all)).await??;
        Ok(all)
    }

    pub async fn text(&mut self) -> Outcome<String> {
        Ok(String::from_utf8_lossy(&self.read().await?).into_owned())
    }

    /// Reads until the text has come.
    pub async fn until(&mut self, part: &str) -> Outcome<String> {
        let mut all = Vec::new();
        let come = async {
            let mut some = [0_u8; 4096];
            loop {
                match self.receiver.read(&mut some).await {
                    Ok(0) => return Err("it ended".to_owned()),
                    Ok(count) => all.extend(&some[..count]),
                    Err(error) => return Err(error.to_string()),
                }
                if String::from_utf8_lossy(&all).contains(part) {
                    return Ok(());
                }
            }
        };
        let come = within(15, &format!("{part:?} in an output"), come).await;
        let text = String::from_utf8_lossy(&all).into_owned();
        match come {
            Ok(Ok(())) => Ok(text),
            Ok(Err(error)) => Err(format!("waiting for {part:?}: {error}; what came: {text:?}").into()),
            Err(failed) => {
                Err(format!("{}; what came: {text:?}", failed.message().unwrap_or_default()).into())
            }
        }
    }
}

/// A FIFO that a process's input goes through.
pub struct Input {
    pub path: PathBuf,
}

impl Input {
    pub fn make(path: &Path) -> Outcome<Self> {
        nix::unistd::mkfifo(path, Mode::S_IRWXU)?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Opens the writing end once the shim reads.
    pub async fn open(&self) -> Outcome<pipe::Sender> {
        until("a reader of the input", || {
            pipe::OpenOptions::new().open_sender(&self.path).is_ok()
        })
        .await?;
        Ok(pipe::OpenOptions::new().open_sender(&self.path)?)
    }

    /// Writes all of that and closes the end.
    pub async fn write(&self, body: &[u8]) -> Outcome {
        let mut sender = self.open().await?;
        within(15, "writing the input", sender.write_all(body)).await??;
        Ok(())
    }
}
