//! Which inputs make which layer, and the key under which a finished layer is found again.

use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::digest::sha256_hex;
use crate::error::{At, ImageError, Result};
use crate::inside;
use crate::layer::compressor_fingerprint;
use crate::lock::{Input, Kind, Lock};
use crate::tree::{Node, Tree};
use crate::{base, prune, unpack};

/// The layers of an image, lowest first. What changes most often comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Base,
    Python,
    Node,
    Fonts,
    Runner,
}

impl Part {
    pub(crate) const ALL: [Part; 5] = [Part::Base, Part::Python, Part::Node, Part::Fonts, Part::Runner];

    /// What is in it, for a person.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Part::Base => "Debian base",
            Part::Python => "CPython and libraries",
            Part::Node => "Node",
            Part::Fonts => "fonts and font cache",
            Part::Runner => "runner",
        }
    }

    /// The layers that must be in place before this one can be made.
    fn beneath(self) -> &'static [Part] {
        match self {
            Part::Base | Part::Node | Part::Runner => &[],
            Part::Python => &[Part::Base],
            Part::Fonts => &[Part::Base, Part::Python],
        }
    }
}

/// The sources that decide what a layer holds: a change in any of them makes every cached layer stale.
const RECIPE_SOURCES: [&str; 10] = [
    include_str!("archive.rs"),
    include_str!("base.rs"),
    include_str!("inside.rs"),
    inside::COMPILE,
    inside::FONTS,
    include_str!("layer.rs"),
    include_str!("prune.rs"),
    include_str!("recipe.rs"),
    include_str!("tree.rs"),
    include_str!("unpack.rs"),
];

/// The line of matplotlib's own configuration that the image changes, and what it becomes: a glyph that DejaVu lacks
/// is taken from the CJK font.
const FONT_FAMILY: (&str, &str) = (
    "#font.family:  sans-serif",
    "font.family:  sans-serif, Droid Sans Fallback",
);
const MATPLOTLIBRC: &str = "usr/lib/python3.12/site-packages/matplotlib/mpl-data/matplotlibrc";

/// The static runner, read and looked at.
pub(crate) struct Runner {
    data: Vec<u8>,
}

impl Runner {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let fail = |why: String| {
            Err(ImageError::Runner {
                path: path.to_owned(),
                why,
            })
        };
        match std::fs::read(path) {
            Err(e) => fail(format!("cannot be read ({e})")),
            // ELF, 64 bits, little endian; machine 62 is x86-64.
            Ok(data)
                if data.len() > 64 && data.starts_with(b"\x7fELF\x02\x01") && data[18..20] == [62, 0] =>
            {
                Ok(Self { data })
            }
            Ok(_) => fail("is not an x86-64 program".into()),
        }
    }
}

/// Everything that decides the content of an image.
pub(crate) struct Recipe<'a> {
    pub lock: &'a Lock,
    /// A CPython prefix in place of the locked one.
    pub cpython: Option<PathBuf>,
    /// No runner: an image to develop with, which no driver can use.
    pub runner: Option<Runner>,
}

impl Recipe<'_> {
    /// The locked inputs of a layer.
    pub(crate) fn inputs(&self, part: Part) -> Vec<&Input> {
        let font = |input: &&Input| input.name.starts_with("fonts-");
        match part {
            Part::Base => self.lock.of(Kind::Deb).filter(|input| !font(input)).collect(),
            Part::Fonts => self.lock.of(Kind::Deb).filter(font).collect(),
            Part::Node => self.lock.of(Kind::Npm).collect(),
            Part::Python => {
                let jars = self.lock.of(Kind::Maven).filter(|_| self.cpython.is_none());
                jars.chain(self.lock.of(Kind::Wheel)).collect()
            }
            Part::Runner => Vec::new(),
        }
    }

    /// The cache key of a layer: equal keys, equal bytes.
    pub(crate) fn key(&self, part: Part) -> Result<String> {
        let mut words = vec![
            part.title().to_owned(),
            sha256_hex(RECIPE_SOURCES.concat().as_bytes()),
            compressor_fingerprint()?,
            self.lock.source_date_epoch.to_string(),
        ];
        for below in part.beneath() {
            words.push(self.key(*below)?);
        }
        words.extend(
            self.inputs(part)
                .iter()
                .map(|input| format!("{} {}", input.name, input.sha256)),
        );
        match part {
            Part::Python => {
                if let Some(prefix) = &self.cpython {
                    let mut tree = Tree::default();
                    unpack::cpython_prefix(prefix, &mut tree)?;
                    words.push(content_digest(&tree));
                }
            }
            Part::Runner => {
                words.push(self.lock.digest()?);
                words.push(
                    self.runner
                        .as_ref()
                        .map_or_else(String::new, |runner| sha256_hex(&runner.data)),
                );
            }
            _ => {}
        }
        Ok(sha256_hex(words.join("\n").as_bytes()))
    }

    /// What a layer's packages hold, before any step inside the image. The inputs must be in the cache.
    pub(crate) fn unpack(&self, part: Part, cache: &Cache) -> Result<Tree> {
        let mut tree = Tree::default();
        match part {
            Part::Base => base::add(&mut tree).map_err(|e| e.of("the base"))?,
            Part::Runner => self.add_runner(&mut tree)?,
            Part::Python => {
                if let Some(prefix) = &self.cpython {
                    unpack::cpython_prefix(prefix, &mut tree)?;
                }
            }
            Part::Node | Part::Fonts => {}
        }
        for input in self.inputs(part) {
            let file = cache.blob(&input.sha256);
            match input.kind {
                Kind::Deb => unpack::debian(&input.name, &file, &mut tree)?,
                Kind::Wheel => unpack::wheel(&file, &mut tree)?,
                Kind::Maven => unpack::cpython_jar(&file, &mut tree)?,
                Kind::Npm => unpack::node(&file, &mut tree)?,
            }
        }
        if part == Part::Python {
            add_fallback_font(&mut tree)?;
        }
        Ok(tree)
    }

    fn add_runner(&self, tree: &mut Tree) -> Result<()> {
        let lock = self.lock.to_toml()?;
        tree.file("usr/share/sandglass/lock.toml", lock)
            .map_err(|e| e.of("the lock"))?;
        if let Some(runner) = &self.runner {
            tree.program("usr/libexec/sandglass-runner", runner.data.clone())
                .map_err(|e| e.of("the runner"))?;
        }
        Ok(())
    }
}

