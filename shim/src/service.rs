//! The shim as containerd starts it: `start`, `delete`, `-info`, and the server behind them.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use containerd_shim::asynchronous::{ExitSignal, spawn};
use containerd_shim::protos::protobuf::MessageField;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::types::introspection::RuntimeInfo;
use containerd_shim::publisher::RemotePublisher;
use containerd_shim::util::convert_to_timestamp;
use containerd_shim::{Config, DeleteResponse, Error, Flags, Shim, StartOpts};
use sandglass_sandbox::container;
use time::OffsetDateTime;

use crate::RUNTIME;
use crate::container::Shared;
use crate::events::Publisher;
use crate::exits::Exits;
use crate::options::{Hardening, Options, UNTOLD};
use crate::server::{self, Server};
use crate::task::Task;

/// CRI's annotation with the id of a container's pod: one shim serves all containers of it.
const GROUP: &str = "io.kubernetes.cri.sandbox-id";
/// How long calls may go on when the last container is gone.
const CALLS_END_WITHIN: std::time::Duration = std::time::Duration::from_secs(3);
/// The file in a bundle with the address of the shim that was started for it.
const ADDRESS: &str = "address";
/// The status of a container whose shim was lost: killed, as far as anyone can tell.
const LOST: u32 = 137;

/// Serves one call of containerd's.
pub async fn run() {
    let config = Config {
        no_setup_logger: true,
        // We wait for children ourselves: by pidfd, and never for one that a worker is about to name.
        no_reaper: true,
        ..Config::default()
    };
    containerd_shim::run::<Service>(RUNTIME, Some(config)).await;
}

/// What a call of containerd's says.
pub struct Service {
    id: String,
    namespace: String,
    socket: String,
    exit: Arc<ExitSignal>,
}

#[async_trait]
impl Shim for Service {
    #[cfg(not(feature = "otlp"))]
    type T = Task;
    #[cfg(feature = "otlp")]
    type T = crate::otlp::Traced<Task>;

    async fn new(_runtime: &str, flags: &Flags, _config: &mut Config) -> Self {
        // Huge pages would double what a shim takes; workers give them back to their containers.
        let _ = container::prctl_thp(false);
        if flags.action.is_empty() {
            #[cfg(feature = "otlp")]
            crate::otlp::stands_for(&flags.id, group(Path::new("config.json")), &flags.namespace);
            crate::log::start(flags.debug);
        }
        Self {
            id: flags.id.clone(),
            namespace: flags.namespace.clone(),
            socket: flags.socket.clone(),
            exit: Arc::default(),
        }
    }

    async fn start_shim(&mut self, opts: StartOpts) -> Result<String, Error> {
        let options = opts
            .extensions
            .iter()
            .find(|any| any.type_url.contains("runtimeoptions"))
            .map_or_else(
                || Ok(Options::default()),
                |any| Options::read(Some(any), Hardening::default()),
            )
            .map_err(|error| Error::InvalidArgument(error.to_string()))?;
        let group = group(Path::new("config.json")).unwrap_or_else(|| opts.id.clone());
        let address = opts.socket_address(&group);
        server::fits(&address)?;
        // The shim inherits it: its socket and its files are nobody else's from their first moment on.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let of_another = Server::at(&address).is_ok();
        let address = spawn(opts, &group, vec![(UNTOLD, called_as().word())]).await?;
        let server = Server::at(&address).map_err(|error| {
            Error::Other(format!(
                "the shim that was started does not answer at {address}: {error}"
            ))
        })?;
        let ready = server
            .enter(&options.shim_cgroup)
            .map_err(|error| Error::Other(format!("shim_cgroup {}: {error}", options.shim_cgroup)))
            .and_then(|()| {
                server
                    .close_to_others(&address)
                    // For `delete`, should the shim be killed: nothing else tells where its socket was.
                    .and_then(|()| std::fs::write(ADDRESS, &address))
                    .map_err(|error| Error::Other(format!("writing the address: {error}")))
            });
        // A shim that containerd is not told of would stay for ever. That of the pod's other containers is known.
        if ready.is_err() && !of_another {
            server.kill();
            server::remove_socket(&address);
        }
        ready.map(|()| address)
    }

