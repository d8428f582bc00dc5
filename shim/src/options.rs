//! The runtime's options, as the `options` table of a handler in containerd's configuration gives them.
//!
//! containerd's CRI plugin sends the table of a runtime that it does not know as TOML text, in a message of the type
//! `runtimeoptions.v1.Options`. `ctr run --runtime-config-path` sends the path of a file instead.
//!
//! A handler without a table has the mode that the shim's name says: there must be one that needs no table, since
//! containerd's CRI plugin (up to 2.4) makes no container with a user namespace for a handler that has one, unless it is
//! runc's. To a handler that has none it then sends runc's options, with the owner of the container's streams.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::protobuf::{CodedInputStream, Message};
use containerd_shim::protos::shim::oci;
use sandglass_sandbox::pod::Policy;
use serde::Deserialize;

/// Longest options: far above what a table can need.
const LONGEST: u64 = 64 << 10;
/// Longest line of them that an error repeats, in bytes.
const LONGEST_LINE: usize = 120;
/// More processes than this no kernel counts (`PID_MAX_LIMIT`).
const MOST_PIDS: u32 = 1 << 22;

/// How the program is called as the runtime `io.containerd.sandglass-spec.v1`.
const SPEC_PROGRAM: &str = "containerd-shim-sandglass-spec-v1";
/// What `start` tells the server of the name that it was called by: the server is started by another.
pub const UNTOLD: &str = "SANDGLASS_SHIM_HARDENING";

/// Keys that not every build has.
const MORE_KEYS: &str = if cfg!(feature = "otlp") {
    ", otlp_endpoint"
} else {
    ""
};

/// What the runtime does to a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hardening {
    /// A sandbox, whatever the pod says; what contradicts that is refused.
    #[default]
    Sandbox,
    /// The pod's own spec, exactly.
    Spec,
}

impl Hardening {
    /// The mode of a handler without a table, by the name under which containerd calls the program.
    pub fn of_program(name: Option<&OsStr>) -> Self {
        match name.map(Path::new).and_then(Path::file_name) {
            Some(file) if file == SPEC_PROGRAM => Self::Spec,
            _ => Self::Sandbox,
        }
    }

    /// The same in the server, by the value of [`UNTOLD`].
    pub fn of_variable(value: Option<&OsStr>) -> Self {
        match value {
            Some(word) if word == Self::Spec.word() => Self::Spec,
            _ => Self::Sandbox,
        }
    }

    /// As a table has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Spec => "spec",
        }
    }
}

/// The options of one handler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// `sandbox`, the default, or `spec`.
    pub hardening: Hardening,
    /// Have systemd make the cgroups, as a kubelet with `cgroupDriver: systemd` wants it. Needs cgroup v2.
    #[serde(alias = "SystemdCgroup")]
    pub systemd_cgroup: bool,
    /// A cgroup for the shim itself, as an absolute path below the root of the hierarchies.
    #[serde(alias = "ShimCgroup")]
    pub shim_cgroup: String,
    /// kubelet's root directory, if it is not `/var/lib/kubelet`.
    pub kubelet_dir: Option<PathBuf>,
    /// containerd's root and state directories, if they are not `/var/lib/containerd` and `/run/containerd`.
    pub containerd_dirs: Option<Vec<PathBuf>>,
    /// Bytes of each of `/work`, `/out` and `/tmp`, such as `128Mi`.
    pub scratch: Option<String>,
    /// Processes of a container whose pod sets no limit.
    pub pids: Option<u32>,
    /// Where spans are sent, such as `http://127.0.0.1:4318`; empty for nowhere. Needs a build that can.
    pub otlp_endpoint: Option<String>,
}

/// Why options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A message of another runtime.
    #[error(
        "the runtime's options are of the type `{0}`: this runtime takes a TOML table (`runtimeoptions.v1.Options`)"
    )]
    Type(String),
    /// Not a message.
    #[error("the runtime's options cannot be decoded: {0}")]
    Message(String),
    /// The file cannot be read.
    #[error("the runtime's options file {path}: {reason}")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// Not TOML, an unknown key, a bad value.
    #[error(
        "the runtime's options: {0}; known keys are hardening (\"sandbox\" or \"spec\"), systemd_cgroup, shim_cgroup, kubelet_dir, containerd_dirs, scratch, pids{more}",
        more = MORE_KEYS
    )]
    Toml(String),
    /// Spans are wanted of a build that has none.
    #[cfg(not(feature = "otlp"))]
    #[error(
        "the runtime's option `otlp_endpoint`: this build has no OTLP export: build with --features otlp, or leave the key out"
    )]
    NoOtlp,
    /// A value out of bounds.
    #[error("the runtime's option `{key}` is `{value}`: {allowed}")]
    Value {
        /// Which.
        key: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        allowed: &'static str,
    },
}

