//! The words of the command line. What they mean is decided elsewhere: every setting arrives as the text that
//! was typed, since the same text may come from the environment or the file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const EXIT_CODES: &str = "\
Exit status:
  the script's own, or 128+N when signal N ended it; and
  124  the wall clock ended it          130  it was cancelled (Ctrl-C)
  137  it ran out of memory             125  refused, or it never started";

const RUN_HELP: &str = "\
Examples:
  sandglass run hello.py
  sandglass run --input data.csv --out results chart.py -- --year 2024
  sandglass run --input table.csv=/srv/export-0412.csv --out results report.mjs
  echo 'print(6 * 7)' | sandglass run --language python -
  sandglass run --json --timeout 5s --memory 256Mi script.py | jq .status

The script starts in /work, where the inputs are, and what it writes to /out comes back as artifacts. Nothing
in --out is ever overwritten. There is no network, and nothing of the run is left afterwards.

Sizes are bytes or end in Ki, Mi, Gi, k, M, G; times end in ms, s, m, h.";

const SETTINGS_HELP: &str = "\
Settings:
  Each setting may also come from the environment (SANDGLASS_TIMEOUT, SANDGLASS_MEMORY …) or from one TOML file
  (timeout = \"60s\", cpus = 0.5, waive = [\"memory\"] …). A flag wins over the environment, that over the file.
  The file is --config or SANDGLASS_CONFIG, else ~/.config/sandglass/config.toml (not for root), else
  /etc/sandglass/config.toml: the first that is there, and no other.
  Without a flag: output (SANDGLASS_OUTPUT, 1Mi kept of each stream), artifacts (100), artifacts_bytes (128Mi),
  inputs_bytes (64Mi), runs_per_person (3), state (the directory for live runs), store (the directory of images).
  A variable SANDGLASS_… that is no setting is an error.";

const TOP_HELP: &str = "\
Examples:
  sandglass doctor                             can this host seal a run, and what is missing
  sandglass image build                        build the sandbox image, once
  sandglass run --out results script.py        run a script, keep what it writes to /out";

/// Runs code that nobody has read, each run in a sandbox made for it alone.
#[derive(Debug, Parser)]
#[command(name = "sandglass", version, about, max_term_width = 110, after_help = TOP_HELP,
          after_long_help = format!("{TOP_HELP}\n\n{EXIT_CODES}\n\n{SETTINGS_HELP}"))]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What holds for every command.
#[derive(Debug, Default, Args)]
pub struct Global {
    /// One TOML file with settings
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// How log lines on stderr look: text or json
    #[arg(long, value_name = "FORMAT", global = true)]
    pub log_format: Option<String>,
    /// What is logged: off, error, warn, info, debug or trace [default: warn]
    #[arg(long, value_name = "LEVEL", global = true)]
    pub log_level: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one script in a sandbox of its own
    #[command(after_help = format!("{EXIT_CODES}\n\nMore with --help."),
              after_long_help = format!("{RUN_HELP}\n\n{EXIT_CODES}\n\n{SETTINGS_HELP}"))]
    Run(Box<RunArgs>),
    /// Say what this host can enforce, what is missing, and how to mend it
    #[command(
        after_help = "Exit status: 0 when a run would be accepted, 1 when not, 125 for a bad flag or setting."
    )]
    Doctor(DoctorArgs),
    /// Build, list, export and remove sandbox images
    #[command(after_help = "Exit status: 0 done, 1 not done, 125 for a bad flag or setting.")]
    Image(ImageArgs),
}

