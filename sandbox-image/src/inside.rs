//! Steps that the image's own interpreter does, inside the half-built image: bytecode, matplotlib's font cache, and a
//! check of what the image promises. Each runs without network, environment and other processes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use crate::error::{At, ImageError, Result};
use crate::fetch::join;
use crate::tool;
use crate::tree::{Node, Tree};

/// The steps' sources; part of the layers' cache keys.
pub(crate) const COMPILE: &str = include_str!("inside/compile.py");
/// See [`COMPILE`].
pub(crate) const FONTS: &str = include_str!("inside/fonts.py");
const CHECK: &str = include_str!("inside/check.py");

/// Into how many lists sources are divided. Fixed: another number would give other bytes (see `compile.py`).
const SHARDS: usize = 4;

/// Where the image keeps the font cache that the runner links into each run.
pub(crate) const FONT_CACHE: &str = "usr/share/sandglass/matplotlib";

/// Compiles all Python sources of `tree`, which is written at `root`, and gives the tree of the `.pyc` files.
pub(crate) fn bytecode(root: &Path, tree: &Tree) -> Result<Tree> {
    let sources: Vec<&str> = tree
        .iter()
        .filter(|(path, node)| path.ends_with(".py") && matches!(node, Node::File { .. }))
        .map(|(path, _)| path)
        .collect();
    let scratch = root.join("tmp/bytecode");
    fs::create_dir(&scratch).at(&scratch)?;
    for shard in 0..SHARDS {
        let listing: String = sources
            .iter()
            .skip(shard)
            .step_by(SHARDS)
            .map(|path| format!("/{path}\n"))
            .collect();
        let path = scratch.join(shard.to_string());
        fs::write(&path, listing).at(&path)?;
    }
    let queue = Mutex::new(0..SHARDS);
    let workers = thread::available_parallelism().map_or(1, usize::from).min(SHARDS);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers)
            .map(|_| {
                scope.spawn(|| {
                    while let Some(shard) = queue.lock().ok().and_then(|mut left| left.next()) {
                        let listing = format!("/tmp/bytecode/{shard}");
                        python(
                            root,
                            "bytecode",
                            COMPILE,
                            &["-I", "-S", "-B"],
                            &[&listing, "/tmp/bytecode/out"],
                        )?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(join)
    })?;
    let mut compiled = Tree::default();
    collect(&scratch.join("out"), "", &mut compiled)?;
    let files = compiled
        .iter()
        .filter(|(_, node)| matches!(node, Node::File { .. }))
        .count();
    if files != sources.len() {
        return Err(ImageError::Inside {
            step: "bytecode".into(),
            status: format!("{files} of {} sources were compiled", sources.len()),
            detail: String::new(),
            hint: String::new(),
        });
    }
    fs::remove_dir_all(&scratch).at(&scratch)?;
    Ok(compiled)
}

/// matplotlib's font cache for the fonts at `root`, as the one file of a tree.
pub(crate) fn font_cache(root: &Path) -> Result<Tree> {
    let scratch = root.join("tmp/fonts");
    fs::create_dir(&scratch).at(&scratch)?;
    python(root, "the font cache", FONTS, &["-B"], &["/tmp/fonts"])?;
    let mut found = Tree::default();
    collect(&scratch, FONT_CACHE, &mut found)?;
    fs::remove_dir_all(&scratch).at(&scratch)?;
    Ok(found)
}

/// Tries what the image promises, with the font cache of `fonts` put where a run has it.
pub(crate) fn check(root: &Path, fonts: &Tree, distributions: &[String]) -> Result<()> {
    let config = root.join("tmp/.matplotlib");
    if config.exists() {
        fs::remove_dir_all(&config).at(&config)?;
    }
    fs::create_dir(&config).at(&config)?;
    for (path, node) in fonts.iter() {
        if let (Some(name), Node::File { data, .. }) = (path.strip_prefix(&format!("{FONT_CACHE}/")), node) {
            fs::write(config.join(name), data).at(&config)?;
        }
    }
    let arguments: Vec<&str> = distributions.iter().map(String::as_str).collect();
    python(root, "the check of its libraries", CHECK, &["-B"], &arguments)
}

/// Starts both interpreters of a finished root, which they do not change.
pub(crate) fn check_interpreters(root: &Path, python: &str) -> Result<()> {
    let script = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])";
    let starts: [(&str, &[&str], &str); 2] = [
        ("/usr/bin/python3", &["-I", "-B", "-c", script], python),
        (
            "/usr/bin/node",
            &["-e", "process.stdout.write(process.version)"],
            "v20.",
        ),
    ];
    for (program, arguments, wanted) in starts {
        let said = tool::run(
            enter(root)?.arg(program).args(arguments),
            "the start of an interpreter",
        )?;
        if !said.starts_with(wanted) {
            return Err(ImageError::unpack(
                program,
                format!("it calls itself \"{said}\", not {wanted}"),
            ));
        }
    }
    Ok(())
}

fn python(root: &Path, step: &str, script: &str, options: &[&str], arguments: &[&str]) -> Result<()> {
    let mut command = enter(root)?;
    command
        .arg("/usr/bin/python3.12")
        .args(options)
        .args(["-c", script])
        .args(arguments);
    let output = tool::output(&mut command, step)?;
    if output.status.success() {
        return Ok(());
    }
    let detail = tool::last_words(&output);
    let hint = if detail.contains("unshare:") {
        "\nThe build enters the image with `unshare` from util-linux, which needs root or unprivileged user \
         namespaces (kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)."
    } else if detail.contains("cannot open shared object file") {
        "\nA CPython from a prefix of your own may need only libraries that the image has."
    } else {
        ""
    };
    Err(ImageError::Inside {
        step: step.into(),
        status: output.status.to_string(),
        detail,
        hint: hint.into(),
    })
}

/// A command that enters `root` with namespaces of its own and an empty environment.
fn enter(root: &Path) -> Result<Command> {
    let mut command = tool::command("unshare", "enter the half-built image", "util-linux")?;
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    // No mount namespace: nothing is mounted, and making one fails where `/` is a plain chroot.
    command.args(["--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child"]);
    let mut place = std::ffi::OsString::from("--root=");
    place.push(root);
    command.arg(place).args(["--wd=/", "--"]).env_clear().envs([
        ("HOME", "/tmp"),
        ("LC_ALL", "C.UTF-8"),
        ("MPLBACKEND", "Agg"),
        ("MPLCONFIGDIR", "/tmp/.matplotlib"),
        ("OPENBLAS_NUM_THREADS", "1"),
        ("PATH", "/usr/bin"),
        ("PYTHONHASHSEED", "0"),
        ("TZ", "UTC"),
    ]);
    Ok(command)
}

/// Adds the files beneath `directory` to a tree, beneath `place`.
fn collect(directory: &Path, place: &str, tree: &mut Tree) -> Result<()> {
    for entry in fs::read_dir(directory).at(directory)? {
        let path = entry.at(directory)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let inside = format!("{place}/{name}");
        let kind = fs::symlink_metadata(&path).at(&path)?.file_type();
        if kind.is_dir() {
            collect(&path, &inside, tree)?;
        } else if kind.is_file() {
            tree.file(&inside, fs::read(&path).at(&path)?)
                .map_err(|e| e.of("the half-built image"))?;
        }
    }
    Ok(())
}
