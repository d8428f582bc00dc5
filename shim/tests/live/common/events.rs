//! containerd's Events service: takes what a shim forwards, and keeps it in its order.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use containerd_shim::TtrpcContext;
use containerd_shim::protos::api::Empty;
use containerd_shim::protos::events::task::{TaskExecAdded, TaskExecStarted, TaskExit, TaskOOM};
use containerd_shim::protos::protobuf::Message;
use containerd_shim::protos::shim::events::ForwardRequest;
use containerd_shim::protos::shim_async::{Events as Service, create_events};
use containerd_shim::protos::ttrpc;
use tokio::sync::Notify;

use super::{Outcome, within};

/// What arrived, one by one: the word of the topic, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The topic without `/tasks/`.
    pub topic: String,
    /// The container's id.
    pub container: String,
    /// The exec's id, where the event has one; of an exit, the process's.
    pub process: String,
    /// Of an exit.
    pub status: u32,
    /// Of an exit, a start and a create.
    pub pid: u32,
    /// containerd's namespace.
    pub namespace: String,
}

#[derive(Default)]
struct Kept {
    events: Mutex<Vec<Event>>,
    more: Notify,
}

struct Keeper(Arc<Kept>);

#[async_trait]
impl Service for Keeper {
    async fn forward(&self, _: &TtrpcContext, request: ForwardRequest) -> ttrpc::Result<Empty> {
        let event = read(&request).map_err(|error| {
            ttrpc::Error::RpcStatus(ttrpc::get_status(ttrpc::Code::INVALID_ARGUMENT, error))
        })?;
        lock(&self.0.events).push(event);
        self.0.more.notify_waiters();
        Ok(Empty::new())
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(request: &ForwardRequest) -> Result<Event, String> {
    let envelope = &request.envelope;
    let body = &envelope.event.value;
    let topic = envelope
        .topic
        .strip_prefix("/tasks/")
        .ok_or_else(|| format!("topic {:?}", envelope.topic))?;
    let mut event = Event {
        topic: topic.to_owned(),
        container: String::new(),
        process: String::new(),
        status: 0,
        pid: 0,
        namespace: envelope.namespace.clone(),
    };
    let bad = |error| format!("{topic}: {error}");
    match topic {
        "exit" => {
            let exit = TaskExit::parse_from_bytes(body).map_err(bad)?;
            (event.container, event.process) = (exit.container_id, exit.id);
            (event.status, event.pid) = (exit.exit_status, exit.pid);
            if exit.exited_at.seconds == 0 {
                return Err("an exit without a time".into());
            }
        }
        "exec-added" => {
            let added = TaskExecAdded::parse_from_bytes(body).map_err(bad)?;
            (event.container, event.process) = (added.container_id, added.exec_id);
        }
        "exec-started" => {
            let started = TaskExecStarted::parse_from_bytes(body).map_err(bad)?;
            (event.container, event.process) = (started.container_id, started.exec_id);
            event.pid = started.pid;
        }
        // The container's id is the first field of all others.
        _ => {
            let first = TaskOOM::parse_from_bytes(body).map_err(bad)?;
            event.container = first.container_id;
        }
    }
    Ok(event)
}

/// The server, which can go away and come back as containerd does.
pub struct Events {
    path: PathBuf,
    kept: Arc<Kept>,
    server: Option<ttrpc::asynchronous::Server>,
}

impl Events {
    pub async fn serve(path: PathBuf) -> Outcome<Self> {
        let mut events = Self {
            path,
            kept: Arc::default(),
            server: None,
        };
        events.come_back().await?;
        Ok(events)
    }

    pub async fn go_away(&mut self) -> Outcome {
        if let Some(mut server) = self.server.take() {
            server.shutdown().await?;
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub async fn come_back(&mut self) -> Outcome {
        let keeper: Arc<dyn Service + Send + Sync> = Arc::new(Keeper(self.kept.clone()));
        let mut server = ttrpc::asynchronous::Server::new()
            .bind(&format!("unix://{}", self.path.display()))?
            .register_service(create_events(keeper));
        server.start().await?;
        self.server = Some(server);
        Ok(())
    }

    /// All that came so far of one container.
    pub fn of(&self, container: &str) -> Vec<Event> {
        lock(&self.kept.events)
            .iter()
            .filter(|event| event.container == container)
            .cloned()
            .collect()
    }

    /// How many came in all.
    pub fn count(&self) -> usize {
        lock(&self.kept.events).len()
    }

    /// Waits for the first event of a container that is like this.
    pub async fn wait_for(
        &self,
        what: &str,
        container: &str,
        like: impl Fn(&Event) -> bool,
    ) -> Outcome<Event> {
        let came = async {
            loop {
                // Registered before the look, so that nothing comes in between unseen.
                let more = self.kept.more.notified();
                tokio::pin!(more);
                more.as_mut().enable();
                if let Some(found) = self.of(container).into_iter().find(&like) {
                    return found;
                }
                more.await;
            }
        };
        within(15, &format!("the event {what} of {container}"), came)
            .await
            .map_err(|failed| {
                format!(
                    "{}; what came: {:?}",
                    failed.message().unwrap_or_default(),
                    self.words(container)
                )
                .into()
            })
    }

    /// The order of a container's events as words: `exit(exec)` for that of an exec.
    pub fn words(&self, container: &str) -> Vec<String> {
        self.of(container)
            .into_iter()
            .map(|event| match event.process.as_str() {
                "" => event.topic,
                id if id == container => event.topic,
                id => format!("{}({id})", event.topic),
            })
            .collect()
    }
}
