//! Several images as one tar archive: an OCI layout, each blob once.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::recipes::Image;
use crate::error::{Result, StackError};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The blobs of an archive, by the hex of their sha256.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Adds a blob; returns its descriptor.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let hex = hex::encode(Sha256::digest(&bytes));
        let descriptor =
            json!({"mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len()});
        self.0.insert(hex, bytes);
        descriptor
    }
}

/// Writes `images` to `writer`; equal images give equal bytes.
pub(super) fn write(images: &[Image], writer: &mut dyn Write) -> Result<()> {
    let mut blobs = Blobs::default();
    let mut manifests = Vec::new();
    for image in images {
        manifests.push(manifest(image, &mut blobs)?);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    });
    let mut archive = tar::Builder::new(writer);
    append(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut archive, "index.json", index.to_string().as_bytes())?;
    for (hex, bytes) in &blobs.0 {
        append(&mut archive, &format!("blobs/sha256/{hex}"), bytes)?;
    }
    archive
        .into_inner()
        .and_then(Write::flush)
        .map_err(StackError::doing("Writing the archive"))
}

fn manifest(image: &Image, blobs: &mut Blobs) -> Result<Value> {
    let mut layers = Vec::new();
    for layer in &image.layers {
        layers.push(blobs.add(LAYER, layer.tar()?));
    }
    // Uncompressed layers: the digest of a blob is its diff id.
    let diff_ids: Vec<_> = layers.iter().map(|layer| layer["digest"].clone()).collect();
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "User": image.user,
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = blobs.add(CONFIG, config.to_string().into_bytes());
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
    let mut descriptor = blobs.add(MANIFEST, manifest.to_string().into_bytes());
    descriptor["annotations"] = json!({
        "io.containerd.image.name": image.name,
        "org.opencontainers.image.ref.name": image.name.rsplit(':').next(),
    });
    descriptor["platform"] = json!({"architecture": architecture(), "os": "linux"});
    Ok(descriptor)
}

/// This machine's architecture as Go calls it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn append(archive: &mut tar::Builder<&mut dyn Write>, path: &str, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    archive
        .append_data(&mut header, path, content)
        .map_err(StackError::doing(format!("Writing {path} to the archive")))
}

#[cfg(test)]
mod tests {
    use super::super::layer::Layer;
    use super::*;
    use std::io::Read;

    fn image(name: &str) -> Image {
        Image {
            name: name.into(),
            layers: vec![Layer::default().file("a", 0o644, "shared")],
            entrypoint: vec!["/a".into()],
            command: vec![],
            user: String::new(),
        }
    }

    #[test]
    fn images_share_blobs_and_every_digest_holds() {
        let mut bytes = Vec::new();
        write(&[image("x.test/one:1"), image("x.test/two:2")], &mut bytes).unwrap();
        let mut again = Vec::new();
        write(&[image("x.test/one:1"), image("x.test/two:2")], &mut again).unwrap();
        assert_eq!(bytes, again);

        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), content);
        }
        for (path, content) in &files {
            if let Some(hex) = path.strip_prefix("blobs/sha256/") {
                assert_eq!(hex, hex::encode(Sha256::digest(content)));
            }
        }
        // One layer, one configuration, one manifest: the images differ in their names only.
        assert_eq!(files.len(), 2 + 3);
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let names: Vec<_> = index["manifests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| {
                m["annotations"]["io.containerd.image.name"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        assert_eq!(names, ["x.test/one:1", "x.test/two:2"]);
    }
}
