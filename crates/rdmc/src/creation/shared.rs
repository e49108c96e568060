//! Connections that groups share: a link of a group is a channel on one
//! (docs/decisions/shared-connections.md).

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use session::{Channel, Deadline};
use transport::PostError;

use super::{
    choice::RootChoice,
    decisions::{Decisions, Reply},
    expected::Expected,
    messages::{Message, Post, Request},
};
use crate::network::{ConnectionId, Network, Release, ReservedLink, Wire};

/// What is wrong with an answer of another kind than the request.
pub(super) const OTHER_ANSWER: &str = "sent an answer to another question";

/// How many requests may wait in a context for groups that are not created yet.
const PARKED_MAX: usize = 4096;

/// The longest time for which a request waits.
const PARKED_TIME_MAX: Duration = Duration::from_secs(600);

/// Streams of a connection that others make, until all are there.
pub(crate) struct Forming {
    pub(crate) channels: Vec<Option<Channel>>,
    pub(crate) until: Deadline,
}

/// What is known of the context at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// A thread is connecting to it.
    Connecting,
    Shared(ConnectionId),
    /// It shares no connections.
    Apart,
}

/// The shared connections of a context, and what is asked for on them.
#[derive(Default)]
pub(crate) struct Shared {
    /// Connections of which not all streams are there, by their identity.
    pub(crate) forming: HashMap<[u8; 16], Forming>,
    pub(crate) by_address: HashMap<SocketAddr, Known>,
    peers: HashMap<ConnectionId, Peer>,
    /// The channels that this member has asked for. Answers stay until they are taken, also those on a connection
    /// that has ended: their groups are told of it.
    asked: HashMap<(ConnectionId, u32), Asked>,
    /// Requests for groups that are not being created here yet, by their number.
    parked: HashMap<u64, Vec<Parked>>,
    pub(crate) decisions: Decisions,
}

struct Peer {
    address: SocketAddr,
    /// The next channel that this end asks for: the end that has connected asks for odd ones.
    next_channel: u32,
}

/// A channel that was asked for.
#[derive(Default)]
pub(crate) struct Asked {
    /// Once the worker has reserved it.
    link: Option<ReservedLink>,
    /// With the root's choice if that was asked for.
    answer: Option<Result<Option<RootChoice>, String>>,
}

struct Parked {
    at: (ConnectionId, u32),
    peer: SocketAddr,
    link: ReservedLink,
    request: Request,
    until: Deadline,
}

/// What has become of a request.
pub(crate) enum Answer {
    Accepted(ReservedLink),
    Chose(RootChoice),
    Refused(String),
    /// The connection was lost before there was an answer.
    Lost,
}

impl Shared {
    /// Adds a connection with the context at an address. The end that has connected asks for odd channels.
    pub(crate) fn add(
        &mut self,
        connection: ConnectionId,
        address: SocketAddr,
        connected_here: bool,
    ) {
        let next_channel = if connected_here { 1 } else { 2 };
        self.peers.insert(connection, Peer { address, next_channel });
        let known = self.by_address.entry(address).or_insert(Known::Connecting);
        if !matches!(known, Known::Shared(_)) {
            *known = Known::Shared(connection);
        }
    }

    /// Returns which of these members can be asked at once, with their connections.
    pub(crate) fn connected(
        &self,
        ranks: &[u32],
        addresses: &[SocketAddr],
    ) -> Vec<(u32, ConnectionId)> {
        let known =
            ranks.iter().filter_map(|&rank| match self.by_address.get(&addresses[rank as usize]) {
                Some(&Known::Shared(connection)) => Some((rank, connection)),
                _ => None,
            });
        known.collect()
    }

    /// Reserves the channel of a request that is sent now. Returns false if it is not to be sent.
    pub(crate) fn reserve(
        &mut self,
        network: &mut Network,
        at: (ConnectionId, u32),
        release: &Release,
    ) -> bool {
        let Some(asked) = self.asked.get_mut(&at) else {
            // Withdrawn, or lost.
            return false;
        };
        match reserved(network, at, release) {
            Ok(link) => asked.link = Some(link),
            Err(error) => asked.answer = Some(Err(error.to_string())),
        }
        asked.link.is_some()
    }

    /// Forgets a request. Returns it, with its channel if that was reserved; `None` if there is no such request.
    pub(crate) fn withdraw(&mut self, at: (ConnectionId, u32)) -> Option<Asked> {
        self.asked.remove(&at)
    }

