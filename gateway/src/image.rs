//! `sandglass image`.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use indicatif::HumanBytes;
use sandglass_driver::Refusal;
use sandglass_image::{BuildOptions, Details, ImageError, Lock, Progress, Store};
use serde_json::{Value, json};

use crate::cli::{BuildArgs, ImageArgs, ImageCommand};
use crate::config;
use crate::progress::{Bars, Lines};
use crate::run::{print_json, say, say_error};
use crate::settings::Settings;

/// What a command brought: for a person, and for a program.
struct Answer {
    text: String,
    json: Value,
}

/// Carries out `sandglass image`.
///
/// # Errors
/// A bad setting. What goes wrong with an image is told here and is exit status 1.
pub fn image(args: &ImageArgs, settings: &Settings) -> Result<ExitCode, Refusal> {
    let store = config::images(settings).store();
    let (answer, json) = match &args.command {
        ImageCommand::Build(args) => (build(&store, args), args.json),
        ImageCommand::List { json } => (list(&store), *json),
        ImageCommand::Digest { image, json } => (digest(&store, image.as_deref()), *json),
        ImageCommand::Export {
            image,
            tag,
            file,
            json,
        } => (export(&store, image.as_deref(), tag, file), *json),
        ImageCommand::Remove { image, json } => (remove(&store, image), *json),
        ImageCommand::Verify { image, json } => (verify(&store, image.as_deref()), *json),
    };
    Ok(match answer {
        Ok(answer) => tell(&answer, json),
        Err(error) => {
            let refusal = Refusal::new("image", error.to_string(), error.hint());
            if json {
                let _ = print_json(&json!({ "error": sandglass_run::RunError::from(refusal) }));
            } else {
                say_error(&refusal);
            }
            ExitCode::FAILURE
        }
    })
}

fn tell(answer: &Answer, json: bool) -> ExitCode {
    let written = if json {
        print_json(&answer.json)
    } else {
        std::io::stdout().write_all(answer.text.as_bytes())
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(&format!("stdout could not be written to: {e}."));
            ExitCode::FAILURE
        }
    }
}

fn build(store: &Store, args: &BuildArgs) -> Result<Answer, ImageError> {
    let progress: &dyn Progress = if std::io::stderr().is_terminal() {
        &Bars::default()
    } else {
        &Lines::default()
    };
    let cache = sandglass_image::default_cache();
    let mut lock = match &args.lock {
        Some(path) if !args.relock || path.exists() => Lock::load(path)?,
        _ => Lock::shipped()?,
    };
    if let (true, Some(path)) = (args.relock, &args.lock) {
        lock = sandglass_image::relock(&lock, &cache, progress)?;
        let text = lock.to_toml()?;
        std::fs::write(path, text).map_err(|source| ImageError::Io {
            path: path.clone(),
            source,
        })?;
    }
    let options = BuildOptions {
        lock,
        name: args.name.clone(),
        runner: Some(
            args.runner
                .clone()
                .unwrap_or_else(sandglass_image::default_runner),
        ),
        cpython: args.python.clone(),
        cache,
        offline: args.offline,
    };
    let built = store.build(&options, progress)?;
    let mut text = format!("{}\n", built.image.digest);
    let (mut compressed, mut unpacked) = (0, 0);
    for (name, bytes, files) in &built.layers {
        text.push_str(&format!(
            "  {name:<10} {:>12} {:>12}\n",
            HumanBytes(*bytes).to_string(),
            HumanBytes(*files).to_string()
        ));
        compressed += bytes;
        unpacked += files;
    }
    text.push_str(&format!(
        "  {:<10} {:>12} {:>12}\n",
        "in all",
        HumanBytes(compressed).to_string(),
        HumanBytes(unpacked).to_string()
    ));
    let layers: Vec<_> = built
        .layers
        .iter()
        .map(|(name, bytes, files)| json!({ "name": name, "compressed_bytes": bytes, "unpacked_bytes": files }))
        .collect();
    let json = json!({ "digest": built.image.digest, "rootfs": built.image.rootfs, "layers": layers, "cached_layers": built.cached });
    Ok(Answer { text, json })
}

fn list(store: &Store) -> Result<Answer, ImageError> {
    let all = store.list()?;
    let mut text = String::new();
    for d in &all {
        let names = if d.names.is_empty() {
            "-".to_owned()
        } else {
            d.names.join(",")
        };
        let (packed, unpacked) = (HumanBytes(d.compressed_bytes), HumanBytes(d.unpacked_bytes));
        text.push_str(&format!(
            "{names:<12} {}  {}  {packed} packed, {unpacked} unpacked\n",
            d.image.digest, d.created
        ));
    }
    if all.is_empty() {
        say("There is no image yet: build one with `sandglass image build`.");
    }
    Ok(Answer {
        text,
        json: json!({ "images": all.iter().map(details).collect::<Vec<_>>() }),
    })
}

fn details(d: &Details) -> Value {
    let layers: Vec<_> = d
        .layers
        .iter()
        .map(|(name, bytes)| json!({ "name": name, "compressed_bytes": bytes }))
        .collect();
    json!({
        "digest": d.image.digest, "rootfs": d.image.rootfs, "names": d.names, "created": d.created,
        "compressed_bytes": d.compressed_bytes, "unpacked_bytes": d.unpacked_bytes, "layers": layers,
    })
}

fn digest(store: &Store, image: Option<&str>) -> Result<Answer, ImageError> {
    let image = store.resolve(image)?;
    Ok(Answer {
        text: format!("{}\n", image.digest),
        json: json!({ "digest": image.digest, "rootfs": image.rootfs }),
    })
}

fn remove(store: &Store, image: &str) -> Result<Answer, ImageError> {
    let removed = store.remove(image)?;
    let names = removed.names.join(", ");
    let text = match (removed.image, names.as_str()) {
        (false, _) => format!(
            "{names} no longer names {}, which has other names\n",
            removed.digest
        ),
        (true, "") => format!("{} removed\n", removed.digest),
        (true, _) => format!("{} removed, which was called {names}\n", removed.digest),
    };
    Ok(Answer {
        text,
        json: json!({ "digest": removed.digest, "names": removed.names, "image_removed": removed.image }),
    })
}

fn verify(store: &Store, image: Option<&str>) -> Result<Answer, ImageError> {
    let digest = store.resolve(image)?.digest;
    let v = store.verify(image)?;
    let text = format!(
        "{digest} is as it was built: {} blobs, and {} entries of its root with {}\n",
        v.blobs,
        v.entries,
        HumanBytes(v.bytes)
    );
    Ok(Answer {
        text,
        json: json!({ "digest": digest, "blobs": v.blobs, "entries": v.entries, "bytes": v.bytes }),
    })
}

fn export(store: &Store, image: Option<&str>, tag: &str, path: &Path) -> Result<Answer, ImageError> {
    let failed = |source| ImageError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::options()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(failed)?;
    let mut writer = std::io::BufWriter::new(file);
    let written = store
        .export(image, tag, &mut writer)
        .and_then(|()| writer.into_inner().map_err(|e| failed(e.into_error())))
        .and_then(|file| file.sync_all().and_then(|()| file.metadata()).map_err(failed));
    let meta = match written {
        Ok(meta) => meta,
        Err(error) => {
            // Half an archive is none; it was made here a moment ago.
            let _ = std::fs::remove_file(path);
            return Err(error);
        }
    };
    let text = format!(
        "{} written, {}, as {tag}\n",
        path.display(),
        HumanBytes(meta.len())
    );
    Ok(Answer {
        text,
        json: json!({ "file": path, "bytes": meta.len(), "tag": tag }),
    })
}
