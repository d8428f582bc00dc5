//! The four small JSON documents of an OCI layout. Own types with sorted maps, since the digest of an image is the
//! digest of these bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::is_sha256_hex;

/// Media type of a manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of an index.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of an image configuration.
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of a gzipped layer.
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Content of the file `oci-layout`.
pub(crate) const LAYOUT: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
/// The annotation by which a layout says what an image is called.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";

type Annotations = BTreeMap<String, String>;

/// Points to a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub media_type: String,
    pub digest: String,
    pub size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Annotations,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

impl Descriptor {
    pub(crate) fn new(media_type: &str, sha256: &str, size: u64) -> Self {
        Self {
            media_type: media_type.into(),
            digest: format!("sha256:{sha256}"),
            size,
            annotations: Annotations::new(),
            platform: None,
        }
    }

    /// The hex part of a sha256 digest; `None` for anything else.
    pub(crate) fn sha256(&self) -> Option<&str> {
        self.digest
            .strip_prefix("sha256:")
            .filter(|hex| is_sha256_hex(hex))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Platform {
    pub architecture: String,
    pub os: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub schema_version: u32,
    pub media_type: String,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Annotations,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub schema_version: u32,
    pub media_type: String,
    pub manifests: Vec<Descriptor>,
}

impl Index {
    pub(crate) fn new(manifests: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: INDEX.into(),
            manifests,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Configuration {
    pub created: String,
    pub architecture: String,
    pub os: String,
    pub config: Process,
    pub rootfs: RootFs,
    pub history: Vec<History>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Process {
    pub user: String,
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub working_dir: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Annotations,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RootFs {
    #[serde(rename = "type")]
    pub kind: String,
    pub diff_ids: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    pub created: String,
    pub created_by: String,
}
