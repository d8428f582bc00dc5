//! From a recipe to an image in the store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use crate::cache::Cache;
use crate::error::{At, ImageError, Result};
use crate::fetch::{self, join};
use crate::inside;
use crate::layer::{self, Layer};
use crate::lock::{Input, Kind, Lock};
use crate::oci::{self, Configuration, Descriptor, History, Manifest, Process, RootFs};
use crate::progress::{Progress, human_bytes};
use crate::publish::{Blob, Writer};
use crate::recipe::{Part, Recipe, Runner, refuse_forbidden};
use crate::store::{Image, Store, UNPACKED_LABEL};
use crate::tree::Tree;

/// What to build, and from what.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// The pinned inputs.
    pub lock: Lock,
    /// The name to give the image.
    pub name: String,
    /// The static runner. Without one the image serves for development only: no driver can run it.
    pub runner: Option<PathBuf>,
    /// A prefix with a CPython of the lock's minor version, in place of the locked one. It must need no library that
    /// the image lacks. The digest is then of that CPython, too.
    pub cpython: Option<PathBuf>,
    /// Where fetched inputs and finished layers are kept.
    pub cache: PathBuf,
    /// Never fetch: what the cache lacks is an error.
    pub offline: bool,
}

/// What a build made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The image, ready to run.
    pub image: Image,
    /// Each layer, lowest first: what it is, its compressed and its unpacked length.
    pub layers: Vec<(String, u64, u64)>,
    /// How many layers came from the cache.
    pub cached: usize,
}

impl Store {
    /// Builds an image and gives it a name. Equal locks and runners give equal digests, wherever and whenever. Layers
    /// whose inputs did not change come from the cache. Blocks; builds that share a cache or a store wait for each
    /// other. An image is visible only when it is whole.
    ///
    /// # Errors
    /// Any [`ImageError`]; the store is then as it was.
    pub fn build(&self, options: &BuildOptions, progress: &dyn Progress) -> Result<Built> {
        check_platform(&options.lock)?;
        if !crate::store::valid_name(&options.name) {
            return Err(ImageError::BadReference(options.name.clone()));
        }
        let runner = options.runner.as_deref().map(Runner::read).transpose()?;
        let recipe = Recipe {
            lock: &options.lock,
            cpython: options.cpython.clone(),
            runner,
        };
        // Early, so that a store that cannot be written is not found out after minutes.
        drop(Writer::lock(self)?);
        let cache = Cache::open(&options.cache)?;
        let (layers, cached) = make_layers(&recipe, &cache, options.offline, progress)?;
        let image = commit(self, &recipe, &layers, &cache, &options.name, progress)?;
        let layers = layers
            .into_iter()
            .map(|layer| (layer.name, layer.bytes, layer.unpacked))
            .collect();
        Ok(Built {
            image,
            layers,
            cached,
        })
    }
}

fn check_platform(lock: &Lock) -> Result<()> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let found = format!("{}/{architecture}", std::env::consts::OS);
    if found == lock.platform {
        Ok(())
    } else {
        Err(ImageError::Platform {
            wanted: lock.platform.clone(),
            found,
        })
    }
}

/// All layers, lowest first, and how many of them were in the cache.
fn make_layers(
    recipe: &Recipe<'_>,
    cache: &Cache,
    offline: bool,
    progress: &dyn Progress,
) -> Result<(Vec<Layer>, usize)> {
    let mut done: BTreeMap<Part, Layer> = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for part in Part::ALL {
        let key = recipe.key(part)?;
        if let Some(layer) = cache.note::<Layer>(&key)
            && cache.has_length(&layer.digest, layer.bytes)
        {
            done.insert(part, layer);
        }
        keys.insert(part, key);
    }
    let cached = done.len();
    let missing: Vec<Part> = Part::ALL
        .into_iter()
        .filter(|part| !done.contains_key(part))
        .collect();
    let inputs: Vec<&Input> = missing.iter().flat_map(|part| recipe.inputs(*part)).collect();
    fetch::ensure(recipe.lock, &inputs, cache, offline, progress)?;

    let scratch = cache.scratch()?;
    let bench = Bench {
        recipe,
        cache,
        scratch: scratch.path(),
        progress,
    };
    let made = thread::scope(|scope| -> Result<Vec<(Part, Layer)>> {
        let mut packing = Vec::new();
        let bench = &bench;
        for part in [Part::Node, Part::Runner] {
            if missing.contains(&part) {
                packing.push(scope.spawn(move || bench.pack(part, &recipe.unpack(part, cache)?)));
            }
        }
        let stacked = [Part::Base, Part::Python, Part::Fonts];
        if stacked.iter().any(|part| missing.contains(part)) {
            let trees = bench.assemble(&done)?;
            for (part, tree) in stacked.into_iter().zip(trees) {
                if missing.contains(&part) {
                    packing.push(scope.spawn(move || bench.pack(part, &tree)));
                }
            }
        }
        packing.into_iter().map(join).collect()
    })?;
    for (part, layer) in made {
        cache.set_note(&keys[&part], &layer)?;
        done.insert(part, layer);
    }
    Ok((done.into_values().collect(), cached))
}

