//! The test images: made here, imported, never pulled.

mod archive;
mod layer;
mod recipes;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use recipes::{BUSYBOX, SANDBOX};

use crate::error::{Result, StackError};

/// What the images are made from.
#[derive(Debug, Clone)]
pub struct Ingredients {
    /// A busybox whose shell starts other programs, for critest, which masks one of them.
    pub busybox: PathBuf,
    /// A static busybox, for everybody else.
    pub busybox_static: PathBuf,
    /// The static program of `src/guest`.
    pub guest: PathBuf,
    /// The store that holds the sandbox image; without one, that image is left out.
    pub store: Option<PathBuf>,
}

/// What lies in the folder of images: `images.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// The archives, in the order in which to import them.
    pub archives: Vec<Archive>,
}

/// One archive, an OCI layout as a tar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// Its file name.
    pub file: String,
    /// sha256 of its bytes, hex.
    pub sha256: String,
    /// The names of the images in it.
    pub names: Vec<String>,
}

impl Index {
    /// Reads the index of a folder.
    ///
    /// # Errors
    /// Where it is not there, or is not one.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("images.json");
        let text = fs::read(&path).map_err(StackError::at("Reading", &path))?;
        serde_json::from_slice(&text).map_err(|why| StackError::Corrupt {
            path: path.display().to_string(),
            why: why.to_string(),
        })
    }

    /// The name of every image.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.archives
            .iter()
            .flat_map(|archive| archive.names.iter().map(String::as_str))
    }

    /// One word for all of the bytes: equal words, equal images.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for archive in &self.archives {
            hash.update(archive.sha256.as_bytes());
        }
        hex::encode(hash.finalize())
    }
}

/// Makes every image, and the index last.
///
/// # Errors
/// Where an ingredient is missing or the folder cannot be written.
pub fn make(from: &Ingredients, folder: &Path) -> Result<Index> {
    fs::create_dir_all(folder).map_err(StackError::at("Making", folder))?;
    let images = recipes::all(from)?;
    let names = images.iter().map(|image| image.name.clone()).collect();
    let mut archives = vec![store(folder, "test-images.tar", names, |file| {
        archive::write(&images, file)
    })?];
    if let Some(root) = &from.store {
        let names = vec![SANDBOX.to_owned()];
        archives.push(store(folder, "sandbox.tar", names, |file| {
            sandglass_image::Store::open(root)
                .export(None, SANDBOX, file)
                .map_err(|error| StackError::Setting(error.to_string()))
        })?);
    }
    let index = Index { archives };
    let path = folder.join("images.json");
    let text = serde_json::to_vec_pretty(&index).map_err(|e| StackError::Setting(e.to_string()))?;
    fs::write(&path, text).map_err(StackError::at("Writing", &path))?;
    Ok(index)
}

fn store(
    folder: &Path,
    name: &str,
    names: Vec<String>,
    write: impl FnOnce(&mut File) -> Result<()>,
) -> Result<Archive> {
    let path = folder.join(name);
    let mut file = File::create(&path).map_err(StackError::at("Writing", &path))?;
    write(&mut file)?;
    drop(file);
    let mut hash = Sha256::new();
    let mut file = File::open(&path).map_err(StackError::at("Reading", &path))?;
    std::io::copy(&mut file, &mut hash).map_err(StackError::at("Reading", &path))?;
    Ok(Archive {
        file: name.to_owned(),
        sha256: hex::encode(hash.finalize()),
        names,
    })
}
