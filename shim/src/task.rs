//! The Task API, version 3: each call finds its container and has it do the work.

mod containers;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use containerd_shim::asynchronous::ExitSignal;
use containerd_shim::asynchronous::io::Stdio;
use containerd_shim::protos::api::{
    CheckpointTaskRequest, CloseIORequest, ConnectRequest, ConnectResponse, CreateTaskRequest,
    CreateTaskResponse, DeleteRequest, DeleteResponse, Empty, ExecProcessRequest, KillRequest, PauseRequest,
    PidsRequest, PidsResponse, ProcessInfo, ResizePtyRequest, ResumeRequest, ShutdownRequest, StartRequest,
    StartResponse, StateRequest, StateResponse, StatsRequest, StatsResponse, UpdateTaskRequest, WaitRequest,
    WaitResponse,
};
use containerd_shim::protos::events::task::{
    TaskCreate, TaskDelete, TaskExecAdded, TaskIO, TaskPaused, TaskResumed,
};
use containerd_shim::protos::protobuf::MessageField;
use containerd_shim::protos::protobuf::well_known_types::timestamp::Timestamp;
use containerd_shim::util::convert_to_timestamp;
use sandglass_sandbox::container::is_id;
use std::sync::atomic::Ordering;
use tracing::Instrument;

use crate::container::{Asked, Container, Shared};
use crate::error::{Code, Result, failed, invalid, not_found, precondition, status};
use crate::exits::Exit;
use crate::options::{Hardening, Options};
use crate::rest::Rest;
use crate::rootfs::Mount;
use containers::{Containers, Taken};

/// containerd's context of a call, of which nothing is needed.
type Context = containerd_shim::TtrpcContext;

/// How long the end of a container that was given up is awaited.
const TAKEN_AWAY_WITHIN: Duration = Duration::from_secs(30);

/// The service.
#[derive(Clone)]
pub struct Task(Arc<Inner>);

struct Inner {
    shared: std::result::Result<Arc<Shared>, String>,
    exit: Arc<ExitSignal>,
    rest: Rest,
    /// The mode of a container whose handler has no table.
    untold: Hardening,
    containers: Mutex<Containers<Arc<Container>>>,
}

