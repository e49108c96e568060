//! Connecting the linked members of a group or a team.
//!
//! Of two neighbours the one with the higher rank connects and the other accepts, so that each pair
//! is connected once, or once for each stream. The accepting member compares the terms, and both
//! members return the same error if they differ.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use session::{Channel, Deadline, Listener, Secret, millis};
use socket2::{Domain, Protocol, Socket, Type};

use super::terms::Terms;
use crate::{
    Error,
    network::{Offers, Wire},
};

/// How long a neighbour may take to send its request, and to take the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How many connections are made at the same time.
const CONNECTORS_MAX: usize = 16;

/// The connections to each neighbour, by rank.
pub(crate) type Wires = Vec<(u32, Vec<Wire>)>;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    group: u64,
    from: u32,
    to: u32,
    stream: u8,
    terms: Terms,
    /// The offer of the fabric's transport for its end of the link.
    offer: Vec<u8>,
    timeout_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    Accepted { offer: Vec<u8> },
    Refused(String),
}

/// Accepts links for all groups of a context, until it is closed.
pub(crate) struct LinkListener {
    listener: Listener,
    shared: Arc<Shared>,
}

struct Shared {
    secret: Secret,
    expected: Mutex<HashMap<u64, Expected>>,
    changed: Condvar,
    stopped: AtomicBool,
}

/// A group or a team that is being created here, and the links accepted for it so far.
struct Expected {
    rank: u32,
    offers: Offers,
    terms: Terms,
    wires: BTreeMap<u32, Vec<Option<Wire>>>,
    problem: Option<(u32, SocketAddr, String)>,
}

