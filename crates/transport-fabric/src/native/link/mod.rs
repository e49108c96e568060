//! One link: its endpoints, what waits to be posted on them, and what is posted.

mod paths;
mod posting;
mod words;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use transport::{Cause, Completion, EndpointId, PeerMemory, ReadLease, Token, WriteLease};

use crate::{
    native::{
        buffer::Buffer,
        device::Device,
        lifeline::Lifeline,
        offer::{Cookie, Ends},
        registration::{self, Pinned},
        ring::{LENGTHS_MAX, Note, Receives, Ring, SLOT_BYTES, SLOTS, Slot},
        sys::{self, Access, Errno, Object, RawCompletion, Registration, Span, Way},
    },
    role::Role,
};

/// Sends of one rail that the provider has at a time: the next is there when one ends, and those
/// that wait can be overtaken by control words and taken back by a close.
const SENDS_POSTED_MAX: usize = 4;
/// Receives of one rail that the provider has at a time.
const RECEIVES_POSTED_MAX: usize = 64;
/// Receives of the peer's that one link remembers.
const PEER_LENGTHS_MAX: usize = 4096;
/// Memory regions that one link may expose.
const EXPOSED_MAX: usize = 64;

/// What tags of datagrams say, beside the link's number.
const DATA_TAG: u64 = 1;
const CONTROL_TAG: u64 = 2;
/// Below the immediate of an offloaded block.
pub const OFFLOAD_TAG: u64 = 3;
/// Any peer: whoever knows the endpoint's address and the link's number.
pub const ANYBODY: u64 = u64::MAX;

/// What libfabric's verbs provider calls a block that is longer than the memory
/// (`IBV_WC_LOC_LEN_ERR`).
const VERBS_LENGTH_ERROR: i32 = 1;

/// How far a link is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Not all endpoints are connected, or the peer has not said hello.
    Connecting {
        until: Instant,
    },
    Up,
    /// Asked to close; over when the peer has heard of it.
    Closing {
        until: Instant,
        said_bye: bool,
        heard: bool,
    },
}

/// How a link ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Closed,
    Broken(Cause),
}

/// One endpoint of libfabric's.
pub struct Path {
    pub endpoint: Arc<Object>,
    /// At a datagram endpoint, what its address vector calls the peer.
    peer: Option<u64>,
    pub is_connected: bool,
}

