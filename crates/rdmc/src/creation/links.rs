//! Connecting the linked members of a group or a team.
//!
//! Of two neighbours the one with the higher rank connects and the other accepts, so that each pair
//! is connected once. Where both contexts share their connections the link is a channel (`shared`); elsewhere it is a
//! connection, or one for each stream. The accepting member compares the terms, and both
//! members return the same error if they differ.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use session::{Channel, Deadline, Listener, millis};
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    choice::{Decision, Question},
    decisions::{Reply, WAITING_TIME_MAX},
    joining::{Joining, Wires},
    meeting::Meeting,
    messages::{Hello, Response, ShareRequest, Sharing},
    shared::{Forming, Known, OTHER_ANSWER},
};
use crate::{
    Error,
    commands::Command,
    network::{ConnectionId, OwnWire, Wire, tcp_link},
};

/// How long a neighbour may take to send its request, and to take the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How many connections are made at the same time.
const CONNECTORS_MAX: usize = 16;

/// How many connections may be incomplete at the same time.
const FORMING_MAX: usize = 1024;

/// Accepts links for all groups of a context, until it is closed.
pub(crate) struct LinkListener {
    listener: Listener,
    meeting: Arc<Meeting>,
}

impl LinkListener {
    /// Listens on an address; port 0 selects a free port. Errors: a system call fails.
    pub(crate) fn start(address: SocketAddr, meeting: Arc<Meeting>) -> Result<Self, Error> {
        let system = |error| Error::System { what: format!("listening on {address}"), error };
        let socket = listen(address).map_err(system)?;
        let (secret, known) = (meeting.secret.clone(), Arc::clone(&meeting));
        // The handshake's guard is held until the answer is sent, so that closing the listener also
        // ends connections that wait here.
        let answering = move |channel, _handshake| answer(&known, channel);
        let listener = Listener::answering(socket, secret, answering).map_err(system)?;
        Ok(Self { listener, meeting })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Stops accepting, aborts handshakes in progress, and ends their threads. Returns what has not
    /// ended by the deadline; nothing when called again.
    pub(crate) fn close(&mut self, deadline: Deadline) -> Vec<String> {
        self.meeting.stop();
        self.listener.close(deadline)
    }
}

impl Drop for LinkListener {
    fn drop(&mut self) {
        self.close(Deadline::after(REQUEST_TIMEOUT));
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Answers what another context says on a connection that it has made.
fn answer(meeting: &Meeting, mut channel: Channel) -> Result<(), Error> {
    let deadline = Deadline::after(REQUEST_TIMEOUT);
    let mut hello = channel.receive(deadline)?;
    if let Hello::Share(share) = hello {
        if meeting.sharing == Some(share.sharing) {
            channel.send(&Response::Shared, deadline)?;
            return take_stream(meeting, share, channel);
        }
        channel.send(&Response::Apart, deadline)?;
        hello = channel.receive(deadline)?;
    }
    let request = match hello {
        Hello::Link(request) => request,
        Hello::Choice(question) => return tell_choice(meeting, &question, channel),
        Hello::Share(_) => return Ok(()),
    };
    let patience = Duration::from_millis(request.timeout_ms).min(Duration::from_secs(600));
    let judged = meeting.await_group(&request, channel.peer(), Deadline::after(patience));
    let deadline = Deadline::after(REQUEST_TIMEOUT);
    let offers = match judged {
        Ok(offers) => offers,
        Err(reason) => return Ok(channel.send(&Response::Refused(reason), deadline)?),
    };
    let ours = offers.make()?;
    channel.send(&Response::Accepted { offer: ours.bytes() }, deadline)?;
    let theirs = request.offer.clone();
    let wire = OwnWire { channel, ours, theirs, connected_here: false };
    meeting.place(&request, Wire::Own(Box::new(wire)));
    Ok(())
}

/// Answers a question for the root's choice once it is known.
fn tell_choice(meeting: &Meeting, question: &Question, mut channel: Channel) -> Result<(), Error> {
    let patience = Duration::from_millis(question.timeout_ms).min(WAITING_TIME_MAX);
    let reply = meeting.await_decision(question, channel.peer(), Deadline::after(patience));
    let response = reply.map_or_else(Response::Refused, Response::Chose);
    Ok(channel.send(&response, Deadline::after(REQUEST_TIMEOUT))?)
}

/// Takes a stream of a connection that is to be shared, which is made with the last one.
fn take_stream(meeting: &Meeting, share: ShareRequest, channel: Channel) -> Result<(), Error> {
    let ShareRequest { id, stream, sharing, address } = share;
    let mut state = meeting.state();
    let forming = &mut state.shared.forming;
    forming.retain(|_, one| !one.until.left().is_zero());
    if forming.len() >= FORMING_MAX {
        return Ok(());
    }
    let until = Deadline::after(REQUEST_TIMEOUT);
    let none = || Forming { channels: (0..sharing.streams).map(|_| None).collect(), until };
    let one = forming.entry(id).or_insert_with(none);
    if let Some(place) = one.channels.get_mut(usize::from(stream)) {
        *place = Some(channel);
    }
    if one.channels.iter().any(Option::is_none) {
        return Ok(());
    }
    let channels = forming.remove(&id).into_iter().flat_map(|one| one.channels).flatten();
    let channels = channels.collect();
    drop(state);
    give_shared(meeting, channels, sharing, address, false)
}

/// Gives a connection to the worker.
fn give_shared(
    meeting: &Meeting,
    channels: Vec<Channel>,
    sharing: Sharing,
    address: SocketAddr,
    connected_here: bool,
) -> Result<(), Error> {
    let link = tcp_link(channels, sharing.protection())
        .map_err(|cause| session::Error::Peer { address, cause })?;
    meeting.commands()?.give(Command::Share { link, address, connected_here })
}

/// Connects this member with its neighbours. Blocks until the deadline at most.
///
/// Errors: the group is being created here already; a neighbour is unreachable, refuses, or does
/// not appear in time.
pub(crate) fn connect_neighbours(
    listener: &LinkListener,
    joining: &Joining,
    addresses: &[SocketAddr],
    deadline: Deadline,
) -> Result<Wires, Error> {
    let (lower, higher): (Vec<u32>, Vec<u32>) =
        joining.neighbours.iter().partition(|&&rank| rank < joining.rank);
    let expectation = listener.meeting.expect(joining, &higher)?;
    let connecting = Connecting { meeting: &listener.meeting, joining, addresses, deadline };
    let mut links = connecting.connect_all(lower)?;
    links.extend(expectation.await_all(addresses, deadline)?);
    Ok(links)
}

/// Asks a member for the root's choice, and returns its answer. Blocks until the deadline at most.
///
/// Errors: it is unreachable, or does not answer in time; a member asks here about another group of this number.
pub(crate) fn ask_choice(
    listener: &LinkListener,
    joining: &Joining,
    to: u32,
    addresses: &[SocketAddr],
    deadline: Deadline,
) -> Result<Reply, Error> {
    let (meeting, decision) = (&listener.meeting, &joining.decision);
    meeting.announce(decision)?;
    let connecting = Connecting { meeting, joining, addresses, deadline };
    let member = (to, addresses[to as usize]);
    loop {
        match connecting.way_to(to)? {
            Way::Apart(channel) => return connecting.ask_choice_apart(to, channel, decision),
            Way::Shared(connection) => {
                if let Some(reply) = meeting.ask_choice(connection, member, decision, deadline)? {
                    return Ok(reply);
                }
                if deadline.left().is_zero() {
                    let what = format!(
                        "asking member {to} ({}), whose connection is lost each time,",
                        addresses[to as usize]
                    );
                    return Err(deadline.missed(what).into());
                }
            }
        }
    }
}

/// The connecting side of a group that is being created.
struct Connecting<'a> {
    meeting: &'a Meeting,
    joining: &'a Joining,
    addresses: &'a [SocketAddr],
    deadline: Deadline,
}

/// A way to another context.
enum Way {
    Shared(ConnectionId),
    /// Each link has a connection of its own: this one, if it was just made.
    Apart(Option<Channel>),
}

impl Connecting<'_> {
    /// Makes a link to each of `ranks`: at once where there is a shared connection, and [`CONNECTORS_MAX`] at a time
    /// where one has to be made.
    fn connect_all(&self, ranks: Vec<u32>) -> Result<Wires, Error> {
        let known = match self.sharing() {
            Some(_) => self.meeting.state().shared.connected(&ranks, self.addresses),
            None => Vec::new(),
        };
        let is_asked = |rank: &u32| known.iter().any(|(asked, _)| asked == rank);
        let asking = self.meeting.ask(self.joining, &known, self.timeout_ms())?;
        let others: Vec<u32> = ranks.into_iter().filter(|rank| !is_asked(rank)).collect();
        let mut links = self.connect_each(&others)?;
        let (group, mut lost) = (self.joining.number, Vec::new());
        let asked =
            self.meeting.await_answers(asking, group, self.addresses, self.deadline, &mut lost)?;
        links.extend(asked);
        links.extend(self.connect_each(&lost)?);
        Ok(links)
    }

