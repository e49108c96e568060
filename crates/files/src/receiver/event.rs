//! Input events of a session.

use std::io;

use rdmc::Error;

use super::{error::ReceiveError, membership::MemberEvent};
use crate::{messages::ToReceiver, subtrees::SubtreeDigest};

/// An input event of a session; `G` is a joined group.
#[derive(Debug)]
pub enum Event<G> {
    /// A message from the root, or the end of its connection.
    Root(Result<ToReceiver, Error>),
    /// A group was joined, or joining failed.
    Joined(u64, Result<G, Error>),
    /// From the callbacks of a group.
    Group(MemberEvent),
    /// The digest of the whole copy.
    OwnDigest(io::Result<blake3::Hash>),
    /// The command that takes a stream has succeeded; whether the copy had its name already.
    Published(bool),
    /// Subtrees of files were read at a URL: digests with where each begins.
    Read(Vec<(u64, SubtreeDigest)>),
    /// A stream cannot be written out, or something read at a URL.
    Failed(ReceiveError),
}