    /// Returns the number of a channel that is asked for; 0 if the connection has ended.
    pub(crate) fn ask(&mut self, connection: ConnectionId) -> u32 {
        let Some(peer) = self.peers.get_mut(&connection) else { return 0 };
        let channel = peer.next_channel;
        // Two for each link: four billion do not come together.
        peer.next_channel = channel.wrapping_add(2);
        self.asked.insert((connection, channel), Asked::default());
        channel
    }

    /// Forgets a connection that has ended, and gives back what was reserved on it.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        if let Some(peer) = self.peers.remove(&connection)
            && self.by_address.get(&peer.address) == Some(&Known::Shared(connection))
        {
            self.by_address.remove(&peer.address);
        }
        self.asked.retain(|at, it| at.0 != connection || it.answer.is_some());
        self.unpark(|parked| parked.at.0 == connection);
        self.decisions.forget(|at| at.0 == connection);
    }

    /// Gives back the channels of parked requests for which `is_over` holds.
    fn unpark(&mut self, is_over: impl Fn(&Parked) -> bool) {
        self.parked.retain(|_, parked| {
            parked.retain(|one| !is_over(one));
            !parked.is_empty()
        });
    }

    /// Takes a message of another context. `expected`: the groups that are being created here.
    pub(crate) fn on_message(
        &mut self,
        network: &mut Network,
        connection: ConnectionId,
        message: Message,
        expected: &mut HashMap<u64, Expected>,
        release: &Release,
    ) {
        match message {
            Message::Asks { channel, request } => {
                let expected = expected.get_mut(&request.group);
                let answer =
                    self.on_asked(network, (connection, channel), request, expected, release);
                answer.iter().for_each(|message| send(network, connection, message));
            }
            Message::AsksChoice { channel, question } => {
                let Some(peer) = self.peers.get(&connection).map(|peer| peer.address) else {
                    return;
                };
                let reply = self.decisions.ask((connection, channel), question, peer);
                reply.iter().for_each(|reply| send(network, connection, &answer(channel, reply)));
            }
            Message::Accepts { channel } => self.on_answer(connection, channel, Ok(None)),
            Message::Chose { channel, choice } => {
                self.on_answer(connection, channel, Ok(Some(choice)));
            }
            Message::Refuses { channel, cause } => self.on_answer(connection, channel, Err(cause)),
            Message::Withdraws { channel } => {
                self.unpark(|one| one.at == (connection, channel));
                self.decisions.forget(|at| at == (connection, channel));
            }
        }
    }

    /// Notes the first answer to a request, if that was not withdrawn.
    fn on_answer(
        &mut self,
        connection: ConnectionId,
        channel: u32,
        answer: Result<Option<RootChoice>, String>,
    ) {
        if let Some(asked) = self.asked.get_mut(&(connection, channel)) {
            asked.answer.get_or_insert(answer);
        }
    }

    /// Answers a request, or keeps it until its group is created here.
    fn on_asked(
        &mut self,
        network: &mut Network,
        at: (ConnectionId, u32),
        request: Request,
        expected: Option<&mut Expected>,
        release: &Release,
    ) -> Option<Message> {
        let refused = |cause: String| Some(Message::Refuses { channel: at.1, cause });
        let peer = self.peers.get(&at.0)?.address;
        let link = match reserved(network, at, release) {
            Ok(link) => link,
            Err(error) => return refused(error.to_string()),
        };
        let patience = Duration::from_millis(request.timeout_ms).min(PARKED_TIME_MAX);
        let parked = Parked { at, peer, link, request, until: Deadline::after(patience) };
        if let Some(expected) = expected {
            return Some(parked.answer(expected));
        }
        self.unpark(|one| one.until.left().is_zero());
        if self.parked.values().map(Vec::len).sum::<usize>() >= PARKED_MAX {
            return refused("too many groups are being created there".into());
        }
        self.parked.entry(parked.request.group).or_default().push(parked);
        None
    }

    /// Returns the answers to the requests that have waited for a group, which is expected from now on.
    pub(crate) fn answer_parked(&mut self, group: u64, expected: &mut Expected) -> Vec<Post> {
        let parked = self.parked.remove(&group).unwrap_or_default().into_iter();
        let posts = parked.map(|one| {
            let (connection, channel) = one.at;
            let message = if one.until.left().is_zero() {
                Message::Refuses { channel, cause: "it has come too late".into() }
            } else {
                one.answer(expected)
            };
            Post { connection, message }
        });
        posts.collect()
    }

    /// Returns the answers to the questions about choices that have waited for what is known now.
    pub(crate) fn answer_questions(&mut self) -> Vec<Post> {
        let replies = self.decisions.settle().into_iter();
        let post =
            |((connection, channel), reply)| Post { connection, message: answer(channel, &reply) };
        replies.map(post).collect()
    }

    /// Takes the answer to a request; `None` if there is none yet.
    pub(crate) fn take_answer(&mut self, at: (ConnectionId, u32)) -> Option<Answer> {
        let Some(asked) = self.asked.get(&at) else { return Some(Answer::Lost) };
        asked.answer.as_ref()?;
        let asked = self.asked.remove(&at)?;
        Some(match (asked.answer?, asked.link) {
            (Ok(Some(choice)), _) => Answer::Chose(choice),
            (Ok(None), Some(link)) => Answer::Accepted(link),
            // A channel is reserved before it is asked for, and none is for a question.
            (Ok(None), None) => Answer::Refused(OTHER_ANSWER.into()),
            (Err(cause), _) => Answer::Refused(cause),
        })
    }
}

