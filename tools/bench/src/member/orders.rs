//! What members receive from the program that started them, and what they answer: lines in JSON.

use rdmc::{Algorithm, CompletionMode, Fabric, Protection, Schedule, Window};
use serde::{Deserialize, Serialize};
use trace::Moment;

use super::workload::{Together, Workload};
use crate::outcome::Outcome;

/// How the contexts of all members are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Equipment {
    /// The network that blocks move over: tcp, or a libfabric provider (verbs, shm, ofi-tcp, ...)
    #[arg(long, default_value_t)]
    pub fabric: Fabric,
    /// How members wait for completions
    #[arg(long, default_value_t)]
    pub completion: CompletionMode,
    /// Protection of blocks over TCP: encrypt or none. By default none, as that of what is measured beside this
    #[arg(long, value_name = "HOW")]
    pub protect: Option<Protection>,
    /// Blocks go through sockets, though members on one machine could copy them out of each other's memory
    #[arg(long)]
    pub through_sockets: bool,
    /// Let the network relay; an error where the fabric cannot
    #[arg(long)]
    pub offload: bool,
    /// Members record what happens when, and answer with it
    #[arg(long, hide = true)]
    pub timeline: bool,
    /// The rack of each member, by rank; two racks of equal size unless given
    #[arg(long, hide = true, value_delimiter = ',')]
    pub racks: Vec<u32>,
    /// The congestion control of TCP connections
    #[arg(long, hide = true)]
    pub congestion: Option<String>,
    /// TCP connections to each neighbour; 1 unless given
    #[arg(long, hide = true)]
    pub streams: Option<u8>,
}

impl Equipment {
    /// What blocks move over, for the head of a report.
    pub fn network(&self) -> String {
        let offload = if self.offload { " with offload" } else { "" };
        let protect = self.protect.map_or(String::new(), |protection| format!(", {protection}"));
        let sockets = if self.through_sockets {
            ", through sockets".into()
        } else {
            why_through_memory(&self.fabric)
        };
        format!("fabric {}{sockets}{offload}{protect}", self.fabric)
    }

    /// How blocks are protected.
    pub fn protection(&self) -> Protection {
        self.protect.unwrap_or(Protection::None)
    }
}

/// Why members on one machine send blocks through shared memory over this fabric, for the head of a report; empty if they copy them
/// out of each other's memory, or need not as the fabric is another one.
pub fn why_through_memory(fabric: &Fabric) -> String {
    match rdmc::check_direct_copies() {
        Err(why) if *fabric == Fabric::Tcp => format!(", through shared memory ({why})"),
        _ => String::new(),
    }
}

/// To a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Join a group, and warm up; the root then waits for [`Order::Go`].
    Join(Job),
    /// Join several groups, and warm up; then wait for [`Order::GoAt`].
    JoinAll(Together),
    /// Join many groups, and warm up; the first member then waits for [`Order::Send`], and all for
    /// [`Order::Close`].
    Store(Workload),
    /// At the root only: send.
    Go,
    /// Where a group has its root: send, at this time by `CLOCK_MONOTONIC`.
    GoAt(u64),
    /// At the first member: send this object of the [`Workload`].
    Send(usize),
    /// Every object of the [`Workload`] has arrived: close all groups.
    Close,
    /// Fail in the next group.
    Fail(PlannedFault),
}

/// A fault of a receiver in the middle of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedFault {
    /// How many blocks it has received by then, those of the warm-up not counted.
    pub after_blocks: u64,
    pub fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Its process is killed.
    Kill,
    /// Its process stops, while its connections stay.
    Stop,
    /// It runs this shell command, which does something to its network.
    Run(String),
}

/// One group and what is sent in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The group's number, never used twice.
    pub number: u64,
    pub algorithm: String,
    pub block_bytes: u64,
    pub window: u32,
    pub messages_in_flight: u32,
    pub messages: u64,
    pub message_bytes: u64,
    /// Whether small messages are written to all receivers at once, not relayed.
    pub small: bool,
    /// Whether members compare every message with the root's.
    pub verify: bool,
    /// Where receivers' memory comes from.
    pub memory: Memory,
}

