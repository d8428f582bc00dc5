//! What containerd is told when a call fails: a gRPC status and one sentence.

use containerd_shim::protos::ttrpc;

/// The codes of gRPC that a shim answers with.
pub use ttrpc::Code;

/// An error as the Task API carries it.
pub type Result<T> = ttrpc::Result<T>;

/// A status with a sentence.
pub fn status(code: Code, sentence: impl Into<String>) -> ttrpc::Error {
    ttrpc::Error::RpcStatus(ttrpc::get_status(code, sentence.into()))
}

/// Nothing of that id.
pub fn not_found(what: &str, id: &str) -> ttrpc::Error {
    status(Code::NOT_FOUND, format!("{what} {id}: not found"))
}

/// It exists, and is not in a state for that.
pub fn precondition(sentence: impl Into<String>) -> ttrpc::Error {
    status(Code::FAILED_PRECONDITION, sentence)
}

/// The request itself is wrong.
pub fn invalid(sentence: impl Into<String>) -> ttrpc::Error {
    status(Code::INVALID_ARGUMENT, sentence)
}

/// Anything else, with what was tried.
pub fn failed(doing: &str, error: impl std::fmt::Display) -> ttrpc::Error {
    status(Code::UNKNOWN, format!("{doing}: {error}"))
}
