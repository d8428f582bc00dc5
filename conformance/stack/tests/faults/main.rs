//! What goes wrong around our shim under a real containerd, and what must not be left: needs root, what `make stack` makes
//! and the shim's release build, so `make stack-test` runs it.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails the test"
)]

mod away;
#[path = "../common/mod.rs"]
mod common;
mod lost;
mod many;
mod node;
mod planted;
mod pods;
mod staged;
mod streams;
