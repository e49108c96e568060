//! What a member's application does: it creates its group until the group stands at all members.

use super::{links::Held, scenario::SeatPlan};

/// A timeout that does not pass.
const LONG_NS: u64 = 100_000_000_000_000;

/// A member of a group, with its application.
pub(super) struct Seat {
    plan: SeatPlan,
    pub(super) attempts: u32,
    pub(super) state: SeatState,
}

pub(super) enum SeatState {
    /// It has not begun, or begins again soon.
    Idle,
    Creating {
        until_ns: u64,
    },
    /// It has the group, with a link to each neighbour.
    Standing(Vec<(u32, Held)>),
}

impl Seat {
    pub(super) fn new(plan: SeatPlan) -> Self {
        Self { plan, attempts: 0, state: SeatState::Idle }
    }

    /// Begins an attempt. Returns its timeout, and whether its settings are different from those of the others.
    pub(super) fn begin(&mut self, now_ns: u64) -> (u64, bool) {
        let timeout_ns = self.plan.patience_ns.get(self.attempts as usize).copied();
        let timeout_ns = timeout_ns.unwrap_or(LONG_NS);
        let differs = self.attempts < self.plan.differs;
        self.attempts += 1;
        self.state = SeatState::Creating { until_ns: now_ns + timeout_ns };
        (timeout_ns, differs)
    }

    /// Returns whether the attempt under way, or the last one, could end by itself.
    pub(super) fn is_restless(&self) -> bool {
        let attempts = self.attempts as usize;
        attempts <= self.plan.patience_ns.len() || self.attempts <= self.plan.differs
    }

    /// Returns this member's end of the link to another.
    pub(super) fn link_to(&self, rank: u32) -> Option<&Held> {
        let SeatState::Standing(links) = &self.state else { return None };
        links.iter().find(|(other, _)| *other == rank).map(|(_, held)| held)
    }
}
