//! Spans of calls and phases, for an OpenTelemetry collector on the node: OTLP over plain HTTP.
//!
//! A build has this with the feature `otlp`, and a handler with the option `otlp_endpoint`, which comes with the first
//! container. What was called before, `connect` at most, is sent nowhere.
//!
//! Nothing here fails a call, holds one up, or lives on: a span is put into a bounded queue or dropped, one thread sends
//! what is in it, and the shim's end waits for that thread only so long.
//!
//! The environment is containerd's and has no say, though the SDK reads it: sampler and limits are set here, and the
//! resource is ours. No attribute has anything that a pod wrote, but for ids.

mod calls;
mod endpoint;
mod post;
mod queue;

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Link, Span as _, SpanKind, TraceContextExt, TraceId, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    SamplingDecision, SamplingResult, SdkTracer, SdkTracerProvider, ShouldSample, Span, SpanData, SpanLimits,
    SpanProcessor,
};
use prost::Message;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::options::Options;
use queue::Queue;

pub use calls::Traced;
pub use endpoint::Endpoint;

/// Spans with this target are sent, and no others.
const TARGET: &str = "otlp";
/// How long the end of the shim may wait for the collector: with what else is to be done, it ends within a second.
const ENDS_WITHIN: Duration = Duration::from_millis(800);

static RESOURCE: OnceLock<Resource> = OnceLock::new();
static TRACER: OnceLock<SdkTracer> = OnceLock::new();
/// Not known before the first container; then where to, or that nothing is sent.
static SENT: OnceLock<Option<Sent>> = OnceLock::new();

#[derive(Debug)]
struct Sent {
    queue: Queue<SpanData>,
    to: Endpoint,
}

/// Says what the spans are of: the container that this shim was started for, its pod, containerd's namespace.
pub fn stands_for(id: &str, pod: Option<String>, namespace: &str) {
    let attributes = [
        KeyValue::new("service.name", env!("CARGO_BIN_NAME")),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("container.id", id.to_owned()),
        KeyValue::new("containerd.pod.id", pod.unwrap_or_else(|| id.to_owned())),
        KeyValue::new("containerd.namespace", namespace.to_owned()),
    ];
    // One without what the SDK would find out, since it looks at the environment.
    let resource = Resource::builder_empty().with_attributes(attributes).build();
    let _ = RESOURCE.set(resource);
}

/// The layer that makes spans to be sent of those with the target `otlp`. Events are none of its business: they have
/// sentences in them, and sentences quote what a pod wrote.
pub fn layer<S>() -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let provider = SdkTracerProvider::builder()
        .with_sampler(UnlessOff)
        .with_span_limits(SpanLimits::default())
        .with_span_processor(Enqueue)
        .build();
    let tracer = provider.tracer(env!("CARGO_BIN_NAME"));
    let _ = TRACER.set(tracer.clone());
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|metadata| {
            metadata.is_span() && metadata.target() == TARGET
        }))
}

/// The options of the first container decide for the shim: all containers of a pod have the same handler.
pub fn decide(options: &Options) {
    SENT.get_or_init(|| {
        let to = options.endpoint().ok().flatten()?;
        let resource = RESOURCE.get().map(ResourceAttributesWithSchema::from)?;
        let started = Queue::start(TARGET, {
            let to = to.clone();
            move |spans| {
                let resource_spans = group_spans_by_resource_and_scope(spans, &resource);
                post::post(&to, &ExportTraceServiceRequest { resource_spans }.encode_to_vec())
            }
        });
        match started {
            Ok(queue) => Some(Sent { queue, to }),
            Err(error) => {
                tracing::warn!(%error, "no thread could be started to send spans: none are sent");
                None
            }
        }
    });
}

/// Tells of a worker's phases as children of the current span: it measured them one after the other, and answered when
/// the last was over.
pub fn phases(phases: &[(String, f64)], answered: SystemTime) {
    let parent = Context::current();
    let Some(tracer) = TRACER.get().filter(|_| parent.has_active_span()) else {
        return;
    };
    let mut end = answered;
    for (name, ms) in phases.iter().rev() {
        let lasted = Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default();
        let start = end.checked_sub(lasted).unwrap_or(end);
        // Unlike calls, one of which has the name of a phase.
        let span = tracer
            .span_builder(format!("worker.{name}"))
            .with_start_time(start);
        span.start_with_context(tracer, &parent).end_with_timestamp(end);
        end = start;
    }
}

/// Sends what waits, and says how many spans the collector did not take, if any. For the end of the shim.
pub fn flush() {
    let Some(Some(Sent { queue, to })) = SENT.get() else {
        return;
    };
    let tally = queue.finish(ENDS_WITHIN);
    let dropped = tally.offered.saturating_sub(tally.taken);
    if dropped > 0 {
        tracing::warn!(
            dropped,
            of = tally.offered,
            "the collector at {to} did not take all spans"
        );
    }
}

/// Every call is sampled, unless its caller's trace is not, or nothing is sent at all.
#[derive(Debug, Clone)]
struct UnlessOff;

impl ShouldSample for UnlessOff {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        _: TraceId,
        _: &str,
        _: &SpanKind,
        _: &[KeyValue],
        _: &[Link],
    ) -> SamplingResult {
        let parent = parent.map(|context| context.span().span_context().clone());
        let parent = parent.filter(|parent| parent.is_valid());
        let off = matches!(SENT.get(), Some(None));
        let unwanted = parent.as_ref().is_some_and(|parent| !parent.is_sampled());
        SamplingResult {
            decision: if off || unwanted {
                SamplingDecision::Drop
            } else {
                SamplingDecision::RecordAndSample
            },
            attributes: Vec::new(),
            trace_state: parent
                .map(|parent| parent.trace_state().clone())
                .unwrap_or_default(),
        }
    }
}

/// Puts spans that are over into the queue.
#[derive(Debug)]
struct Enqueue;

impl SpanProcessor for Enqueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        let Some(Some(sent)) = SENT.get() else { return };
        // The kind is told here, since as a field of the span it would stand in the log.
        if span
            .attributes
            .iter()
            .any(|has| has.key.as_str() == calls::METHOD)
        {
            span.span_kind = SpanKind::Server;
        }
        sent.queue.offer(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