    fn connect_each(&self, ranks: &[u32]) -> Result<Wires, Error> {
        let next = AtomicUsize::new(0);
        let links = Mutex::new(Ok(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..ranks.len().min(CONNECTORS_MAX) {
                scope.spawn(|| {
                    while let Some(&to) = ranks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let link = self.connect(to);
                        let mut links =
                            links.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                        match (link, &mut *links) {
                            (Ok(link), Ok(links)) => links.push((to, link)),
                            (Err(error), Ok(_)) => *links = Err(error),
                            (_, Err(_)) => return,
                        }
                    }
                });
            }
        });
        links.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Makes the link to one member. A shared connection that is lost meanwhile is made again.
    fn connect(&self, to: u32) -> Result<Vec<Wire>, Error> {
        loop {
            let connection = match self.way_to(to)? {
                Way::Apart(channel) => return self.connect_apart(to, channel),
                Way::Shared(connection) => connection,
            };
            let asking = self.meeting.ask(self.joining, &[(to, connection)], self.timeout_ms())?;
            let (group, mut lost) = (self.joining.number, Vec::new());
            let mut wires = self.meeting.await_answers(
                asking,
                group,
                self.addresses,
                self.deadline,
                &mut lost,
            )?;
            if let Some((_, wire)) = wires.pop() {
                return Ok(wire);
            }
        }
    }

