//! Posts: memory, and the token that it was posted with.

use transport::{ArrivingRead, ReadLease, Token, WriteLease};

/// The sending half.
pub(crate) struct Source {
    pub(crate) from: From,
    pub(crate) token: Token,
}

/// Memory to send.
pub(crate) enum From {
    Whole(ReadLease),
    Arriving(ArrivingRead),
}

impl From {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Whole(lease) => lease.bytes(),
            Self::Arriving(read) => read.bytes(),
        }
    }

    /// Returns what is here so far.
    pub(crate) fn contents(&self) -> &[u8] {
        match self {
            Self::Whole(lease) => lease,
            Self::Arriving(read) => read.arrived(),
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Arriving(read) => read.arrived().len() == read.bytes(),
        }
    }
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
