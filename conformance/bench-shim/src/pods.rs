//! A pod with one container by the CRI, as kubelet makes it.

use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::handlers::IMAGE;
use crate::latency::{Lifecycle, Watch};
use crate::spec::{CPU_PERIOD, CPU_QUOTA, MASKED, MEMORY, NOBODY, READONLY};
use crate::wire::Client;
use crate::wire::cri::{
    Capabilities, ContainerSecurity, LinuxContainer, LinuxPod, Named, Number, Pod, PodContainer, PodMetadata,
    PodSecurity, Resources, RuntimeDefault,
};

/// containerd's namespace of everything that the CRI makes.
pub const NAMESPACE: &str = "k8s.io";
/// How often is looked whether a container that has ended is known to have ended.
const STEP: Duration = Duration::from_micros(500);

/// Pods of one containerd.
#[derive(Debug)]
pub struct Pods {
    /// containerd, speaking for [`NAMESPACE`].
    pub client: Client,
}

/// A pod that runs.
#[derive(Debug)]
pub struct Running {
    /// The pod's id, which is its pause container's as well.
    pub pod: String,
    /// The container's id.
    pub container: String,
}

impl Pods {
    /// Makes a pod with a container that runs `command`, and times it.
    ///
    /// # Errors
    /// What containerd said; nothing is left then.
    pub async fn start(
        &self,
        handler: &str,
        nth: usize,
        command: &[&str],
        watch: &mut Watch,
    ) -> Result<Running> {
        let config = pod(&format!("{handler}-{nth}"));
        let id = self.client.run_pod(config.clone(), handler).await?;
        watch.lap();
        match self.fill(&id, config, command, watch).await {
            Ok(container) => Ok(Running { pod: id, container }),
            Err(error) => {
                self.remove(&id).await;
                Err(error)
            }
        }
    }

    async fn fill(&self, id: &str, config: Pod, command: &[&str], watch: &mut Watch) -> Result<String> {
        let container = self.client.create_in_pod(id, config, container(command)).await?;
        watch.lap();
        self.client.start_in_pod(&container).await?;
        watch.lap();
        Ok(container)
    }

    /// Takes a pod away, as far as it is there.
    pub async fn remove(&self, id: &str) {
        let _ = self.client.stop_pod(id).await;
        let _ = self.client.remove_pod(id).await;
    }

    async fn end(&self, running: &Running, watch: &mut Watch) -> Result<i32> {
        // The task may be gone by now, and then its end is known as well.
        let _ = self.client.wait_task(&running.container).await;
        let code = loop {
            match self.client.exit_code(&running.container).await? {
                Some(code) => break code,
                None => tokio::time::sleep(STEP).await,
            }
        };
        watch.lap();
        self.client.stop_pod(&running.pod).await?;
        watch.lap();
        self.client.remove_pod(&running.pod).await?;
        watch.lap();
        Ok(code)
    }
}

impl Lifecycle for Pods {
    type Row = String;

    fn steps(&self) -> &'static [&'static str] {
        &["run pod", "create", "start", "exit", "stop pod", "remove pod"]
    }

    fn title(&self, handler: &String) -> (String, bool) {
        (handler.clone(), true)
    }

    async fn live(&self, handler: &String, nth: usize) -> Result<Vec<f64>> {
        let mut watch = Watch::start();
        let running = self.start(handler, nth, &["true"], &mut watch).await?;
        let ended = self.end(&running, &mut watch).await;
        if ended.is_err() {
            self.remove(&running.pod).await;
        }
        match ended? {
            0 => Ok(watch.steps()),
            other => Err(BenchError::Setup(format!("`true` ended with {other}."))),
        }
    }
}

fn nobody() -> Option<Number> {
    Some(Number { value: NOBODY })
}

/// A pod with the `restricted` settings of Pod Security and `RuntimeDefault`.
fn pod(name: &str) -> Pod {
    Pod {
        metadata: Some(PodMetadata {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            namespace: "bench".to_owned(),
        }),
        linux: Some(LinuxPod {
            security: Some(PodSecurity {
                run_as_user: nobody(),
                run_as_group: nobody(),
                readonly_rootfs: true,
                seccomp: Some(RuntimeDefault {}),
            }),
        }),
    }
}

fn container(command: &[&str]) -> PodContainer {
    let named = |name: &str| {
        Some(Named {
            name: name.to_owned(),
        })
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    PodContainer {
        metadata: named("main"),
        image: named(IMAGE),
        command: words(command),
        linux: Some(LinuxContainer {
            resources: Some(Resources {
                cpu_period: CPU_PERIOD,
                cpu_quota: CPU_QUOTA,
                memory_limit: MEMORY,
            }),
            security: Some(ContainerSecurity {
                capabilities: Some(Capabilities {
                    drop: words(&["ALL"]),
                }),
                run_as_user: nobody(),
                run_as_group: nobody(),
                readonly_rootfs: true,
                no_new_privs: true,
                masked_paths: words(&MASKED),
                readonly_paths: words(&READONLY),
                seccomp: Some(RuntimeDefault {}),
            }),
        }),
    }
}