impl Parked {
    /// Answers the request of a group that is being created here.
    fn answer(self, expected: &mut Expected) -> Message {
        let Self { at: (_, channel), peer, link, request, .. } = self;
        match expected.judge(&request, peer) {
            Ok(()) => {
                expected.take_shared(request.from, Wire::Shared(link));
                Message::Accepts { channel }
            }
            Err(cause) => Message::Refuses { channel, cause },
        }
    }
}

fn answer(channel: u32, reply: &Reply) -> Message {
    match reply {
        Ok(choice) => Message::Chose { channel, choice: *choice },
        Err(cause) => Message::Refuses { channel, cause: cause.clone() },
    }
}

/// Reserves a channel. It is given back when it is dropped.
fn reserved(
    network: &mut Network,
    (connection, channel): (ConnectionId, u32),
    release: &Release,
) -> Result<ReservedLink, PostError> {
    let link = network.reserve(connection, channel)?;
    Ok(ReservedLink::new(link, Arc::clone(release)))
}

/// Sends a message. If it cannot be sent, the connection is lost, or its peer reads nothing and is lost soon.
pub(crate) fn send(network: &mut Network, connection: ConnectionId, message: &Message) {
    let sent = postcard::to_stdvec(message).map_err(|error| error.to_string()).and_then(|bytes| {
        network.write_message(connection, &bytes).map_err(|error| error.to_string())
    });
    if let Err(error) = sent {
        tracing::debug!(connection = connection.0, error, "a message was not sent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_accepts_a_question_is_refused() {
        let (connection, address) = (ConnectionId(7), SocketAddr::from(([127, 0, 0, 1], 9)));
        let mut shared = Shared::default();
        shared.add(connection, address, true);
        let at = (connection, shared.ask(connection));
        assert!(shared.take_answer(at).is_none());
        shared.on_answer(connection, at.1, Ok(None));
        let answer = shared.take_answer(at);
        assert!(matches!(answer, Some(Answer::Refused(cause)) if cause == OTHER_ANSWER));
        // What was answered is forgotten.
        assert!(matches!(shared.take_answer(at), Some(Answer::Lost)));
    }

    /// A member that has accepted and is gone at once has accepted all the same: its group is told that it is gone.
    #[test]
    fn answers_outlive_their_connection() {
        let (connection, address) = (ConnectionId(7), SocketAddr::from(([127, 0, 0, 1], 9)));
        let mut shared = Shared::default();
        shared.peers.insert(connection, Peer { address, next_channel: 1 });
        shared.by_address.insert(address, Known::Shared(connection));
        let channels = [0; 2].map(|_| shared.ask(connection));
        assert_eq!(channels, [1, 3]);
        let asked = shared.asked.get_mut(&(connection, 3)).unwrap();
        asked.answer = Some(Ok(None));
        shared.forget(connection);
        assert!(!shared.asked.contains_key(&(connection, 1)));
        assert!(shared.asked.contains_key(&(connection, 3)));
        assert!(shared.by_address.is_empty());
        // Nothing can be asked on it any more.
        assert_eq!(shared.ask(connection), 0);
    }
}
