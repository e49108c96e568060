//! Posts: memory, and the token that it was posted with.

use transport::{ReadLease, Token, WriteLease};

/// The sending half.
pub(crate) struct Source {
    pub(crate) from: ReadLease,
    pub(crate) token: Token,
}

/// The receiving half.
pub(crate) struct Target {
    pub(crate) into: WriteLease,
    pub(crate) token: Token,
    /// Increases with each post.
    pub(crate) number: u64,
}

/// The memory of a post that has lost its counterpart.
pub(crate) enum Orphan {
    Send(Source),
    Receive(Target),
}

impl Orphan {
    /// Drops the lease.
    pub(crate) fn into_token(self) -> Token {
        match self {
            Self::Send(source) => source.token,
            Self::Receive(target) => target.token,
        }
    }
}
