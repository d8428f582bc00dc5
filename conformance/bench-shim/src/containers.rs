//! A container by containerd's own API, as `ctr` and nerdctl make it: record, task, start, exit, and all of it away.

use crate::error::{BenchError, Result};
use crate::handlers::{IMAGE, Target};
use crate::latency::{Lifecycle, Watch};
use crate::spec::hardened;
use crate::wire::Client;
use crate::wire::containerd::{Any, Container};

/// The type of a spec.
const SPEC: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

/// Containers of one containerd.
#[derive(Debug)]
pub struct Containers {
    /// containerd.
    pub client: Client,
    /// The beginning of the containers' ids.
    pub prefix: &'static str,
}

/// A handler, and whether its containers have a seccomp profile.
#[derive(Debug, Clone)]
pub struct Row(pub Target, pub bool);

impl Containers {
    /// The id of the nth container of a handler.
    pub fn id(&self, target: &Target, nth: usize) -> String {
        format!("{}-{}-{nth}", self.prefix, target.name)
    }

    async fn steps(&self, id: &str, target: &Target, spec: Vec<u8>) -> Result<Vec<f64>> {
        let client = &self.client;
        let container = Container {
            id: id.to_owned(),
            image: IMAGE.to_owned(),
            runtime: Some(target.runtime.clone()),
            spec: Some(Any {
                type_url: SPEC.to_owned(),
                value: spec,
            }),
        };
        let rootfs = target.rootfs.clone();
        let mut watch = Watch::start();
        client.create_container(container).await?;
        watch.lap();
        client.create_task(id, rootfs).await?;
        watch.lap();
        let waiting = tokio::spawn({
            let (client, id) = (client.clone(), id.to_owned());
            async move { client.wait_task(&id).await }
        });
        client.start_task(id).await?;
        watch.lap();
        let status = waiting
            .await
            .map_err(|error| BenchError::Setup(format!("Waiting failed: {error}.")))??;
        watch.lap();
        client.delete_task(id).await?;
        watch.lap();
        client.delete_container(id).await?;
        watch.lap();
        if status != 0 {
            return Err(BenchError::Setup(format!("`true` ended with {status}.")));
        }
        Ok(watch.steps())
    }

    /// What an attempt left; each call may find nothing.
    async fn clear(&self, id: &str) {
        if self.client.kill_task(id).await.is_ok() {
            let _ = self.client.wait_task(id).await;
        }
        let _ = self.client.delete_task(id).await;
        let _ = self.client.delete_container(id).await;
    }
}

impl Lifecycle for Containers {
    type Row = Row;

    fn steps(&self) -> &'static [&'static str] {
        &[
            "container",
            "task create",
            "start",
            "exit",
            "task delete",
            "container delete",
        ]
    }

    fn title(&self, Row(target, seccomp): &Row) -> (String, bool) {
        (target.name.clone(), *seccomp)
    }

    async fn live(&self, Row(target, seccomp): &Row, nth: usize) -> Result<Vec<f64>> {
        let id = self.id(target, nth);
        let spec = hardened(&id, &["true"], *seccomp)
            .map_err(|error| BenchError::Setup(format!("The spec cannot be made: {error}.")))?;
        let lived = self.steps(&id, target, spec.to_string().into_bytes()).await;
        if lived.is_err() {
            self.clear(&id).await;
        }
        lived
    }
}
