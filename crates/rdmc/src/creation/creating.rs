//! Carries out what creations need, for the worker of a context.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crossbeam_channel::Sender;
use session::Channel;
use transport::Transport;
use transport_tcp::ConnectionId;

use super::{
    choice::RootChoice,
    creations::Creations,
    dialing::{Dial, Dialer},
    effects::{Effect, Reserve},
    links::{Sockets, Wire},
    messages::Message,
    steps::{Grant, Reply, Step},
};
use crate::{
    commands::{Command, Commands},
    network::{Network, Offers, Release, ReservedLink, SharedEvent},
};

/// What is being created in a context.
pub(crate) struct Creating {
    creations: Creations<Sockets>,
    /// Who waits for a creation, by number.
    callers: HashMap<u64, Caller>,
    /// Who waits for the answer to a request.
    asks: HashMap<u64, Sender<Result<Grant, String>>>,
    dialer: Arc<Dialer>,
    release: Release,
}

struct Caller {
    offers: Offers,
    reply: Reply,
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
            Wire::Own(own) => own.channels.iter().all(Channel::is_open),
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
        let (callers, asks) = (HashMap::new(), HashMap::new());
        Self {
            creations: Creations::new(u128::from_le_bytes(identity)),
            callers,
            asks,
            dialer,
            release,
        }
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
            self.creations.handle_timeout(&mut channels, now);
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
            Step::Connected { link, address, dial } => match channels.network.share(link) {
                Ok(connection) => {
                    self.creations.connected(channels, now, connection, address, dial);
                }
                Err(error) => {
                    self.creations.unusable(channels, now, address, dial, &error.to_string());
                }
            },
            Step::Linked { dial, link } => self.creations.linked(channels, now, dial, link),
            Step::NotConnected { dial, error } => {
                self.creations.not_connected(channels, now, dial, error);
            }
            Step::Requested { ask, peer, asks, reply } => {
                self.asks.insert(ask, reply);
                self.creations.requested(channels, now, ask, peer, asks);
            }
            Step::Placed { ask, link } => self.creations.placed(channels, now, ask, link),
            Step::TakenBack { ask } => {
                self.asks.remove(&ask);
                self.creations.taken_back(ask);
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
                Effect::Connect { dial, address, own, patience, shares, asks } => {
                    let Some(caller) = self.callers.get(&asks.group()) else { continue };
                    let offers = caller.offers.clone();
                    let number = dial;
                    let dial = Dial { number, address, own, patience, shares, asks, offers };
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
                Effect::Answer { ask, number, answer } => self.answer(ask, number, answer),
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

    fn answer(&mut self, ask: u64, number: u64, answer: Result<Option<RootChoice>, String>) {
        let Some(reply) = self.asks.remove(&ask) else { return };
        let granted = answer.and_then(|choice| match (choice, self.callers.get(&number)) {
            (Some(choice), _) => Ok(Grant::Choice(choice)),
            (None, Some(caller)) => Ok(Grant::Link(caller.offers.clone())),
            (None, None) => Err("its creation has ended".to_owned()),
        });
        // The thread that waits takes it back if it has ended.
        let _ = reply.send(granted);
    }
}

/// Sends a message. Errors: the connection is no more, or its peer does not read.
fn send(network: &mut Network, connection: ConnectionId, message: &Message) -> Result<(), String> {
    let bytes = postcard::to_stdvec(message).map_err(|error| error.to_string())?;
    network.write_message(connection, &bytes).map_err(|error| error.to_string())
}