/// Holds an id while its container is made. The last one of a shim that was asked to end lets it.
struct Reserved(Arc<Inner>, String);

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.0.lock().reserved_no_more(&self.1) {
            self.0.exit.signal();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Containers<Arc<Container>>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a container that something is to be done with.
    fn find(&self, id: &str) -> Result<Arc<Container>> {
        self.rest.disturb();
        self.look_up(id)
    }

    /// Finds a container that somebody asks about.
    fn ask(&self, id: &str) -> Result<Arc<Container>> {
        self.rest.touch();
        self.look_up(id)
    }

    fn look_up(&self, id: &str) -> Result<Arc<Container>> {
        self.lock().get(id).ok_or_else(|| not_found("container", id))
    }

    fn shared(&self) -> Result<Arc<Shared>> {
        self.shared.clone().map_err(|error| {
            precondition(format!(
                "the runtime cannot protect its own program, which needs Linux 5.12 or later: {error}"
            ))
        })
    }

    fn reserve(self: &Arc<Self>, id: &str) -> Result<Reserved> {
        let reserved = self.lock().reserve(id);
        match reserved {
            Ok(()) => Ok(Reserved(self.clone(), id.to_owned())),
            Err(Taken::Ending) => Err(given_up(id)),
            Err(Taken::Exists) => Err(status(
                Code::ALREADY_EXISTS,
                format!("container {id} exists already"),
            )),
        }
    }

    async fn create(self: Arc<Self>, request: CreateTaskRequest) -> Result<u32> {
        self.rest.disturb();
        let shared = self.shared()?;
        if !is_id(&request.id) {
            return Err(invalid(format!(
                "container id {:?} is not a plain name of at most 76 characters",
                request.id
            )));
        }
        if !request.checkpoint.is_empty() {
            return Err(unimplemented("restoring a checkpoint"));
        }
        let bundle = PathBuf::from(&request.bundle);
        if !bundle.is_absolute() || !bundle.is_dir() {
            return Err(invalid(format!("bundle {:?} is not a directory", request.bundle)));
        }
        let id = request.id.clone();
        let _reserved = self.reserve(&id)?;
        let options = Options::read(request.options.as_ref(), self.untold)
            .map_err(|error| invalid(error.to_string()))?;
        #[cfg(feature = "otlp")]
        crate::otlp::decide(&options);
        let stdio = Stdio::new(&request.stdin, &request.stdout, &request.stderr, request.terminal);
        let asked = Asked {
            id: request.id.clone(),
            bundle,
            rootfs: request.rootfs.iter().map(Mount::from).collect(),
            stdio,
            options,
        };
        let container = Container::create(shared.clone(), asked).await?;
        let pid = container.init.pid();
        let wanted = self.lock().made(&id, container.clone());
        let io = TaskIO {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            terminal: request.terminal,
            ..TaskIO::default()
        };
        shared.publisher.publish(TaskCreate {
            container_id: request.id,
            bundle: request.bundle,
            rootfs: request.rootfs,
            io: MessageField::some(io),
            pid,
            ..TaskCreate::default()
        });
        if !wanted {
            self.take_away(&container).await;
            return Err(given_up(&id));
        }
        Ok(pid)
    }

    /// Takes away a container that nobody will ask for any more. What cannot be taken away is left for the action
    /// `delete`, as by a shim that was killed.
    async fn take_away(self: &Arc<Self>, container: &Container) {
        // One that has ended meanwhile takes no signal.
        let _ = container.kill("", 9, true).await;
        let request = DeleteRequest {
            id: container.id.clone(),
            ..DeleteRequest::default()
        };
        let gone = async {
            container.init.wait().await;
            self.clone().delete(request).await
        };
        match tokio::time::timeout(TAKEN_AWAY_WITHIN, gone).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::error!(container = container.id, %error, "a container that was given up is left");
            }
            Err(_) => {
                tracing::error!(
                    container = container.id,
                    "a container that was given up does not end"
                );
            }
        }
        self.lock().remove(&container.id);
    }

    async fn delete(self: Arc<Self>, request: DeleteRequest) -> Result<(u32, Exit)> {
        let shared = self.shared()?;
        if request.exec_id.is_empty() {
            // Of one that is being made nobody may ask again.
            self.lock().delete_asked(&request.id);
        }
        let container = self.find(&request.id)?;
        if !request.exec_id.is_empty() {
            return container.delete_exec(&request.exec_id).await;
        }
        let (pid, exit) = container.delete().await?;
        // Two deletes at once: the second finds nothing left to do, and only one tells of it.
        if self.lock().remove(&request.id) {
            shared.publisher.publish(TaskDelete {
                container_id: request.id,
                pid,
                exit_status: exit.status,
                exited_at: at(exit),
                ..TaskDelete::default()
            });
        }
        Ok((pid, exit))
    }

    async fn freeze(self: Arc<Self>, id: String, frozen: bool) -> Result<()> {
        let shared = self.shared()?;
        let container = self.find(&id)?;
        if container.init.phase() != crate::process::Phase::Running {
            return Err(precondition(format!("container {id} is not running")));
        }
        if container.paused.load(Ordering::SeqCst) == frozen {
            let already = if frozen { "paused already" } else { "not paused" };
            return Err(precondition(format!("container {id} is {already}")));
        }
        container.freeze(frozen).await?;
        if frozen {
            shared.publisher.publish(TaskPaused {
                container_id: id,
                ..TaskPaused::default()
            });
        } else {
            shared.publisher.publish(TaskResumed {
                container_id: id,
                ..TaskResumed::default()
            });
        }
        Ok(())
    }
}

impl Task {
    /// A service whose containers share that. A host that cannot give it refuses every create with the reason. `untold`
    /// is the mode of a container whose handler has no options.
    pub fn new(
        shared: std::result::Result<Arc<Shared>, String>,
        exit: Arc<ExitSignal>,
        untold: Hardening,
    ) -> Self {
        Self(Arc::new(Inner {
            shared,
            exit,
            rest: Rest::watch(),
            untold,
            containers: Mutex::default(),
        }))
    }
}

