//! Links that have connections of their own: what the two ends offer each other, and what a link then goes through.

use std::time::Duration;

use session::{Channel, Deadline};
#[cfg(feature = "fabric")]
use transport_fabric::Role;
use transport_shm::{PipeEnd, ShmError, ShmLink};
use transport_tcp::TcpSettings;

use crate::Error;

/// The answer to an offer of shared memory by which the other end has connected to it.
const CONNECTED: &[u8] = &[1];

/// How long an end is waited for that says it has connected to shared memory: it has before it says so.
const CONNECTED_TIMEOUT: Duration = Duration::from_secs(1);

/// The length of the ring through which an end of a shared connection sends. Blocks of root, which pass through it, take 2 times as long with
/// 64 KiB and 1.3 times with 256 KiB.
const PIPE_BYTES: usize = transport_shm::USUAL_RING_BYTES;

/// Makes this end's offers for new links.
#[derive(Clone)]
pub(crate) enum Offers {
    /// Empty offers: the connections themselves are the link.
    Tcp,
    /// Shared memory, if the connection is within this machine and these settings let blocks bypass it.
    SharedMemory(TcpSettings),
    #[cfg(feature = "fabric")]
    Libfabric(transport_fabric::Offers),
}

/// What this end of a link sends to the other in the handshake.
pub(crate) enum Offer {
    Tcp,
    SharedMemory(transport_shm::Offer),
    #[cfg(feature = "fabric")]
    Libfabric(transport_fabric::Offer),
}

/// What a link goes through.
pub(crate) enum Carrier {
    /// Its connections.
    Tcp,
    /// Its connections are closed when both ends have opened it.
    SharedMemory(ShmLink),
    /// With the offers of both ends.
    #[cfg(feature = "fabric")]
    Libfabric { role: Role, ours: transport_fabric::Offer, theirs: Vec<u8> },
}

/// A link that has connections of its own, authenticated, on which both ends have agreed.
pub(crate) struct OwnLink {
    /// One for each stream.
    pub(crate) channels: Vec<Channel>,
    pub(crate) carrier: Carrier,
}

impl Offers {
    /// Makes the offer for one new link, on whose first connection it is sent. Errors: the system has no random numbers.
    pub(crate) fn make(&self, channel: &Channel) -> Result<Offer, Error> {
        match self {
            Self::Tcp => Ok(Offer::Tcp),
            Self::SharedMemory(settings) if may_share(settings, channel) => {
                let offer = transport_shm::Offer::make();
                let offer = offer.inspect_err(|error| tracing::debug!(%error, "no shared memory"));
                Ok(offer.map_or(Offer::Tcp, Offer::SharedMemory))
            }
            Self::SharedMemory(_) => Ok(Offer::Tcp),
            #[cfg(feature = "fabric")]
            Self::Libfabric(offers) => offers.make().map(Offer::Libfabric).map_err(fabric_error),
        }
    }

    /// Answers the offer of the end that has connected. Returns what the link goes through, and the answer. Does not block.
    ///
    /// Errors: the system has no random numbers.
    pub(crate) fn accept(
        &self,
        channel: &Channel,
        theirs: Vec<u8>,
    ) -> Result<(Carrier, Vec<u8>), Error> {
        match self {
            Self::SharedMemory(settings) if !theirs.is_empty() && may_share(settings, channel) => {
                // Not through shared memory if its process is another user's, or in another network namespace.
                match ShmLink::connect(&theirs) {
                    Ok(link) => Ok((Carrier::SharedMemory(link), CONNECTED.to_vec())),
                    Err(error) => {
                        tracing::debug!(peer = %channel.peer(), %error, "no shared memory");
                        Ok((Carrier::Tcp, Vec::new()))
                    }
                }
            }
            Self::Tcp | Self::SharedMemory(_) => Ok((Carrier::Tcp, Vec::new())),
            #[cfg(feature = "fabric")]
            Self::Libfabric(offers) => {
                let ours = offers.make().map_err(fabric_error)?;
                let answer = ours.bytes().to_vec();
                Ok((Carrier::Libfabric { role: Role::Accept, ours, theirs }, answer))
            }
        }
    }
}

impl Offer {
    /// Returns the offer as it is sent to the other end.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Tcp => Vec::new(),
            Self::SharedMemory(offer) => offer.bytes().to_vec(),
            #[cfg(feature = "fabric")]
            Self::Libfabric(offer) => offer.bytes().to_vec(),
        }
    }

    /// Returns what the link goes through after this answer of the end that has accepted.
    ///
    /// Errors: the other end says that it has connected to shared memory, and has not.
    pub(crate) fn answered(self, answer: Vec<u8>, deadline: Deadline) -> Result<Carrier, String> {
        match self {
            Self::SharedMemory(offer) if answer == CONNECTED => {
                let link = offer
                    .accept(CONNECTED_TIMEOUT.min(deadline.left()))
                    .map_err(|error| error.to_string())?;
                Ok(Carrier::SharedMemory(link))
            }
            Self::Tcp | Self::SharedMemory(_) => Ok(Carrier::Tcp),
            #[cfg(feature = "fabric")]
            Self::Libfabric(ours) => {
                Ok(Carrier::Libfabric { role: Role::Connect, ours, theirs: answer })
            }
        }
    }
}

impl Carrier {
    /// Begins a pipe in place of a connection that groups share; `None` if that is used itself. Does not wait.
    ///
    /// Errors: the system has no memory or file descriptors left.
    pub(crate) fn begin_pipe(self) -> Result<Option<PipeEnd>, ShmError> {
        match self {
            Self::SharedMemory(link) => PipeEnd::begin(link, PIPE_BYTES).map(Some),
            _ => Ok(None),
        }
    }
}

impl OwnLink {
    /// Returns whether the other end has not closed it. Does not block.
    pub(crate) fn is_open(&self) -> bool {
        match &self.carrier {
            Carrier::SharedMemory(link) => link.is_open(),
            _ => self.channels.iter().all(Channel::is_open),
        }
    }
}

/// Returns whether both ends are on this machine, and the settings let blocks bypass the connection.
fn may_share(settings: &TcpSettings, channel: &Channel) -> bool {
    let local = channel.local_address();
    local.is_ok_and(|local| settings.may_bypass(local, channel.peer()))
}

#[cfg(feature = "fabric")]
fn fabric_error(error: impl std::fmt::Display) -> Error {
    Error::Fabric { fabric: "libfabric".into(), cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_true_answer_makes_a_link_through_shared_memory() {
        let until = Deadline::after(Duration::from_secs(60));
        let offer = || Offer::SharedMemory(transport_shm::Offer::make().unwrap());
        for other in [&[][..], &[0], &[1, 1], &[1; 5_000]] {
            assert!(matches!(offer().answered(other.to_vec(), until), Ok(Carrier::Tcp)));
        }
        let made = offer();
        let connected = ShmLink::connect(&made.bytes()).unwrap();
        let answered = made.answered(CONNECTED.to_vec(), until);
        assert!(matches!(answered, Ok(Carrier::SharedMemory(_))) && connected.is_open());
        // Without a connection.
        assert!(offer().answered(CONNECTED.to_vec(), until).is_err());
    }
}