impl LinkListener {
    /// Listens on an address; port 0 selects a free port. Errors: a system call fails.
    pub(crate) fn start(address: SocketAddr, secret: Secret) -> Result<Self, Error> {
        let system = |error| Error::System { what: format!("listening on {address}"), error };
        let socket = listen(address).map_err(system)?;
        let shared = Arc::new(Shared {
            secret: secret.clone(),
            expected: Mutex::default(),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
        });
        let answering = Arc::clone(&shared);
        // The handshake's guard is held until the answer is sent, so that closing the listener also
        // ends connections that wait here.
        let answer = move |channel, _handshake| answering.answer(channel);
        let listener = Listener::answering(socket, secret, answer).map_err(system)?;
        Ok(Self { listener, shared })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Stops accepting, aborts handshakes in progress, and ends their threads. Returns what has not
    /// ended by the deadline; nothing when called again.
    pub(crate) fn close(&mut self, deadline: Deadline) -> Vec<String> {
        self.shared.stopped.store(true, Ordering::Release);
        // Once the lock was taken, every thread that saw `stopped` unset is waiting and receives
        // this notification.
        drop(self.shared.expected());
        self.shared.changed.notify_all();
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

impl Shared {
    fn expected(&self) -> MutexGuard<'_, HashMap<u64, Expected>> {
        self.expected.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn answer(&self, mut channel: Channel) -> Result<(), Error> {
        let deadline = Deadline::after(REQUEST_TIMEOUT);
        let request: Request = channel.receive(deadline)?;
        let patience = Duration::from_millis(request.timeout_ms).min(Duration::from_secs(600));
        let judged = self.judge(&request, channel.peer(), Deadline::after(patience));
        let deadline = Deadline::after(REQUEST_TIMEOUT);
        let offers = match judged {
            Ok(offers) => offers,
            Err(reason) => return Ok(channel.send(&Response::Refused(reason), deadline)?),
        };
        let ours = offers.make()?;
        channel.send(&Response::Accepted { offer: ours.bytes() }, deadline)?;
        let wire = Wire { channel, ours, theirs: request.offer, connected_here: false };
        let mut groups = self.expected();
        if let Some(expected) = groups.get_mut(&request.group)
            && let Some(wires) = expected.wires.get_mut(&request.from)
            && let Some(place) = wires.get_mut(usize::from(request.stream))
        {
            *place = Some(wire);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Waits until the group is being created here. Returns what makes offers for its links.
    ///
    /// Errors: why the link is refused.
    fn judge(
        &self,
        request: &Request,
        peer: SocketAddr,
        deadline: Deadline,
    ) -> Result<Offers, String> {
        let mut groups = self.expected();
        loop {
            if let Some(expected) = groups.get_mut(&request.group) {
                let Some(problem) = expected.problem_with(request) else {
                    return Ok(expected.offers.clone());
                };
                expected.problem.get_or_insert((request.from, peer, problem.clone()));
                self.changed.notify_all();
                return Err(problem);
            }
            let left = deadline.left();
            if left.is_zero() || self.stopped.load(Ordering::Acquire) {
                return Err(format!("group {} was not created there in time", request.group));
            }
            groups = self
                .changed
                .wait_timeout(groups, left)
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .0;
        }
    }
}

impl Expected {
    fn problem_with(&self, request: &Request) -> Option<String> {
        let Request { group, from, to, stream, terms, .. } = request;
        if let Some(difference) = self.terms.difference(terms) {
            return Some(format!(
                "members {} and {from} have different settings for group {group}: \
                 {difference} (seen from member {})",
                self.rank, self.rank
            ));
        }
        if *to != self.rank {
            return Some(format!(
                "this is member {}, not member {to}: the member lists differ",
                self.rank
            ));
        }
        let Some(wires) = self.wires.get(from) else {
            return Some(format!(
                "member {from} is not expected to connect to member {}",
                self.rank
            ));
        };
        match wires.get(usize::from(*stream)) {
            Some(None) => None,
            _ => Some(format!("member {from} has connected already; is it running twice?")),
        }
    }

    fn is_complete(&self) -> bool {
        self.wires.values().flatten().all(Option::is_some)
    }
}

/// Removes an expected group when its creation ends, with or without success.
struct Expectation<'a> {
    shared: &'a Shared,
    group: u64,
}

impl Drop for Expectation<'_> {
    fn drop(&mut self) {
        self.shared.expected().remove(&self.group);
    }
}

/// What is being created at one member.
pub(crate) struct Joining {
    /// Number of the group or the team.
    pub(crate) number: u64,
    /// This member's rank.
    pub(crate) rank: u32,
    /// The members to which this one has links.
    pub(crate) neighbours: Vec<u32>,
    /// Makes offers of the transport that the links are for.
    pub(crate) offers: Offers,
    pub(crate) terms: Terms,
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
    let shared = &listener.shared;
    let expectation = expect(shared, joining, &higher)?;
    let mut links = connect_all(shared, joining, addresses, &lower, deadline)?;
    links.extend(await_all(&expectation, addresses, deadline)?);
    Ok(links)
}

fn expect<'a>(
    shared: &'a Shared,
    joining: &Joining,
    ranks: &[u32],
) -> Result<Expectation<'a>, Error> {
    let group = joining.number;
    let empty = || (0..joining.terms.streams()).map(|_| None).collect::<Vec<_>>();
    let expected = Expected {
        rank: joining.rank,
        offers: joining.offers.clone(),
        terms: joining.terms.clone(),
        wires: ranks.iter().map(|&rank| (rank, empty())).collect(),
        problem: None,
    };
    let mut groups = shared.expected();
    if groups.contains_key(&group) {
        return Err(Error::NumberInUse(group));
    }
    groups.insert(group, expected);
    shared.changed.notify_all();
    Ok(Expectation { shared, group })
}

/// Connects to each of `ranks`, [`CONNECTORS_MAX`] at a time.
fn connect_all(
    shared: &Shared,
    joining: &Joining,
    addresses: &[SocketAddr],
    ranks: &[u32],
    deadline: Deadline,
) -> Result<Wires, Error> {
    let next = AtomicUsize::new(0);
    let links = Mutex::new(Ok(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..ranks.len().min(CONNECTORS_MAX) {
            scope.spawn(|| {
                while let Some(&to) = ranks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let address = addresses[to as usize];
                    let link = (0..joining.terms.streams()).map(|stream| {
                        let request = Request {
                            group: joining.number,
                            from: joining.rank,
                            to,
                            stream,
                            terms: joining.terms.clone(),
                            offer: Vec::new(),
                            timeout_ms: millis(deadline.left()),
                        };
                        connect_one(shared, &joining.offers, address, request, deadline)
                    });
                    let link = link.collect::<Result<Vec<_>, _>>();
                    let mut links = links.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
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

fn connect_one(
    shared: &Shared,
    offers: &Offers,
    address: SocketAddr,
    mut request: Request,
    deadline: Deadline,
) -> Result<Wire, Error> {
    let member = request.to;
    let named = |error| of_member(member, error);
    // The peer may not have started listening yet.
    let mut channel =
        Channel::connect_patiently(address, &shared.secret, deadline).map_err(named)?;
    let ours = offers.make()?;
    request.offer = ours.bytes();
    channel.send(&request, deadline).map_err(named)?;
    match channel.receive(deadline).map_err(named)? {
        Response::Accepted { offer: theirs } => {
            Ok(Wire { channel, ours, theirs, connected_here: true })
        }
        Response::Refused(cause) => Err(Error::Member { member, address, cause }),
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

/// Waits for the links from members with higher ranks.
fn await_all(
    expectation: &Expectation<'_>,
    addresses: &[SocketAddr],
    deadline: Deadline,
) -> Result<Wires, Error> {
    let (shared, group) = (expectation.shared, expectation.group);
    let mut groups = shared.expected();
    loop {
        let Some(expected) = groups.get_mut(&group) else { return Err(Error::NoSuchGroup(group)) };
        if let Some((member, address, cause)) = expected.problem.take() {
            return Err(Error::Member { member, address, cause });
        }
        if expected.is_complete() {
            let wires = std::mem::take(&mut expected.wires).into_iter();
            return Ok(wires.map(|(rank, w)| (rank, w.into_iter().flatten().collect())).collect());
        }
        let left = deadline.left();
        if left.is_zero() {
            let missing: Vec<String> = expected
                .wires
                .iter()
                .filter(|(_, wires)| wires.iter().any(Option::is_none))
                .map(|(&rank, _)| format!("{rank} ({})", addresses[rank as usize]))
                .collect();
            let what = format!("waiting for members {} to join group {group}", missing.join(", "));
            return Err(deadline.missed(what).into());
        }
        groups = shared
            .changed
            .wait_timeout(groups, left)
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .0;
    }
}
