//! Messages to several hosts, by one of three patterns.

use std::collections::HashMap;

use mcrdma::plan::Node;
use serde::Serialize;

use crate::{Network, NoGroup, Notice, Pair};

/// How a message is replicated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Switches copy it: one post, one completion.
    InSwitch,
    /// A copy to each host: a message is done when all of them are.
    Fanout,
    /// Each host sends a message on when it has all of it. The last but one gets the completion, and a
    /// confirmation is sent back along the chain to the sender.
    Chain,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::InSwitch, Self::Fanout, Self::Chain];

    /// As in commands and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InSwitch => "in-switch",
            Self::Fanout => "fanout",
            Self::Chain => "chain",
        }
    }
}

/// Length of the confirmation on a chain.
const RETURN_BYTES: u32 = 16;

/// A message in flight.
#[derive(Clone, Copy, Debug)]
struct Open {
    bytes: u32,
    /// Pairs that have not completed it.
    missing: usize,
    is_done: bool,
}

/// A sender with its receivers.
pub struct Replicator {
    pattern: Pattern,
    /// With messages: of a chain, from each host to the next.
    forward: Vec<Pair>,
    /// Of a chain, from each host that sends messages on, to the one before it.
    back: Vec<Pair>,
    open: HashMap<u64, Open>,
}

impl Replicator {
    /// Connects them. `to` are at least one.
    ///
    /// Errors: the switches cannot serve such a group.
    pub fn new(
        network: &mut Network,
        pattern: Pattern,
        from: Node,
        to: &[Node],
    ) -> Result<Self, NoGroup> {
        let mut back = Vec::new();
        let forward = match pattern {
            Pattern::InSwitch => vec![network.connect_group(from, to)?],
            Pattern::Fanout => to.iter().map(|&host| network.connect(from, host)).collect(),
            Pattern::Chain => {
                let hops: Vec<_> =
                    [from].iter().chain(to).copied().zip(to.iter().copied()).collect();
                let relays = &hops[..hops.len().saturating_sub(1)];
                back.extend(relays.iter().map(|&(before, host)| network.connect(host, before)));
                hops.iter().map(|&(before, host)| network.connect(before, host)).collect()
            }
        };
        Ok(Self { pattern, forward, back, open: HashMap::new() })
    }

    /// All pairs whose notices are this replicator's.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.forward.iter().chain(&self.back).copied()
    }

    /// The pairs that carry messages.
    #[must_use]
    pub fn forward(&self) -> &[Pair] {
        &self.forward
    }

    /// Sends a message. No other of the same token is on its way.
    pub fn post(&mut self, network: &mut Network, bytes: u32, token: u64) {
        let first = match self.pattern {
            Pattern::Chain => &self.forward[..1],
            Pattern::InSwitch | Pattern::Fanout => &self.forward[..],
        };
        self.open.insert(token, Open { bytes, missing: first.len(), is_done: true });
        for &pair in first {
            network.post(pair, bytes, token);
        }
    }

    /// Handles a notice of one of its pairs. Returns the message that has ended, for the sender's program, and
    /// whether all receivers have it.
    pub fn handle(&mut self, network: &mut Network, notice: Notice) -> Option<(u64, bool)> {
        match (notice, self.back.is_empty()) {
            (Notice::Completed { token, is_done, .. }, true) => self.completed(token, is_done),
            (Notice::Completed { pair, token, is_done }, false) => {
                self.completed_on_chain(network, pair, token, is_done)
            }
            (Notice::Arrived { pair, token, .. }, false) => {
                self.arrived_on_chain(network, pair, token)
            }
            _ => None,
        }
    }

    fn completed(&mut self, token: u64, is_done: bool) -> Option<(u64, bool)> {
        let open = self.open.get_mut(&token)?;
        open.missing -= 1;
        open.is_done &= is_done;
        let Open { missing, is_done, .. } = *open;
        (missing == 0).then(|| {
            self.open.remove(&token);
            (token, is_done)
        })
    }

    /// The last host has it; or a host failed, which ends it.
    fn completed_on_chain(
        &mut self,
        network: &mut Network,
        pair: Pair,
        token: u64,
        is_done: bool,
    ) -> Option<(u64, bool)> {
        if !is_done {
            return self.open.remove(&token).map(|_| (token, false));
        }
        if self.forward.last() == Some(&pair)
            && let Some(&back) = self.back.last()
        {
            network.post(back, RETURN_BYTES, token);
        }
        None
    }

    fn arrived_on_chain(
        &mut self,
        network: &mut Network,
        pair: Pair,
        token: u64,
    ) -> Option<(u64, bool)> {
        if let Some(at) = self.forward.iter().position(|&known| known == pair) {
            let bytes = self.open.get(&token)?.bytes;
            if let Some(&next) = self.forward.get(at + 1) {
                network.post(next, bytes, token);
            }
            return None;
        }
        match self.back.iter().position(|&known| known == pair)? {
            0 => self.open.remove(&token).map(|_| (token, true)),
            at => {
                network.post(self.back[at - 1], RETURN_BYTES, token);
                None
            }
        }
    }
}
