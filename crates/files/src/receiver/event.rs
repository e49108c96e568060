//! What happens to a session.

use std::io;

use rdmc::Error;

use super::membership::News;
use crate::messages::ToReceiver;

/// Whatever a session waits for; `G` is a group that was joined.
#[derive(Debug)]
pub enum Event<G> {
    /// The root has said something, or nothing more comes from it.
    Root(Result<ToReceiver, Error>),
    /// A group was joined, or could not be.
    Joined(u64, Result<G, Error>),
    /// From the callbacks of a group.
    Group(News),
    /// The digest of the whole copy.
    OwnDigest(io::Result<blake3::Hash>),
}
