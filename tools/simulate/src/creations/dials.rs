//! Connections that are being made, and what is asked on those that are not shared.

use std::collections::BTreeMap;

use rdmc::creation::messages::Asks;

use super::connections::Life;

/// The context that makes a connection, and its number for it.
pub(super) type Dialer = (usize, u32, u64);

/// A connection that is being made.
pub(super) struct Dialing {
    pub(super) target: usize,
    pub(super) until_ns: u64,
    pub(super) shares: bool,
    pub(super) asks: Asks,
}

/// All connections that are being made, and all questions on those that are not shared.
#[derive(Default)]
pub(super) struct Dials {
    making: BTreeMap<Dialer, Dialing>,
    /// Where it is asked, and who waits for the answer.
    asked: BTreeMap<u64, (usize, Dialer)>,
    asks: u64,
}

impl Dials {
    pub(super) fn begin(&mut self, of: Dialer, dialing: Dialing) {
        self.making.insert(of, dialing);
    }

    pub(super) fn get(&self, of: Dialer) -> Option<&Dialing> {
        self.making.get(&of)
    }

    /// Ends one. Returns whether it was being made.
    pub(super) fn end(&mut self, of: Dialer) -> bool {
        self.making.remove(&of).is_some()
    }

    /// Ends those of a context.
    pub(super) fn end_all(&mut self, of: Life) {
        self.making.retain(|dialer, _| (dialer.0, dialer.1) != of);
    }

    /// Something is asked at a context. Returns the question's number.
    pub(super) fn ask(&mut self, target: usize, of: Dialer) -> u64 {
        self.asks += 1;
        self.asked.insert(self.asks, (target, of));
        self.asks
    }

    /// Takes a question that is answered.
    pub(super) fn take(&mut self, ask: u64) -> Option<(usize, Dialer)> {
        self.asked.remove(&ask)
    }

    /// Returns the questions that have no answer yet at a context.
    pub(super) fn asked_at(&self, context: usize) -> Vec<u64> {
        let asked = self.asked.iter();
        asked.filter(|(_, (target, _))| *target == context).map(|(&ask, _)| ask).collect()
    }
}