/// Where the memory for a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// Allocated when the message is announced: its pages are touched on the way.
    OnArrival,
    /// Allocated before, and never touched.
    Ahead,
    /// Allocated before, and used before.
    AheadTouched,
}

impl Memory {
    /// By their names in experiments.
    pub const NAMES: [(&str, Self); 3] = [
        ("on-arrival", Self::OnArrival),
        ("ahead", Self::Ahead),
        ("ahead-touched", Self::AheadTouched),
    ];
}

/// From a member.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Joined and warm.
    Ready,
    /// Every message has arrived everywhere, and is what it should be.
    Done(Done),
    /// The same of several groups: when each message was all here, unless it was sent from here.
    AllDone(Vec<Option<u64>>),
    /// Sent this object of the [`Workload`] at this time by `CLOCK_MONOTONIC`.
    Sent {
        object: usize,
        at_ns: u64,
    },
    /// It was all here at this time, and is what it should be.
    Arrived {
        object: usize,
        at_ns: u64,
    },
    /// All groups are closed; the processor time that this took, in ns.
    Stored(u64),
    Failed(String),
    /// The fault that [`Order::Fail`] requested happens now.
    Failing,
}

/// One member's view of one job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Done {
    /// At the root: just before the first message was sent, by `CLOCK_MONOTONIC`.
    pub started_ns: Option<u64>,
    /// At receivers: when the last message was all here, by the same clock.
    pub received_ns: Option<u64>,
    /// Processor time of this process, user and system, between warm-up and completion.
    pub cpu_ns: u64,
    /// Segments that TCP of this network namespace has sent again meanwhile.
    pub sent_again: u64,
    /// With [`Equipment::timeline`]: all that happened since the warm-up.
    pub timeline: Vec<Moment>,
}

impl Job {
    /// One message, alone, with the usual window.
    pub fn one(algorithm: Algorithm, block_bytes: u64, message_bytes: u64) -> Self {
        Self {
            number: 0,
            algorithm: algorithm.to_string(),
            block_bytes,
            window: Window::default().receives,
            messages_in_flight: 1,
            messages: 1,
            message_bytes,
            small: false,
            verify: false,
            memory: Memory::AheadTouched,
        }
    }

    /// Messages queued at once, two of them in flight, with the usual window.
    pub fn several(
        algorithm: Algorithm,
        block_bytes: u64,
        messages: u64,
        message_bytes: u64,
    ) -> Self {
        let messages_in_flight = 2;
        Self { messages_in_flight, messages, ..Self::one(algorithm, block_bytes, message_bytes) }
    }

    /// The same in a group of this size, with this window or the usual one.
    pub fn in_group(self, members: u32, window: Option<u32>) -> Self {
        let usual = || Window::for_group(self.block_bytes, members).receives;
        Self { window: window.unwrap_or_else(usual), ..self }
    }

    /// The schedule that all members use; the rack algorithms get two racks of equal size.
    pub fn schedule(&self, members: u32) -> Outcome<Schedule> {
        let racks: Vec<u32> = (0..members).map(|rank| rank * 2 / members).collect();
        self.schedule_in(&racks)
    }

    /// The same with one member for each of these racks.
    pub fn schedule_in(&self, racks: &[u32]) -> Outcome<Schedule> {
        let algorithm: Algorithm = self.algorithm.parse()?;
        Ok(Schedule::with_racks(algorithm, racks, 0)?)
    }

    /// How many blocks a message has.
    pub fn blocks(&self) -> u32 {
        blocks(self.message_bytes, self.block_bytes)
    }
}

/// How many blocks a message has.
pub fn blocks(message_bytes: u64, block_bytes: u64) -> u32 {
    u32::try_from(message_bytes.div_ceil(block_bytes)).unwrap_or(u32::MAX)
}
