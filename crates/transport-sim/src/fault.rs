//! What a test does to members and links.

use std::time::Duration;

use transport::Cause;

use crate::{connection::SideId, event::Event, port::Way, state::State, trace::What};

/// Something that goes wrong, now ([`crate::SimNet::inject`]) or later
/// ([`crate::SimNet::inject_at`]).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The member dies. Its memory is handed back without a word; its peers hear
    /// [`Cause::Lost`] after [`crate::SimConfig::loss_detection_ns`]. Again: nothing.
    Kill(usize),
    /// All connections between two members are lost; both are told at once.
    Reset(usize, usize),
    /// The member freezes: its blocks neither start nor finish, and nothing reaches or leaves it
    /// until the time is over. If that is longer than
    /// [`crate::SimConfig::silence_timeout_ms`], its peers report [`Cause::Silent`].
    /// [`Duration::MAX`] is for ever: a member that is gone without any sign.
    Stall {
        /// Who.
        member: usize,
        /// For how long from now on; of overlapping stalls the one that ends last counts.
        lasting: Duration,
    },
    /// Both of a member's ports have another rate, from the next block on.
    PortRate {
        /// Who.
        member: usize,
        /// At least 1.
        bytes_per_s: u64,
    },
}

impl State {
    pub(crate) fn inject(&mut self, fault: Fault) {
        self.note(What::Fault(fault.clone()));
        match fault {
            Fault::Kill(member) => self.kill(member),
            Fault::Reset(one, other) => self.reset(one, other),
            Fault::Stall { member, lasting } => self.stall(member, lasting),
            Fault::PortRate { member, bytes_per_s } => {
                self.members[member].rate_bytes_per_s = bytes_per_s.max(1);
            }
        }
    }

    fn kill(&mut self, member: usize) {
        let state = &mut self.members[member];
        if !std::mem::replace(&mut state.alive, false) {
            return;
        }
        state.completions.clear();
        state.triggers.clear();
        state.held.clear();
        let sides = state.sides.clone();
        let detection_ns = self.config.loss_detection_ns;
        sides.into_iter().for_each(|side| self.vanish(side, detection_ns));
    }

    fn reset(&mut self, one: usize, other: usize) {
        let sides = self.members[one].sides.clone();
        for side in sides {
            if self.side(side.peer()).member == other {
                for end in [side, side.peer()] {
                    let cause = Cause::Lost("connection reset".into());
                    self.happen(Event::Break(end, cause));
                }
            }
        }
    }

    fn stall(&mut self, member: usize, lasting: Duration) {
        let now_ns = self.now_ns;
        let until_ns = now_ns.saturating_add(nanoseconds(lasting));
        let is_new = !self.is_held_up(member);
        let state = &mut self.members[member];
        if !state.alive || until_ns <= state.stalled_until_ns {
            return;
        }
        state.stalled_until_ns = until_ns;
        self.agenda.plan(until_ns, Event::Resume(member));
        if is_new {
            state.stalled_since_ns = now_ns;
            if let Some(timeout_ms) = self.config.silence_timeout_ms {
                let at_ns = now_ns.saturating_add(timeout_ms.saturating_mul(1_000_000));
                self.agenda.plan(at_ns, Event::Silence { member, stalled_since_ns: now_ns });
            }
        }
    }

    /// A stalled member goes on, unless it was stalled again.
    pub(crate) fn resume(&mut self, member: usize) {
        let state = &mut self.members[member];
        if self.now_ns < state.stalled_until_ns {
            return;
        }
        let held = std::mem::take(&mut state.held);
        held.into_iter().for_each(|event| self.happen(event));
        self.note_freed(member, Way::Transmit);
        self.note_freed(member, Way::Receive);
        // Its peers' ports were free all the time, and found nobody at the other end.
    }

    /// The peers of a member that is still in the same stall give it up.
    pub(crate) fn lose_patience(&mut self, member: usize, stalled_since_ns: u64) {
        let state = &self.members[member];
        let is_over = self.now_ns >= state.stalled_until_ns;
        if !state.alive || is_over || state.stalled_since_ns != stalled_since_ns {
            return;
        }
        let sides: Vec<SideId> = state.sides.clone();
        let timeout_ms = self.config.silence_timeout_ms.unwrap_or(0);
        for side in sides {
            self.happen(Event::Break(side.peer(), Cause::Silent(timeout_ms)));
        }
    }
}

/// Saturates after five centuries.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
