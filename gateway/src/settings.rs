//! Settings: where the text of one comes from. A flag wins over the environment, that over the file, and the
//! default comes last. What a text means is decided by whoever asks; a bad one is reported with its source.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// A setting. Its name is the key in the file; the rest is derived from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Who carries a run out.
    Driver,
    /// The language of the script.
    Language,
    /// Where artifacts are stored.
    Out,
    /// Who the run is for.
    Person,
    /// The name of the run.
    RunId,
    /// Wall clock.
    Timeout,
    /// Memory.
    Memory,
    /// Processors.
    Cpus,
    /// Size of each scratch directory.
    Scratch,
    /// Processes.
    Pids,
    /// Bytes kept of each output stream.
    Output,
    /// Count of artifacts.
    Artifacts,
    /// Bytes of all artifacts.
    ArtifactsBytes,
    /// Bytes of all inputs.
    InputsBytes,
    /// Runs at once for a person.
    RunsPerPerson,
    /// Controls done without.
    Waive,
    /// The image.
    Image,
    /// The directory for live runs.
    State,
    /// The directory of images.
    Store,
    /// How log lines look.
    LogFormat,
    /// What is logged.
    LogLevel,
}

impl Key {
    /// Every setting.
    pub const ALL: [Self; 21] = [
        Self::Driver,
        Self::Language,
        Self::Out,
        Self::Person,
        Self::RunId,
        Self::Timeout,
        Self::Memory,
        Self::Cpus,
        Self::Scratch,
        Self::Pids,
        Self::Output,
        Self::Artifacts,
        Self::ArtifactsBytes,
        Self::InputsBytes,
        Self::RunsPerPerson,
        Self::Waive,
        Self::Image,
        Self::State,
        Self::Store,
        Self::LogFormat,
        Self::LogLevel,
    ];

    /// The key in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Language => "language",
            Self::Out => "out",
            Self::Person => "person",
            Self::RunId => "run_id",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::Scratch => "scratch",
            Self::Pids => "pids",
            Self::Output => "output",
            Self::Artifacts => "artifacts",
            Self::ArtifactsBytes => "artifacts_bytes",
            Self::InputsBytes => "inputs_bytes",
            Self::RunsPerPerson => "runs_per_person",
            Self::Waive => "waive",
            Self::Image => "image",
            Self::State => "state",
            Self::Store => "store",
            Self::LogFormat => "log_format",
            Self::LogLevel => "log_level",
        }
    }

    /// The variable in the environment.
    pub fn variable(self) -> String {
        format!("SANDGLASS_{}", self.name().to_uppercase())
    }

    /// The flag, for those that have one.
    fn flag(self) -> String {
        format!("--{}", self.name().replace('_', "-"))
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// Where a text came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag(String),
    /// The environment.
    Variable(String),
    /// The file.
    File(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "from {flag}"),
            Self::Variable(variable) => write!(f, "from the variable {variable}"),
            Self::File(path) => write!(f, "from the file {}", path.display()),
        }
    }
}

/// The text of a setting, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The text as it was written.
    pub text: String,
    /// Where it was written.
    pub source: Source,
}

/// What is wrong with a setting or with the file.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// A value that means nothing or is not allowed.
    #[error("The setting `{name}` is {text:?} ({from}): {reason}", name = .key.name(), text = .found.text,
            from = .found.source)]
    Bad {
        /// Which setting.
        key: Key,
        /// What it says and where.
        found: Found,
        /// Why not, and what is allowed.
        reason: String,
    },
    /// A variable that is not UTF-8.
    #[error("The variable {0} is not UTF-8; settings are text.")]
    NotText(String),
    /// A variable that looks like a setting and is none.
    #[error("The variable {name} is no setting; the nearest are {}.", .nearest.join(", "))]
    UnknownVariable {
        /// The variable, made fit to be shown.
        name: String,
        /// What may have been meant.
        nearest: Vec<String>,
    },
    /// The file named by a person is not there or cannot be read.
    #[error("The settings file {path} cannot be read: {reason}.")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// The file is not TOML.
    #[error("The settings file {path} is not valid TOML: {reason}")]
    NotToml {
        /// The file.
        path: String,
        /// What the parser says, with line and column.
        reason: String,
    },
    /// A key that is no setting.
    #[error("The settings file {path} has the key `{key}`, which is no setting; the settings are {allowed}.")]
    UnknownKey {
        /// The file.
        path: String,
        /// The key.
        key: String,
        /// What there is.
        allowed: String,
    },
    /// A value of a kind that no setting has.
    #[error(
        "The setting `{key}` in the file {path} is {kind}; allowed are a text, a number or a list of texts."
    )]
    WrongKind {
        /// The file.
        path: String,
        /// The key.
        key: String,
        /// What it is.
        kind: String,
    },
}

