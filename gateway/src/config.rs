//! What the settings of one call mean.

use std::path::PathBuf;

use sandglass_driver::images::Images;
use sandglass_driver::{Refusal, state};
use sandglass_run::{Language, Limits, Person, RunId, Waiver, parse_bytes, parse_cpus, parse_duration};

use crate::settings::{Key, SettingError, Settings};

/// Runs at once for a person.
const RUNS_PER_PERSON: u32 = 3;
/// More is no cap at all.
const MOST_RUNS_PER_PERSON: u32 = 10_000;

/// The drivers by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverName {
    /// Sandboxes of our own.
    Local,
    /// Refuses everything.
    Disabled,
}

impl From<SettingError> for Refusal {
    fn from(e: SettingError) -> Self {
        Self::new("bad_setting", e.to_string(), e.hint())
    }
}

/// Which driver.
///
/// # Errors
/// A name that no driver has.
pub fn driver(settings: &Settings) -> Result<DriverName, Refusal> {
    let words = [("local", DriverName::Local), ("disabled", DriverName::Disabled)];
    Ok(settings.word(Key::Driver, DriverName::Local, &words)?)
}

/// The limits of a run.
///
/// # Errors
/// A value that cannot be read; whether it can be granted is for admission to say.
pub fn limits(settings: &Settings) -> Result<Limits, Refusal> {
    let d = Limits::default();
    let whole = |text: &str| text.parse().map_err(|_| "allowed are whole numbers.");
    Ok(Limits {
        wall: settings.value(Key::Timeout, d.wall, parse_duration)?,
        memory_bytes: settings.value(Key::Memory, d.memory_bytes, parse_bytes)?,
        cpus: settings.value(Key::Cpus, d.cpus, parse_cpus)?,
        scratch_bytes: settings.value(Key::Scratch, d.scratch_bytes, parse_bytes)?,
        pids: settings.value(Key::Pids, d.pids, whole)?,
        output_bytes: settings.value(Key::Output, d.output_bytes, parse_bytes)?,
        artifacts_max: settings.value(Key::Artifacts, d.artifacts_max, whole)?,
        artifacts_bytes: settings.value(Key::ArtifactsBytes, d.artifacts_bytes, parse_bytes)?,
        inputs_bytes: settings.value(Key::InputsBytes, d.inputs_bytes, parse_bytes)?,
    })
}

/// The controls done without.
///
/// # Errors
/// A word that names none.
pub fn waivers(settings: &Settings) -> Result<Vec<Waiver>, Refusal> {
    Ok(settings.value(Key::Waive, Vec::new(), Waiver::parse_list)?)
}

/// The language, if a setting names one.
///
/// # Errors
/// A language that there is no interpreter for.
pub fn language(settings: &Settings) -> Result<Option<Language>, Refusal> {
    Ok(settings.value(Key::Language, None, |text| {
        text.parse()
            .map(Some)
            .map_err(|e: sandglass_run::language::LanguageError| e)
    })?)
}

/// Whom the run is for: the calling user, when nobody is named.
///
/// # Errors
/// A name that is not allowed.
pub fn person(settings: &Settings) -> Result<Person, Refusal> {
    let uid = format!("uid-{}", rustix::process::getuid().as_raw());
    let text = settings.text(Key::Person);
    match text {
        None => uid
            .parse()
            .map_err(|e: sandglass_run::id::IdError| Refusal::new("bad_setting", e.to_string(), "")),
        Some(found) => found
            .text
            .parse()
            .map_err(|e| Refusal::from(settings.bad(Key::Person, found, &e))),
    }
}

/// The name of the run, if a setting gives one.
///
/// # Errors
/// A name that is not allowed.
pub fn run_id(settings: &Settings) -> Result<Option<RunId>, Refusal> {
    Ok(settings.value(Key::RunId, None, |text| {
        text.parse().map(Some).map_err(|e: sandglass_run::id::IdError| e)
    })?)
}

/// Where artifacts go.
pub fn out(settings: &Settings) -> Option<PathBuf> {
    settings.text(Key::Out).map(|found| found.text.into())
}

/// Which image.
pub fn images(settings: &Settings) -> Images {
    Images {
        store: settings.text(Key::Store).map(|found| found.text.into()),
        image: settings.text(Key::Image).map(|found| found.text),
    }
}