    async fn delete_shim(&mut self) -> Result<DeleteResponse, Error> {
        let bundle = std::env::current_dir()
            .map_err(|error| Error::Other(format!("the working directory: {error}")))?;
        let name = bundle.file_name().and_then(|name| name.to_str());
        if name != Some(self.id.as_str()) {
            return Err(Error::InvalidArgument(format!(
                "the working directory is not the bundle of {}",
                self.id
            )));
        }
        if let Ok(address) = std::fs::read_to_string(ADDRESS) {
            server::remove_socket(&address);
        }
        let pid = container::noted_pid(&bundle, &self.id).unwrap_or(0);
        container::remove(&bundle)
            .map_err(|left| Error::Other(format!("something of {} is left: {left}", self.id)))?;
        Ok(DeleteResponse {
            pid,
            exit_status: LOST,
            // Not known either; containerd tells its own clients this one.
            exited_at: MessageField::some(convert_to_timestamp(Some(OffsetDateTime::now_utc()))),
            ..DeleteResponse::default()
        })
    }

    async fn wait(&mut self) {
        self.exit.wait().await;
        server::remove_socket(&self.socket);
        // The server waits for calls that are still being answered. There is nothing left that one could be about.
        std::thread::spawn(|| {
            std::thread::sleep(CALLS_END_WITHIN);
            #[allow(clippy::exit)]
            std::process::exit(0);
        });
    }

    async fn create_task_service(&self, publisher: RemotePublisher) -> Self::T {
        let exits = Exits::default();
        if let Err(error) = exits.sweep_on_sigchld() {
            tracing::error!(%error, "orphans of containers will stay zombies");
        }
        let publisher = Publisher::new(publisher.address.clone(), self.namespace.clone());
        let shared = container::own_program().map(|program| {
            Arc::new(Shared {
                publisher,
                exits,
                program,
            })
        });
        let untold = Hardening::of_variable(std::env::var_os(UNTOLD).as_deref());
        let task = Task::new(
            shared.map_err(|error| error.to_string()),
            self.exit.clone(),
            untold,
        );
        #[cfg(feature = "otlp")]
        let task = crate::otlp::Traced(task);
        task
    }

    fn runtime_info(runtime: &str, any: Option<&Any>) -> Result<RuntimeInfo, Error> {
        // A typo in a handler's options shows when containerd starts, and not first when a pod does.
        let options =
            Options::read(any, called_as()).map_err(|error| Error::InvalidArgument(error.to_string()))?;
        let table = any.is_some_and(|any| !any.value.is_empty());
        Ok(crate::features::info(runtime, options.hardening, table))
    }
}

/// The mode that the program's name says.
fn called_as() -> Hardening {
    Hardening::of_program(std::env::args_os().next().as_deref())
}

/// The pod that a container belongs to. Only the annotations are read: the spec may be large.
fn group(path: &Path) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Annotated {
        annotations: Option<std::collections::HashMap<String, String>>,
    }
    let file = std::fs::File::open(path).ok()?;
    let spec: Annotated = serde_json::from_reader(std::io::BufReader::new(file)).ok()?;
    spec.annotations?.remove(GROUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_of_a_pod_share_its_shim() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let spec = format!(r#"{{"ociVersion":"1.2.0","annotations":{{"{GROUP}":"pod"}}}}"#);
        std::fs::write(file.path(), spec).unwrap();
        assert_eq!(group(file.path()).as_deref(), Some("pod"));
        std::fs::write(file.path(), "{}").unwrap();
        assert_eq!(group(file.path()), None);
        assert_eq!(group(Path::new("/no/such/file")), None);
    }
}
