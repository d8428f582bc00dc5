//! containerd's API, as much of it as is measured. The messages are written out, so that no `protoc` is needed to build
//! this; their numbers are those of containerd's and Kubernetes' published `.proto` files.

pub mod containerd;
pub mod cri;

use std::path::Path;
use std::time::Duration;

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::error::{BenchError, Result};

/// No call takes this long; one that does is stuck, and waiting on would hang the benchmark.
const PATIENCE: Duration = Duration::from_secs(90);

/// A connection to containerd, speaking for one of its namespaces.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    namespace: MetadataValue<Ascii>,
}

impl Client {
    /// Connects to the socket.
    ///
    /// # Errors
    /// Nobody listens there.
    pub async fn connect(socket: &Path, namespace: &'static str) -> Result<Self> {
        let failed = |error: tonic::transport::Error| BenchError::Call {
            call: format!("Connecting to {}", socket.display()),
            said: chain(&error),
        };
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))
            .map_err(failed)?
            .timeout(PATIENCE)
            .connect()
            .await
            .map_err(failed)?;
        Ok(Self {
            channel,
            namespace: MetadataValue::from_static(namespace),
        })
    }

    /// The same connection, speaking for another namespace.
    #[must_use]
    pub fn of_namespace(&self, namespace: &'static str) -> Self {
        Self {
            channel: self.channel.clone(),
            namespace: MetadataValue::from_static(namespace),
        }
    }

    /// One call, such as `/containerd.services.tasks.v1.Tasks/Start`.
    ///
    /// # Errors
    /// What containerd said.
    pub async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let call = path.rsplit('.').next().unwrap_or(path);
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| BenchError::Call {
            call: call.to_owned(),
            said: chain(&error),
        })?;
        let mut request = tonic::Request::new(request);
        request
            .metadata_mut()
            .insert("containerd-namespace", self.namespace.clone());
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let answer = grpc
            .unary(request, PathAndQuery::from_static(path), codec)
            .await
            .map_err(|status| BenchError::Call {
                call: call.to_owned(),
                said: format!("{:?}: {}", status.code(), status.message()),
            })?;
        Ok(answer.into_inner())
    }
}

/// An error with its causes: the transport's own say little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_nobody_listens_at_is_named() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let error = runtime
            .block_on(Client::connect(Path::new("/no/such.sock"), "default"))
            .unwrap_err();
        assert!(error.to_string().contains("/no/such.sock"), "{error}");
    }
}