impl SettingError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Bad { .. } | Self::NotText(_) => {
                "Give it an allowed value, or leave it out for the default."
            }
            Self::UnknownVariable { .. } => "Correct or unset it; `sandglass --help` lists the settings.",
            Self::Unreadable { .. } => "Name a file that can be read with --config or SANDGLASS_CONFIG.",
            Self::NotToml { .. } | Self::UnknownKey { .. } | Self::WrongKind { .. } => {
                "Correct the file; `sandglass --help` lists the settings."
            }
        }
    }
}

/// The layers of settings of one call.
#[derive(Debug, Default)]
pub struct Settings {
    flags: BTreeMap<Key, String>,
    variables: BTreeMap<Key, String>,
    file: BTreeMap<Key, String>,
    path: PathBuf,
}

impl Settings {
    /// Puts the layers together: `flags` as they were typed, `env` to look up a variable, and the file.
    ///
    /// # Errors
    /// A variable that is not UTF-8, and everything that can be wrong with the file.
    pub fn new(
        flags: impl IntoIterator<Item = (Key, Option<String>)>,
        env: impl Fn(&str) -> Option<OsString>,
        file: Option<(&Path, &str)>,
    ) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        settings
            .flags
            .extend(flags.into_iter().filter_map(|(k, v)| v.map(|v| (k, v))));
        for key in Key::ALL {
            let variable = key.variable();
            // An empty variable is how a shell unsets one for a single command.
            let Some(value) = env(&variable).filter(|v| !v.is_empty()) else {
                continue;
            };
            let text = value.into_string().map_err(|_| SettingError::NotText(variable))?;
            settings.variables.insert(key, text);
        }
        if let Some((path, text)) = file {
            settings.file = parse_file(path, text)?;
            settings.path = path.to_owned();
        }
        Ok(settings)
    }

    /// The text of a setting, or nothing for its default.
    pub fn text(&self, key: Key) -> Option<Found> {
        if let Some(text) = self.flags.get(&key) {
            return Some(Found {
                text: text.clone(),
                source: Source::Flag(key.flag()),
            });
        }
        if let Some(text) = self.variables.get(&key) {
            return Some(Found {
                text: text.clone(),
                source: Source::Variable(key.variable()),
            });
        }
        let text = self.file.get(&key)?;
        Some(Found {
            text: text.clone(),
            source: Source::File(self.path.clone()),
        })
    }

    /// The value of a setting: its text put through `parse`, or `default`.
    ///
    /// # Errors
    /// What `parse` says, with the setting, its value and its source.
    pub fn value<T, E: fmt::Display>(
        &self,
        key: Key,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, SettingError> {
        match self.text(key) {
            None => Ok(default),
            Some(found) => parse(&found.text).map_err(|e| self.bad(key, found, &e)),
        }
    }

    /// One of a few words.
    ///
    /// # Errors
    /// Another word, with the list of those that are allowed.
    pub fn word<T: Copy>(&self, key: Key, default: T, words: &[(&str, T)]) -> Result<T, SettingError> {
        self.value(key, default, |text| {
            let known = words
                .iter()
                .find(|(word, _)| *word == text)
                .map(|(_, value)| *value);
            known.ok_or_else(|| {
                let list: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                format!("allowed are {}.", list.join(", "))
            })
        })
    }

    /// An error about the value of a setting.
    pub fn bad(&self, key: Key, found: Found, reason: &dyn fmt::Display) -> SettingError {
        SettingError::Bad {
            key,
            found,
            reason: reason.to_string(),
        }
    }
}

