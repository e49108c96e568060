//! Members that are all connected, and a record of what completed when.

use std::time::Duration;

use transport::{Completion, EndpointId, Region, Token, Transport};
use transport_sim::{LinkConfig, SimConfig, SimNet, SimTransport};

/// At one byte per nanosecond, a block takes this many nanoseconds.
pub const BLOCK_BYTES: usize = 1_000;

pub struct World {
    pub net: SimNet,
    pub members: Vec<SimTransport>,
    pub endpoints: Vec<Vec<Option<EndpointId>>>,
    /// Time, member, completion.
    pub seen: Vec<(u64, usize, Completion)>,
    memory: Region,
    posted: usize,
}

impl World {
    pub fn new(config: SimConfig, seed: u64, members: usize) -> Self {
        let link = config.link;
        Self::with_links(config, seed, members, |_, _| link)
    }

    pub fn with_links(
        config: SimConfig,
        seed: u64,
        members: usize,
        link: impl Fn(usize, usize) -> LinkConfig,
    ) -> Self {
        let net = SimNet::new(config, seed);
        let mut transports = net.members(members);
        let mut endpoints = vec![vec![None; members]; members];
        for left in 0..members {
            for right in left + 1..members {
                let (one, other) = net.connect_with(left, right, link(left, right));
                endpoints[left][right] = Some(transports[left].open(one).unwrap());
                endpoints[right][left] = Some(transports[right].open(other).unwrap());
            }
        }
        let memory = Region::zeroed(1_000 * BLOCK_BYTES);
        Self { net, members: transports, endpoints, seen: Vec::new(), memory, posted: 0 }
    }

    pub fn endpoint(&self, member: usize, peer: usize) -> EndpointId {
        self.endpoints[member][peer].unwrap()
    }

    pub fn receive(&mut self, member: usize, peer: usize, token: u64) {
        let at = self.posted * BLOCK_BYTES;
        self.posted += 1;
        let lease = self.memory.write(at..at + BLOCK_BYTES).unwrap();
        let endpoint = self.endpoint(member, peer);
        self.members[member].post_receive(endpoint, lease, Token(token)).unwrap();
    }

    pub fn send(&mut self, member: usize, peer: usize, token: u64) {
        let region = Region::zeroed(BLOCK_BYTES);
        let lease = region.read(0..BLOCK_BYTES).unwrap();
        let endpoint = self.endpoint(member, peer);
        self.members[member].post_send(endpoint, lease, 0, Token(token)).unwrap();
    }

    /// A receive and the send that fills it.
    pub fn block(&mut self, from: usize, to: usize, token: u64) {
        self.receive(to, from, token);
        self.send(from, to, token);
    }

    pub fn write(&mut self, member: usize, peer: usize, word: &[u8]) {
        let endpoint = self.endpoint(member, peer);
        self.members[member].write_control(endpoint, word).unwrap();
    }

    /// Computes events until there are none left.
    pub fn run(&mut self) {
        while let Some(member) = self.net.step() {
            let mut completions = Vec::new();
            self.members[member].poll(&mut completions, Duration::ZERO);
            let now_ns = self.net.now().as_nanos() as u64;
            self.seen.extend(completions.into_iter().map(|seen| (now_ns, member, seen)));
        }
    }

    /// Returns when each block arrived at a member, as (time in ns, token).
    pub fn arrivals(&self, member: usize) -> Vec<(u64, u64)> {
        self.seen
            .iter()
            .filter(|(_, who, _)| *who == member)
            .filter_map(|(at_ns, _, seen)| match seen {
                Completion::Received { token, .. } => Some((*at_ns, token.0)),
                _ => None,
            })
            .collect()
    }

    /// Returns when and how a member's endpoint to a peer ended.
    pub fn end(&self, member: usize, peer: usize) -> Option<(u64, &Completion)> {
        let of = self.endpoint(member, peer);
        self.seen.iter().find_map(|(at_ns, who, seen)| match seen {
            Completion::Broken { endpoint, .. } | Completion::Closed { endpoint }
                if *who == member && *endpoint == of =>
            {
                Some((*at_ns, seen))
            }
            _ => None,
        })
    }
}