fn add_fallback_font(tree: &mut Tree) -> Result<()> {
    let mut lines = 0;
    tree.edit(MATPLOTLIBRC, |text| {
        let text = String::from_utf8_lossy(text);
        let edited: Vec<String> = text
            .lines()
            .map(|line| {
                if line.starts_with(FONT_FAMILY.0) {
                    lines += 1;
                    FONT_FAMILY.1.to_owned()
                } else {
                    line.to_owned()
                }
            })
            .collect();
        (edited.join("\n") + "\n").into_bytes()
    });
    match lines {
        1 => Ok(()),
        _ => Err(ImageError::unpack(
            "matplotlib",
            format!("{lines} lines of its matplotlibrc set font.family"),
        )),
    }
}

/// A digest of a tree's paths and bytes.
fn content_digest(tree: &Tree) -> String {
    let text: String = tree
        .iter()
        .map(|(path, node)| match node {
            Node::Directory { .. } => format!("d {path}\n"),
            Node::File { executable, data } => format!("f {executable} {} {path}\n", sha256_hex(data)),
            Node::Link { target } => format!("l {target} {path}\n"),
        })
        .collect();
    sha256_hex(text.as_bytes())
}

/// Refuses a tree with anything that no image may carry.
pub(crate) fn refuse_forbidden(part: Part, tree: &Tree) -> Result<()> {
    match tree
        .iter()
        .find_map(|(path, _)| prune::forbidden(path).map(|why| (path, why)))
    {
        None => Ok(()),
        Some((path, why)) => Err(ImageError::Unacceptable {
            package: format!("the layer \"{}\"", part.title()),
            what: format!("{why}, /{path}"),
        }),
    }
}

/// The default place of the runner: beside the running program.
pub fn default_runner() -> PathBuf {
    let beside = std::env::current_exe().at("the running program").ok();
    beside.map_or_else(
        || PathBuf::from("sandglass-runner"),
        |exe| exe.with_file_name("sandglass-runner"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::tests::tiny;

    fn recipe(lock: &Lock) -> Recipe<'_> {
        Recipe {
            lock,
            cpython: None,
            runner: Some(Runner {
                data: b"one".to_vec(),
            }),
        }
    }

    #[test]
    fn a_new_runner_changes_only_the_last_layer() {
        let lock = tiny();
        let old = recipe(&lock);
        let new = Recipe {
            runner: Some(Runner {
                data: b"two".to_vec(),
            }),
            ..recipe(&lock)
        };
        for part in Part::ALL {
            let same = old.key(part).unwrap() == new.key(part).unwrap();
            assert_eq!(same, part != Part::Runner, "{part:?}");
        }
    }

    #[test]
    fn a_new_base_package_changes_every_layer_made_on_top_of_it() {
        let (old, mut new) = (tiny(), tiny());
        new.inputs[0].sha256 = "cd".repeat(32);
        let changed = |part| recipe(&old).key(part).unwrap() != recipe(&new).key(part).unwrap();
        assert!(changed(Part::Base) && changed(Part::Python) && changed(Part::Fonts));
        assert!(!changed(Part::Node));
    }

    #[test]
    fn a_runner_must_be_a_program_for_the_image() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("runner");
        assert!(matches!(Runner::read(&path), Err(ImageError::Runner { .. })));
        std::fs::write(&path, "#!/bin/sh\n".repeat(20)).unwrap();
        assert!(matches!(Runner::read(&path), Err(ImageError::Runner { .. })));
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(100, 0);
        elf[18] = 62;
        std::fs::write(&path, &elf).unwrap();
        assert!(Runner::read(&path).is_ok());
        elf[18] = 183;
        std::fs::write(&path, &elf).unwrap();
        assert!(Runner::read(&path).is_err());
    }

    #[test]
    fn the_fallback_font_replaces_one_line_and_its_absence_is_an_error() {
        let mut tree = Tree::default();
        tree.file(
            MATPLOTLIBRC,
            "# x\n#font.family:  sans-serif  # (note)\n#font.size: 10\n",
        )
        .unwrap();
        add_fallback_font(&mut tree).unwrap();
        let Some(Node::File { data, .. }) = tree.get(MATPLOTLIBRC) else {
            panic!("gone")
        };
        assert_eq!(
            String::from_utf8_lossy(data),
            "# x\nfont.family:  sans-serif, Droid Sans Fallback\n#font.size: 10\n"
        );
        assert!(add_fallback_font(&mut tree).is_err());
    }

    #[test]
    fn a_layer_with_an_installer_is_refused() {
        let mut tree = Tree::default();
        tree.program("usr/bin/pip3", "").unwrap();
        assert!(matches!(
            refuse_forbidden(Part::Base, &tree),
            Err(ImageError::Unacceptable { .. })
        ));
    }
}
