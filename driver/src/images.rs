//! Which image a run gets.

use std::path::PathBuf;

use sandglass_image::{Held, Image, ImageError, Store};

use crate::admission::capitalised;
use crate::refusal::Refusal;

/// Where images are, and which of them is meant.
#[derive(Debug, Clone, Default)]
pub struct Images {
    /// The store's root; its default place when none is named.
    pub store: Option<PathBuf>,
    /// A name or digest; the one called `default` when none is named.
    pub image: Option<String>,
}

impl Images {
    /// Finds the image. Cheap: called for every run.
    ///
    /// # Errors
    /// No such image, or a store that cannot be read.
    pub fn resolve(&self) -> Result<Image, Refusal> {
        self.store()
            .resolve(self.image.as_deref())
            .map_err(|e| refused(&e))
    }

    /// Finds the image and keeps it from being removed for as long as the second value lives.
    ///
    /// # Errors
    /// As [`Images::resolve`].
    pub fn hold(&self) -> Result<(Image, Held), Refusal> {
        let image = self.resolve()?;
        let held = image.hold().map_err(|e| refused(&e))?;
        Ok((image, held))
    }

    /// The store itself.
    pub fn store(&self) -> Store {
        Store::open(self.store.clone().unwrap_or_else(Store::default_root))
    }
}

fn refused(error: &ImageError) -> Refusal {
    let (code, hint) = match error {
        ImageError::Missing { .. } => ("image_missing", error.hint()),
        ImageError::BadReference(_) => ("image_name_invalid", error.hint()),
        ImageError::Corrupt { .. } | ImageError::DigestMismatch { .. } => ("image_corrupt", error.hint()),
        _ => (
            "image_unreadable",
            "Give this user the right to read the store, or name another with SANDGLASS_STORE.",
        ),
    };
    Refusal::new(code, capitalised(&error.to_string()), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_a_missing_image_is_said_once() {
        let tmp = tempfile::tempdir().unwrap();
        let images = Images {
            store: Some(tmp.path().into()),
            image: None,
        };
        let refusal = images.resolve().unwrap_err();
        let said = refusal.to_string();
        assert_eq!(said.matches("sandglass image build").count(), 1, "{said}");
        assert!(refusal.hint.contains("sandglass image build"), "{said}");
    }

    #[test]
    fn each_way_not_to_have_an_image_has_its_own_code() {
        let tmp = tempfile::tempdir().unwrap();
        let code = |image: &str| {
            let images = Images {
                store: Some(tmp.path().into()),
                image: Some(image.into()),
            };
            images.resolve().unwrap_err().code
        };
        assert_eq!(code("default"), "image_missing");
        assert_eq!(code(&format!("sha256:{}", "0".repeat(64))), "image_missing");
        assert_eq!(code("../x"), "image_name_invalid");
        std::fs::create_dir(tmp.path().join("names")).unwrap();
        std::fs::write(tmp.path().join("names/junk"), "junk").unwrap();
        std::fs::write(
            tmp.path().join("names/gone"),
            format!("sha256:{}\n", "0".repeat(64)),
        )
        .unwrap();
        assert_eq!(code("junk"), "image_corrupt");
        assert_eq!(code("gone"), "image_corrupt");
        std::fs::write(tmp.path().join("file"), "").unwrap();
        let images = Images {
            store: Some(tmp.path().join("file")),
            image: None,
        };
        assert_eq!(images.resolve().unwrap_err().code, "image_unreadable");
    }
}