/// The directory for live runs.
///
/// # Errors
/// When none is named and there is no default one.
pub fn state_root(settings: &Settings) -> Result<PathBuf, Refusal> {
    match settings.text(Key::State) {
        Some(found) => Ok(found.text.into()),
        None => state::default_path(rustix::process::geteuid().is_root(), |k| std::env::var_os(k)),
    }
}

/// Runs at once for a person.
///
/// # Errors
/// Zero, too many, or no number.
pub fn runs_per_person(settings: &Settings) -> Result<u32, Refusal> {
    Ok(settings.value(Key::RunsPerPerson, RUNS_PER_PERSON, |text| {
        let number = text
            .parse()
            .ok()
            .filter(|n| (1..=MOST_RUNS_PER_PERSON).contains(n));
        number.ok_or_else(|| format!("allowed are 1 to {MOST_RUNS_PER_PERSON}."))
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(key: Key, text: &str) -> Settings {
        Settings::new([(key, Some(text.to_owned()))], |_| None, None).unwrap()
    }

    #[test]
    fn without_settings_everything_is_the_documented_default() {
        let none = Settings::default();
        assert_eq!(limits(&none).unwrap(), Limits::default());
        assert_eq!(driver(&none).unwrap(), DriverName::Local);
        assert_eq!(runs_per_person(&none).unwrap(), 3);
        assert!(waivers(&none).unwrap().is_empty());
        assert_eq!(language(&none).unwrap(), None);
        assert!(person(&none).unwrap().as_str().starts_with("uid-"));
    }

    #[test]
    fn each_limit_is_a_setting() {
        assert_eq!(limits(&settings(Key::Timeout, "5s")).unwrap().wall.as_secs(), 5);
        assert_eq!(
            limits(&settings(Key::Memory, "1Gi")).unwrap().memory_bytes,
            1 << 30
        );
        assert_eq!(limits(&settings(Key::Cpus, "1.5")).unwrap().cpus, 1.5);
        assert_eq!(
            limits(&settings(Key::Scratch, "1Mi")).unwrap().scratch_bytes,
            1 << 20
        );
        assert_eq!(limits(&settings(Key::Pids, "7")).unwrap().pids, 7);
        assert_eq!(
            limits(&settings(Key::Output, "2Mi")).unwrap().output_bytes,
            2 << 20
        );
        assert_eq!(limits(&settings(Key::Artifacts, "5")).unwrap().artifacts_max, 5);
        assert_eq!(
            limits(&settings(Key::ArtifactsBytes, "1Mi"))
                .unwrap()
                .artifacts_bytes,
            1 << 20
        );
        assert_eq!(
            limits(&settings(Key::InputsBytes, "1Mi")).unwrap().inputs_bytes,
            1 << 20
        );
    }

    #[test]
    fn bad_values_name_setting_value_and_what_is_allowed() {
        let check = |refusal: Refusal, parts: &[&str]| {
            assert_eq!(refusal.code, "bad_setting");
            for part in parts {
                assert!(refusal.message.contains(part), "{part}: {refusal}");
            }
        };
        check(
            limits(&settings(Key::Timeout, "soon")).unwrap_err(),
            &["timeout", "soon", "60s"],
        );
        check(
            limits(&settings(Key::Memory, "-1")).unwrap_err(),
            &["memory", "-1", "512Mi"],
        );
        check(
            limits(&settings(Key::Cpus, "NaN")).unwrap_err(),
            &["cpus", "NaN", "0.5"],
        );
        check(
            limits(&settings(Key::Pids, "1.5")).unwrap_err(),
            &["pids", "1.5", "whole"],
        );
        check(
            driver(&settings(Key::Driver, "docker2")).unwrap_err(),
            &["driver", "docker2", "local, disabled"],
        );
        check(
            waivers(&settings(Key::Waive, "seccomp")).unwrap_err(),
            &["waive", "seccomp", "landlock"],
        );
        check(
            language(&settings(Key::Language, "perl")).unwrap_err(),
            &["language", "perl", "python or node"],
        );
        check(
            run_id(&settings(Key::RunId, "../x")).unwrap_err(),
            &["run_id", "../x", "63"],
        );
        check(
            person(&settings(Key::Person, "a/b")).unwrap_err(),
            &["person", "a/b"],
        );
        check(
            runs_per_person(&settings(Key::RunsPerPerson, "0")).unwrap_err(),
            &["runs_per_person", "1 to 10000"],
        );
    }
}
