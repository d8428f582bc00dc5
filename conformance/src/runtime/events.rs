//! What containerd tells of containers: the events that a runtime sends it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Runtime;

/// Longest that an event may be late.
const WITHIN: Duration = Duration::from_secs(3);

/// `ctr events`, writing into a file.
#[derive(Debug)]
pub struct Recorder(Child);

impl Recorder {
    /// Starts it, and waits until it is heard.
    ///
    /// # Errors
    /// When containerd's client cannot be started, or containerd does not answer it.
    pub fn start(file: &Path) -> Result<Self, String> {
        let say = |e: std::io::Error| format!("ctr events: {e}");
        let child = Command::new("ctr")
            .arg("events")
            .stdin(Stdio::null())
            .stdout(File::create(file).map_err(say)?)
            .spawn()
            .map_err(say)?;
        let recorder = Self(child);
        // Something that makes an event, until the event is there: only then nothing can be missed.
        let probe = format!("conformance-events-{}", std::process::id());
        let deadline = Instant::now() + WITHIN;
        while Instant::now() < deadline {
            let run = |words: &[&str]| {
                Command::new("ctr")
                    .args(words)
                    .stdout(Stdio::null())
                    .status()
                    .map_err(say)
            };
            run(&["namespace", "create", &probe])?;
            run(&["namespace", "remove", &probe])?;
            if std::fs::read_to_string(file).map_err(say)?.contains(&probe) {
                return Ok(recorder);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("containerd tells nobody of a namespace that was made".to_owned())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What was told of one process of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Told {
    /// The kernel killed something in it for want of memory, and this was told before its end.
    pub out_of_memory: bool,
    /// Its end was told, with this status.
    pub exited: Option<i32>,
}

/// Reads recorded events for the process `process` of a container; its first process has the container's own id.
pub fn told(recorded: &str, container: &str, process: &str) -> Told {
    let mut told = Told::default();
    for line in recorded.lines() {
        // Date, time, zone, offset, namespace, topic, and the event as JSON.
        let Some((topic, event)) = line.split_once(" /").and_then(|(_, rest)| rest.split_once(' ')) else {
            continue;
        };
        let Ok(event) = serde_json::from_str::<Value>(event) else {
            continue;
        };
        let is = |field: &str, id: &str| event.get(field).and_then(Value::as_str) == Some(id);
        if !is("container_id", container) {
            continue;
        }
        match topic {
            "tasks/oom" if told.exited.is_none() => told.out_of_memory = true,
            "tasks/exit" if is("id", process) => {
                // 0 is left out.
                let status = event.get("exit_status").map_or(Some(0), Value::as_i64);
                told.exited = Some(
                    status
                        .and_then(|status| i32::try_from(status).ok())
                        .unwrap_or(i32::MAX),
                );
            }
            _ => {}
        }
    }
    told
}

/// Listens from now on.
#[derive(Debug)]
pub struct Listener {
    file: PathBuf,
    from: u64,
}

impl Listener {
    /// Whatever was told before is not listened to.
    pub fn new(runtime: &Runtime) -> Self {
        let from = runtime.events.metadata().map(|meta| meta.len()).unwrap_or(0);
        Self {
            file: runtime.events.clone(),
            from,
        }
    }

    /// What was told until now.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn told(&self, container: &str, process: &str) -> Result<Told, String> {
        Ok(told(&self.recorded()?, container, process))
    }

    /// Waits until the end of a process is told, and hands back what was told until then.
    ///
    /// # Errors
    /// When its end is not told in time: a runtime must do so.
    pub fn until_exit(&self, container: &str, process: &str) -> Result<Told, String> {
        let deadline = Instant::now() + WITHIN;
        loop {
            let told = self.told(container, process)?;
            if told.exited.is_some() {
                return Ok(told);
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "the end of {process} was not told to containerd within {WITHIN:?}"
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn recorded(&self) -> Result<String, String> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let say = |e: std::io::Error| format!("{}: {e}", self.file.display());
        let mut file = File::open(&self.file).map_err(say)?;
        file.seek(SeekFrom::Start(self.from)).map_err(say)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(say)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOM: &str = "2026-11-29 21:41:28.04 +0000 UTC default /tasks/oom {\"container_id\":\"o1\"}\n";
    const EXIT: &str = "2026-11-29 21:41:28.10 +0000 UTC default /tasks/exit {\"container_id\":\"o1\",\"id\":\"o1\",\"exit_status\":137}\n";

    #[test]
    fn lack_of_memory_counts_only_when_it_is_told_before_the_end() {
        let both = Told {
            out_of_memory: true,
            exited: Some(137),
        };
        assert_eq!(told(&format!("{OOM}{EXIT}"), "o1", "o1"), both);
        assert!(!told(&format!("{EXIT}{OOM}"), "o1", "o1").out_of_memory);
        assert_eq!(told(OOM, "o1", "o1").exited, None);
        let zero = EXIT.replace(",\"exit_status\":137", "");
        assert_eq!(told(&zero, "o1", "o1").exited, Some(0));
    }

    #[test]
    fn what_is_told_of_others_is_not_heard() {
        let text = format!("{OOM}{EXIT}not an event\nx /tasks/exit {{\n");
        assert_eq!(told(&text, "o", "o"), Told::default());
        assert_eq!(told(&text, "o1", "exec").exited, None);
    }
}