/// What the making of layers needs at hand.
struct Bench<'a> {
    recipe: &'a Recipe<'a>,
    cache: &'a Cache,
    scratch: &'a Path,
    progress: &'a dyn Progress,
}

impl Bench<'_> {
    /// The trees of base, Python and fonts. Those that `done` has are read from their layers; the others are made
    /// from their packages and by the image's own interpreter, in a root that holds what is beneath them.
    fn assemble(&self, done: &BTreeMap<Part, Layer>) -> Result<[Arc<Tree>; 3]> {
        let root = self.scratch.join("root");
        std::fs::create_dir(&root).at(&root)?;
        let base = self.tree(Part::Base, done)?;
        base.write_to(&root)?;
        let mut python = self.tree(Part::Python, done)?;
        python.write_to(&root)?;
        if !done.contains_key(&Part::Python) {
            self.step("compile Python bytecode", || {
                let compiled = inside::bytecode(&root, &python)?;
                compiled.write_to(&root)?;
                let detail = human_bytes(compiled.bytes());
                python.merge(compiled).map_err(|e| e.of("the bytecode"))?;
                Ok(((), detail))
            })?;
        }
        let mut fonts = self.tree(Part::Fonts, done)?;
        fonts.write_to(&root)?;
        if !done.contains_key(&Part::Fonts) {
            self.step("cache fonts, check libraries", || {
                let font_cache = inside::font_cache(&root)?;
                fonts.merge(font_cache).map_err(|e| e.of("the font cache"))?;
                let wheels: Vec<String> = self
                    .recipe
                    .lock
                    .of(Kind::Wheel)
                    .map(|input| input.name.clone())
                    .collect();
                inside::check(&root, &fonts, &wheels)?;
                Ok(((), format!("{} libraries", wheels.len())))
            })?;
        }
        Ok([Arc::new(base), Arc::new(python), Arc::new(fonts)])
    }

    fn tree(&self, part: Part, done: &BTreeMap<Part, Layer>) -> Result<Tree> {
        let Some(layer) = done.get(&part) else {
            return self.recipe.unpack(part, self.cache);
        };
        let path = self.cache.blob(&layer.digest);
        if !self.cache.has(&layer.digest)? {
            return Err(ImageError::corrupt(
                &path,
                "a cached layer was damaged and is removed",
            ));
        }
        let file = std::fs::File::open(&path).at(&path)?;
        let mut tree = Tree::default();
        layer::read(&layer.name, std::io::BufReader::new(file), |path, node| {
            tree.insert(&path, node).map_err(|e| e.of(&layer.name))
        })?;
        Ok(tree)
    }

    /// Writes a layer into the cache.
    fn pack(&self, part: Part, tree: &Tree) -> Result<(Part, Layer)> {
        refuse_forbidden(part, tree)?;
        let (name, total) = (format!("pack {}", part.title()), tree.bytes());
        self.step(&name, || {
            let file = self.scratch.join(format!("{part:?}.tar.gz"));
            let mut written = |done| self.progress.bytes(&name, done, total);
            let layer = layer::write(
                part.title(),
                tree,
                self.recipe.lock.source_date_epoch,
                &file,
                &mut written,
            )?;
            self.cache.keep(&file, &layer.digest)?;
            let detail = format!(
                "{} from {}",
                human_bytes(layer.bytes),
                human_bytes(layer.unpacked)
            );
            Ok(((part, layer), detail))
        })
    }

    fn step<T>(&self, name: &str, work: impl FnOnce() -> Result<(T, String)>) -> Result<T> {
        step(self.progress, name, work)
    }
}

