//! One image as one tar archive: an OCI layout that `skopeo copy oci-archive:` and `ctr images import` read, with the
//! `manifest.json` beside it that `docker load` wants.

use std::fs::File;
use std::io::Write;

use serde_json::json;

use crate::digest::HashReader;
use crate::error::{At, ImageError, Result};
use crate::oci::{self, Index, REF_NAME};
use crate::store::Store;

/// The annotation by which containerd names an imported image.
const CONTAINERD_NAME: &str = "io.containerd.image.name";

impl Store {
    /// Writes an image (by name or digest) to `writer` as a tar archive. `tag` is what the image is called where it is
    /// loaded, such as `localhost/sandglass:1`. Equal images and tags give equal bytes. Blobs are hashed while they
    /// are read; a damaged one is an error, and what was written so far is then no archive.
    pub fn export(&self, reference: Option<&str>, tag: &str, writer: &mut dyn Write) -> Result<()> {
        let (repository, version) = split_tag(tag)?;
        let image = self.resolve(reference)?;
        let hex = image.digest.trim_start_matches("sha256:");
        let (text, manifest) = self.manifest(hex)?;
        let mut descriptor = oci::Descriptor::new(oci::MANIFEST, hex, text.len() as u64);
        descriptor.annotations.insert(REF_NAME.into(), version.into());
        descriptor
            .annotations
            .insert(CONTAINERD_NAME.into(), format!("{repository}:{version}"));
        let index = to_json(&Index::new(vec![descriptor]))?;

        let blobs: Vec<&oci::Descriptor> = std::iter::once(&manifest.config)
            .chain(&manifest.layers)
            .collect();
        let path_of = |descriptor: &oci::Descriptor| format!("blobs/{}", descriptor.digest.replace(':', "/"));
        let docker = json!([{
            "Config": path_of(&manifest.config),
            "Layers": manifest.layers.iter().map(path_of).collect::<Vec<_>>(),
            "RepoTags": [format!("{repository}:{version}")],
        }]);

        let mut archive = tar::Builder::new(writer);
        append(&mut archive, "oci-layout", oci::LAYOUT.as_bytes())?;
        append(&mut archive, "index.json", &index)?;
        append(&mut archive, "manifest.json", &to_json(&docker)?)?;
        append(&mut archive, &format!("blobs/sha256/{hex}"), &text)?;
        for descriptor in blobs {
            let file = self.layer_file(descriptor)?;
            let mut reader = HashReader::new(File::open(&file.path).at(&file.path)?);
            let mut header = header(descriptor.size);
            archive
                .append_data(&mut header, path_of(descriptor), &mut reader)
                .at("the archive")?;
            let (found, bytes) = reader.finish().at(&file.path)?;
            if found != file.sha256 || bytes != descriptor.size {
                let what = file.path.display().to_string();
                return Err(ImageError::DigestMismatch {
                    what,
                    expected: file.sha256,
                    found,
                });
            }
        }
        archive.into_inner().and_then(Write::flush).at("the archive")
    }
}

/// Splits `repository:tag`; both are checked, since three other programs will read them.
fn split_tag(tag: &str) -> Result<(&str, &str)> {
    let fine = |text: &str, more: &str| {
        !text.is_empty()
            && text.len() <= 128
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || more.as_bytes().contains(&b))
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    match tag.rsplit_once(':') {
        Some((repository, version)) if fine(repository, "./_-:") && fine(version, "._-") => {
            Ok((repository, version))
        }
        _ => Err(ImageError::BadReference(tag.to_owned())),
    }
}

fn append(archive: &mut tar::Builder<&mut dyn Write>, path: &str, content: &[u8]) -> Result<()> {
    archive
        .append_data(&mut header(content.len() as u64), path, content)
        .at("the archive")
}

fn header(bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes);
    header
}

fn to_json(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| ImageError::corrupt("the archive's index", e))
}
