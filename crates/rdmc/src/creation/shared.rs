//! Connections that groups share: a link of a group is a channel on one
//! (docs/decisions/shared-connections.md).
//!
//! Threads that create groups ask for channels and wait for answers; the worker, which has the transport, reserves
//! channels, and sends and takes the messages.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use session::Deadline;
use transport::Transport;

use super::{
    expected::{Meeting, State, missed},
    links::{Forming, Joining, Request, Wires},
};
use crate::{
    ContextSettings, Error, Fabric, Protection,
    commands::{Command, Commands},
    network::{ConnectionId, Network, ReservedLink, SharedEvent, TcpLink, Wire},
};

/// How many requests may wait in a context for groups that are not created yet.
const PARKED_MAX: usize = 4096;

/// The longest time for which a request waits.
const PARKED_TIME_MAX: Duration = Duration::from_secs(600);

/// What the two ends of a shared connection say to each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Asks for a channel, which its sender has reserved, as the link of a group.
    Asks {
        channel: u32,
        request: Request,
    },
    Accepts {
        channel: u32,
    },
    Refuses {
        channel: u32,
        cause: String,
    },
    /// The channel is no longer wanted.
    Withdraws {
        channel: u32,
    },
}

/// Which connections a context shares; another context's have to be alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Sharing {
    pub(crate) streams: u8,
    /// Whether payload is encrypted; it is authenticated in any case.
    is_encrypted: bool,
}

impl Sharing {
    /// Returns what contexts of these settings share; `None` if it is nothing.
    pub(crate) fn of(settings: &ContextSettings) -> Option<Self> {
        let is_encrypted = match settings.protection {
            Protection::None => return None,
            Protection::Authenticate => false,
            Protection::Encrypt => true,
        };
        (settings.fabric == Fabric::Tcp).then_some(Self { streams: settings.streams, is_encrypted })
    }

    pub(crate) fn protection(self) -> Protection {
        if self.is_encrypted { Protection::Encrypt } else { Protection::Authenticate }
    }
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

/// A message for the worker to send.
pub(crate) struct Post {
    connection: ConnectionId,
    message: Message,
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
}

struct Peer {
    address: SocketAddr,
    /// The next channel that this end asks for: the end that has connected asks for odd ones.
    next_channel: u32,
}

/// A channel that was asked for.
#[derive(Default)]
struct Asked {
    /// Once the worker has reserved it.
    link: Option<TcpLink>,
    answer: Option<Result<(), String>>,
}

struct Parked {
    connection: ConnectionId,
    channel: u32,
    peer: SocketAddr,
    link: TcpLink,
    request: Request,
    until: Deadline,
}

/// A channel that this member has asked for, until the answer is taken.
pub(crate) struct Asking<'a> {
    meeting: &'a Meeting,
    connection: ConnectionId,
    channel: u32,
    pub(crate) member: u32,
    is_answered: bool,
}

/// What has become of a request.
pub(crate) enum Answer {
    Accepted(ReservedLink),
    Refused(String),
    /// The connection was lost before there was an answer.
    Lost,
}

impl Meeting {
    /// Returns which of these members can be asked at once, with their connections.
    pub(crate) fn connected(
        &self,
        ranks: &[u32],
        addresses: &[SocketAddr],
    ) -> Vec<(u32, ConnectionId)> {
        let state = self.state();
        let known = ranks.iter().filter_map(|&rank| {
            match state.shared.by_address.get(&addresses[rank as usize]) {
                Some(&Known::Shared(connection)) => Some((rank, connection)),
                _ => None,
            }
        });
        known.collect()
    }

