//! The root's state: its state machine, and a seat for each host.

use files::{PushError, machines::RootMachine};

use super::scenario::PushScenario;

#[derive(Default)]
pub(super) struct Root<'a> {
    /// The process of the current or last push.
    pub(super) process: usize,
    /// The state machine; taken while it decides.
    pub(super) core: Option<RootMachine<'a>>,
    pub(super) began_ns: u64,
    /// Hosts by the state machine's numbers: those that the command names, then those that have
    /// joined.
    pub(super) seats: Vec<Seat>,
    pub(super) deadline_ns: Option<u64>,
    /// The outcome, once the push is decided.
    pub(super) outcome: Option<Result<(), PushError>>,
    pub(super) is_closed: bool,
    /// Whether the source was read once.
    pub(super) has_read: bool,
    /// How much of a stream was read, and how many reads are under way.
    pub(super) stream_read: (u64, u32),
}

/// A host as the root counts it.
pub(super) struct Seat {
    /// Index in the scenario.
    pub(super) host: usize,
    pub(super) line: Option<usize>,
}

impl<'a> Root<'a> {
    pub(super) fn new(core: RootMachine<'a>, scenario: &PushScenario) -> Self {
        Self {
            process: usize::MAX,
            core: Some(core),
            seats: scenario.named().map(|host| Seat { host, line: None }).collect(),
            ..Self::default()
        }
    }

    /// Returns the current number of a host; one that has joined again has a new number.
    pub(super) fn seat_of(&self, host: usize) -> Option<usize> {
        self.seats.iter().rposition(|seat| seat.host == host)
    }

    /// Returns the lines of hosts that are not closed.
    pub(super) fn lines(&self) -> Vec<usize> {
        self.seats.iter().filter_map(|seat| seat.line).collect()
    }

    pub(super) fn describe(&self) -> String {
        self.core.as_ref().map(RootMachine::describe).unwrap_or_default()
    }
}
