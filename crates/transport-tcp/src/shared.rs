//! Connections that several endpoints share, each on a channel of its own
//! (docs/decisions/shared-connections.md).

use rustc_hash::FxHashMap;
use transport::{Cause, Completion, EndpointId, PostError};

use crate::{
    channel::End,
    connection::Connection,
    link::{ConnectionId, TcpLink},
};

/// How much may come for a channel before it is opened, in words.
const HELD_WORDS_MAX: usize = 1024;

/// What has happened on a shared connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SharedEvent {
    /// The other end has sent a message.
    Message {
        /// Where it came.
        connection: ConnectionId,
        /// Its bytes, at most [`crate::MESSAGE_BYTES_MAX`].
        message: Vec<u8>,
    },
    /// The connection is no more, and all of its endpoints have ended.
    Ended {
        /// The connection that has ended.
        connection: ConnectionId,
        /// Why; `None` if no endpoint used it for [`crate::TcpSettings::idle_timeout`].
        cause: Option<Cause>,
    },
}

/// What a transport keeps for its shared connections.
#[derive(Default)]
pub(crate) struct Sharing {
    /// Not reported yet.
    pub(crate) events: Vec<SharedEvent>,
    /// What has come for channels that are reserved and not open.
    pub(crate) held: FxHashMap<EndpointId, Held>,
}

pub(crate) enum Held {
    /// Until the channel is opened.
    Waiting(Vec<Completion>),
    /// The channel was given back: dropped until its end.
    Released,
}

impl Sharing {
    pub(crate) fn take_messages(&mut self, id: ConnectionId, connection: &mut Connection) {
        let messages = connection.take_messages().into_iter();
        self.events
            .extend(messages.map(|message| SharedEvent::Message { connection: id, message }));
    }

    pub(crate) fn end(&mut self, id: ConnectionId, end: &End) {
        let cause = match end {
            End::Broken(cause) => Some(cause.clone()),
            End::Closed => None,
        };
        self.events.push(SharedEvent::Ended { connection: id, cause });
    }

    /// Takes what is for channels that are not open.
    pub(crate) fn hold_back(&mut self, completed: &mut Vec<Completion>) {
        if self.held.is_empty() {
            return;
        }
        completed.retain(|completion| {
            let endpoint = completion.endpoint();
            match self.held.get_mut(&endpoint) {
                None => return true,
                Some(Held::Waiting(held)) => held.push(completion.clone()),
                Some(Held::Released) if is_end(completion) => drop(self.held.remove(&endpoint)),
                Some(Held::Released) => {}
            }
            false
        });
    }

    /// Returns whether all that has come for a reserved channel is its orderly end.
    pub(crate) fn was_given_back(&self, endpoint: EndpointId) -> bool {
        let Some(Held::Waiting(held)) = self.held.get(&endpoint) else { return true };
        matches!(held[..], [Completion::Broken { cause: Cause::ClosedByPeer, .. }])
    }

    /// Returns reserved channels for which too many words have come.
    pub(crate) fn crowded(&self) -> Vec<EndpointId> {
        let is_crowded =
            |held: &Held| matches!(held, Held::Waiting(held) if held.len() > HELD_WORDS_MAX);
        self.held.iter().filter(|(_, held)| is_crowded(held)).map(|(&id, _)| id).collect()
    }
}

/// Connections that several endpoints share, each by a channel with a number.
pub trait SharedConnections {
    /// Makes a connection that endpoints share. Its other end has to do the same. It ends when it is lost, or was
    /// without endpoints for [`crate::TcpSettings::idle_timeout`].
    ///
    /// Errors: the link's streams are not protected; as [`transport::Transport::open`].
    fn share(&mut self, link: TcpLink) -> Result<ConnectionId, PostError>;

    /// Reserves a channel of a shared connection: from now on the peer may use it. It has to be given to
    /// [`transport::Transport::open`] or to [`SharedConnections::release`]. The other end has to reserve the same number
    /// before this end opens it, by an agreement for which there are messages. No number may be used twice on one
    /// connection.
    ///
    /// Errors: the connection is no more; the number is 0 or in use.
    fn reserve(&mut self, connection: ConnectionId, channel: u32) -> Result<TcpLink, PostError>;

    /// Returns whether the other end has not given this reserved channel back. If it has said something on it before, it has
    /// not.
    fn is_wanted(&self, link: &TcpLink) -> bool;

    /// Gives a reserved channel back, as if its endpoint had been opened and closed. Any other link is closed.
    fn release(&mut self, link: TcpLink);

    /// Sends a message of 1 to [`crate::MESSAGE_BYTES_MAX`] bytes to the other end of a shared connection.
    ///
    /// Errors: its length; the connection is no more, or its peer does not read.
    fn write_message(&mut self, connection: ConnectionId, message: &[u8]) -> Result<(), PostError>;

    /// Returns whether [`SharedConnections::take_shared_events`] would return something.
    fn has_shared_events(&self) -> bool;

    /// Returns what has happened on shared connections since the last call. [`transport::Transport::poll`] returns when
    /// there is something.
    fn take_shared_events(&mut self) -> Vec<SharedEvent>;
}

fn is_end(completion: &Completion) -> bool {
    matches!(completion, Completion::Broken { .. } | Completion::Closed { .. })
}