/// Does it to the end, also when containerd goes away and the call with it: half a container would be left.
async fn to_the_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work.in_current_span())
        .await
        .map_err(|error| failed("a call", error))?
}

fn given_up(id: &str) -> containerd_shim::protos::ttrpc::Error {
    precondition(format!(
        "containerd has asked this shim to end, so container {id} is not made: ask for it again, in another"
    ))
}

fn at(exit: Exit) -> MessageField<Timestamp> {
    MessageField::some(convert_to_timestamp(Some(exit.at)))
}

fn unimplemented(what: &str) -> containerd_shim::protos::ttrpc::Error {
    status(
        Code::UNIMPLEMENTED,
        format!("{what} is not something that this runtime does"),
    )
}

// With the feature `otlp` the same spans, and those of the other calls, are made around these by `otlp::Traced`.
#[async_trait]
impl containerd_shim::Task for Task {
    #[cfg_attr(not(feature = "otlp"), tracing::instrument(level = "debug", skip_all, fields(id = request.id)))]
    async fn create(&self, _: &Context, request: CreateTaskRequest) -> Result<CreateTaskResponse> {
        let pid = to_the_end(self.0.clone().create(request)).await?;
        Ok(CreateTaskResponse {
            pid,
            ..CreateTaskResponse::default()
        })
    }

    #[cfg_attr(not(feature = "otlp"), tracing::instrument(level = "debug", skip_all, fields(id = request.id, exec = request.exec_id)))]
    async fn start(&self, _: &Context, request: StartRequest) -> Result<StartResponse> {
        let container = self.0.find(&request.id)?;
        self.0.lock().wanted(&request.id);
        let pid = to_the_end(async move {
            if request.exec_id.is_empty() {
                container.start().await
            } else {
                container.start_exec(&request.exec_id).await
            }
        })
        .await?;
        Ok(StartResponse {
            pid,
            ..StartResponse::default()
        })
    }

    #[cfg_attr(not(feature = "otlp"), tracing::instrument(level = "debug", skip_all, fields(id = request.id, exec = request.exec_id)))]
    async fn delete(&self, _: &Context, request: DeleteRequest) -> Result<DeleteResponse> {
        let (pid, exit) = to_the_end(self.0.clone().delete(request)).await?;
        Ok(DeleteResponse {
            pid,
            exit_status: exit.status,
            exited_at: at(exit),
            ..DeleteResponse::default()
        })
    }

    #[cfg_attr(not(feature = "otlp"), tracing::instrument(level = "debug", skip_all, fields(id = request.id, exec = request.exec_id)))]
    async fn exec(&self, _: &Context, request: ExecProcessRequest) -> Result<Empty> {
        let shared = self.0.shared()?;
        let container = self.0.find(&request.id)?;
        let stdio = Stdio::new(&request.stdin, &request.stdout, &request.stderr, request.terminal);
        container.add_exec(&request.exec_id, stdio, &request.spec.value)?;
        shared.publisher.publish(TaskExecAdded {
            container_id: request.id,
            exec_id: request.exec_id,
            ..TaskExecAdded::default()
        });
        Ok(Empty::new())
    }

    #[cfg_attr(not(feature = "otlp"), tracing::instrument(level = "debug", skip_all, fields(id = request.id, exec = request.exec_id, signal = request.signal)))]
    async fn kill(&self, _: &Context, request: KillRequest) -> Result<Empty> {
        let container = self.0.find(&request.id)?;
        to_the_end(async move {
            container
                .kill(&request.exec_id, request.signal, request.all)
                .await
        })
        .await?;
        Ok(Empty::new())
    }

    async fn state(&self, _: &Context, request: StateRequest) -> Result<StateResponse> {
        let container = self.0.ask(&request.id)?;
        let process = container.process(&request.exec_id)?;
        let paused = container.paused.load(Ordering::SeqCst);
        let exit = process.exit();
        Ok(StateResponse {
            id: request.id,
            exec_id: request.exec_id,
            bundle: container.bundle.display().to_string(),
            pid: process.pid(),
            status: crate::events::status(process.phase().status(paused)),
            stdin: process.stdio.stdin.clone(),
            stdout: process.stdio.stdout.clone(),
            stderr: process.stdio.stderr.clone(),
            terminal: process.stdio.terminal,
            exit_status: exit.map_or(0, |exit| exit.status),
            exited_at: exit.map_or_else(MessageField::none, at),
            ..StateResponse::default()
        })
    }

