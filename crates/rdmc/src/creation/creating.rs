//! Carries out what creations need, for the worker of a context.

use std::{collections::HashMap, sync::Arc, time::Duration};

use session::{Channel, Deadline};
use transport::Transport;
use transport_tcp::ConnectionId;

use super::{
    choice::RootChoice,
    creations::Creations,
    dialing::{Dial, Dialer},
    effects::{Effect, Reserve},
    links::{Sockets, Wire},
    messages::{Asks, Message, Response, shortened},
    steps::{Reply, Step},
};
use crate::{
    commands::{Command, Commands},
    network::{Network, Release, ReservedLink, SharedEvent},
    own_link::{Offers, OwnLink},
};

/// How long the answer on a connection of its own may take. It is short, and the first that is sent there but for the handshake, so it
/// fits in the socket's buffer and does not wait for the other context.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// What is being created in a context.
pub(crate) struct Creating {
    creations: Creations<Sockets>,
    /// Who waits for a creation, by number.
    callers: HashMap<u64, Caller>,
    /// Requests on connections of their own that have no answer yet.
    asked: HashMap<u64, Asked>,
    /// How many there were.
    asks: u64,
    dialer: Arc<Dialer>,
    release: Release,
}

struct Caller {
    offers: Offers,
    reply: Reply,
}

/// A connection on which another context asks something; closed when this is dropped.
struct Asked {
    channels: Vec<Channel>,
    /// The other context's offer.
    theirs: Vec<u8>,
}

/// Reserves channels that are given back when they are dropped.
struct Channels<'a> {
    network: &'a mut Network,
    release: Release,
}

impl Reserve<Sockets> for Channels<'_> {
    fn reserve(&mut self, connection: ConnectionId, channel: u32) -> Result<ReservedLink, String> {
        let reserved = self.network.reserve(connection, channel);
        let link = reserved.map_err(|error| error.to_string())?;
        Ok(ReservedLink::new(link, Arc::clone(&self.release)))
    }

    fn is_open(&mut self, link: &Wire) -> bool {
        match link {
            Wire::Shared(reserved) => self.network.is_wanted(reserved),
            Wire::Own(own) => own.is_open(),
        }
    }
}

impl Creating {
    /// `identity`: a random number.
    pub(crate) fn new(identity: [u8; 16], dialer: Arc<Dialer>, commands: Commands) -> Self {
        let release: Release = Arc::new(move |link| {
            // Without a worker there is no connection.
            let _ = commands.give(Command::Release { link });
        });
        let (callers, asked, asks) = (HashMap::new(), HashMap::new(), 0);
        Self {
            creations: Creations::new(u128::from_le_bytes(identity)),
            callers,
            asked,
            asks,
            dialer,
            release,
        }
    }