    fn sharing(&self) -> Option<Sharing> {
        self.meeting.sharing.filter(|_| self.joining.is_shared)
    }

    fn timeout_ms(&self) -> u64 {
        millis(self.deadline.left())
    }

    /// Finds the shared connection to a member, waits for another thread that is making it, or makes it.
    fn way_to(&self, to: u32) -> Result<Way, Error> {
        let Some(sharing) = self.sharing() else { return Ok(Way::Apart(None)) };
        let address = self.addresses[to as usize];
        let mut state = self.meeting.state();
        loop {
            match state.shared.by_address.get(&address) {
                Some(&Known::Shared(connection)) => return Ok(Way::Shared(connection)),
                Some(Known::Apart) => return Ok(Way::Apart(None)),
                None => break,
                Some(Known::Connecting) => {}
            }
            let Some(changed) = self.meeting.wait(state, self.deadline) else {
                let what = format!("connecting to member {to} ({address})");
                return Err(self.deadline.missed(what).into());
            };
            state = changed;
        }
        state.shared.by_address.insert(address, Known::Connecting);
        drop(state);
        let made = self.make_shared(to, sharing);
        let mut state = self.meeting.state();
        if state.shared.by_address.get(&address) == Some(&Known::Connecting) {
            match &made {
                Ok(None) => {}
                Ok(Some(_)) => drop(state.shared.by_address.insert(address, Known::Apart)),
                Err(_) => drop(state.shared.by_address.remove(&address)),
            }
        }
        drop(state);
        self.meeting.notify();
        match made? {
            Some(channel) => Ok(Way::Apart(Some(channel))),
            // The worker tells when it has it.
            None => self.way_to(to),
        }
    }