/// Variables of ours that are no settings of a run: the file of settings, and what the image is built with.
const OTHER_VARIABLES: [&str; 3] = ["SANDGLASS_CONFIG", "SANDGLASS_CACHE", "SANDGLASS_DEBIAN_MIRROR"];
/// Names that are told when one is not known.
const NEAREST: usize = 2;

/// Refuses a variable that looks like a setting and is none: what a typing error asked for would silently not hold.
/// An empty variable is none, as everywhere.
///
/// # Errors
/// The first such variable in the order of names, with the nearest ones that there are.
pub fn check_variables(environment: impl Iterator<Item = (OsString, OsString)>) -> Result<(), SettingError> {
    let known: Vec<String> = Key::ALL
        .into_iter()
        .map(Key::variable)
        .chain(OTHER_VARIABLES.map(str::to_owned))
        .collect();
    let unknown = environment
        .filter(|(_, value)| !value.is_empty())
        .filter_map(|(name, _)| {
            let name = sandglass_run::name::printable(name.as_encoded_bytes(), 80);
            (name.starts_with("SANDGLASS_") && !known.contains(&name) && !is_service_link(&name))
                .then_some(name)
        })
        .min();
    let Some(name) = unknown else { return Ok(()) };
    let mut nearest = known;
    nearest.sort_by_key(|known| strsim::damerau_levenshtein(known, &name));
    nearest.truncate(NEAREST);
    Err(SettingError::UnknownVariable { name, nearest })
}

/// Kubernetes tells every pod of the services around it in such variables; one of them may be called after us.
fn is_service_link(name: &str) -> bool {
    let port = |rest: &str| {
        let mut words = rest.split('_');
        words.next().is_some_and(|n| n.parse::<u16>().is_ok())
            && matches!(words.next(), Some("TCP" | "UDP" | "SCTP"))
            && matches!(words.next(), None | Some("PROTO" | "PORT" | "ADDR"))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_PORT")
        || name.contains("_SERVICE_PORT")
        || name.split_once("_PORT_").is_some_and(|(_, rest)| port(rest))
}

fn parse_file(path: &Path, text: &str) -> Result<BTreeMap<Key, String>, SettingError> {
    let shown = path.display().to_string();
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| SettingError::NotToml {
        path: shown.clone(),
        reason: e.to_string(),
    })?;
    let mut values = BTreeMap::new();
    for (name, value) in table {
        let Some(key) = Key::from_name(&name) else {
            let allowed = Key::ALL.map(Key::name).join(", ");
            return Err(SettingError::UnknownKey {
                path: shown,
                key: name,
                allowed,
            });
        };
        let wrong = |kind: &str| SettingError::WrongKind {
            path: shown.clone(),
            key: name.clone(),
            kind: kind.into(),
        };
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(n) => n.to_string(),
            toml::Value::Float(n) => n.to_string(),
            toml::Value::Array(list) => {
                let words: Option<Vec<_>> = list.iter().map(|v| v.as_str().map(str::to_owned)).collect();
                words
                    .ok_or_else(|| wrong("a list of something else than texts"))?
                    .join(",")
            }
            other => return Err(wrong(&format!("a {}", other.type_str()))),
        };
        values.insert(key, text);
    }
    Ok(values)
}

