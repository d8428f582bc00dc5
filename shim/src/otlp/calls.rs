//! A span around each call of the Task API, as the child of its caller's.

use std::collections::HashMap;

use async_trait::async_trait;
use containerd_shim::protos::api::{
    CheckpointTaskRequest, CloseIORequest, ConnectRequest, ConnectResponse, CreateTaskRequest,
    CreateTaskResponse, DeleteRequest, DeleteResponse, Empty, ExecProcessRequest, KillRequest, PauseRequest,
    PidsRequest, PidsResponse, ResizePtyRequest, ResumeRequest, ShutdownRequest, StartRequest, StartResponse,
    StateRequest, StateResponse, StatsRequest, StatsResponse, UpdateTaskRequest, WaitRequest, WaitResponse,
};
use containerd_shim::protos::ttrpc;
use containerd_shim::{Task, TtrpcContext};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Status, TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::{Instrument, Level, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::error::Result;

/// The attribute with the method's name, which only the span of a call has.
pub const METHOD: &str = "rpc.method";

/// A service whose calls have spans.
#[derive(Clone)]
pub struct Traced<T>(pub T);

/// The trace of a caller, in what a call of ttrpc's has beside its request: containerd puts it there where it has one.
struct Metadata<'a>(&'a HashMap<String, Vec<String>>);

impl Extractor for Metadata<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.first().map(String::as_str)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

async fn traced<T>(
    span: Span,
    context: &TtrpcContext,
    method: &'static str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let caller =
        TraceContextPropagator::new().extract_with_context(&Context::new(), &Metadata(&context.metadata));
    if caller.span().span_context().is_valid() {
        // Before the first poll: it cannot have begun.
        let _ = span.set_parent(caller);
    }
    // Not as fields, which would stand in the log.
    span.set_attribute("rpc.system", "ttrpc");
    span.set_attribute("rpc.service", "containerd.task.v3.Task");
    span.set_attribute(METHOD, method);
    let answer = call.instrument(span.clone()).await;
    if let Err(error) = &answer {
        // The code alone: the sentence may quote what the pod wants to run.
        let code = match error {
            ttrpc::Error::RpcStatus(status) => format!("{:?}", status.code()),
            _ => "UNKNOWN".to_owned(),
        };
        span.set_attribute("rpc.response.status_code", code);
        span.set_status(Status::error(""));
    }
    answer
}

/// For each call its level in the log, the names of its method here and there, and the fields of its span. Those of the
/// level TRACE have no line in the log.
macro_rules! calls {
    ($($level:ident $method:ident $name:literal $request:ident -> $answer:ident ($($field:ident: $of:ident),*);)*) => {
        #[async_trait]
        impl<T: Task + Send + Sync> Task for Traced<T> {
            $(
                async fn $method(&self, context: &TtrpcContext, request: $request) -> Result<$answer> {
                    let span = tracing::span!(
                        target: "otlp",
                        Level::$level,
                        stringify!($method),
                        $($field = request.$of),*
                    );
                    traced(span, context, $name, self.0.$method(context, request)).await
                }
            )*
        }
    };
}

calls! {
    DEBUG create "Create" CreateTaskRequest -> CreateTaskResponse (id: id);
    DEBUG start "Start" StartRequest -> StartResponse (id: id, exec: exec_id);
    DEBUG delete "Delete" DeleteRequest -> DeleteResponse (id: id, exec: exec_id);
    DEBUG exec "Exec" ExecProcessRequest -> Empty (id: id, exec: exec_id);
    DEBUG kill "Kill" KillRequest -> Empty (id: id, exec: exec_id, signal: signal);
    TRACE state "State" StateRequest -> StateResponse (id: id, exec: exec_id);
    TRACE wait "Wait" WaitRequest -> WaitResponse (id: id, exec: exec_id);
    TRACE pids "Pids" PidsRequest -> PidsResponse (id: id);
    TRACE pause "Pause" PauseRequest -> Empty (id: id);
    TRACE resume "Resume" ResumeRequest -> Empty (id: id);
    TRACE checkpoint "Checkpoint" CheckpointTaskRequest -> Empty (id: id);
    TRACE resize_pty "ResizePty" ResizePtyRequest -> Empty (id: id, exec: exec_id);
    TRACE close_io "CloseIO" CloseIORequest -> Empty (id: id, exec: exec_id);
    TRACE update "Update" UpdateTaskRequest -> Empty (id: id);
    TRACE stats "Stats" StatsRequest -> StatsResponse (id: id);
    TRACE connect "Connect" ConnectRequest -> ConnectResponse (id: id);
    TRACE shutdown "Shutdown" ShutdownRequest -> Empty (id: id);
}
