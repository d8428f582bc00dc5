//! Debian packages of one suite, through apt with a state of its own: the mirror is the one that the machine's apt
//! is configured for, the suite is the lock's, and nothing of the machine's own package state is read or changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{gone, says_gone};
use crate::error::{At, ImageError, Result};
use crate::tool;

const PURPOSE: &str = "fetch the Debian packages";
/// Debian's archive keys: apt checks the suite's signature with them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Suites and code names that tell a Debian mirror from a third party's repository.
const DEBIAN_SUITES: [&str; 8] = [
    "bookworm",
    "trixie",
    "forky",
    "stable",
    "oldstable",
    "testing",
    "unstable",
    "sid",
];

/// apt, set up and updated in a directory.
pub(crate) struct Apt {
    configuration: PathBuf,
}

impl Apt {
    /// Writes a configuration beneath `directory` and reads the suite's package list.
    pub(crate) fn prepare(directory: &Path, suite: &str) -> Result<Self> {
        let mirror = mirror()?;
        if !Path::new(KEYRING).is_file() {
            return Err(tool::missing(
                KEYRING,
                "check the signature of Debian's archive",
                "debian-archive-keyring",
            ));
        }
        let apt = directory.join("apt");
        for sub in ["state/lists/partial", "cache/archives/partial"] {
            let path = apt.join(sub);
            fs::create_dir_all(&path).at(&path)?;
        }
        let sources = apt.join("debian.sources");
        fs::write(&sources, sources_text(&mirror, suite)).at(&sources)?;
        let configuration = apt.join("apt.conf");
        fs::write(&configuration, configuration_text(&apt, &sources)).at(&configuration)?;
        let prepared = Self { configuration };
        let mut update = prepared.command()?;
        tool::run(update.args(["-q", "update"]), PURPOSE)?;
        Ok(prepared)
    }

    /// Downloads packages into a directory; a package without a version comes in the newest one.
    pub(crate) fn download(&self, packages: &[(&str, Option<&str>)], into: &Path) -> Result<()> {
        let mut command = self.command()?;
        command.args(["-q", "download"]).current_dir(into);
        for (name, version) in packages {
            command.arg(version.map_or_else(|| (*name).to_owned(), |version| format!("{name}={version}")));
        }
        let output = tool::output(&mut command, PURPOSE)?;
        if output.status.success() {
            return Ok(());
        }
        if says_gone(&output, &["was not found", "Unable to locate package", "404 "]) {
            let said = tool::last_words(&output);
            let which = packages
                .iter()
                .find(|(name, _)| said.contains(&format!("'{name}'")));
            let (name, version) =
                which.map_or(("a Debian package", ""), |(n, v)| (*n, v.unwrap_or_default()));
            return Err(gone(name, version, said));
        }
        Err(tool::failed(&command, PURPOSE, &output))
    }

    fn command(&self) -> Result<Command> {
        let mut command = tool::command("apt-get", PURPOSE, "apt")?;
        command.arg("-c").arg(&self.configuration).env("LC_ALL", "C");
        Ok(command)
    }
}

/// The name and version that a downloaded package file is called by: `name_version_arch.deb`.
pub(crate) fn name_and_version(file: &str) -> Option<(String, String)> {
    let mut parts = file.strip_suffix(".deb")?.split('_');
    let (name, version, _arch) = (parts.next()?, parts.next()?, parts.next()?);
    parts
        .next()
        .is_none()
        .then(|| (name.to_owned(), version.replace("%3a", ":")))
}

fn mirror() -> Result<String> {
    if let Some(named) = std::env::var("SANDGLASS_DEBIAN_MIRROR")
        .ok()
        .filter(|value| !value.is_empty())
    {
        return Ok(named);
    }
    let mut command = tool::command("apt-get", PURPOSE, "apt")?;
    command.env("LC_ALL", "C").args([
        "indextargets",
        "--no-release-info",
        "--format",
        "$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
        "Created-By: Packages",
    ]);
    let listed = tool::run(&mut command, PURPOSE)?;
    choose_mirror(&listed)
        .ok_or_else(|| ImageError::NoMirror("no source with a Debian suite and `main`".into()))
}

/// The first archive with a plain Debian suite and component main, from lines `uri|suite|component`.
fn choose_mirror(listed: &str) -> Option<String> {
    listed.lines().find_map(|line| {
        let mut fields = line.split('|');
        let (uri, suite, component) = (fields.next()?, fields.next()?, fields.next()?);
        let plain = !uri.is_empty() && !uri.contains(char::is_whitespace);
        (plain && component == "main" && DEBIAN_SUITES.contains(&suite)).then(|| uri.to_owned())
    })
}

fn sources_text(mirror: &str, suite: &str) -> String {
    format!(
        "Types: deb\nURIs: {mirror}\nSuites: {suite}\nComponents: main\nArchitectures: amd64\nSigned-By: {KEYRING}\n"
    )
}

/// Read after the machine's own configuration, so that proxies stay and hooks do not.
fn configuration_text(apt: &Path, sources: &Path) -> String {
    let (apt, sources) = (apt.display(), sources.display());
    format!(
        r#"#clear APT::Architectures;
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Sandbox::User "root";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::IndexTargets::deb::CNF::DefaultEnabled "false";
Acquire::Retries "3";
Dir::State "{apt}/state";
Dir::State::lists "{apt}/state/lists";
Dir::State::status "/dev/null";
Dir::Cache "{apt}/cache";
Dir::Etc::sourcelist "{sources}";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "-";
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_machines_debian_archive_and_not_a_third_partys() {
        let listed = "tor+https://packages.example/apt|cloud-sdk-bookworm|main\n\
                      http://deb.example/debian-security/|bookworm-security|main\n\
                      http://deb.example/debian/|bookworm|contrib\n\
                      http://deb.example/debian/|bookworm|main\n";
        assert_eq!(
            choose_mirror(listed).as_deref(),
            Some("http://deb.example/debian/")
        );
        assert_eq!(choose_mirror("http://ubuntu.example/|noble|main\n"), None);
        assert_eq!(choose_mirror(""), None);
    }

    #[test]
    fn file_names_say_name_and_version() {
        assert_eq!(
            name_and_version("zlib1g_1%3a1.3.dfsg+really1.3.1-1_amd64.deb"),
            Some(("zlib1g".into(), "1:1.3.dfsg+really1.3.1-1".into()))
        );
        assert_eq!(name_and_version("dash.deb"), None);
        assert_eq!(name_and_version("a_b_c.txt"), None);
    }

    #[test]
    fn signatures_are_required_and_the_machines_hooks_do_not_run() {
        let text = configuration_text(Path::new("/c"), Path::new("/c/s"));
        assert!(text.contains("AllowInsecureRepositories \"false\""));
        assert!(text.contains("#clear APT::Update::Post-Invoke-Success;"));
        assert!(sources_text("http://m/", "trixie").contains("Signed-By: /usr/share/keyrings/"));
    }
}
