//! Processes: an engine each, groups that are being joined, and what has happened and was not looked
//! at yet.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{Ipv4Addr, SocketAddr},
    sync::mpsc,
};

use engine::GroupSettings;
use files::machines::{Copy, Member, MemberEvent, Ranges, Session, Start, ToReceiver, ToRoot};
use rdmc::{Error, Failure, Region};
use transport_sim::SimLink;

use crate::{actor::MemberEngine, node::Watch};

/// One run of rdmc at a machine. Its index is also its number in the simulated network.
pub(super) struct Process {
    pub(super) machine: usize,
    /// None: it was killed.
    pub(super) engine: Option<MemberEngine>,
    pub(super) watch: Watch,
    pub(super) joinings: BTreeMap<u64, Joining>,
    /// Groups that stand, as far as whoever decides knows.
    pub(super) standing: BTreeSet<u64>,
    pub(super) inbox: VecDeque<Note>,
    /// The thread that decides looks then; it does nothing else before.
    pub(super) looks_ns: Option<u64>,
    pub(super) busy_until_ns: u64,
    pub(super) deadline_ns: Option<u64>,
    /// None: the root.
    pub(super) receiver: Option<Box<Receiver>>,
    /// Its session is over; only groups may still end.
    pub(super) is_over: bool,
}

/// What the thread that decides has to look at.
#[derive(Debug)]
pub(super) enum Note {
    /// From the root, or why nothing more comes.
    Told(Result<ToReceiver, &'static str>),
    News(MemberEvent),
    Hashed(blake3::Hash),
    /// A group was joined, or not; at both ends.
    Joined(u64, Result<(), Error>),
    /// At the root only, with numbers of lines.
    Came(usize),
    Said(usize, ToRoot),
    Gone(usize, &'static str),
    NotStarted {
        host: usize,
        start: u32,
    },
    Checked(usize, Ranges),
    Digest,
    Ended(u64, Result<(), Failure>),
    Cancel,
}

/// A group that is being joined.
pub(super) struct Joining {
    pub(super) start: Start,
    pub(super) settings: GroupSettings,
    pub(super) links: BTreeMap<u32, SimLink>,
    pub(super) is_complete: bool,
}

/// A receiver's part of a process.
pub(super) struct Receiver {
    pub(super) host: usize,
    pub(super) line: usize,
    pub(super) session: Option<Session>,
    pub(super) region: Option<Region>,
    pub(super) copy: Option<Copy>,
    pub(super) in_place: Option<mpsc::Receiver<(u64, u64)>>,
    /// What the thread that hashes knows to be in place.
    pub(super) known: Ranges,
    pub(super) is_hashing: bool,
    pub(super) hashes_since_ns: Option<u64>,
    /// Minutes of hashing of which the root was told.
    pub(super) told_minutes: u64,
    pub(super) members: BTreeMap<u64, Member<Tell>>,
    pub(super) news: (mpsc::Sender<MemberEvent>, mpsc::Receiver<MemberEvent>),
    pub(super) told_bytes: u64,
    pub(super) tells_waiting_ns: u64,
    /// Once the session is over: whether what has come is kept.
    pub(super) keeps: Option<bool>,
    /// It waits for the root to hear its last word.
    pub(super) is_leaving: bool,
}

pub(super) type Tell = Box<dyn FnMut(MemberEvent) + Send>;

impl Receiver {
    pub(super) fn new(host: usize, line: usize) -> Self {
        Self {
            host,
            line,
            session: None,
            region: None,
            copy: None,
            in_place: None,
            known: Ranges::default(),
            is_hashing: false,
            hashes_since_ns: None,
            told_minutes: 0,
            members: BTreeMap::new(),
            news: mpsc::channel(),
            told_bytes: 0,
            tells_waiting_ns: 0,
            keeps: None,
            is_leaving: false,
        }
    }
}

impl Process {
    /// Nothing of it is left.
    pub(super) fn is_gone(&self) -> bool {
        match &self.engine {
            Some(engine) => self.is_over && engine.groups().next().is_none(),
            None => true,
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.engine.is_none()
    }
}

/// Where other members reach a process.
pub(super) fn address(machine: usize, process: usize) -> SocketAddr {
    let ip = Ipv4Addr::new(10, 0, (machine >> 8) as u8, machine as u8);
    SocketAddr::from((ip, process as u16 + 1))
}

pub(super) fn process_at(address: SocketAddr) -> usize {
    usize::from(address.port()) - 1
}
