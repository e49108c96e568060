//! Groups whose blocks the network relays by itself.

use std::fmt;

use relay::Action;
use transport::{LeaseError, PostError, Token, Transport, TriggeredSends};

use crate::{
    counters::Counters,
    group::{Group, range},
    settings::GroupSettings,
    words::Word,
};

/// How many operations an offloading member keeps posted in each direction. The message's whole
/// graph is posted where it fits; what is beyond follows as operations complete, which then takes
/// the member's program again. A network card's queues have some thousand places.
const OFFLOADED_OPEN_MAX: u32 = 4_096;

/// Whether the network relays a group's blocks by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Offload {
    /// Nobody asked for it ([`GroupSettings::offload`]).
    NotAsked,
    /// It does.
    Used,
    /// It was asked for, but this member's program relays; with the reason.
    Unavailable(&'static str),
}

impl Offload {
    /// What a group gets on a network that can or cannot offload.
    pub fn of(settings: &GroupSettings, can_offload: bool) -> Self {
        match (settings.offload, can_offload) {
            (false, _) => Self::NotAsked,
            (true, true) => Self::Used,
            (true, false) => Self::Unavailable(
                "this fabric cannot start sends by itself; the fabrics sockets (in software, to try \
                 it) and cxi (in hardware) can",
            ),
        }
    }

    /// Whether blocks are relayed by the network.
    pub fn is_used(self) -> bool {
        self == Self::Used
    }

    /// How many operations the group's relay may have open each way, if it offloads.
    pub(crate) fn limit(self) -> Option<u32> {
        self.is_used().then_some(OFFLOADED_OPEN_MAX)
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not asked for"),
            Self::Used => f.write_str("used"),
            Self::Unavailable(reason) => write!(f, "unavailable: {reason}"),
        }
    }
}

fn triggered<T: Transport>(transport: &mut T) -> Result<&mut dyn TriggeredSends, PostError> {
    transport.triggered().ok_or(PostError::Unsupported("triggered sends"))
}

impl Group {
    /// Carries out an action that only an offloading relay asks for, over a network that has
    /// triggered sends; others do nothing.
    pub(crate) fn act_offloaded<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
        action: Action,
    ) -> Result<(), LeaseError> {
        match action {
            Action::PostOffloadedReceive { source, id, message, immediate, offset, bytes } => {
                let region = self.region(message);
                let lease = match region.is_stored() {
                    true => self.land(id, message, offset, bytes)?,
                    false => region.write(range(offset, bytes))?,
                };
                if let Some(endpoint) = self.peer(source) {
                    let posted = triggered(transport).and_then(|sends| {
                        sends.post_offloaded_receive(endpoint, lease, immediate, Token(id.0))
                    });
                    self.is_posted(source, posted);
                }
            }
            Action::Grant { source, count } => {
                self.write_word(transport, source, &Word::Grant { count });
            }
            Action::PostOffloadedSend {
                target,
                id,
                message,
                immediate,
                offset,
                bytes,
                after_receive,
                after_send,
            } => {
                let region = self.region(message);
                let memory = match region.is_stored() {
                    true => self.shadow(self.number_of(message), &region),
                    false => region,
                };
                let from = memory.future_read(range(offset, bytes))?;
                // The network may have forgotten what is done; what has landed is in memory.
                let open = after_receive.filter(|&(_, id)| !self.staging.has_landed(id));
                let receive = open.map(|(source, id)| (source, Token(id.0)));
                let send = after_send.map(|(target, id)| (target, Token(id.0)));
                let mut after = Vec::with_capacity(2);
                for (rank, token) in receive.into_iter().chain(send) {
                    // Of a neighbour that is gone nothing will ever be done.
                    let Some(endpoint) = self.peer(rank) else { return Ok(()) };
                    after.push((endpoint, token));
                }
                counters.blocks_sent += 1;
                counters.bytes_sent += bytes;
                if let Some(endpoint) = self.peer(target) {
                    let token = Token(id.0);
                    let posted = triggered(transport).and_then(|sends| {
                        sends.post_offloaded_send(endpoint, from, immediate, token, &after)
                    });
                    self.is_posted(target, posted);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
