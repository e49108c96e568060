//! Why a fabric cannot be used.

use std::fmt::Display;

/// Why a fabric cannot be started or examined, and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// This program was built without libfabric's headers.
    #[error(
        "this program was built without libfabric; install libfabric-dev (1.17 or later) and \
         pkg-config, and build it again, or use the fabric tcp"
    )]
    NotBuilt,
    /// The library is not installed on this host.
    #[error(
        "libfabric is not installed here ({0}); install it (Debian: libfabric1, Red Hat: \
         libfabric), or use the fabric tcp"
    )]
    NoLibrary(String),
    /// The provider or the device does not exist on this host.
    #[error("{0}")]
    NoDevice(String),
    /// A call of libfabric failed.
    #[error("{what} failed: {why}")]
    Call {
        /// What was tried.
        what: String,
        /// The reason, as text of libfabric.
        why: String,
    },
    /// The peer's offer is invalid.
    #[error("the peer's offer cannot be used: {0}")]
    Offer(String),
}

impl FabricError {
    /// Makes the error of a failed call.
    #[cfg_attr(not(libfabric), allow(dead_code, reason = "nothing is called then"))]
    pub(crate) fn call(what: impl Into<String>, why: impl Display) -> Self {
        Self::Call { what: what.into(), why: why.to_string() }
    }
}