    /// Makes the connection to a member's context and gives it to the worker. Returns a connection that is not
    /// shared if that context shares none.
    fn make_shared(&self, to: u32, sharing: Sharing) -> Result<Option<Channel>, Error> {
        let (address, own) =
            (self.addresses[to as usize], self.addresses[self.joining.rank as usize]);
        let named = |error| of_member(to, error);
        let random = |error| Error::System { what: "sharing a connection".into(), error };
        let (id, mut channels) = (session::random_id().map_err(random)?, Vec::new());
        for stream in 0..sharing.streams {
            let mut channel = self.dial(to)?;
            let hello = Hello::Share(ShareRequest { id, stream, sharing, address: own });
            channel.send(&hello, self.deadline).map_err(named)?;
            match channel.receive(self.deadline).map_err(named)? {
                Response::Shared => channels.push(channel),
                _ => return Ok(Some(channel)),
            }
        }
        give_shared(self.meeting, channels, sharing, address, true)?;
        Ok(None)
    }

    /// Connects to a member, which may not have started listening yet.
    fn dial(&self, to: u32) -> Result<Channel, Error> {
        let address = self.addresses[to as usize];
        Channel::connect_patiently(address, &self.meeting.secret, self.deadline)
            .map_err(|error| of_member(to, error))
    }

    /// Asks for the root's choice on a connection of its own; on `channel`, if there is one.
    fn ask_choice_apart(
        &self,
        to: u32,
        channel: Option<Channel>,
        decision: &Decision,
    ) -> Result<Reply, Error> {
        let mut channel = channel.map_or_else(|| self.dial(to), Ok)?;
        let named = |error| of_member(to, error);
        let question = decision.question(to, self.timeout_ms());
        channel.send(&Hello::Choice(question), self.deadline).map_err(named)?;
        Ok(match channel.receive(self.deadline).map_err(named)? {
            Response::Chose(choice) => Ok(choice),
            Response::Refused(cause) => Err(cause),
            _ => Err(OTHER_ANSWER.into()),
        })
    }

    /// Makes a connection for each stream of the link to a member; `channel` is the first, if there is one.
    fn connect_apart(&self, to: u32, mut channel: Option<Channel>) -> Result<Vec<Wire>, Error> {
        let streams = 0..self.joining.terms.streams();
        let wires = streams.map(|stream| {
            let channel = channel.take().map_or_else(|| self.dial(to), Ok)?;
            self.request(to, stream, channel)
        });
        wires.collect()
    }

    fn request(&self, to: u32, stream: u8, mut channel: Channel) -> Result<Wire, Error> {
        let (member, address) = (to, self.addresses[to as usize]);
        let named = |error| of_member(member, error);
        let ours = self.joining.offers.make()?;
        let mut request = self.joining.request(to, self.timeout_ms());
        (request.stream, request.offer) = (stream, ours.bytes());
        channel.send(&Hello::Link(request), self.deadline).map_err(named)?;
        let cause = match channel.receive(self.deadline).map_err(named)? {
            Response::Accepted { offer: theirs } => {
                return Ok(Wire::Own(Box::new(OwnWire {
                    channel,
                    ours,
                    theirs,
                    connected_here: true,
                })));
            }
            Response::Refused(cause) => cause,
            Response::Shared | Response::Apart | Response::Chose(_) => OTHER_ANSWER.into(),
        };
        Err(Error::Member { member, address, cause })
    }
}

/// Converts an error of a connection to one that names the member at its other end.
pub(crate) fn of_member(member: u32, error: session::Error) -> Error {
    match error {
        session::Error::Peer { address, cause } => Error::Member { member, address, cause },
        other => match other.into() {
            Error::Timeout { what, timeout } => {
                Error::Timeout { what: format!("{what} (member {member})"), timeout }
            }
            other => other,
        },
    }
}
