//! A collector: takes what is posted to it, and keeps it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::common::Outcome;

#[derive(Default)]
struct Kept {
    heads: Vec<String>,
    bodies: Vec<Vec<u8>>,
}

/// A collector, until it is dropped.
pub struct Collector {
    pub address: SocketAddr,
    kept: Arc<Mutex<Kept>>,
    serving: JoinHandle<()>,
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attributes, each with its text.
pub fn attributes(of: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |has: &KeyValue| match has.value.as_ref().and_then(|any| any.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    };
    of.iter().map(|has| (has.key.clone(), text(has))).collect()
}

impl Collector {
    /// Starts one that answers with a status.
    pub async fn start(status: u16) -> Outcome<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let kept = Arc::<Mutex<Kept>>::default();
        let serving = tokio::spawn({
            let kept = kept.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    // One that breaks off has sent nothing.
                    let _ = take(stream, status, &kept).await;
                }
            }
        });
        Ok(Self {
            address,
            kept,
            serving,
        })
    }

    /// Ends it: where nobody listens now.
    pub async fn stop(mut self) -> SocketAddr {
        self.serving.abort();
        let _ = (&mut self.serving).await;
        self.address
    }

    pub fn heads(&self) -> Vec<String> {
        lock(&self.kept).heads.clone()
    }

    /// All that came, as text where it is text.
    pub fn body(&self) -> String {
        let bodies = lock(&self.kept).bodies.concat();
        String::from_utf8_lossy(&bodies).into_owned()
    }

    fn received(&self) -> Vec<ResourceSpans> {
        let kept = lock(&self.kept);
        let decoded = kept
            .bodies
            .iter()
            .map(|body| ExportTraceServiceRequest::decode(&body[..]));
        // A body that cannot be decoded has no spans, and those are looked for.
        decoded
            .flatten()
            .flat_map(|request| request.resource_spans)
            .collect()
    }

    /// The attributes of the resource of each message.
    pub fn resources(&self) -> Vec<BTreeMap<String, String>> {
        let attributes_of = |spans: ResourceSpans| {
            let resource = spans.resource.unwrap_or_default();
            attributes(&resource.attributes)
        };
        self.received().into_iter().map(attributes_of).collect()
    }

    /// All spans that came.
    pub fn spans(&self) -> Vec<Span> {
        let scopes = self.received().into_iter().flat_map(|spans| spans.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take(mut stream: TcpStream, status: u16, kept: &Mutex<Kept>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = head.lines().find_map(|line| {
        // Names of fields are the same in capitals and not (RFC 9110, 5.1).
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim())
    });
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    {
        // Before the answer, after which the shim may end and the test look.
        let mut kept = lock(kept);
        kept.heads.push(head);
        kept.bodies.push(body);
    }
    let answer = format!("HTTP/1.1 {status} So it is\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await
}
