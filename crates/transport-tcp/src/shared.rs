//! Connections that several endpoints share, each on a channel of its own
//! (docs/decisions/shared-connections.md).

use rustc_hash::FxHashMap;
use transport::{Cause, Completion, EndpointId, PostError, Transport};

use crate::{
    channel::End,
    connection::{Connection, ConnectionId},
    driver::TcpTransport,
    link::{Kind, TcpLink},
    messages::MESSAGE_BYTES_MAX,
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
        /// Its bytes, at most [`MESSAGE_BYTES_MAX`].
        message: Vec<u8>,
    },
    /// The connection is no more, and all of its endpoints have ended.
    Ended {
        /// Which.
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
    held: FxHashMap<EndpointId, Held>,
}

enum Held {
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

    /// Returns reserved channels for which too many words have come.
    pub(crate) fn crowded(&self) -> Vec<EndpointId> {
        let is_crowded =
            |held: &Held| matches!(held, Held::Waiting(held) if held.len() > HELD_WORDS_MAX);
        self.held.iter().filter(|(_, held)| is_crowded(held)).map(|(&id, _)| id).collect()
    }
}

impl TcpTransport {
    /// Makes a connection that endpoints share, each by a channel with a number. Its other end has to do the same.
    /// It ends when it is lost, or was without endpoints for [`crate::TcpSettings::idle_timeout`].
    ///
    /// Errors: the link's streams are not protected; as [`Transport::open`].
    pub fn share(&mut self, link: TcpLink) -> Result<ConnectionId, PostError> {
        let sockets = match link.kind {
            Kind::Streams(sockets) if sockets.iter().all(|(_, keys)| keys.is_some()) => sockets,
            _ => return Err(PostError::System("only protected connections are shared".into())),
        };
        let (id, streams) = self.connect(sockets, None)?;
        tracing::debug!(connection = id.0, streams = streams.len(), "shared");
        self.connections.insert(id, Connection::shared(id, streams));
        self.enqueue(id);
        Ok(id)
    }

    /// Reserves a channel of a shared connection: from now on the peer may use it. It has to be given to
    /// [`Transport::open`] or to [`TcpTransport::release`]. The other end has to reserve the same number before this end
    /// opens it, by an agreement for which there are messages. No number may be used twice on one connection.
    ///
    /// Errors: the connection is no more; the number is 0 or in use.
    pub fn reserve(
        &mut self,
        connection: ConnectionId,
        channel: u32,
    ) -> Result<TcpLink, PostError> {
        let gone = || PostError::System("the connection is lost".into());
        if !self.connections.contains_key(&connection) {
            return Err(gone());
        }
        let endpoint = self.new_endpoint(connection, channel);
        let shared = self.connections.get_mut(&connection).ok_or_else(gone)?;
        if let Err(error) = shared.add(channel, endpoint) {
            self.endpoints.remove(&endpoint);
            return Err(error);
        }
        self.sharing.held.insert(endpoint, Held::Waiting(Vec::new()));
        Ok(TcpLink { kind: Kind::Reserved(endpoint) })
    }

    /// Gives a reserved channel back, as if its endpoint had been opened and closed. Any other link is closed.
    pub fn release(&mut self, link: TcpLink) {
        if let Kind::Reserved(endpoint) = link.kind {
            self.drop_reserved(endpoint);
        }
    }

    pub(crate) fn drop_reserved(&mut self, endpoint: EndpointId) {
        if self.endpoints.contains_key(&endpoint) {
            self.sharing.held.insert(endpoint, Held::Released);
            self.close(endpoint);
        } else {
            self.sharing.held.remove(&endpoint);
        }
    }

    pub(crate) fn open_reserved(&mut self, endpoint: EndpointId) -> Result<EndpointId, PostError> {
        self.sharing.hold_back(&mut self.completed);
        let Some(Held::Waiting(held)) = self.sharing.held.get_mut(&endpoint) else {
            return Err(PostError::EndpointGone(endpoint));
        };
        let held = std::mem::take(held);
        self.sharing.held.remove(&endpoint);
        if let Some(&(connection, number)) = self.endpoints.get(&endpoint)
            && let Some(shared) = self.connections.get_mut(&connection)
        {
            shared.introduce(number);
            self.enqueue(connection);
        }
        self.completed.extend(held);
        Ok(endpoint)
    }

    /// Sends a message of 1 to [`MESSAGE_BYTES_MAX`] bytes to the other end of a shared connection.
    ///
    /// Errors: its length; the connection is no more, or its peer does not read.
    pub fn write_message(
        &mut self,
        connection: ConnectionId,
        message: &[u8],
    ) -> Result<(), PostError> {
        if message.is_empty() || message.len() > MESSAGE_BYTES_MAX {
            return Err(PostError::System(format!("a message of {} bytes", message.len())));
        }
        let shared = self.connections.get_mut(&connection).filter(|it| it.is_shared);
        shared
            .ok_or_else(|| PostError::System("the connection is lost".into()))?
            .write_message(message)?;
        self.enqueue(connection);
        Ok(())
    }

    /// Returns whether [`TcpTransport::take_shared_events`] would return something.
    pub fn has_shared_events(&self) -> bool {
        !self.sharing.events.is_empty()
    }

    /// Returns what has happened on shared connections since the last call. [`Transport::poll`] returns when there is
    /// something.
    pub fn take_shared_events(&mut self) -> Vec<SharedEvent> {
        std::mem::take(&mut self.sharing.events)
    }
}

fn is_end(completion: &Completion) -> bool {
    matches!(completion, Completion::Broken { .. } | Completion::Closed { .. })
}