impl Options {
    /// Reads what containerd sent along. Nothing sent: the defaults, in the mode `untold`.
    ///
    /// # Errors
    /// Anything that is not a table of known keys with values in bounds.
    pub fn read(any: Option<&Any>, untold: Hardening) -> Result<Self, OptionsError> {
        let defaults = Self {
            hardening: untold,
            ..Self::default()
        };
        let Some(any) = any.filter(|any| !any.type_url.is_empty()) else {
            return Ok(defaults);
        };
        let name = any.type_url.rsplit('/').next().unwrap_or_default();
        if name == "containerd.runc.v1.Options" && says_only_who_owns_streams(&any.value) {
            return Ok(defaults);
        }
        if name != "runtimeoptions.v1.Options" {
            return Err(OptionsError::Type(name.to_owned()));
        }
        let (path, body) = fields(&any.value).map_err(|error| OptionsError::Message(error.to_string()))?;
        match (body.is_empty(), path.is_empty()) {
            (false, _) => Self::parse(&body),
            (true, false) => Self::parse(&read_file(Path::new(&path))?),
            (true, true) => Ok(defaults),
        }
    }

    /// Reads a table.
    ///
    /// # Errors
    /// As [`Options::read`].
    pub fn parse(text: &str) -> Result<Self, OptionsError> {
        let options: Self = toml::from_str(text).map_err(|error| OptionsError::Toml(told(text, &error)))?;
        options.policy()?;
        let below_root = options.shim_cgroup.is_empty()
            || (options.shim_cgroup.starts_with('/')
                && !options.shim_cgroup.split('/').any(|part| part == ".."));
        if !below_root {
            return Err(OptionsError::Value {
                key: "shim_cgroup",
                value: options.shim_cgroup,
                allowed: "an absolute path without `..`",
            });
        }
        #[cfg(not(feature = "otlp"))]
        if options.otlp_endpoint.is_some() {
            return Err(OptionsError::NoOtlp);
        }
        #[cfg(feature = "otlp")]
        options.endpoint()?;
        Ok(options)
    }

    /// Where spans are sent, if anywhere.
    ///
    /// # Errors
    /// An address that they cannot be sent to.
    #[cfg(feature = "otlp")]
    pub fn endpoint(&self) -> Result<Option<crate::otlp::Endpoint>, OptionsError> {
        use crate::otlp::Endpoint;
        let value = self.otlp_endpoint.as_deref().filter(|text| !text.is_empty());
        value
            .map(|text| {
                Endpoint::parse(text).ok_or_else(|| OptionsError::Value {
                    key: "otlp_endpoint",
                    value: text.to_owned(),
                    allowed: Endpoint::ALLOWED,
                })
            })
            .transpose()
    }

    /// What the node decides for its sandboxes.
    ///
    /// # Errors
    /// A value out of bounds.
    pub fn policy(&self) -> Result<Policy, OptionsError> {
        let default = Policy::default();
        let absolute = |key: &'static str, path: &Path| {
            if path.is_absolute() {
                return Ok(path.to_owned());
            }
            let value = path.display().to_string();
            Err(OptionsError::Value {
                key,
                value,
                allowed: "an absolute path",
            })
        };
        let kubelet_dir = self
            .kubelet_dir
            .as_deref()
            .map(|path| absolute("kubelet_dir", path))
            .transpose()?
            .unwrap_or(default.kubelet_dir);
        let dirs = self
            .containerd_dirs
            .as_ref()
            .map(|dirs| dirs.iter().map(|dir| absolute("containerd_dirs", dir)).collect());
        let scratch_bytes = match &self.scratch {
            None => default.scratch_bytes,
            Some(text) => sandglass_run::parse_bytes(text)
                .ok()
                .filter(|bytes| *bytes >= 1 << 20)
                .ok_or_else(|| OptionsError::Value {
                    key: "scratch",
                    value: text.clone(),
                    allowed: "a size of at least 1Mi, such as 128Mi",
                })?,
        };
        let pids = self.pids.unwrap_or(default.pids);
        if !(1..=MOST_PIDS).contains(&pids) {
            return Err(OptionsError::Value {
                key: "pids",
                value: pids.to_string(),
                allowed: "1 to 4194304",
            });
        }
        Ok(Policy {
            kubelet_dir,
            containerd_dirs: dirs.transpose()?.unwrap_or(default.containerd_dirs),
            scratch_bytes,
            pids,
        })
    }
}

