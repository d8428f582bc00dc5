//! The real shim, started and called as containerd does.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use containerd_shim::protos::api::{
    CloseIORequest, ConnectRequest, CreateTaskRequest, DeleteRequest, DeleteResponse, KillRequest,
    PauseRequest, PidsRequest, ResizePtyRequest, ResumeRequest, ShutdownRequest, StartRequest, StateRequest,
    StateResponse, StatsRequest, UpdateTaskRequest, WaitRequest,
};
use containerd_shim::protos::bootstrap_api::{BootstrapParams, BootstrapResult, Extension};
use containerd_shim::protos::protobuf::Message;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::shim_async::{Client, TaskClient};
use containerd_shim::protos::ttrpc::context::{Context, with_duration};
use containerd_shim::protos::ttrpc::{Code, Error};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::bundle::{Bundle, Exec};
use super::{Bench, Outcome, equal, holds, until, within};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_containerd-shim-sandglass-v1");
/// containerd's namespace of these tests.
pub const NAMESPACE: &str = "sgt";
/// Longer than any call here may take; a call that hangs is a failure of the test that made it.
const LONGEST_CALL: Duration = Duration::from_secs(30);

/// What a call was answered with that failed: a status and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub code: Code,
    pub sentence: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.code, self.sentence)
    }
}

impl std::error::Error for Refused {}

pub type Answer<T> = Result<T, Refused>;

/// What a failed call was answered with.
pub fn refused(error: Error) -> Refused {
    match error {
        Error::RpcStatus(status) => Refused {
            code: status.code(),
            sentence: status.message,
        },
        // No answer of the service: a time-out, or the connection broke.
        other => Refused {
            code: Code::ABORTED,
            sentence: other.to_string(),
        },
    }
}

/// How containerd starts a shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// 2.3 and later: a message on stdin, a message back.
    Message,
    /// 2.0 to 2.2: flags and the environment, JSON back.
    Flags,
}

/// Runs an action of the shim in a bundle.
pub async fn call(
    bench: &Bench,
    id: &str,
    dir: &Path,
    flags: &[&str],
    action: &str,
    input: &[u8],
) -> Outcome<Output> {
    let mut command = Command::new(&bench.program);
    command
        .current_dir(dir)
        .env_clear()
        .env("TTRPC_ADDRESS", bench.events_path())
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        // What systemd gives a containerd, and is for nobody else.
        .env("LISTEN_FDS", "1")
        .env("NOTIFY_SOCKET", "/run/systemd/notify")
        // What an operator gives a containerd for its own traces has no say in ours.
        .env("OTEL_TRACES_SAMPLER", "always_off")
        .env("OTEL_RESOURCE_ATTRIBUTES", "planted=1")
        .env("OTEL_EXPORTER_OTLP_HEADERS", "planted=1")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        .args(["-namespace", NAMESPACE, "-address"])
        .arg(bench.dir().join("c.sock"))
        .args(["-publish-binary", "/bin/false", "-id", id])
        .args(flags)
        .arg(action)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // Whoever reaps orphans must not take this child's end.
    let _held = super::bench::no_reaping().await;
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().ok_or("the shim has no stdin")?;
    // One that does not read is done with its input.
    let _ = stdin.write_all(input).await;
    drop(stdin);
    Ok(within(
        20,
        &format!("the end of the action {action:?}"),
        child.wait_with_output(),
    )
    .await??)
}

/// The message that containerd 2.3 and later send.
pub fn bootstrap(bench: &Bench, id: &str, sockets: &Path, options: Option<Any>) -> Outcome<Vec<u8>> {
    let params = BootstrapParams {
        instance_id: id.into(),
        namespace: NAMESPACE.into(),
        containerd_version: "v2.4.0".into(),
        containerd_ttrpc_address: bench.events_path().display().to_string(),
        containerd_grpc_address: bench.dir().join("c.sock").display().to_string(),
        containerd_binary: "/bin/false".into(),
        socket_dir: Some(sockets.display().to_string()),
        extensions: options
            .into_iter()
            .map(|any| Extension {
                value: Some(any).into(),
                ..Extension::default()
            })
            .collect(),
        ..BootstrapParams::default()
    };
    Ok(params.write_to_bytes()?)
}

/// A running shim.
pub struct Shim {
    pub address: String,
    pub pid: u32,
    pub task: TaskClient,
}

fn time() -> Context {
    with_duration(LONGEST_CALL)
}

impl Shim {
    /// Starts a shim for a bundle and connects to it.
    pub async fn start(bench: &Bench, bundle: &Bundle) -> Outcome<Self> {
        Self::start_as(bench, bundle, Form::Message).await
    }