    /// Returns when something has to be done by the network's clock, unless something happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.creations.poll_timeout()
    }

    /// Returns how long nothing has to be done, unless something happens; at most `longest`.
    pub(crate) fn idle_for(&self, network: &Network, longest: Duration) -> Duration {
        let due = self.creations.poll_timeout();
        due.map_or(longest, |due| due.saturating_sub(network.now()).min(longest))
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, network: &mut Network) {
        // In every turn: without anything to wait for, the clock is not read.
        let Some(due) = self.creations.poll_timeout() else { return };
        let now = network.now();
        if due <= now {
            let mut channels = Channels { network, release: Arc::clone(&self.release) };
            let refused = |address| self.dialer.refused(address);
            self.creations.handle_timeout(&mut channels, now, refused);
            self.carry_out(network);
        }
    }

    /// Takes what has happened.
    pub(crate) fn step(&mut self, network: &mut Network, step: Step) {
        let now = network.now();
        let channels = &mut Channels { network, release: Arc::clone(&self.release) };
        match step {
            Step::Begin { joining, offers, left, reply } => {
                let number = joining.number;
                match self.creations.begin(channels, now, joining, left) {
                    Ok(()) => drop(self.callers.insert(number, Caller { offers, reply })),
                    Err(error) => reply.end(Err(error)),
                }
            }
            Step::Forget { number } => self.creations.forget(number),
            Step::Chosen { dial, choice } => self.creations.chosen(channels, now, dial, choice),
            Step::Connected { link, address, from, dial } => match channels.network.share(link) {
                Ok(connection) => {
                    self.creations.connected(channels, now, connection, address, from, dial);
                }
                Err(error) => {
                    self.creations.unusable(channels, now, address, dial, &error.to_string());
                }
            },
            Step::Linked { dial, link } => self.creations.linked(channels, now, dial, link),
            Step::NotConnected { dial, error } => {
                self.creations.not_connected(channels, now, dial, error);
            }
            Step::Requested { channels: streams, mut asks } => {
                let theirs = match &mut asks {
                    Asks::Link(request) => std::mem::take(&mut request.offer),
                    Asks::Choice(_) => Vec::new(),
                };
                let (ask, peer) = (self.asks, streams[0].peer());
                self.asks += 1;
                self.asked.insert(ask, Asked { channels: streams, theirs });
                self.creations.requested(channels, now, ask, peer, asks);
            }
        }
        self.carry_out(network);
    }

    /// A group has begun to end at this member.
    pub(crate) fn end(&mut self, group: u64) {
        self.creations.end(group);
    }

    /// A group has ended at this member.
    pub(crate) fn forget(&mut self, group: u64) {
        self.creations.forget(group);
    }

    /// Takes what has happened on a shared connection.
    pub(crate) fn on_event(&mut self, network: &mut Network, event: SharedEvent) {
        let now = network.now();
        let mut channels = Channels { network, release: Arc::clone(&self.release) };
        match event {
            SharedEvent::Ended { connection, cause } => {
                tracing::debug!(connection = connection.0, ?cause, "a shared connection has ended");
                let cause = cause.map(|cause| cause.to_string());
                self.creations.disconnected(&mut channels, now, connection, cause.as_deref());
            }
            SharedEvent::Message { connection, message } => match postcard::from_bytes(&message) {
                Ok(message) => {
                    self.creations.on_message(&mut channels, now, connection, message);
                }
                Err(error) => {
                    // Its end is reported as any other.
                    network.refuse(connection, &format!("a malformed message: {error}"));
                }
            },
        }
        self.carry_out(network);
    }

    fn carry_out(&mut self, network: &mut Network) {
        let mut has_sent = false;
        while let Some(effect) = self.creations.next_effect() {
            match effect {
                Effect::Connect { dial, address, own, timeout, shares, asks } => {
                    let Some(caller) = self.callers.get(&asks.group()) else { continue };
                    let offers = caller.offers.clone();
                    let number = dial;
                    let dial = Dial { number, address, own, timeout, shares, asks, offers };
                    if let Err(error) = self.dialer.start(dial) {
                        let (now, release) = (network.now(), Arc::clone(&self.release));
                        let channels = &mut Channels { network, release };
                        self.creations.not_connected(channels, now, number, error);
                    }
                }
                Effect::Interrupt { dial } => self.dialer.interrupt(dial),
                Effect::Send { connection, message } => {
                    has_sent = true;
                    if let Err(cause) = send(network, connection, &message) {
                        let (now, release) = (network.now(), Arc::clone(&self.release));
                        let channels = &mut Channels { network, release };
                        self.creations.disconnected(channels, now, connection, Some(&cause));
                    }
                }
                Effect::Answer { ask, number, answer } => {
                    let link = self.answer(ask, number, answer);
                    let now = network.now();
                    let channels = &mut Channels { network, release: Arc::clone(&self.release) };
                    match link {
                        Some(link) => self.creations.placed(channels, now, ask, Box::new(link)),
                        None => self.creations.taken_back(ask),
                    }
                }
                Effect::Chosen { number, choice } => {
                    if let Some(Caller { reply: Reply::Choice(reply), .. }) =
                        self.callers.remove(&number)
                    {
                        let _ = reply.send(Ok(choice));
                    }
                }
                Effect::End { number, outcome } => {
                    if let Some(caller) = self.callers.remove(&number) {
                        caller.reply.end(outcome);
                    }
                }
            }
        }
        if has_sent {
            // With `Progress::Caller` nothing may poll soon.
            network.flush();
        }
    }

    /// Answers what was asked on a connection of its own. Returns the link if it is granted, and the answer was sent.
    fn answer(
        &mut self,
        ask: u64,
        number: u64,
        answer: Result<Option<RootChoice>, String>,
    ) -> Option<OwnLink> {
        let Asked { mut channels, theirs } = self.asked.remove(&ask)?;
        let offers = self.callers.get(&number).map(|caller| &caller.offers);
        let accept = |offers: &Offers| {
            offers.accept(&channels[0], theirs).map_err(|error| error.to_string())
        };
        let (response, carrier) = match answer {
            Ok(Some(choice)) => (Response::Chose(choice), None),
            Ok(None) => match offers.ok_or("its creation has ended".into()).and_then(accept) {
                Ok((carrier, offer)) => (Response::Accepted { offer }, Some(carrier)),
                Err(cause) => (Response::Refused(shortened(&cause)), None),
            },
            Err(cause) => (Response::Refused(shortened(&cause)), None),
        };
        let sent = channels[0].send(&response, Deadline::after(ANSWER_TIMEOUT));
        sent.inspect_err(|error| tracing::debug!(%error, "an answer was not taken")).ok()?;
        Some(OwnLink { channels, carrier: carrier? })
    }
}

/// Sends a message. Errors: the connection is no more, or its peer does not read.
fn send(network: &mut Network, connection: ConnectionId, message: &Message) -> Result<(), String> {
    let bytes = postcard::to_stdvec(message).map_err(|error| error.to_string())?;
    network.write_message(connection, &bytes).map_err(|error| error.to_string())
}