/// What is wrong with a table, with the line where it is: a value of the wrong type is told without its key.
fn told(text: &str, error: &toml::de::Error) -> String {
    // Followed by a list of keys, which our own sentence has.
    let message = error.message();
    let message = message
        .split_once(", expected one of")
        .map_or(message, |(what, _)| what);
    let line = error.span().and_then(|span| {
        let begins = text.get(..span.start)?.rfind('\n').map_or(0, |at| at + 1);
        text.get(begins..)?.lines().next()
    });
    match line
        .map(str::trim)
        .filter(|line| (1..=LONGEST_LINE).contains(&line.len()))
    {
        Some(line) => format!("in `{line}`: {message}"),
        None => message.to_owned(),
    }
}

/// True for options of runc's in which nothing is set but the owner of a container's streams. We find that out
/// ourselves, from the kernel.
fn says_only_who_owns_streams(message: &[u8]) -> bool {
    let Ok(options) = oci::Options::parse_from_bytes(message) else {
        return false;
    };
    let owner = oci::Options {
        io_uid: options.io_uid,
        io_gid: options.io_gid,
        ..oci::Options::default()
    };
    owner == options && options != oci::Options::default()
}

/// `config_path` (2) and `config_body` (3) of the message.
fn fields(message: &[u8]) -> containerd_shim::protos::protobuf::Result<(String, String)> {
    let (mut path, mut body) = (String::new(), String::new());
    let mut input = CodedInputStream::from_bytes(message);
    while let Some(tag) = input.read_raw_tag_or_eof()? {
        match tag {
            // Field 2 and 3, length-delimited.
            18 => path = input.read_string()?,
            26 => body = String::from_utf8_lossy(&input.read_bytes()?).into_owned(),
            _ => containerd_shim::protos::protobuf::rt::skip_field_for_tag(tag, &mut input)?,
        }
    }
    Ok((path, body))
}