    pub async fn start_as(bench: &Bench, bundle: &Bundle, form: Form) -> Outcome<Self> {
        bundle.write()?;
        let log = bundle.dir.join("log");
        if !log.exists() {
            nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU)?;
            bench.keep_log(&log)?;
        }
        let input = match form {
            Form::Message => bootstrap(bench, &bundle.id, &bench.sockets(), None)?,
            Form::Flags => Vec::new(),
        };
        let output = call(bench, &bundle.id, &bundle.dir, &["-debug"], "start", &input).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        equal(said.as_str(), "", "what `start` said beside its answer")?;
        holds(output.status.success(), || format!("start: {}", output.status))?;
        let (version, address) = match form {
            Form::Message => {
                let answer = BootstrapResult::parse_from_bytes(&output.stdout)?;
                equal(answer.protocol.as_str(), "ttrpc", "protocol")?;
                (answer.version, answer.address)
            }
            Form::Flags => {
                let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
                equal(answer["protocol"].as_str(), Some("ttrpc"), "protocol")?;
                let version = answer["version"]
                    .as_i64()
                    .and_then(|version| i32::try_from(version).ok());
                (
                    version.unwrap_or(0),
                    answer["address"].as_str().unwrap_or_default().to_owned(),
                )
            }
        };
        equal(version, 3, "version of the Task API")?;
        Self::connect(bench, &address).await
    }

    /// Connects to one, as containerd does after its own restart.
    pub async fn connect(bench: &Bench, address: &str) -> Outcome<Self> {
        let client = Client::connect(address)
            .await
            .map_err(|error| format!("{address}: {error}"))?;
        let task = TaskClient::new(client);
        let answer = task.connect(time(), &ConnectRequest::default()).await?;
        bench.knows_shim(answer.shim_pid, address);
        Ok(Self {
            address: address.to_owned(),
            pid: answer.shim_pid,
            task,
        })
    }

    pub fn socket(&self) -> PathBuf {
        self.address.trim_start_matches("unix://").into()
    }

    pub async fn create(&self, bundle: &Bundle) -> Answer<u32> {
        if let Err(error) = bundle.write() {
            return Err(Refused {
                code: Code::ABORTED,
                sentence: error.message().unwrap_or_default().to_owned(),
            });
        }
        self.create_as(&bundle.request()).await
    }

    /// Creates with a request of the test's own.
    pub async fn create_as(&self, request: &CreateTaskRequest) -> Answer<u32> {
        Ok(self.task.create(time(), request).await.map_err(refused)?.pid)
    }

    pub async fn start_process(&self, id: &str, exec: &str) -> Answer<u32> {
        let request = StartRequest {
            id: id.into(),
            exec_id: exec.into(),
            ..StartRequest::default()
        };
        Ok(self.task.start(time(), &request).await.map_err(refused)?.pid)
    }

    /// Creates and starts; the pid.
    pub async fn run(&self, bundle: &Bundle) -> Answer<u32> {
        let created = self.create(bundle).await?;
        let started = self.start_process(&bundle.id, "").await?;
        if created != started {
            return Err(Refused {
                code: Code::ABORTED,
                sentence: format!("create said pid {created}, start {started}"),
            });
        }
        Ok(started)
    }

    pub async fn add_exec(&self, id: &str, exec: &Exec) -> Answer<()> {
        self.task
            .exec(time(), &exec.request(id))
            .await
            .map_err(refused)
            .map(drop)
    }

    /// Notes an exec and starts it; the pid.
    pub async fn exec(&self, id: &str, exec: &Exec) -> Answer<u32> {
        self.add_exec(id, exec).await?;
        self.start_process(id, &exec.id).await
    }

    /// The exit status.
    pub async fn wait(&self, id: &str, exec: &str) -> Answer<u32> {
        let request = WaitRequest {
            id: id.into(),
            exec_id: exec.into(),
            ..WaitRequest::default()
        };
        Ok(self
            .task
            .wait(time(), &request)
            .await
            .map_err(refused)?
            .exit_status)
    }

    pub async fn delete(&self, id: &str, exec: &str) -> Answer<DeleteResponse> {
        let request = DeleteRequest {
            id: id.into(),
            exec_id: exec.into(),
            ..DeleteRequest::default()
        };
        self.task.delete(time(), &request).await.map_err(refused)
    }

    /// Waits for the end, and deletes: the status, which both must tell alike.
    pub async fn end(&self, id: &str, exec: &str) -> Outcome<u32> {
        let waited = self.wait(id, exec).await?;
        let deleted = self.delete(id, exec).await?;
        equal(deleted.exit_status, waited, "the status that delete tells")?;
        holds(deleted.exited_at.seconds > 1_600_000_000, || {
            "delete tells no time of the exit".into()
        })?;
        Ok(waited)
    }

    pub async fn kill(&self, id: &str, exec: &str, signal: u32, all: bool) -> Answer<()> {
        let request = KillRequest {
            id: id.into(),
            exec_id: exec.into(),
            signal,
            all,
            ..KillRequest::default()
        };
        self.task.kill(time(), &request).await.map_err(refused).map(drop)
    }

    /// Kills the first process and takes the container away.
    pub async fn kill_and_delete(&self, id: &str) -> Outcome {
        self.kill(id, "", 9, true).await?;
        equal(self.end(id, "").await?, 137, "status of a killed container")
    }

    pub async fn state(&self, id: &str, exec: &str) -> Answer<StateResponse> {
        let request = StateRequest {
            id: id.into(),
            exec_id: exec.into(),
            ..StateRequest::default()
        };
        self.task.state(time(), &request).await.map_err(refused)
    }

    pub async fn pids(&self, id: &str) -> Answer<Vec<(u32, Option<Any>)>> {
        let request = PidsRequest {
            id: id.into(),
            ..PidsRequest::default()
        };
        let answer = self.task.pids(time(), &request).await.map_err(refused)?;
        Ok(answer
            .processes
            .into_iter()
            .map(|process| (process.pid, process.info.into_option()))
            .collect())
    }

    pub async fn pause(&self, id: &str) -> Answer<()> {
        let request = PauseRequest {
            id: id.into(),
            ..PauseRequest::default()
        };
        self.task.pause(time(), &request).await.map_err(refused).map(drop)
    }

    pub async fn resume(&self, id: &str) -> Answer<()> {
        let request = ResumeRequest {
            id: id.into(),
            ..ResumeRequest::default()
        };
        self.task
            .resume(time(), &request)
            .await
            .map_err(refused)
            .map(drop)
    }

    pub async fn close_stdin(&self, id: &str, exec: &str) -> Answer<()> {
        let request = CloseIORequest {
            id: id.into(),
            exec_id: exec.into(),
            stdin: true,
            ..CloseIORequest::default()
        };
        self.task
            .close_io(time(), &request)
            .await
            .map_err(refused)
            .map(drop)
    }

    pub async fn resize(&self, id: &str, exec: &str, width: u32, height: u32) -> Answer<()> {
        let request = ResizePtyRequest {
            id: id.into(),
            exec_id: exec.into(),
            width,
            height,
            ..ResizePtyRequest::default()
        };
        self.task
            .resize_pty(time(), &request)
            .await
            .map_err(refused)
            .map(drop)
    }

    pub async fn update(&self, id: &str, resources: &str) -> Answer<()> {
        let request = UpdateTaskRequest {
            id: id.into(),
            resources: Some(Any {
                type_url: "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources".into(),
                value: resources.as_bytes().to_vec(),
                ..Any::default()
            })
            .into(),
            ..UpdateTaskRequest::default()
        };
        self.task
            .update(time(), &request)
            .await
            .map_err(refused)
            .map(drop)
    }

    pub async fn stats(&self, id: &str) -> Answer<Any> {
        let request = StatsRequest {
            id: id.into(),
            ..StatsRequest::default()
        };
        let answer = self.task.stats(time(), &request).await.map_err(refused)?;
        Ok(answer.stats.into_option().unwrap_or_default())
    }

    /// The pids that it tells: its own and the container's.
    pub async fn pids_of(&self, id: &str) -> Answer<(u32, u32)> {
        let request = ConnectRequest {
            id: id.into(),
            ..ConnectRequest::default()
        };
        let answer = self.task.connect(time(), &request).await.map_err(refused)?;
        Ok((answer.shim_pid, answer.task_pid))
    }

    pub async fn ask_to_shut_down(&self, now: bool) -> Answer<()> {
        let request = ShutdownRequest {
            now,
            ..ShutdownRequest::default()
        };
        match self.task.shutdown(time(), &request).await {
            Err(error @ Error::RpcStatus(_)) => Err(refused(error)),
            // It may be gone before its answer is sent; containerd takes that for success, too.
            _ => Ok(()),
        }
    }

    /// Shuts it down and sees it gone.
    pub async fn shut_down(&self) -> Outcome {
        self.ask_to_shut_down(false).await?;
        self.gone().await
    }

    /// Waits for its end.
    pub async fn gone(&self) -> Outcome {
        let pid = self.pid;
        until("the end of the shim", || {
            super::bench::reap();
            !Path::new(&format!("/proc/{pid}")).exists()
        })
        .await
    }
}