/// The files that may hold when none is named; the first that is there does, and no other.
pub fn default_files(is_root: bool, env: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let absolute = |name: &str| env(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let own = || absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    let own = if is_root {
        None
    } else {
        own().map(|dir| dir.join("sandglass/config.toml"))
    };
    own.into_iter()
        .chain([PathBuf::from("/etc/sandglass/config.toml")])
        .collect()
}

/// Reads the settings file: the named one must be there, default ones may be missing or out of reach.
///
/// # Errors
/// A named file that cannot be read, and a default one that is there and is not text.
pub fn read_file(
    named: Option<&Path>,
    defaults: &[PathBuf],
) -> Result<Option<(PathBuf, String)>, SettingError> {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    let named_file = named.map(Path::to_path_buf);
    for path in named_file
        .iter()
        .chain(defaults.iter().filter(|_| named.is_none()))
    {
        match std::fs::read_to_string(path) {
            Ok(text) => return Ok(Some((path.clone(), text))),
            // HOME may well be someone else's, after a change of user.
            Err(e) if named.is_none() && matches!(e.kind(), NotFound | NotADirectory | PermissionDenied) => {}
            Err(e) => {
                return Err(SettingError::Unreadable {
                    path: path.display().to_string(),
                    reason: e.to_string(),
                });
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "/etc/x.toml";

    fn settings(flag: Option<&str>, variable: Option<&str>, file: &str) -> Settings {
        Settings::new(
            [(Key::Timeout, flag.map(str::to_owned))],
            |k| variable.filter(|_| k == "SANDGLASS_TIMEOUT").map(Into::into),
            Some((Path::new(FILE), file)),
        )
        .unwrap()
    }

    fn seconds(text: &str) -> Result<u64, String> {
        text.parse().map_err(|_| "allowed are whole seconds.".to_owned())
    }

    #[test]
    fn a_flag_wins_over_the_variable_that_over_the_file_that_over_the_default() {
        let value = |s: Settings| s.value(Key::Timeout, 60, seconds).unwrap();
        assert_eq!(value(settings(Some("1"), Some("2"), "timeout = 3")), 1);
        assert_eq!(value(settings(None, Some("2"), "timeout = 3")), 2);
        assert_eq!(value(settings(None, None, "timeout = 3")), 3);
        assert_eq!(value(settings(None, Some(""), "")), 60);
    }

    #[test]
    fn a_bad_value_names_the_setting_the_value_its_source_and_what_is_allowed() {
        for (s, source) in [
            (settings(Some("soon"), None, ""), "from --timeout"),
            (
                settings(None, Some("soon"), ""),
                "from the variable SANDGLASS_TIMEOUT",
            ),
            (
                settings(None, None, "timeout = 'soon'"),
                "from the file /etc/x.toml",
            ),
        ] {
            let message = s.value(Key::Timeout, 60, seconds).unwrap_err().to_string();
            for part in ["`timeout`", "\"soon\"", source, "whole seconds"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }

    #[test]
    fn an_unknown_key_in_the_file_is_an_error_that_lists_the_settings() {
        let e = parse_file(Path::new(FILE), "timeuot = 3")
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("timeuot") && e.contains("timeout") && e.contains(FILE),
            "{e}"
        );
    }

    #[test]
    fn a_variable_that_is_no_setting_is_an_error_that_names_the_nearest() {
        let check = |names: &[(&str, &str)]| {
            check_variables(names.iter().map(|(name, value)| (name.into(), value.into())))
        };
        let message = check(&[
            ("PATH", "/bin"),
            ("SANDGLASS_TIMEUOT", "5s"),
            ("SANDGLASS_WAIVERS", "cpu"),
        ])
        .unwrap_err()
        .to_string();
        assert!(message.contains("SANDGLASS_TIMEUOT is no setting"), "{message}");
        assert!(
            message.contains("the nearest are SANDGLASS_TIMEOUT, "),
            "{message}"
        );
        let message = check(&[("SANDGLASS_MEM\u{1b}", "1")]).unwrap_err().to_string();
        assert!(
            message.contains("SANDGLASS_MEMORY") && !message.contains('\u{1b}'),
            "{message}"
        );
        let every: Vec<_> = Key::ALL.into_iter().map(Key::variable).collect();
        let mut fine: Vec<_> = every.iter().map(|name| (name.as_str(), "x")).collect();
        fine.extend(OTHER_VARIABLES.map(|name| (name, "x")));
        fine.extend([
            ("SANDGLASS_TIMEUOT", ""),
            ("SANDGLASSES", "x"),
            ("sandglass_x", "x"),
        ]);
        assert!(check(&fine).is_ok());
    }

    #[test]
    fn what_kubernetes_tells_of_services_is_no_setting_and_no_error() {
        for name in [
            "SANDGLASS_SERVICE_HOST",
            "SANDGLASS_SERVICE_PORT",
            "SANDGLASS_SERVICE_PORT_HTTP",
            "SANDGLASS_GATEWAY_PORT",
            "SANDGLASS_PORT_8080_TCP",
            "SANDGLASS_PORT_8080_TCP_ADDR",
            "SANDGLASS_PORT_8080_TCP_PORT",
            "SANDGLASS_PORT_53_UDP_PROTO",
        ] {
            assert!(
                check_variables([(name.into(), "x".into())].into_iter()).is_ok(),
                "{name}"
            );
        }
        for name in ["SANDGLASS_PORTS", "SANDGLASS_PORT_X_TCP", "SANDGLASS_SERVICE"] {
            assert!(
                check_variables([(name.into(), "x".into())].into_iter()).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn numbers_and_lists_of_texts_are_values_and_tables_are_not() {
        let file = parse_file(
            Path::new(FILE),
            "cpus = 0.5\npids = 7\nwaive = ['memory', 'pids']",
        )
        .unwrap();
        assert_eq!(file[&Key::Cpus], "0.5");
        assert_eq!(file[&Key::Pids], "7");
        assert_eq!(file[&Key::Waive], "memory,pids");
        for bad in [
            "pids = true",
            "[pids]\nx = 1",
            "waive = [1]",
            "timeout = 2024-01-01",
        ] {
            let e = parse_file(Path::new(FILE), bad).unwrap_err();
            assert!(matches!(e, SettingError::WrongKind { .. }), "{bad}: {e}");
        }
        assert!(matches!(
            parse_file(Path::new(FILE), "x ="),
            Err(SettingError::NotToml { .. })
        ));
    }

    #[test]
    fn a_word_out_of_a_list() {
        let s = settings(Some("sometimes"), None, "");
        let e = s
            .word(Key::Timeout, 0, &[("never", 0), ("always", 1)])
            .unwrap_err()
            .to_string();
        assert!(e.contains("never, always"), "{e}");
    }

    #[test]
    fn a_variable_that_is_not_text_is_an_error() {
        use std::os::unix::ffi::OsStringExt;
        let env = |k: &str| (k == "SANDGLASS_CPUS").then(|| OsString::from_vec(vec![0xff]));
        let e = Settings::new([], env, None).unwrap_err();
        assert!(e.to_string().contains("SANDGLASS_CPUS"));
    }

    #[test]
    fn default_files_may_be_missing_and_a_named_one_may_not() {
        let missing = PathBuf::from("/nonexistent/config.toml");
        assert!(read_file(None, std::slice::from_ref(&missing)).unwrap().is_none());
        assert!(matches!(
            read_file(Some(&missing), &[]),
            Err(SettingError::Unreadable { .. })
        ));
    }

    #[test]
    fn the_first_default_file_that_is_there_holds_alone() {
        let tmp = tempfile::tempdir().unwrap();
        let files: Vec<_> = ["a", "b", "c"].map(|n| tmp.path().join(n)).into();
        std::fs::write(&files[1], "pids = 1").unwrap();
        std::fs::write(&files[2], "cpus = 1").unwrap();
        assert_eq!(
            read_file(None, &files).unwrap(),
            Some((files[1].clone(), "pids = 1".into()))
        );
        let env = |k: &str| (k == "HOME").then(|| OsString::from("/home/ada"));
        let files = default_files(false, env);
        assert_eq!(
            files,
            [
                "/home/ada/.config/sandglass/config.toml",
                "/etc/sandglass/config.toml"
            ]
            .map(PathBuf::from)
        );
        assert_eq!(
            default_files(true, env),
            [PathBuf::from("/etc/sandglass/config.toml")]
        );
    }

    #[test]
    fn each_setting_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Key::ALL.into_iter().map(Key::name).collect();
        assert_eq!(names.len(), Key::ALL.len());
    }
}
