//! What is measured, and what was.

use std::time::Duration;

use files::HostState;
use plan::choice::Choice;

use crate::CollectivePlan;

/// What is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BenchPlan {
    /// Message length for bandwidth, to each host alone and to all; at most [`crate::MEASURED_BYTES_MAX`].
    pub bytes: u64,
    /// Measurements of each bandwidth, after one message that does not count.
    pub repeats: u32,
    /// Message lengths for latency.
    pub latency_bytes: Vec<u64>,
    /// Measurements of each latency, after one message that does not count.
    pub latency_repeats: u32,
    /// Collective operations of a team, which are measured instead of everything else.
    pub collective: Option<CollectivePlan>,
}

/// What a measurement is of. Hosts are identified by their index in [`files::PushSettings::hosts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Messages to one host; time from sending until its confirmation arrives at the root.
    Unicast(usize),
    /// Messages to all hosts; time from sending until the last confirmation arrives at the root.
    Multicast,
    /// Messages that one host returns; half of the round trip between applications.
    Latency(usize),
}

/// One measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measurement {
    /// What of.
    pub subject: Subject,
    /// Length of each message.
    pub bytes: u64,
    /// Members of the group, the root included.
    pub members: usize,
    /// Algorithm and block size.
    pub choice: Choice,
    /// The time of each message, in order.
    pub times: Vec<Duration>,
}

/// Events of a running bench.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BenchEvent {
    /// A host is ready, or has failed.
    Host {
        /// Its index in [`files::PushSettings::hosts`].
        host: usize,
        /// Its new state.
        state: HostState,
    },
    /// A measurement starts.
    Measuring {
        /// What is measured.
        subject: Subject,
        /// Length of each message.
        bytes: u64,
    },
    /// The measurement of a collective operation starts.
    Collective {
        /// Length of the message.
        bytes: u64,
    },
}