/// Something that the provider has.
enum Op {
    Send(ReadLease, Token, #[allow(dead_code, reason = "keeps it")] Option<Arc<Pinned>>),
    Receive(WriteLease, Token, #[allow(dead_code, reason = "keeps it")] Option<Arc<Pinned>>),
    Write(ReadLease, Token, #[allow(dead_code, reason = "keeps it")] Option<Arc<Pinned>>),
    /// A control word on its way out; its staging slot is ours again once the peer has read it.
    Word,
    /// Where a control word may come in: nothing but a place in the receive queue, or a slot.
    Place,
}

struct Send {
    from: ReadLease,
    immediate: u32,
    token: Token,
}

struct Write {
    from: ReadLease,
    name: u32,
    offset: u64,
    immediate: u32,
    token: Token,
}

/// Memory of the peer's that we may write.
struct Exposed {
    key: u64,
    address: u64,
    bytes: u64,
}

pub struct Link {
    // Endpoints are closed before what they use goes: fields are dropped in this order.
    /// The control path first, then the rails; `None` until connected or accepted.
    paths: Vec<Option<Path>>,
    exposed_here: HashMap<u32, (Registration, PeerMemory)>,
    slots: Buffer,
    staging: Buffer,
    pub id: EndpointId,
    pub lifeline: EndpointId,
    pub phase: Phase,
    /// All paths are connected, and the peer has said hello.
    is_up: bool,
    pub role: Role,
    /// Keeps the cookie alive, and the endpoints that were made with the offer.
    offer: crate::native::offer::Offer,
    theirs: crate::native::offer::Terms,
    ring: Ring,
    /// Where the peer's slots are, once it has said so.
    peer_slots: Option<(u64, u64)>,
    exposed_there: HashMap<u32, Exposed>,
    ops: HashMap<u32, Op>,
    next_op: u32,
    sends: VecDeque<Send>,
    receives: VecDeque<(WriteLease, Token)>,
    writes: VecDeque<Write>,
    sends_posted: usize,
    receives_open: usize,
    sends_started: u64,
    receives_posted: u64,
    /// Lengths of receives that are posted or wait to be: the last of them, from this index on.
    lengths: VecDeque<u32>,
    lengths_first: u64,
    /// Lengths of the peer's receives that we know of, by index.
    peer_lengths: BTreeMap<u64, u32>,
    /// The peer waits for a receive of this index.
    peer_wants: Option<u64>,
    asked_for: Option<u64>,
    /// Memory of the peer's that we have asked for.
    asked_where: Option<u32>,
    peer_bye: Option<u64>,
    retry: bool,
    /// Posts of ours that have completed.
    answered: u64,
    /// Since when that number has been what it is though something is posted, as far as checked.
    unanswered: Option<(u64, Instant)>,
    /// What broke it, to be reported by the driver.
    pub broken: Option<Cause>,
}

/// What a link works with.
pub struct Round<'a> {
    pub devices: &'a [Device],
    pub completed: &'a mut Vec<Completion>,
    /// Words for the lifeline, in order.
    pub lifeline: &'a mut Vec<(EndpointId, Lifeline)>,
}

impl Link {
    /// A link that is not connected. Errors: memory for control slots cannot be registered.
    pub fn new(
        id: EndpointId,
        lifeline: EndpointId,
        ends: Ends,
        devices: &[Device],
        until: Instant,
    ) -> Result<Self, Errno> {
        let Ends { role, ours, theirs } = ends;
        let rails = devices.len().min(theirs.addresses.len());
        let info = &devices[0].info;
        let ring_bytes = SLOTS as usize * SLOT_BYTES;
        let buffer = |peer_key| {
            Buffer::new(ring_bytes, &devices[0].domain, info.needs_local_registration, peer_key)
        };
        // Keys that the provider does not choose: the ring's, and the names of exposed memory.
        let ring_key = info.is_message_endpoint.then(|| wanted_key(ours.terms.number, RING_NAME));
        Ok(Self {
            paths: (0..=rails).map(|_| None).collect(),
            exposed_here: HashMap::new(),
            slots: buffer(ring_key)?,
            staging: buffer(None)?,
            id,
            lifeline,
            phase: Phase::Connecting { until },
            is_up: false,
            role,
            offer: ours,
            theirs,
            ring: Ring::default(),
            peer_slots: None,
            exposed_there: HashMap::new(),
            ops: HashMap::new(),
            next_op: 0,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            writes: VecDeque::new(),
            sends_posted: 0,
            receives_open: 0,
            sends_started: 0,
            receives_posted: 0,
            lengths: VecDeque::new(),
            lengths_first: 0,
            peer_lengths: BTreeMap::new(),
            peer_wants: None,
            asked_for: None,
            asked_where: None,
            peer_bye: None,
            retry: false,
            answered: 0,
            unanswered: None,
            broken: None,
        })
    }

    /// By which the peer names this link.
    pub fn number(&self) -> u32 {
        self.offer.terms.number
    }

    pub fn cookie(&self) -> Cookie {
        self.offer.terms.cookie
    }

    pub fn is_open(&self) -> bool {
        self.broken.is_none() && !matches!(self.phase, Phase::Closing { .. })
    }

    /// Posts what can be posted, and ends if it is time.
    pub fn advance(&mut self, round: &mut Round<'_>, now: Instant) -> Option<End> {
        self.rise();
        self.retry = false;
        if self.is_up && self.broken.is_none() {
            self.advance_receives(round);
            self.advance_sends(round);
            self.advance_writes(round);
            self.advance_words();
        }
        self.end(round, now)
    }

    /// Posts what can be posted now, and ends nothing.
    pub fn post_now(&mut self, round: &mut Round<'_>) {
        if self.is_up && self.broken.is_none() {
            self.advance_receives(round);
        }
    }

    /// Something waits for room in the provider's queues, which tells nobody when there is some.
    pub fn has_to_retry(&self) -> bool {
        self.retry
    }

    /// Breaks the link if nothing that this end has sent completes for so long, and for what the
    /// longest block takes over a slow network. To be asked now and then.
    pub fn misses_answers(&mut self, now: Instant, timeout: Duration) -> bool {
        let open = self.ops.values().filter_map(|op| match op {
            Op::Send(lease, ..) | Op::Write(lease, ..) => Some(lease.bytes() as u64),
            Op::Word => Some(0),
            Op::Receive(..) | Op::Place => None,
        });
        let since = match (open.max(), self.unanswered) {
            (None, _) => {
                self.unanswered = None;
                return false;
            }
            (Some(bytes), Some((answered, since))) if answered == self.answered => {
                since + Duration::from_secs(bytes / SLOW_BYTES_PER_S)
            }
            _ => {
                self.unanswered = Some((self.answered, now));
                return false;
            }
        };
        let is_over = now.saturating_duration_since(since) >= timeout;
        if is_over {
            let why = format!(
                "the fabric has carried nothing for {timeout:?}, though the peer lives: check the \
                 cable, the port and the path between the devices"
            );
            self.break_by(Cause::Lost(why));
        }
        is_over
    }

    fn end(&mut self, round: &mut Round<'_>, now: Instant) -> Option<End> {
        if let Some(cause) = self.broken.take() {
            return Some(End::Broken(cause));
        }
        // The peer's last words are here: it need not wait for us any more.
        let all_heard = self.peer_bye.is_some_and(|last| self.ring.consumed() >= last);
        match &mut self.phase {
            Phase::Closing { until, said_bye, heard } => {
                if !*said_bye && self.is_up && self.ring.is_idle() {
                    *said_bye = true;
                    round.lifeline.push((self.lifeline, Lifeline::Bye { words: self.ring.sent() }));
                }
                if all_heard {
                    self.peer_bye = None;
                    round.lifeline.push((self.lifeline, Lifeline::ByeHeard));
                }
                (*heard || now >= *until).then_some(End::Closed)
            }
            _ if all_heard => {
                round.lifeline.push((self.lifeline, Lifeline::ByeHeard));
                Some(End::Broken(Cause::ClosedByPeer))
            }
            Phase::Connecting { until } if now >= *until => {
                let why = "the fabric's connection was not made in time: check that its network is \
                           up and lets this host through";
                Some(End::Broken(Cause::Lost(why.into())))
            }
            _ => None,
        }
    }

    /// When [`Link::advance`] has to be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Connecting { until } | Phase::Closing { until, .. } => Some(until),
            Phase::Up => None,
        }
    }

