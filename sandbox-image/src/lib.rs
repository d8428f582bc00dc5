//! The sandbox image: pinned inputs, one reproducible build, no container engine.
//!
//! [`Lock`] pins every input by name, version and sha256. [`Store::build`] fetches them with the machine's own
//! clients, unpacks them in memory (no maintainer script or installer ever runs), leaves out what a sandbox must not
//! have, compiles bytecode and matplotlib's font cache with the image's own interpreter, and writes layers whose bytes
//! depend on nothing else. The result is an OCI image in a [`Store`], named by the digest of its manifest, with its
//! root unpacked beside it for the local driver.
//!
//! [`Store::resolve`] is what every run calls: one small read and one `stat`.
#![forbid(unsafe_code)]

mod archive;
mod base;
mod build;
mod cache;
mod digest;
mod error;
mod export;
mod fetch;
mod inside;
mod layer;
mod lock;
mod oci;
mod progress;
mod prune;
mod publish;
mod recipe;
mod relock;
mod remove;
mod rootfs;
mod store;
#[cfg(test)]
mod store_tests;
mod tool;
mod tree;
mod unpack;

pub use build::{BuildOptions, Built};
pub use cache::default_cache;
pub use error::{ImageError, Result};
pub use lock::{Input, Kind, Lock};
pub use progress::{Progress, Silent, human_bytes};
pub use recipe::default_runner;
pub use relock::relock;
pub use remove::{Held, Removed};
pub use store::{DEFAULT_NAME, Details, Image, Store, Verified, valid_name};