fn step<T>(progress: &dyn Progress, name: &str, work: impl FnOnce() -> Result<(T, String)>) -> Result<T> {
    progress.started(name);
    let (value, detail) = work()?;
    progress.finished(name, &detail);
    Ok(value)
}

/// Puts layers and documents into the store, unpacks the root, and then makes the image visible.
fn commit(
    store: &Store,
    recipe: &Recipe<'_>,
    layers: &[Layer],
    cache: &Cache,
    name: &str,
    progress: &dyn Progress,
) -> Result<Image> {
    let writer = Writer::lock(store)?;
    let mut descriptors = Vec::new();
    for layer in layers {
        let descriptor = Descriptor::new(oci::LAYER, &layer.digest, layer.bytes);
        writer.add_blob(&Blob {
            descriptor: descriptor.clone(),
            file: cache.blob(&layer.digest),
        })?;
        descriptors.push(descriptor);
    }
    let configuration = writer.add_document(oci::CONFIG, &json(&configuration(recipe.lock, layers)?)?)?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: oci::MANIFEST.into(),
        config: configuration,
        layers: descriptors,
        annotations: BTreeMap::new(),
    };
    let manifest = writer.add_document(oci::MANIFEST, &json(&manifest)?)?;
    let hex = manifest.sha256().unwrap_or_default().to_owned();
    let (name_of_step, total) = (
        "unpack the image",
        layers.iter().map(|layer| layer.unpacked).sum(),
    );
    let unpacked = |done| progress.bytes(name_of_step, done, total);
    step(progress, name_of_step, || {
        let files: Result<Vec<_>> = layers
            .iter()
            .map(|layer| store.layer_file(&Descriptor::new(oci::LAYER, &layer.digest, layer.bytes)))
            .collect();
        inside::check_interpreters(&writer.add_rootfs(&hex, &files?, &unpacked)?, &recipe.lock.python)?;
        Ok(((), human_bytes(total)))
    })?;
    writer.publish(&manifest, name)
}

fn configuration(lock: &Lock, layers: &[Layer]) -> Result<Configuration> {
    let created = UNIX_EPOCH
        .checked_add(Duration::from_secs(lock.source_date_epoch))
        .ok_or_else(|| ImageError::Lock("source_date_epoch is out of range".into()))?;
    let created = humantime::format_rfc3339_seconds(created).to_string();
    let (os, architecture) = lock
        .platform
        .split_once('/')
        .ok_or_else(|| ImageError::Lock(format!("\"{}\" is not a platform", lock.platform)))?;
    let unpacked: u64 = layers.iter().map(|layer| layer.unpacked).sum();
    Ok(Configuration {
        created: created.clone(),
        architecture: architecture.into(),
        os: os.into(),
        config: Process {
            user: format!("{0}:{0}", crate::base::NOBODY),
            env: vec![
                "PATH=/usr/bin".into(),
                "LANG=C.UTF-8".into(),
                "HOME=/work".into(),
                "TZ=UTC".into(),
            ],
            entrypoint: vec!["/usr/libexec/sandglass-runner".into()],
            working_dir: "/work".into(),
            labels: BTreeMap::from([
                (
                    "org.opencontainers.image.title".into(),
                    "Sandglass sandbox".into(),
                ),
                (UNPACKED_LABEL.into(), unpacked.to_string()),
            ]),
        },
        rootfs: RootFs {
            kind: "layers".into(),
            diff_ids: layers
                .iter()
                .map(|layer| format!("sha256:{}", layer.diff_id))
                .collect(),
        },
        history: layers
            .iter()
            .map(|layer| History {
                created: created.clone(),
                created_by: layer.name.clone(),
            })
            .collect(),
    })
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| ImageError::corrupt("an OCI document", e))
}
