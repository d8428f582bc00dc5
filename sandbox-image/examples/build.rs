//! Drives the library by hand: `build STORE CACHE [--relock LOCK] [--runner PATH] [--cpython PREFIX] [--offline]
//! [--export FILE]`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use sandglass_image::{BuildOptions, Lock, Progress, Store, human_bytes, relock};

struct Print(Instant);

impl Progress for Print {
    fn started(&self, step: &str) {
        eprintln!("{:7.2} > {step}", self.0.elapsed().as_secs_f64());
    }
    fn finished(&self, step: &str, detail: &str) {
        eprintln!("{:7.2} < {step}: {detail}", self.0.elapsed().as_secs_f64());
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: build STORE CACHE [--relock LOCK] [--runner PATH] [--cpython PREFIX] [--offline] [--export FILE]";
    let store = Store::open(arguments.next().ok_or(usage)?);
    let cache = PathBuf::from(arguments.next().ok_or(usage)?);
    let progress = Print(Instant::now());
    let (mut runner, mut cpython, mut offline) = (None, None, false);
    while let Some(option) = arguments.next() {
        match option.as_str() {
            "--offline" => offline = true,
            "--runner" => runner = Some(arguments.next().ok_or(usage)?.into()),
            "--cpython" => cpython = Some(arguments.next().ok_or(usage)?.into()),
            "--export" => {
                let mut file = std::fs::File::create(arguments.next().ok_or(usage)?)?;
                return Ok(store.export(None, "localhost/sandglass:dev", &mut file)?);
            }
            "--relock" => {
                let path = PathBuf::from(arguments.next().ok_or(usage)?);
                let lock = relock(&Lock::load(&path)?, &cache, &progress)?;
                std::fs::write(&path, lock.to_toml()?)?;
                return Ok(());
            }
            _ => return Err(usage.into()),
        }
    }
    let options = BuildOptions {
        lock: Lock::shipped()?,
        name: "default".into(),
        runner,
        cpython,
        cache,
        offline,
    };
    let built = store.build(&options, &progress)?;
    println!("{} {}", built.image.digest, built.image.rootfs.display());
    for (name, compressed, unpacked) in &built.layers {
        println!(
            "  {name}: {} compressed, {} unpacked",
            human_bytes(*compressed),
            human_bytes(*unpacked)
        );
    }
    println!(
        "in {:.2} s, {} layers cached",
        progress.0.elapsed().as_secs_f64(),
        built.cached
    );
    Ok(())
}
