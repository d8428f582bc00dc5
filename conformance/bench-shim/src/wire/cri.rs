//! Kubernetes' Container Runtime Interface: pods and their containers, as kubelet asks for them.

use prost::Message;

use super::Client;
use super::containerd::Empty;
use crate::error::Result;

/// Names a pod among others.
#[derive(Clone, PartialEq, Message)]
pub struct PodMetadata {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its uid.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its Kubernetes namespace.
    #[prost(string, tag = "3")]
    pub namespace: String,
}

/// A number that can be left out.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Number {
    /// The number.
    #[prost(int64, tag = "1")]
    pub value: i64,
}

/// A seccomp profile: `RuntimeDefault`, which is 0.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct RuntimeDefault {}

/// What a pod's pause container may do.
#[derive(Clone, PartialEq, Message)]
pub struct PodSecurity {
    /// Its uid.
    #[prost(message, optional, tag = "3")]
    pub run_as_user: Option<Number>,
    /// A root that cannot be written.
    #[prost(bool, tag = "4")]
    pub readonly_rootfs: bool,
    /// Its gid.
    #[prost(message, optional, tag = "8")]
    pub run_as_group: Option<Number>,
    /// Its filter.
    #[prost(message, optional, tag = "9")]
    pub seccomp: Option<RuntimeDefault>,
}

/// What is Linux's of a pod.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxPod {
    /// What its pause container may do.
    #[prost(message, optional, tag = "2")]
    pub security: Option<PodSecurity>,
}

/// A pod.
#[derive(Clone, PartialEq, Message)]
pub struct Pod {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodMetadata>,
    /// What is Linux's.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPod>,
}

/// Capabilities to add and to drop.
#[derive(Clone, PartialEq, Message)]
pub struct Capabilities {
    /// Those to drop.
    #[prost(string, repeated, tag = "2")]
    pub drop: Vec<String>,
}

/// What a container may do.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerSecurity {
    /// Its capabilities.
    #[prost(message, optional, tag = "1")]
    pub capabilities: Option<Capabilities>,
    /// Its uid.
    #[prost(message, optional, tag = "5")]
    pub run_as_user: Option<Number>,
    /// A root that cannot be written.
    #[prost(bool, tag = "7")]
    pub readonly_rootfs: bool,
    /// No way to gain privileges.
    #[prost(bool, tag = "11")]
    pub no_new_privs: bool,
    /// Its gid.
    #[prost(message, optional, tag = "12")]
    pub run_as_group: Option<Number>,
    /// Paths that are covered.
    #[prost(string, repeated, tag = "13")]
    pub masked_paths: Vec<String>,
    /// Paths that cannot be written.
    #[prost(string, repeated, tag = "14")]
    pub readonly_paths: Vec<String>,
    /// Its filter.
    #[prost(message, optional, tag = "15")]
    pub seccomp: Option<RuntimeDefault>,
}

/// What a container gets.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Resources {
    /// Microseconds of each account of CPU time.
    #[prost(int64, tag = "1")]
    pub cpu_period: i64,
    /// Microseconds of CPU in each.
    #[prost(int64, tag = "2")]
    pub cpu_quota: i64,
    /// Bytes.
    #[prost(int64, tag = "4")]
    pub memory_limit: i64,
}

/// What is Linux's of a container.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxContainer {
    /// What it gets.
    #[prost(message, optional, tag = "1")]
    pub resources: Option<Resources>,
    /// What it may do.
    #[prost(message, optional, tag = "2")]
    pub security: Option<ContainerSecurity>,
}

/// A name, or an image's.
#[derive(Clone, PartialEq, Message)]
pub struct Named {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A container.
#[derive(Clone, PartialEq, Message)]
pub struct PodContainer {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<Named>,
    /// Its image.
    #[prost(message, optional, tag = "2")]
    pub image: Option<Named>,
    /// What it runs.
    #[prost(string, repeated, tag = "3")]
    pub command: Vec<String>,
    /// What is Linux's.
    #[prost(message, optional, tag = "15")]
    pub linux: Option<LinuxContainer>,
}

#[derive(Clone, PartialEq, Message)]
struct RunPod {
    #[prost(message, optional, tag = "1")]
    config: Option<Pod>,
    #[prost(string, tag = "2")]
    runtime_handler: String,
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    config: Option<PodContainer>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<Pod>,
}

/// The id of a pod or a container, asked for or answered with.
#[derive(Clone, PartialEq, Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int32, tag = "7")]
    exit_code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    status: Option<Status>,
}

/// `CONTAINER_EXITED`.
const EXITED: i32 = 2;

/// The calls of `runtime.v1.RuntimeService`.
impl Client {
    /// Makes a pod's network and namespaces, held by a pause container; the pod's id.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn run_pod(&self, pod: Pod, handler: &str) -> Result<String> {
        let request = RunPod {
            config: Some(pod),
            runtime_handler: handler.to_owned(),
        };
        let made: Id = self
            .call("/runtime.v1.RuntimeService/RunPodSandbox", request)
            .await?;
        Ok(made.id)
    }

    /// Makes a container of a pod; the container's id.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn create_in_pod(&self, id: &str, pod: Pod, container: PodContainer) -> Result<String> {
        let request = CreateContainer {
            pod_sandbox_id: id.to_owned(),
            config: Some(container),
            sandbox_config: Some(pod),
        };
        let made: Id = self
            .call("/runtime.v1.RuntimeService/CreateContainer", request)
            .await?;
        Ok(made.id)
    }

    /// Lets a container begin.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn start_in_pod(&self, container: &str) -> Result<()> {
        self.by_id("/runtime.v1.RuntimeService/StartContainer", container)
            .await
    }

    /// The exit code of a container that kubelet would find ended.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn exit_code(&self, container: &str) -> Result<Option<i32>> {
        let id = container.to_owned();
        let answer: StatusAnswer = self
            .call("/runtime.v1.RuntimeService/ContainerStatus", Id { id })
            .await?;
        Ok(answer
            .status
            .filter(|status| status.state == EXITED)
            .map(|status| status.exit_code))
    }

    /// Ends a pod.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn stop_pod(&self, pod: &str) -> Result<()> {
        self.by_id("/runtime.v1.RuntimeService/StopPodSandbox", pod).await
    }

    /// Takes a pod away, with its containers.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn remove_pod(&self, pod: &str) -> Result<()> {
        self.by_id("/runtime.v1.RuntimeService/RemovePodSandbox", pod)
            .await
    }

    async fn by_id(&self, path: &'static str, id: &str) -> Result<()> {
        let _: Empty = self.call(path, Id { id: id.to_owned() }).await?;
        Ok(())
    }
}
