//! A program that keeps this many messages on their way.

use std::collections::HashMap;

use crate::{Network, NoGroup, Notice, Pattern, Replicator};

/// Posts a message whenever another has ended.
pub struct ClosedLoop {
    pub replicator: Replicator,
    bytes: u32,
    /// When the messages were posted that are on their way.
    begun: HashMap<u64, u64>,
    next: u64,
}

impl ClosedLoop {
    pub fn new(
        network: &mut Network,
        pattern: Pattern,
        from: usize,
        to: &[usize],
        bytes: u32,
    ) -> Result<Self, NoGroup> {
        let replicator = Replicator::new(network, pattern, from, to)?;
        Ok(Self { replicator, bytes, begun: HashMap::new(), next: 0 })
    }

    /// Begins with this many messages.
    pub fn start(&mut self, network: &mut Network, depth: usize) {
        (0..depth).for_each(|_| self.post(network));
    }

    fn post(&mut self, network: &mut Network) {
        self.begun.insert(self.next, network.now_ps());
        self.replicator.post(network, self.bytes, self.next);
        self.next += 1;
    }

    /// Takes a notice of one of its pairs. Answers how long a message took, if one has ended.
    pub fn handle(&mut self, network: &mut Network, notice: Notice) -> Option<u64> {
        let (token, _) = self.replicator.handle(network, notice)?;
        let begun_ps = self.begun.remove(&token)?;
        self.post(network);
        Some(network.now_ps() - begun_ps)
    }
}

/// Bytes of payload that have come to the receivers of a loop's first pair.
pub fn received(network: &Network, load: &ClosedLoop) -> u64 {
    load.replicator.forward().first().map_or(0, |&pair| network.transferred(pair).bytes)
}
