//! Streams and keys that an endpoint is made of.

use std::{
    fmt,
    net::{SocketAddr, TcpStream},
};

use transport::EndpointId;
use transport_shm::ShmPipe;
use zeroize::Zeroizing;

use crate::record::{Opener, SECRET_BYTES, Sealer};

/// The most streams that one endpoint can have.
pub const STREAMS_MAX: usize = 8;

/// A connection of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnectionId(pub u64);

/// Connected and authenticated TCP streams to one peer, not yet used by either side for blocks.
///
/// Both sides must give the same number of streams in the same order. The transport owns them from
/// [`transport::Transport::open`] on and closes them when the endpoint ends.
#[derive(Debug)]
pub struct TcpLink {
    pub(crate) kind: Kind,
}

/// The sockets of a connection, with their keys.
pub(crate) type Sockets = Vec<(TcpStream, Option<StreamKeys>)>;

#[derive(Debug)]
pub(crate) enum Kind {
    Streams(Sockets),
    /// Through shared memory, between the processes at the ends of this connection.
    Memory(TcpStream, Box<ShmPipe>),
    /// A channel of a shared connection.
    Reserved(EndpointId, Carrier),
}

/// What the bytes of a shared connection pass through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    Sockets,
    Memory,
}

/// The keys of one stream: without them, bytes on the stream cannot be read, and changing, repeating or removing them is
/// detected (the endpoint breaks with [`transport::Cause::Corrupt`]). Zeroed in memory when dropped.
pub struct StreamKeys {
    sending: Zeroizing<[u8; SECRET_BYTES]>,
    receiving: Zeroizing<[u8; SECRET_BYTES]>,
}

impl StreamKeys {
    /// Makes keys of one stream, one for each direction; neither may ever be used for another. The
    /// peer has them in the opposite order.
    pub fn new(sending: [u8; 32], receiving: [u8; 32]) -> Self {
        let (sending, receiving) = (Zeroizing::new(sending), Zeroizing::new(receiving));
        Self { sending, receiving }
    }

    pub(crate) fn into_records(self) -> (Opener, Sealer) {
        (Opener::new(self.receiving), Sealer::new(self.sending))
    }
}

impl fmt::Debug for StreamKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamKeys(..)")
    }
}

/// Why streams cannot form a link.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The number of streams is not 1 to 8.
    #[error("a link has 1 to 8 streams, not {0}")]
    StreamCount(usize),
}

impl TcpLink {
    /// Makes a link of 1 to [`STREAMS_MAX`] streams. One is enough unless a single TCP stream
    /// cannot fill the path (as with loss or policing on long paths, or some virtual networks).
    ///
    /// The streams are not protected: an attacker on the path can change what is sent.
    pub fn new(streams: Vec<TcpStream>) -> Result<Self, LinkError> {
        Self::with_keys(streams.into_iter().map(|stream| (stream, None)).collect())
    }

    /// As [`TcpLink::new`], with keys for each stream.
    pub fn protected(streams: Vec<(TcpStream, StreamKeys)>) -> Result<Self, LinkError> {
        Self::with_keys(streams.into_iter().map(|(stream, keys)| (stream, Some(keys))).collect())
    }

    /// Makes a link between two processes of one machine whose bytes pass through shared memory, to which no other process has access. The
    /// connection stays open without being used, and identifies the processes where one copies blocks out of the memory of the
    /// other ([`crate::TcpSettings::direct_copies`]).
    #[must_use]
    pub fn through_memory(connection: TcpStream, pipe: ShmPipe) -> Self {
        Self { kind: Kind::Memory(connection, Box::new(pipe)) }
    }

    /// Returns whether the bytes of this link, or of the connection of which it is a channel, pass through shared memory.
    #[must_use]
    pub fn is_through_memory(&self) -> bool {
        matches!(self.kind, Kind::Memory(..) | Kind::Reserved(_, Carrier::Memory))
    }

    fn with_keys(streams: Vec<(TcpStream, Option<StreamKeys>)>) -> Result<Self, LinkError> {
        if (1..=STREAMS_MAX).contains(&streams.len()) {
            Ok(Self { kind: Kind::Streams(streams) })
        } else {
            Err(LinkError::StreamCount(streams.len()))
        }
    }

    /// Returns the address of the other end, if this is a connection of its own and is connected.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        let socket = match &self.kind {
            Kind::Streams(sockets) => &sockets.first()?.0,
            Kind::Memory(socket, _) => socket,
            Kind::Reserved(..) => return None,
        };
        socket.peer_addr().ok()
    }
}

impl From<TcpStream> for TcpLink {
    fn from(stream: TcpStream) -> Self {
        Self { kind: Kind::Streams(vec![(stream, None)]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_streams() {
        assert_eq!(TcpLink::new(vec![]).unwrap_err(), LinkError::StreamCount(0));
    }
}
