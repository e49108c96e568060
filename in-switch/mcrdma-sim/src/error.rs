//! Why a group cannot be made.

use mcrdma::{Refused, plan::NoTree};

/// Why a group cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoGroup {
    /// Switches cannot serve it.
    #[error(transparent)]
    Tree(#[from] NoTree),
    /// A switch does not take it.
    #[error(transparent)]
    Refused(#[from] Refused),
}