    /// Breaks the link, unless it is closing or broken: the first cause stays.
    pub fn break_by(&mut self, cause: Cause) {
        match &mut self.phase {
            // What fails now would have been cut off anyway.
            Phase::Closing { heard, .. } => *heard = true,
            _ => drop(self.broken.get_or_insert(cause)),
        }
    }

    /// Starts an ordered close: what the provider does not have yet is cancelled.
    pub fn close(&mut self, until: Instant, completed: &mut Vec<Completion>) {
        self.phase = Phase::Closing { until, said_bye: false, heard: false };
        self.cancel_waiting(completed);
    }

    fn cancel_waiting(&mut self, completed: &mut Vec<Completion>) {
        let endpoint = self.id;
        // Leases are dropped before their completions can be seen.
        let sends = self.sends.drain(..).map(|send| send.token);
        let receives = self.receives.drain(..).map(|(_, token)| token);
        let writes = self.writes.drain(..).map(|write| write.token);
        let cancelled = sends.chain(receives).chain(writes);
        completed.extend(cancelled.map(|token| Completion::Cancelled { endpoint, token }));
    }

    /// Closes all endpoints; then nobody touches memory any more, and all of it is handed back.
    pub fn tear_down(mut self, devices: &[Device], completed: &mut Vec<Completion>) {
        // The provider sockets closes the connection's descriptor when it is shut down, and once
        // more with the endpoint, when it may be anybody's. Closing alone ends the connection too.
        let closes_twice = devices[0].info.provider == "sockets";
        for path in self.paths.iter().flatten().filter(|path| path.peer.is_none() && !closes_twice)
        {
            sys::shut_down(&path.endpoint);
        }
        self.paths.clear();
        self.cancel_waiting(completed);
        let endpoint = self.id;
        for op in std::mem::take(&mut self.ops).into_values() {
            if let Op::Send(_, token, _) | Op::Receive(_, token, _) | Op::Write(_, token, ..) = op {
                completed.push(Completion::Cancelled { endpoint, token });
            }
        }
    }
}

/// No network that this is for is slower, so that a block that takes its time is no loss.
const SLOW_BYTES_PER_S: u64 = 10 << 20;

fn slot_range(slot: u64) -> std::ops::Range<usize> {
    let start = slot as usize * SLOT_BYTES;
    start..start + SLOT_BYTES
}

/// The ring's name: no memory that somebody exposes can have it.
const RING_NAME: u64 = 1 << 32;

/// A key for memory of this link, where the provider does not choose.
fn wanted_key(number: u32, name: u64) -> u64 {
    u64::from(number) << 33 | name
}
