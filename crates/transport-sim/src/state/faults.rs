//! Faults: how members die and stall, and connections break and are cut.

use std::time::Duration;

use transport::Cause;

use super::State;
use crate::{
    event::Event,
    fault::{Fault, nanoseconds},
    names::SideId,
    port::Way,
    trace::What,
};

impl State {
    pub(crate) fn inject(&mut self, fault: Fault) {
        self.note(What::Fault(fault.clone()));
        match fault {
            Fault::Kill(member) => self.kill(member),
            Fault::Reset(one, other) => self.reset(one, other),
            Fault::Stall { member, lasting } => self.stall(member, lasting),
            Fault::Cut { one, other, lasting } => self.cut(one, other, lasting),
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
        for side in self.sides_between(one, other) {
            for end in [side, side.peer()] {
                let cause = Cause::Lost("connection reset".into());
                self.happen(Event::BreakLocally(end, cause));
            }
        }
    }

    /// Sides of `one` that lead to `other`.
    fn sides_between(&mut self, one: usize, other: usize) -> Vec<SideId> {
        let sides = self.members[one].sides.clone();
        sides.into_iter().filter(|side| self.side(side.peer()).member == other).collect()
    }

    fn cut(&mut self, one: usize, other: usize, lasting: Duration) {
        let until_ns = self.now_ns.saturating_add(nanoseconds(lasting));
        for side in self.sides_between(one, other) {
            let (now_ns, is_new) = (self.now_ns, !self.is_cut(side));
            let cut = &mut self.connection(side).cut;
            if until_ns <= cut.until_ns {
                continue;
            }
            cut.until_ns = until_ns;
            self.agenda.plan(until_ns, Event::Heal(side));
            if is_new {
                self.connection(side).cut.since_ns = now_ns;
                self.restart_transfers(side);
                self.restart_transfers(side.peer());
                if let Some(timeout_ms) = self.config.silence_timeout_ms {
                    let at_ns = now_ns.saturating_add(timeout_ms.saturating_mul(1_000_000));
                    self.agenda.plan(at_ns, Event::CutSilence { side, since_ns: now_ns });
                }
            }
        }
    }

    /// Delivers what a cut has held back, unless there is another cut.
    pub(crate) fn heal(&mut self, side: SideId) {
        if self.now_ns < self.connection(side).cut.until_ns {
            return;
        }
        let held = std::mem::take(&mut self.connection(side).cut.held);
        held.into_iter().for_each(|event| self.happen(event));
        for end in [side, side.peer()] {
            let member = self.side(end).member;
            self.note_freed(member, Way::Transmit);
            self.send_part(member);
        }
    }

    /// Breaks both ends of a connection that is still in the same cut.
    pub(crate) fn report_cut_silence(&mut self, side: SideId, since_ns: u64) {
        let now_ns = self.now_ns;
        let cut = &self.connection(side).cut;
        if now_ns >= cut.until_ns || cut.since_ns != since_ns {
            return;
        }
        let timeout_ms = self.config.silence_timeout_ms.unwrap_or(0);
        for end in [side, side.peer()] {
            self.happen(Event::BreakLocally(end, Cause::Silent(timeout_ms)));
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

    /// Resumes a stalled member, unless it was stalled again.
    pub(crate) fn resume(&mut self, member: usize) {
        let state = &mut self.members[member];
        if self.now_ns < state.stalled_until_ns {
            return;
        }
        let held = std::mem::take(&mut state.held);
        // No later cut delays these events: what was sent after the cut is held back there.
        held.into_iter().for_each(|event| self.reach(event));
        self.note_freed(member, Way::Transmit);
        self.note_freed(member, Way::Receive);
        self.send_part(member);
        // The peers' ports stayed free: only this member's ports were blocked.
    }

    /// Breaks the connections of the peers to a member that is still in the same stall.
    pub(crate) fn report_silence(&mut self, member: usize, stalled_since_ns: u64) {
        let state = &self.members[member];
        let is_over = self.now_ns >= state.stalled_until_ns;
        if !state.alive || is_over || state.stalled_since_ns != stalled_since_ns {
            return;
        }
        let sides: Vec<SideId> = state.sides.clone();
        let timeout_ms = self.config.silence_timeout_ms.unwrap_or(0);
        for side in sides {
            self.happen(Event::BreakLocally(side.peer(), Cause::Silent(timeout_ms)));
        }
    }
}
