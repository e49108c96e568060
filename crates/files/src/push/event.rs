//! What happens to a push.

use rdmc::{Error, Failure};

use crate::{SourceError, messages::ToRoot, ranges::Ranges};

/// Whatever a push waits for. Hosts are named by their index; connections to the same host are told apart by
/// their numbers. `C` is a connection before it has a number, `G` a group that was joined.
#[derive(Debug)]
pub enum Event<C, G> {
    /// A receiver is there.
    Came(usize, C),
    /// A receiver of this name wants to join.
    Asks(String, C),
    /// A receiver has said something.
    Said { host: usize, connection: u64, message: ToRoot },
    /// A receiver's control connection has ended, in this way.
    Gone { host: usize, connection: u64, how: String },
    /// A receiver will not come, for this reason, after so many that were lost.
    HostFailed { host: usize, start: u32, reason: String },
    /// What a host has of an earlier session was compared.
    Checked { host: usize, connection: u64, right: Result<Ranges, SourceError> },
    /// The source was read.
    Digest(Result<blake3::Hash, SourceError>),
    /// The root has joined a group, or could not.
    Joined(u64, Result<G, Error>),
    /// A group has closed with success, or failed.
    Ended(u64, Result<(), Failure>),
    /// The push is to end, or to wait no longer.
    Cancel,
}