/// `sandglass run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Who carries the run out: local or disabled [default: local]
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<String>,
    /// python or node [default: by the name of the script, or its #! line]
    #[arg(long, value_name = "LANGUAGE")]
    pub language: Option<String>,
    /// A file for the script to read, staged in /work; may be given several times
    #[arg(long = "input", value_name = "PATH|NAME=PATH")]
    pub inputs: Vec<OsString>,
    /// Where artifacts are stored; made if its parent exists. Without it they are listed and not kept
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Who the run is for; the cap on runs at once counts by it [default: the user's id]
    #[arg(long, value_name = "ID")]
    pub person: Option<String>,
    /// A name for this run: a-z, 0-9 and -, at most 63 [default: a random one]
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
    /// Wall clock [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// Memory, without swap [default: 512Mi]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Processors, as a fraction [default: 0.5]
    #[arg(long, value_name = "N")]
    pub cpus: Option<String>,
    /// Size of each of /work, /out and /tmp [default: 128Mi]
    #[arg(long, value_name = "SIZE")]
    pub scratch: Option<String>,
    /// Processes and threads at once [default: 128]
    #[arg(long, value_name = "N")]
    pub pids: Option<String>,
    /// Go without these controls, by name, even where the host could give them; the receipt says so. May be given
    /// several times
    #[arg(long, value_name = "NAME,…")]
    pub waive: Vec<String>,
    /// The image to run in, by name or digest [default: the one called default]
    #[arg(long, value_name = "NAME|DIGEST")]
    pub image: Option<String>,
    /// Print one report on stdout when the run has ended, and nothing else
    #[arg(long)]
    pub json: bool,
    /// Let escape sequences of the script through to a terminal
    #[arg(long)]
    pub raw: bool,
    /// The script, or - for stdin (at most 4 MiB)
    #[arg(value_name = "SCRIPT|-")]
    pub script: PathBuf,
    /// What the script gets as its arguments
    #[arg(last = true, value_name = "ARG")]
    pub args: Vec<OsString>,
}

/// `sandglass doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Whose needs are looked at: local or disabled [default: local]
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<String>,
    /// Do without these controls, by name, as the run would; may be given several times
    #[arg(long, value_name = "NAME,…")]
    pub waive: Vec<String>,
    /// The image that the run would get [default: the one called default]
    #[arg(long, value_name = "NAME|DIGEST")]
    pub image: Option<String>,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}

/// `sandglass image`.
#[derive(Debug, Args)]
pub struct ImageArgs {
    #[command(subcommand)]
    pub command: ImageCommand,
}

/// The commands about images.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Build the image from its pinned inputs
    Build(BuildArgs),
    /// List the images in the store
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the digest of an image
    Digest {
        /// Name or digest [default: the one called default]
        image: Option<String>,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write an image as a tar for ctr, docker or skopeo
    Export {
        /// Name or digest [default: the one called default]
        #[arg(long, value_name = "NAME|DIGEST")]
        image: Option<String>,
        /// What the image is called where the tar is loaded
        #[arg(
            long,
            value_name = "REPOSITORY:TAG",
            default_value = "localhost/sandglass:latest"
        )]
        tag: String,
        /// The tar to write; nothing is overwritten
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove an image with all its names, unless a run uses it; by one of several names, only that name
    Remove {
        /// Name or digest
        #[arg(value_name = "NAME|DIGEST")]
        image: String,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check every byte of an image against its digest
    Verify {
        /// Name or digest [default: the one called default]
        image: Option<String>,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}

/// `sandglass image build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// What to call the image
    #[arg(long, default_value = "default")]
    pub name: String,
    /// The static runner to put into it [default: sandglass-runner beside this program]
    #[arg(long, value_name = "FILE")]
    pub runner: Option<PathBuf>,
    /// A prefix with a CPython 3.12 to take in place of the pinned one
    #[arg(long, value_name = "DIR")]
    pub python: Option<PathBuf>,
    /// Pinned inputs to take in place of those that this program carries
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Pin the newest versions of the same inputs first, and write them to --lock
    #[arg(long, requires = "lock")]
    pub relock: bool,
    /// Fetch nothing: what the cache lacks is an error
    #[arg(long)]
    pub offline: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// A flag that may come several times, as the one text that a setting is.
pub fn several(words: &[String]) -> Option<String> {
    (!words.is_empty()).then(|| words.join(","))
}

impl Command {
    /// Whether stdout is for one JSON document only.
    pub fn json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Image(args) => match args.command {
                ImageCommand::Build(BuildArgs { json, .. })
                | ImageCommand::List { json }
                | ImageCommand::Digest { json, .. }
                | ImageCommand::Export { json, .. }
                | ImageCommand::Remove { json, .. }
                | ImageCommand::Verify { json, .. } => json,
            },
        }
    }
}
