//! Processes: each has an engine, groups that are being joined, and an inbox.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, mpsc},
};

use engine::GroupSettings;
use files::machines::{
    ChunkDigests, Copy, MemberEvent, Ranges, ReceiverMachine, Start, StreamPart, SubtreeDigest,
    ToReceiver, ToRoot,
};
use rdmc::{Application, Error, Failure, Region};
use transport_sim::SimLink;

use super::{link_end::Link, storage::Device, stream_end::StreamEnd, url_reader::UrlReader};
use crate::node::{MemberEngine, Watch};

/// One process of rdmc at a machine. Its index is also its number in the simulated network.
#[derive(Default)]
pub(super) struct Process {
    pub(super) machine: usize,
    /// `None` once it was killed.
    pub(super) engine: Option<MemberEngine>,
    /// Reads and writes its copy, if that takes its time.
    pub(super) device: Option<Arc<Device>>,
    /// When the job in progress ends.
    pub(super) stores_until_ns: Option<u64>,
    pub(super) watch: Watch,
    pub(super) joinings: BTreeMap<u64, Joining>,
    /// Links that are joined, by their groups.
    pub(super) links: BTreeMap<u64, Link>,
    /// Groups that were created, as far as the decision thread was notified.
    pub(super) standing: BTreeSet<u64>,
    pub(super) inbox: VecDeque<Note>,
    /// When the decision thread processes its inbox; it does nothing else before.
    pub(super) looks_ns: Option<u64>,
    pub(super) busy_until_ns: u64,
    pub(super) deadline_ns: Option<u64>,
    /// `None` at the root.
    pub(super) receiver: Option<Box<Receiver>>,
    /// Whether its session is over; only groups may still end.
    pub(super) is_over: bool,
}

/// An entry of the decision thread's inbox.
#[derive(Debug)]
pub(super) enum Note {
    /// A message of the root, or why the line has ended.
    FromRoot(Result<ToReceiver, &'static str>),
    News(MemberEvent),
    Hashed(blake3::Hash),
    /// Subtrees were read at a URL.
    ReadUrl(Vec<(u64, SubtreeDigest)>),
    /// Reading at a URL has failed.
    UrlFailed,
    /// A group was joined, or not; at receivers and at the root.
    Joined(u64, Result<(), Error>),
    /// This and the following notes occur at the root only, with indices of lines: a receiver has
    /// connected.
    Came(usize),
    Said(usize, ToRoot),
    Gone(usize, &'static str),
    NotStarted {
        host: usize,
        start: u32,
    },
    Checked(usize, Ranges),
    Digest(Ranges),
    /// Further chunks were read that hosts lack.
    Chunks(ChunkDigests),
    Read(std::io::Result<StreamPart>),
    /// The source was looked at again: whether it was as before.
    Looked(bool),
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
#[derive(Default)]
pub(super) struct Receiver {
    pub(super) host: usize,
    pub(super) line: usize,
    pub(super) session: Option<ReceiverMachine>,
    pub(super) region: Option<Region>,
    pub(super) copy: Option<Copy>,
    pub(super) in_place: Option<mpsc::Receiver<(u64, u64)>>,
    /// The ranges that it had before it was sent anything.
    pub(super) kept: Ranges,
    /// The ranges that the hashing thread was notified of.
    pub(super) known: Ranges,
    pub(super) is_hashing: bool,
    pub(super) hashes_since_ns: Option<u64>,
    /// Minutes of hashing that were reported to the root.
    pub(super) reported_minutes: u64,
    /// What it reads at a URL.
    pub(super) url_reader: UrlReader,
    pub(super) members: BTreeMap<u64, Box<dyn Application>>,
    /// What has come of the listing of a tree from the root, and where a group puts it.
    pub(super) listing: (Vec<u8>, Option<Region>),
    /// The root's digests of chunks of what it fetches.
    pub(super) digests: BTreeMap<u32, [u8; 32]>,
    /// It has published, and sends its copy to others.
    pub(super) is_sharing: bool,
    /// What it has of a stream.
    pub(super) stream: StreamEnd,
    pub(super) news: News,
    pub(super) reported_bytes: u64,
    pub(super) next_waited_report_ns: u64,
    /// Once the session is over: whether the received bytes are kept.
    pub(super) keeps: Option<bool>,
    /// Whether it waits until the root has received its last message.
    pub(super) is_leaving: bool,
    /// Whether its disk takes no more; nothing can be received.
    pub(super) has_failed_disk: bool,
}

/// What callbacks of groups have reported.
pub(super) struct News {
    pub(super) sender: mpsc::Sender<MemberEvent>,
    pub(super) receiver: mpsc::Receiver<MemberEvent>,
}

impl Default for News {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver }
    }
}

impl Process {
    /// Returns whether the process has ended completely.
    pub(super) fn is_gone(&self) -> bool {
        match &self.engine {
            Some(engine) => self.is_over && engine.groups().next().is_none() && !self.is_storing(),
            None => true,
        }
    }

    /// Returns whether its copy is being read or written.
    pub(super) fn is_storing(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.is_busy())
    }

    pub(super) fn is_dead(&self) -> bool {
        self.engine.is_none()
    }
}

/// Returns the address of a process.
pub(super) fn address(machine: usize, process: usize) -> SocketAddr {
    let ip = Ipv4Addr::new(10, 0, (machine >> 8) as u8, machine as u8);
    SocketAddr::from((ip, process as u16 + 1))
}

pub(super) fn process_at(address: SocketAddr) -> usize {
    usize::from(address.port()) - 1
}
