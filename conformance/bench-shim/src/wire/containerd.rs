//! containerd's own services: containers, tasks, snapshots.

use std::collections::HashMap;

use prost::Message;

use super::Client;
use crate::error::Result;

/// Nothing.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// A message with its type.
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    /// Its type.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// How a root is mounted.
#[derive(Clone, PartialEq, Message)]
pub struct Mount {
    /// The file system.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// Where from.
    #[prost(string, tag = "2")]
    pub source: String,
    /// Where to, below the root.
    #[prost(string, tag = "3")]
    pub target: String,
    /// How.
    #[prost(string, repeated, tag = "4")]
    pub options: Vec<String>,
}

/// Which shim serves a container, and what it is told.
#[derive(Clone, PartialEq, Message)]
pub struct Runtime {
    /// `io.containerd.…`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its options.
    #[prost(message, optional, tag = "2")]
    pub options: Option<Any>,
}

/// What runc's shim is told.
#[derive(Clone, PartialEq, Message)]
pub struct RuncOptions {
    /// The runtime's program.
    #[prost(string, tag = "6")]
    pub binary_name: String,
}

/// What any other shim is told.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeOptions {
    /// The text of a file of settings.
    #[prost(bytes = "vec", tag = "3")]
    pub config_body: Vec<u8>,
}

/// A container's record.
#[derive(Clone, PartialEq, Message)]
pub struct Container {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its image.
    #[prost(string, tag = "3")]
    pub image: String,
    /// Its runtime.
    #[prost(message, optional, tag = "4")]
    pub runtime: Option<Runtime>,
    /// The OCI spec, as JSON.
    #[prost(message, optional, tag = "5")]
    pub spec: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainer {
    #[prost(message, optional, tag = "1")]
    container: Option<Container>,
}

#[derive(Clone, PartialEq, Message)]
struct DeleteContainer {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct CreateTask {
    #[prost(string, tag = "1")]
    container_id: String,
    #[prost(message, repeated, tag = "3")]
    rootfs: Vec<Mount>,
}

/// Names a task, or a process of it.
#[derive(Clone, PartialEq, Message)]
struct OfContainer {
    #[prost(string, tag = "1")]
    container_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Kill {
    #[prost(string, tag = "1")]
    container_id: String,
    #[prost(uint32, tag = "3")]
    signal: u32,
    #[prost(bool, tag = "4")]
    all: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Exited {
    #[prost(uint32, tag = "1")]
    exit_status: u32,
}

/// The first process of a task.
#[derive(Clone, PartialEq, Message)]
pub struct Process {
    /// Its container.
    #[prost(string, tag = "1")]
    container_id: String,
    #[prost(string, tag = "2")]
    id: String,
    /// Its pid, in containerd's namespace.
    #[prost(uint32, tag = "3")]
    pid: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Tasks {
    #[prost(message, repeated, tag = "1")]
    tasks: Vec<Process>,
}

#[derive(Clone, PartialEq, Message)]
struct PrepareSnapshot {
    #[prost(string, tag = "1")]
    snapshotter: String,
    #[prost(string, tag = "2")]
    key: String,
    #[prost(string, tag = "3")]
    parent: String,
    #[prost(map = "string, string", tag = "4")]
    labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Mounts {
    #[prost(message, repeated, tag = "1")]
    mounts: Vec<Mount>,
}

/// What the snapshots are made by: containerd's default.
const SNAPSHOTTER: &str = "overlayfs";
/// The label that keeps something which no container names.
const ROOT_LABEL: &str = "containerd.io/gc.root";

/// The services, one function for each call. All errors are what containerd said.
impl Client {
    /// Notes a container.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn create_container(&self, container: Container) -> Result<()> {
        let request = CreateContainer {
            container: Some(container),
        };
        let _: Empty = self
            .call("/containerd.services.containers.v1.Containers/Create", request)
            .await?;
        Ok(())
    }

    /// Forgets a container.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn delete_container(&self, id: &str) -> Result<()> {
        let request = DeleteContainer { id: id.to_owned() };
        let _: Empty = self
            .call("/containerd.services.containers.v1.Containers/Delete", request)
            .await?;
        Ok(())
    }

    /// Starts the shim and has it make the container.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn create_task(&self, id: &str, rootfs: Vec<Mount>) -> Result<()> {
        let request = CreateTask {
            container_id: id.to_owned(),
            rootfs,
        };
        let _: Empty = self
            .call("/containerd.services.tasks.v1.Tasks/Create", request)
            .await?;
        Ok(())
    }

    /// Lets the first process begin.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn start_task(&self, id: &str) -> Result<()> {
        let _: Empty = self
            .call("/containerd.services.tasks.v1.Tasks/Start", of(id))
            .await?;
        Ok(())
    }

    /// Waits for the first process to end; its exit status.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn wait_task(&self, id: &str) -> Result<u32> {
        let exited: Exited = self
            .call("/containerd.services.tasks.v1.Tasks/Wait", of(id))
            .await?;
        Ok(exited.exit_status)
    }

    /// Kills everything in it.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn kill_task(&self, id: &str) -> Result<()> {
        let request = Kill {
            container_id: id.to_owned(),
            signal: 9,
            all: true,
        };
        let _: Empty = self
            .call("/containerd.services.tasks.v1.Tasks/Kill", request)
            .await?;
        Ok(())
    }

    /// Has the shim take the container away, and ends the shim.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn delete_task(&self, id: &str) -> Result<()> {
        let _: Empty = self
            .call("/containerd.services.tasks.v1.Tasks/Delete", of(id))
            .await?;
        Ok(())
    }

    /// The pids of the first processes, by the ids of their containers.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn pids(&self) -> Result<HashMap<String, u32>> {
        let tasks: Tasks = self
            .call("/containerd.services.tasks.v1.Tasks/List", Empty {})
            .await?;
        let pid = |task: Process| {
            // A shim that does not tell the container leaves the task's own id.
            let id = if task.container_id.is_empty() {
                task.id
            } else {
                task.container_id
            };
            (id, task.pid)
        };
        Ok(tasks.tasks.into_iter().map(pid).collect())
    }

    /// Makes a root of its own from an image's layers; it stays until containerd's root goes.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn prepare_snapshot(&self, key: &str, parent: &str) -> Result<Vec<Mount>> {
        let request = PrepareSnapshot {
            snapshotter: SNAPSHOTTER.to_owned(),
            key: key.to_owned(),
            parent: parent.to_owned(),
            labels: [(ROOT_LABEL.to_owned(), "bench".to_owned())].into(),
        };
        let made: Mounts = self
            .call("/containerd.services.snapshots.v1.Snapshots/Prepare", request)
            .await?;
        Ok(made.mounts)
    }
}

fn of(id: &str) -> OfContainer {
    OfContainer {
        container_id: id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_published_numbers() {
        let options = RuncOptions {
            binary_name: "crun".into(),
        };
        assert_eq!(options.encode_to_vec(), b"\x32\x04crun");
        let options = RuntimeOptions {
            config_body: b"a=1".into(),
        };
        assert_eq!(options.encode_to_vec(), b"\x1a\x03a=1");
        let kill = Kill {
            container_id: "c".into(),
            signal: 9,
            all: true,
        };
        assert_eq!(kill.encode_to_vec(), b"\x0a\x01c\x18\x09\x20\x01");
    }
}
