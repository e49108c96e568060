//! What happens in a run, and what of it is wrong.

use transport::Cause;

use super::{
    counts::WireCounts,
    fault::WireFault,
    scenario::{ENDS, Protection, WireScenario},
};
use crate::{dice::Dice, trace::Trace};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 41;

/// How an application's channel ended at one end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ChannelEnd {
    Closed,
    Broken(Cause),
}

/// What has been done to a connection.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Disturbance {
    /// It may be lost.
    pub(super) may_fail: bool,
    /// Its bytes were altered.
    pub(super) is_altered: bool,
}

/// Facts of a run.
pub(super) struct Facts<'a> {
    scenario: &'a WireScenario,
    pub(super) violations: Vec<String>,
    pub(super) now_ns: u64,
    /// By connections.
    pub(super) disturbed: Vec<Disturbance>,
    /// How long everything stood still at most, for each connection.
    held_ns: Vec<u64>,
    pub(super) counts: WireCounts,
    /// Kinds of faults that happened.
    pub(super) faults: Vec<usize>,
    /// Random choices of both ends and of what is between them.
    pub(super) dice: Dice,
    pub(super) trace: Trace,
}

impl<'a> Facts<'a> {
    pub(super) fn new(scenario: &'a WireScenario, trace_events: usize) -> Self {
        let connections = scenario.connections.len();
        Self {
            scenario,
            violations: Vec::new(),
            now_ns: 0,
            disturbed: vec![Disturbance::default(); connections],
            held_ns: vec![0; connections],
            counts: WireCounts::default(),
            faults: Vec::new(),
            dice: Dice::new(scenario.seed, PURPOSE),
            trace: Trace::new(trace_events),
        }
    }

    pub(super) fn violated(&mut self, what: String) {
        self.note(|| format!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    /// Adds numbers to the digest.
    pub(super) fn digest(&mut self, numbers: &[u64]) {
        self.trace.digest(&[self.now_ns]);
        self.trace.digest(numbers);
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        let now_us = self.now_ns as f64 / 1e3;
        self.trace.note(|| format!("{now_us:>12.3} us  {}", what()));
    }

    /// Notes a fault, and what it may lead to.
    pub(super) fn disturb(&mut self, what: &WireFault) {
        self.note(|| format!("{what:?}"));
        self.faults.push(what.kind());
        let harmless_ns = self.scenario.ends.iter().map(|end| end.silence_ms).min().unwrap_or(0);
        let harmless_ns = harmless_ns * 1_000_000 / 4;
        for number in 0..self.disturbed.len() {
            if what.connection().is_some_and(|it| it != number) {
                continue;
            }
            let disturbed = &mut self.disturbed[number];
            match what {
                WireFault::Pause { .. } | WireFault::Stall { for_ns: Some(_), .. } => {
                    self.held_ns[number] += what.holds_ns();
                    disturbed.may_fail |= self.held_ns[number] > harmless_ns;
                }
                WireFault::Alter { .. } => {
                    *disturbed = Disturbance { may_fail: true, is_altered: true };
                }
                _ => disturbed.may_fail = true,
            }
        }
    }

    /// Returns whether bytes of a connection may come altered.
    pub(super) fn may_differ(&self, connection: usize) -> bool {
        self.disturbed[connection].is_altered && !self.is_protected(connection)
    }

    /// Returns whether records of a connection may be corrupt, or announce more than comes.
    fn may_be_corrupt(&self, connection: usize) -> bool {
        self.disturbed[connection].is_altered && self.is_protected(connection)
    }

    /// Returns whether a part of a record may have come long before the rest, which may never come.
    pub(super) fn may_keep_parts(&self, connection: usize) -> bool {
        self.disturbed[connection].may_fail && self.is_protected(connection)
    }

    fn is_protected(&self, connection: usize) -> bool {
        self.scenario.connections[connection].protection != Protection::None
    }

    /// Judges the cause of an end. `has_closed`: the other end has closed the channel, or will be found to have. `was_idle`:
    /// the other end of the shared connection was idle for its timeout.
    pub(super) fn judge(
        &mut self,
        at: (usize, usize, usize),
        end: &ChannelEnd,
        has_closed: bool,
        was_idle: bool,
    ) {
        let (connection, channel, number) = at;
        let disturbed = self.disturbed[connection];
        // A close that may not wait for long enough resets what is under way.
        let may_be_lost = disturbed.may_fail || was_idle || (has_closed && !self.scenario.drains());
        let (kind, is_explained) = match end {
            ChannelEnd::Closed => (0, true),
            ChannelEnd::Broken(Cause::ClosedByPeer) => {
                (1, has_closed || self.may_differ(connection))
            }
            ChannelEnd::Broken(Cause::Lost(_)) => (2, may_be_lost),
            ChannelEnd::Broken(Cause::Silent(_)) => (3, disturbed.may_fail),
            ChannelEnd::Broken(Cause::Corrupt(_)) => (4, self.may_be_corrupt(connection)),
            ChannelEnd::Broken(_) => (5, self.may_differ(connection)),
        };
        self.counts.ends.0[kind] += 1;
        self.digest(&[1, connection as u64, channel as u64, number as u64, kind as u64]);
        self.note(|| format!("end {number}, connection {connection}, channel {channel}: {end:?}"));
        if !is_explained {
            self.violated(format!(
                "connection {connection}, channel {channel} ended at {number} without a reason: {end:?}"
            ));
        }
    }

    /// Returns whether everything has to come on a channel, as it was planned.
    pub(super) fn has_to_be_complete(&self, connection: usize, channel: usize) -> bool {
        let plan = &self.scenario.connections[connection].channels[channel];
        let closes_early = ENDS.iter().any(|&end| plan.closes_ns[end].is_some());
        !self.disturbed[connection].may_fail
            && !closes_early
            && !plan.is_refused
            && self.scenario.drains()
    }
}