    /// Asks members for the links of a group. Does not wait.
    ///
    /// Errors: the context has ended.
    pub(crate) fn ask(
        &self,
        joining: &Joining,
        members: &[(u32, ConnectionId)],
        timeout_ms: u64,
    ) -> Result<Vec<Asking<'_>>, Error> {
        let mut state = self.state();
        let (mut asking, mut posts) = (Vec::new(), Vec::new());
        for &(member, connection) in members {
            let channel = state.shared.ask(connection);
            let request = Request::of(joining, member, timeout_ms);
            posts.push(Post { connection, message: Message::Asks { channel, request } });
            asking.push(Asking { meeting: self, connection, channel, member, is_answered: false });
        }
        drop(state);
        self.commands()?.give(Command::Post(posts))?;
        Ok(asking)
    }

    /// Waits for the answers to all of these, and takes those of members that were lost into `lost`.
    ///
    /// Errors: a member refuses, or does not answer in time.
    pub(crate) fn await_answers(
        &self,
        mut asking: Vec<Asking<'_>>,
        group: u64,
        addresses: &[SocketAddr],
        deadline: Deadline,
        lost: &mut Vec<u32>,
    ) -> Result<Wires, Error> {
        let (mut wires, mut refused, commands) = (Wires::new(), None, self.commands()?);
        let mut state = self.state();
        loop {
            for one in &mut asking {
                let Some(answer) = state.take_answer(one, commands) else { continue };
                one.is_answered = true;
                let member = one.member;
                match answer {
                    Answer::Accepted(link) => wires.push((member, vec![Wire::Shared(link)])),
                    Answer::Lost => lost.push(member),
                    Answer::Refused(cause) => {
                        let address = addresses[member as usize];
                        refused.get_or_insert(Error::Member { member, address, cause });
                    }
                }
            }
            // Those that are answered take no lock when they are dropped.
            asking.retain(|one| !one.is_answered);
            if refused.is_some() || asking.is_empty() {
                drop(state);
                return refused.map_or(Ok(wires), Err);
            }
            let Some(changed) = self.wait(state, deadline) else {
                let missing = asking.iter().map(|one| one.member).collect();
                return Err(missed(deadline, missing, addresses, group));
            };
            state = changed;
        }
    }

    /// Sends messages, and reserves the channels that they ask for. Called by the worker.
    pub(crate) fn post(&self, network: &mut Network, posts: Vec<Post>) {
        let mut state = self.state();
        for Post { connection, message } in posts {
            if let Message::Asks { channel, .. } = message {
                let Some(asked) = state.shared.asked.get_mut(&(connection, channel)) else {
                    // Withdrawn, or lost.
                    continue;
                };
                match network.reserve(connection, channel) {
                    Ok(link) => asked.link = Some(link),
                    Err(error) => {
                        asked.answer = Some(Err(error.to_string()));
                        continue;
                    }
                }
            }
            send(network, connection, &message);
        }
        drop(state);
        // With `Progress::Caller` nothing may poll soon.
        network.flush();
        self.notify();
    }

    /// Makes a connection one that groups share. Called by the worker.
    pub(crate) fn share(
        &self,
        network: &mut Network,
        link: TcpLink,
        address: SocketAddr,
        connected_here: bool,
    ) {
        let connection = network.share(link);
        let mut state = self.state();
        match connection {
            Ok(connection) => {
                let next_channel = if connected_here { 1 } else { 2 };
                let peer = Peer { address, next_channel };
                state.shared.peers.insert(connection, peer);
                let known = state.shared.by_address.entry(address).or_insert(Known::Connecting);
                if !matches!(known, Known::Shared(_)) {
                    *known = Known::Shared(connection);
                }
            }
            Err(error) => {
                tracing::warn!(%address, %error, "cannot share a connection");
                // Whoever waits for it tries again.
                state.shared.by_address.remove(&address);
            }
        }
        drop(state);
        self.notify();
    }

    /// Takes what has happened on a shared connection. Called by the worker.
    pub(crate) fn on_event(&self, network: &mut Network, event: SharedEvent) {
        let mut state = self.state();
        match event {
            SharedEvent::Ended { connection, cause } => {
                tracing::debug!(connection = connection.0, ?cause, "a shared connection has ended");
                state.shared.forget(network, connection);
            }
            SharedEvent::Message { connection, message } => match postcard::from_bytes(&message) {
                Ok(message) => {
                    if let Ok(commands) = self.commands() {
                        state.on_message(network, connection, message, commands);
                    }
                }
                Err(error) => {
                    tracing::debug!(connection = connection.0, %error, "a malformed message");
                }
            },
        }
        drop(state);
        network.flush();
        self.notify();
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let (connection, channel) = (self.connection, self.channel);
        let asked = self.meeting.state().shared.asked.remove(&(connection, channel));
        let Some(asked) = asked else { return };
        let Ok(commands) = self.meeting.commands() else { return };
        let _ = commands.give(Command::Post(vec![Post {
            connection,
            message: Message::Withdraws { channel },
        }]));
        if let Some(link) = asked.link {
            let _ = commands.give(Command::Release { link });
        }
    }
}