fn read_file(path: &Path) -> Result<String, OptionsError> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(LONGEST).read_to_string(&mut text))
        .map_err(|error| OptionsError::File {
            path: path.display().to_string(),
            reason: error.to_string(),
        })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &str, body: &str) -> Any {
        let mut value = vec![18, u8::try_from(path.len()).unwrap()];
        value.extend(path.as_bytes());
        value.extend([26, u8::try_from(body.len()).unwrap()]);
        value.extend(body.as_bytes());
        Any {
            type_url: "runtimeoptions.v1.Options".into(),
            value,
            ..Any::default()
        }
    }

    fn read(any: &Any) -> Result<Options, OptionsError> {
        Options::read(Some(any), Hardening::default())
    }

    fn rejects(text: &str, says: &str) {
        let error = Options::parse(text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn without_options_a_container_is_a_sandbox() {
        for none in [None, Some(message("", ""))] {
            let read = Options::read(none.as_ref(), Hardening::default()).unwrap();
            assert_eq!(read, Options::default());
            assert_eq!(read.hardening, Hardening::Sandbox);
        }
    }

    #[test]
    fn the_name_of_the_program_decides_where_there_is_no_table_and_only_there() {
        let program = |name: &str| Hardening::of_program(Some(OsStr::new(name)));
        assert_eq!(
            program("/usr/bin/containerd-shim-sandglass-spec-v1"),
            Hardening::Spec
        );
        assert_eq!(program("containerd-shim-sandglass-v1"), Hardening::Sandbox);
        assert_eq!(
            program("/opt/containerd-shim-sandglass-spec-v1/shim"),
            Hardening::Sandbox
        );
        assert_eq!(Hardening::of_program(None), Hardening::Sandbox);
        for mode in [Hardening::Sandbox, Hardening::Spec] {
            assert_eq!(Hardening::of_variable(Some(OsStr::new(mode.word()))), mode);
            assert_eq!(Options::read(None, mode).unwrap().hardening, mode);
            assert_eq!(
                Options::read(Some(&message("", "")), mode).unwrap().hardening,
                mode
            );
            let table = message("", "pids = 7");
            assert_eq!(
                Options::read(Some(&table), mode).unwrap().hardening,
                Hardening::Sandbox
            );
        }
        assert_eq!(Hardening::of_variable(None), Hardening::Sandbox);
        assert_eq!(
            Hardening::of_variable(Some(OsStr::new("Spec"))),
            Hardening::Sandbox
        );
    }

    #[test]
    fn of_runcs_options_only_the_owner_of_the_streams_is_taken() {
        let any = |options: oci::Options| Any {
            type_url: "containerd.runc.v1.Options".into(),
            value: options.write_to_bytes().unwrap(),
            ..Any::default()
        };
        let owner = oci::Options {
            io_uid: 100_000,
            io_gid: 100_000,
            ..oci::Options::default()
        };
        let read = Options::read(Some(&any(owner.clone())), Hardening::Spec).unwrap();
        assert_eq!(read.hardening, Hardening::Spec);
        let more = oci::Options {
            binary_name: "runc".into(),
            ..owner
        };
        for other in [more, oci::Options::default()] {
            assert!(Options::read(Some(&any(other)), Hardening::Spec).is_err());
        }
    }

    #[test]
    fn the_table_of_a_handler_is_taken() {
        let options = read(&message("", "hardening = \"spec\"\nSystemdCgroup = true\n")).unwrap();
        assert_eq!(options.hardening, Hardening::Spec);
        assert!(options.systemd_cgroup);
    }

    #[test]
    fn a_file_is_read_where_a_path_is_given() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "scratch = \"1Gi\"").unwrap();
        let options = read(&message(file.path().to_str().unwrap(), "")).unwrap();
        assert_eq!(options.policy().unwrap().scratch_bytes, 1 << 30);
        let error = read(&message("/no/such/file", "")).unwrap_err();
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }

    #[test]
    fn an_unknown_key_is_an_error_that_lists_the_known_ones() {
        rejects("hardning = \"spec\"", "known keys are hardening");
    }

    #[test]
    fn a_value_out_of_bounds_is_an_error_that_says_what_is_allowed() {
        rejects("hardening = \"none\"", "sandbox");
        rejects("pids = 0", "1 to 4194304");
        rejects("pids = 4194305", "1 to 4194304");
        rejects("scratch = \"lots\"", "128Mi");
        rejects("kubelet_dir = \"var\"", "absolute path");
        rejects("shim_cgroup = \"/a/../b\"", "without `..`");
        rejects("hardening", "options");
    }

    #[test]
    fn a_value_of_another_type_is_shown_with_its_key() {
        rejects(
            "scratch = \"1Mi\"\npids = \"many\"\n",
            "in `pids = \"many\"`: invalid type",
        );
        rejects(
            "hardening = 'strict'",
            "in `hardening = 'strict'`: unknown variant",
        );
        let unknown = Options::parse("hardning = 1").unwrap_err().to_string();
        assert_eq!(unknown.matches("kubelet_dir").count(), 1, "{unknown}");
        // What is too long to read is not repeated.
        let long = format!("pids = \"{}\"", "x".repeat(200));
        let error = told(&long, &toml::from_str::<Options>(&long).unwrap_err());
        assert!(error.starts_with("invalid type"), "{error}");
    }

    #[cfg(not(feature = "otlp"))]
    #[test]
    fn spans_are_refused_by_a_build_that_has_none() {
        for text in [
            "otlp_endpoint = \"http://127.0.0.1:4318\"",
            "otlp_endpoint = \"\"",
        ] {
            rejects(text, "this build has no OTLP export: build with --features otlp");
        }
        let unknown = Options::parse("other = 1").unwrap_err().to_string();
        assert!(unknown.ends_with("scratch, pids"), "{unknown}");
    }

    #[cfg(feature = "otlp")]
    #[test]
    fn spans_are_sent_nowhere_unless_an_address_is_given_that_they_can_be_sent_to() {
        for none in ["", "otlp_endpoint = \"\""] {
            assert_eq!(Options::parse(none).unwrap().endpoint().unwrap(), None);
        }
        let options = Options::parse("otlp_endpoint = \"http://127.0.0.1:4318\"").unwrap();
        assert!(options.endpoint().unwrap().is_some());
        rejects("otlp_endpoint = \"https://127.0.0.1:4318\"", "no TLS");
        rejects("other = 1", "pids, otlp_endpoint");
    }

    #[test]
    fn options_of_another_runtime_are_refused() {
        let any = Any {
            type_url: "containerd.runc.v1.Options".into(),
            ..Any::default()
        };
        let error = read(&any).unwrap_err();
        assert!(
            error.to_string().contains("containerd.runc.v1.Options"),
            "{error}"
        );
    }
}
