//! The rows: each handler of the stack, as containerd's own API and the CRI name it.

use prost::Message;
use sandglass_stack::{BUSYBOX, Handler, Stack};

use crate::error::{BenchError, Result};
use crate::wire::Client;
use crate::wire::containerd::{Any, Mount, RuncOptions, Runtime, RuntimeOptions};

/// The handler that is promised about.
pub const OURS: &str = "sandglass";
/// What runs in each container.
pub const IMAGE: &str = BUSYBOX;
/// runc's shim, which serves any runtime with runc's command line.
const RUNC_SHIM: &str = "io.containerd.runc.v2";

/// A handler, and a root for its containers, which it has to itself.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its shim and what that is told.
    pub runtime: Runtime,
    /// The root: made once, since containers that cannot write it leave it as it was.
    pub rootfs: Vec<Mount>,
}

impl Target {
    /// Prepares a handler.
    ///
    /// # Errors
    /// containerd makes no snapshot.
    pub async fn prepare(client: &Client, handler: &Handler, layers: &str) -> Result<Self> {
        let key = format!("bench-{}", handler.name);
        Ok(Self {
            name: handler.name.clone(),
            runtime: runtime(handler),
            rootfs: client.prepare_snapshot(&key, layers).await?,
        })
    }
}

/// How containerd's own API is told of a handler; through the CRI containerd does the same with its configuration.
fn runtime(handler: &Handler) -> Runtime {
    let (type_url, value) = if handler.runtime_type == RUNC_SHIM {
        let binary = handler.options.get("BinaryName").and_then(|value| value.as_str());
        let options = RuncOptions {
            binary_name: binary.unwrap_or_default().to_owned(),
        };
        ("containerd.runc.v1.Options", options.encode_to_vec())
    } else {
        let lines = handler
            .options
            .iter()
            .map(|(key, value)| format!("{key} = {value}\n"));
        let options = RuntimeOptions {
            config_body: lines.collect::<String>().into_bytes(),
        };
        ("runtimeoptions.v1.Options", options.encode_to_vec())
    };
    let options = (!value.is_empty()).then(|| Any {
        type_url: type_url.to_owned(),
        value,
    });
    Runtime {
        name: handler.runtime_type.clone(),
        options,
    }
}

/// The name of the snapshot that holds the image's layers.
///
/// # Errors
/// The stack does not have the image.
pub fn layers(stack: &Stack) -> Result<String> {
    let output = stack
        .command("crictl")
        .args(["inspecti", "--output", "json", IMAGE])
        .output()
        .map_err(BenchError::doing("Starting crictl"))?;
    serde_json::from_slice::<serde_json::Value>(&output.stdout)
        .ok()
        .and_then(|said| said["info"]["chainID"].as_str().map(str::to_owned))
        .ok_or_else(|| {
            BenchError::Setup(format!(
                "crictl does not tell of the layers of {IMAGE}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn runcs_shim_is_told_its_runtime_and_ours_its_table() {
        let runc = runtime(&Handler::runc("crun", Path::new("/bin/crun")));
        assert_eq!(runc.name, "io.containerd.runc.v2");
        let options = runc.options.unwrap();
        assert_eq!(options.type_url, "containerd.runc.v1.Options");
        assert_eq!(
            RuncOptions::decode(options.value.as_slice()).unwrap().binary_name,
            "/bin/crun"
        );
        let ours = runtime(&Handler::sandglass("sandglass", "sandbox"));
        let options = ours.options.unwrap();
        assert_eq!(options.type_url, "runtimeoptions.v1.Options");
        let body = RuntimeOptions::decode(options.value.as_slice())
            .unwrap()
            .config_body;
        assert_eq!(body, b"hardening = \"sandbox\"\n");
    }

    #[test]
    fn a_handler_without_options_sends_none() {
        assert_eq!(
            runtime(&Handler::new("runsc", "io.containerd.runsc.v1")).options,
            None
        );
    }
}
