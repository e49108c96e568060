//! How far a team is.

use crate::Failure;

/// The state of a team at one member.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Phase {
    Open,
    /// Everything is complete here; the links close once it is so at all linked members.
    Leaving,
    /// The links are closing, or closed.
    Left,
    Failed(Failure),
}
