//! A connection between two members, and the state of each side.

use std::collections::{BTreeMap, HashMap, VecDeque};

use transport::{Cause, EndpointId, PeerMemory};

use crate::{
    config::LinkConfig,
    event::Event,
    names::SideId,
    post::{Orphan, Target},
    write::PostedWrite,
};

pub(crate) struct Connection {
    pub(crate) link: LinkConfig,
    pub(crate) cut: Cut,
    sides: [Side; 2],
}

/// Nothing is delivered over a connection for some time, and neither end is notified.
#[derive(Default)]
pub(crate) struct Cut {
    pub(crate) since_ns: u64,
    pub(crate) until_ns: u64,
    /// Events held back until the cut is over.
    pub(crate) held: Vec<Event>,
}

/// The state of a side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Its link has not been opened.
    Unopened,
    Open,
    Closing,
    Gone,
}

pub(crate) struct Side {
    pub(crate) member: usize,
    pub(crate) endpoint: EndpointId,
    pub(crate) phase: Phase,
    /// Posted, and not matched with a send.
    pub(crate) receives: VecDeque<Target>,
    /// Offloaded receives that are posted and not matched, by their immediate.
    pub(crate) offloaded: BTreeMap<u32, Target>,
    /// Posts that can only be cancelled, once the end reaches this side.
    pub(crate) orphans: Vec<Orphan>,
    /// Slots of transfers from this side that have not arrived, in posting order.
    pub(crate) outgoing: VecDeque<usize>,
    /// Shared ports: parts that this side has sent, and that have not passed the peer's port.
    pub(crate) under_way: u32,
    /// Posted one-sided writes that have not left, in posting order.
    pub(crate) writes: VecDeque<PostedWrite>,
    /// Memory that the peer may write, by key.
    pub(crate) exposed: HashMap<u32, PeerMemory>,
    /// This side has sent a block without credit: whatever it sends from then on is ignored.
    pub(crate) broke_protocol: bool,
    /// When the last word or block that this side has sent arrives at the peer.
    pub(crate) last_word_arrival_ns: u64,
    pub(crate) last_block_arrival_ns: u64,
    /// When its last write leaves, and when it arrives.
    pub(crate) last_write_left_ns: u64,
    pub(crate) last_write_arrival_ns: u64,
    /// Events that arrived before this side was opened.
    pub(crate) early_words: Vec<Vec<u8>>,
    pub(crate) early_end: Option<Cause>,
}

impl Connection {
    pub(crate) fn new(members: [usize; 2], link: LinkConfig) -> Self {
        let sides = members.map(|member| Side {
            member,
            // Replaced when the side is opened.
            endpoint: EndpointId(u64::MAX),
            phase: Phase::Unopened,
            receives: VecDeque::new(),
            offloaded: BTreeMap::new(),
            orphans: Vec::new(),
            outgoing: VecDeque::new(),
            under_way: 0,
            writes: VecDeque::new(),
            exposed: HashMap::new(),
            broke_protocol: false,
            last_word_arrival_ns: 0,
            last_block_arrival_ns: 0,
            last_write_left_ns: 0,
            last_write_arrival_ns: 0,
            early_words: Vec::new(),
            early_end: None,
        });
        Self { link, cut: Cut::default(), sides }
    }

    pub(crate) fn side(&mut self, id: SideId) -> &mut Side {
        &mut self.sides[id.index()]
    }
}