impl Shared {
    /// Returns the number of a channel that is asked for; 0 if the connection has ended.
    fn ask(&mut self, connection: ConnectionId) -> u32 {
        let Some(peer) = self.peers.get_mut(&connection) else { return 0 };
        let channel = peer.next_channel;
        // Two for each link: four billion do not come together.
        peer.next_channel = channel.wrapping_add(2);
        self.asked.insert((connection, channel), Asked::default());
        channel
    }

    /// Forgets a connection that has ended, and gives back what was reserved on it.
    fn forget(&mut self, network: &mut Network, connection: ConnectionId) {
        if let Some(peer) = self.peers.remove(&connection)
            && self.by_address.get(&peer.address) == Some(&Known::Shared(connection))
        {
            self.by_address.remove(&peer.address);
        }
        let unanswered = self.asked.extract_if(|at, it| at.0 == connection && it.answer.is_none());
        unanswered.filter_map(|(_, it)| it.link).for_each(|link| network.release(link));
        self.unpark(network, |parked| parked.connection == connection);
    }

    /// Gives back the channels of parked requests for which `is_over` holds.
    fn unpark(&mut self, network: &mut Network, is_over: impl Fn(&Parked) -> bool) {
        for parked in self.parked.values_mut() {
            parked.extract_if(.., |one| is_over(one)).for_each(|one| network.release(one.link));
        }
        self.parked.retain(|_, parked| !parked.is_empty());
    }
}

impl State {
    fn on_message(
        &mut self,
        network: &mut Network,
        connection: ConnectionId,
        message: Message,
        commands: &Commands,
    ) {
        match message {
            Message::Asks { channel, request } => {
                let answer = self.on_asked(network, connection, channel, request, commands);
                answer.iter().for_each(|message| send(network, connection, message));
            }
            Message::Accepts { channel } => self.on_answer(connection, channel, Ok(())),
            Message::Refuses { channel, cause } => self.on_answer(connection, channel, Err(cause)),
            Message::Withdraws { channel } => self
                .shared
                .unpark(network, |one| (one.connection, one.channel) == (connection, channel)),
        }
    }

    /// Notes the first answer to a request, if that was not withdrawn.
    fn on_answer(&mut self, connection: ConnectionId, channel: u32, answer: Result<(), String>) {
        if let Some(asked) = self.shared.asked.get_mut(&(connection, channel)) {
            asked.answer.get_or_insert(answer);
        }
    }

    /// Answers a request, or keeps it until its group is created here.
    fn on_asked(
        &mut self,
        network: &mut Network,
        connection: ConnectionId,
        channel: u32,
        request: Request,
        commands: &Commands,
    ) -> Option<Message> {
        let refused = |cause: String| Some(Message::Refuses { channel, cause });
        let peer = self.shared.peers.get(&connection)?.address;
        let link = match network.reserve(connection, channel) {
            Ok(link) => link,
            Err(error) => return refused(error.to_string()),
        };
        if let Some(expected) = self.expected(request.group) {
            return match expected.judge(&request, peer) {
                Ok(()) => {
                    let wire = Wire::Shared(ReservedLink::new(link, commands.clone()));
                    expected.take_shared(request.from, wire);
                    Some(Message::Accepts { channel })
                }
                Err(cause) => {
                    network.release(link);
                    refused(cause)
                }
            };
        }
        self.shared.unpark(network, |one| one.until.left().is_zero());
        if self.shared.parked.values().map(Vec::len).sum::<usize>() >= PARKED_MAX {
            network.release(link);
            return refused("too many groups are being created there".into());
        }
        let patience = Duration::from_millis(request.timeout_ms).min(PARKED_TIME_MAX);
        let until = Deadline::after(patience);
        let parked = Parked { connection, channel, peer, link, request, until };
        self.shared.parked.entry(parked.request.group).or_default().push(parked);
        None
    }

