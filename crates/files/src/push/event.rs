//! Input events of a push.

use std::io;

use rdmc::{Error, Failure};

use super::stream_source::StreamPart;
use crate::{
    SourceError, digests::Digests, messages::ToRoot, ranges::Ranges, resume::ChunkDigests,
};

/// An input event of a root's state machine. Hosts are identified by their index, successive connections to one host by
/// their numbers. `C` is a connection that has no number yet, `G` a joined group.
#[derive(Debug)]
pub enum Event<C, G> {
    /// A receiver has connected.
    Connected(usize, C),
    /// A receiver of this name asks to join; one that fetches says whether it shares its copy after that.
    JoinRequested { name: String, shares: bool, connection: C },
    /// A message from a receiver.
    Message { host: usize, connection: u64, message: ToRoot },
    /// A receiver's control connection has ended, with the reason.
    Disconnected { host: usize, connection: u64, reason: String },
    /// A host's receiver cannot be started or has ended early. `start` counts the starts before this one.
    HostFailed { host: usize, start: u32, reason: String },
    /// The comparison of a host's existing data with the source is done.
    Compared { host: usize, connection: u64, matching: Result<Ranges, SourceError> },
    /// The source has been read, or those files of a tree that were to be.
    Digest(Result<Digests, SourceError>),
    /// Further chunks of the source were read that hosts lack.
    Chunks(Result<ChunkDigests, SourceError>),
    /// The source was looked at again. Errors: it has changed.
    Looked(Result<(), SourceError>),
    /// The reader of a stream has read once, or failed.
    Read(io::Result<StreamPart>),
    /// The root has joined a group, or failed to.
    Joined(u64, Result<G, Error>),
    /// A group has closed with success, or failed.
    Ended(u64, Result<(), Failure>),
    /// The application cancels the push; the second time, it stops waiting for hosts that publish.
    Cancel,
}
