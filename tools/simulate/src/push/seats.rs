//! What the root has: its coordinator, and a seat for each host that it knows.

use files::{PushError, machines::Coordinator};

use super::scenario::PushScenario;

pub(super) struct Root<'a> {
    /// Of the push that runs, or has run.
    pub(super) process: usize,
    /// Taken while it decides.
    pub(super) core: Option<Coordinator<'a>>,
    pub(super) began_ns: u64,
    /// Hosts as it counts them: those that are named, and those that have joined.
    pub(super) seats: Vec<Seat>,
    pub(super) deadline_ns: Option<u64>,
    /// It has decided everything.
    pub(super) outcome: Option<Result<(), PushError>>,
    pub(super) is_closed: bool,
    /// The source was read once.
    pub(super) has_read: bool,
}

/// What the root takes for one host.
pub(super) struct Seat {
    /// Index in the scenario.
    pub(super) host: usize,
    pub(super) line: Option<usize>,
}

impl<'a> Root<'a> {
    pub(super) fn new(core: Coordinator<'a>, scenario: &PushScenario) -> Self {
        Self {
            process: usize::MAX,
            core: Some(core),
            began_ns: 0,
            seats: scenario.named().map(|host| Seat { host, line: None }).collect(),
            deadline_ns: None,
            outcome: None,
            is_closed: false,
            has_read: false,
        }
    }

    /// What it calls a host now; one that has joined anew has a new number.
    pub(super) fn seat_of(&self, host: usize) -> Option<usize> {
        self.seats.iter().rposition(|seat| seat.host == host)
    }

    /// Lines of hosts that have not hung up.
    pub(super) fn lines(&self) -> Vec<usize> {
        self.seats.iter().filter_map(|seat| seat.line).collect()
    }

    pub(super) fn describe(&self) -> String {
        self.core.as_ref().map(Coordinator::describe).unwrap_or_default()
    }
}