    /// Takes the requests that have waited for a group, which is expected from now on, and returns commands for the
    /// worker.
    pub(crate) fn answer_parked(&mut self, group: u64, commands: &Commands) -> Vec<Command> {
        let (mut given, mut posts) = (Vec::new(), Vec::new());
        for parked in self.shared.parked.remove(&group).unwrap_or_default() {
            let Parked { connection, channel, peer, link, request, until } = parked;
            let Some(expected) = self.expected(group) else { continue };
            let judged = match until.left().is_zero() {
                true => Err("it has come too late".into()),
                false => expected.judge(&request, peer),
            };
            let message = match judged {
                Ok(()) => {
                    let link = ReservedLink::new(link, commands.clone());
                    expected.take_shared(request.from, Wire::Shared(link));
                    Message::Accepts { channel }
                }
                Err(cause) => {
                    given.push(Command::Release { link });
                    Message::Refuses { channel, cause }
                }
            };
            posts.push(Post { connection, message });
        }
        if !posts.is_empty() {
            given.push(Command::Post(posts));
        }
        given
    }

    /// Takes the answer to a request; `None` if there is none yet.
    fn take_answer(&mut self, asking: &Asking<'_>, commands: &Commands) -> Option<Answer> {
        let at = (asking.connection, asking.channel);
        let Some(asked) = self.shared.asked.get(&at) else { return Some(Answer::Lost) };
        asked.answer.as_ref()?;
        let asked = self.shared.asked.remove(&at)?;
        let link = asked.link.map(|link| ReservedLink::new(link, commands.clone()));
        Some(match (asked.answer?, link) {
            (Ok(()), Some(link)) => Answer::Accepted(link),
            (Ok(()), None) => Answer::Lost,
            (Err(cause), _) => Answer::Refused(cause),
        })
    }
}

/// Sends a message. If it cannot be sent, the connection is lost, or its peer reads nothing and is lost soon.
fn send(network: &mut Network, connection: ConnectionId, message: &Message) {
    let sent = postcard::to_stdvec(message).map_err(|error| error.to_string()).and_then(|bytes| {
        network.write_message(connection, &bytes).map_err(|error| error.to_string())
    });
    if let Err(error) = sent {
        tracing::debug!(connection = connection.0, error, "a message was not sent");
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// A member that has accepted and is gone at once has accepted all the same: its group is told that it is gone.
    #[test]
    fn answers_outlive_their_connection() {
        let near = IpAddr::from([127, 0, 0, 1]);
        let mut network = Network::start(&Fabric::Tcp, near, &Default::default()).unwrap();
        let (connection, address) = (ConnectionId(7), SocketAddr::from((near, 9)));
        let mut shared = Shared::default();
        shared.peers.insert(connection, Peer { address, next_channel: 1 });
        shared.by_address.insert(address, Known::Shared(connection));
        let channels = [0; 2].map(|_| shared.ask(connection));
        assert_eq!(channels, [1, 3]);
        let asked = shared.asked.get_mut(&(connection, 3)).unwrap();
        asked.answer = Some(Ok(()));
        shared.forget(&mut network, connection);
        assert!(!shared.asked.contains_key(&(connection, 1)));
        assert!(shared.asked.contains_key(&(connection, 3)));
        assert!(shared.by_address.is_empty());
        // Nothing can be asked on it any more.
        assert_eq!(shared.ask(connection), 0);
    }
}