    async fn wait(&self, _: &Context, request: WaitRequest) -> Result<WaitResponse> {
        let process = self.0.ask(&request.id)?.process(&request.exec_id)?;
        let exit = process.wait().await;
        Ok(WaitResponse {
            exit_status: exit.status,
            exited_at: at(exit),
            ..WaitResponse::default()
        })
    }

    async fn pids(&self, _: &Context, request: PidsRequest) -> Result<PidsResponse> {
        let container = self.0.ask(&request.id)?;
        let execs = container.exec_pids();
        let info = |pid: i32| {
            let pid = u32::try_from(pid).unwrap_or(0);
            let mut info = ProcessInfo {
                pid,
                ..ProcessInfo::default()
            };
            if let Some(exec) = execs.get(&pid) {
                let details = containerd_shim::protos::shim::oci::ProcessDetails {
                    exec_id: exec.clone(),
                    ..Default::default()
                };
                info.info = crate::events::pack("containerd.runc.v1", &details)
                    .map_or_else(|_| MessageField::none(), MessageField::some);
            }
            info
        };
        let processes = container.cgroup().processes().into_iter().map(info).collect();
        Ok(PidsResponse {
            processes,
            ..PidsResponse::default()
        })
    }

    async fn pause(&self, _: &Context, request: PauseRequest) -> Result<Empty> {
        to_the_end(self.0.clone().freeze(request.id, true)).await?;
        Ok(Empty::new())
    }

    async fn resume(&self, _: &Context, request: ResumeRequest) -> Result<Empty> {
        to_the_end(self.0.clone().freeze(request.id, false)).await?;
        Ok(Empty::new())
    }

    async fn checkpoint(&self, _: &Context, _: CheckpointTaskRequest) -> Result<Empty> {
        Err(unimplemented("checkpointing"))
    }

    async fn resize_pty(&self, _: &Context, request: ResizePtyRequest) -> Result<Empty> {
        self.0
            .find(&request.id)?
            .process(&request.exec_id)?
            .resize(request.width, request.height)?;
        Ok(Empty::new())
    }

    async fn close_io(&self, _: &Context, request: CloseIORequest) -> Result<Empty> {
        let process = self.0.find(&request.id)?.process(&request.exec_id)?;
        if request.stdin {
            process.io().close_input();
        }
        Ok(Empty::new())
    }

    async fn update(&self, _: &Context, request: UpdateTaskRequest) -> Result<Empty> {
        let container = self.0.find(&request.id)?;
        let resources = request.resources.value.clone();
        to_the_end(async move { container.update(&resources).await }).await?;
        Ok(Empty::new())
    }

    async fn stats(&self, _: &Context, request: StatsRequest) -> Result<StatsResponse> {
        let container = self.0.ask(&request.id)?;
        let stats = MessageField::some(crate::stats::metrics(container.cgroup()));
        Ok(StatsResponse {
            stats,
            ..StatsResponse::default()
        })
    }

    async fn connect(&self, _: &Context, request: ConnectRequest) -> Result<ConnectResponse> {
        let task_pid = self
            .0
            .ask(&request.id)
            .map_or(0, |container| container.init.pid());
        Ok(ConnectResponse {
            shim_pid: std::process::id(),
            task_pid,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ConnectResponse::default()
        })
    }

    async fn shutdown(&self, _: &Context, request: ShutdownRequest) -> Result<Empty> {
        if request.now {
            self.0.exit.signal();
            return Ok(Empty::new());
        }
        let asked = self.0.lock().shut_down();
        match asked {
            containers::Asked::Stay => {}
            containers::Asked::End => self.0.exit.signal(),
            containers::Asked::After(given_up) => {
                let inner = self.0.clone();
                tokio::spawn(async move {
                    for container in given_up {
                        inner.take_away(&container).await;
                    }
                    if inner.lock().is_over() {
                        inner.exit.signal();
                    }
                });
            }
        }
        Ok(Empty::new())
    }
}
