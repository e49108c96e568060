//! Messages from one sender to its receivers, whose contents are compared.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use endpoint::{Endpoint, Event};
use mcrdma::plan::Node;
use roce::rc::{Kind, Status, Work};

const PATIENCE: Duration = Duration::from_secs(120);
/// Messages of each flow.
pub const MESSAGES: u64 = 60;
/// Length of each message.
pub const BYTES: usize = 30_000;

/// Messages in flight; each is written to a place of its own.
pub const OPEN: u64 = 4;
/// Virtual address of the receivers' memory, as the sender uses it.
pub const VIRTUAL_START: u64 = 0x9000;

/// Messages of one sender to its receivers. Every other one is a WRITE, if receivers have memory.
#[derive(Debug)]
pub struct Flow {
    /// The sender first.
    pub queue_pairs: Vec<(Node, u32)>,
    salt: u64,
    posted: u64,
    /// Messages that have completed at the sender.
    pub done: u64,
    /// By receiver.
    pub arrived: Vec<u64>,
    /// Keys of receivers' memory, if they have some.
    memories: Vec<u32>,
}

fn contents(salt: u64, index: u64) -> Vec<u8> {
    (0..BYTES as u64).map(|at| (at * 7 + index * 13 + salt * 101) as u8).collect()
}

impl Flow {
    /// Without WRITEs. `salt` distinguishes flows.
    pub fn new(salt: u64, queue_pairs: Vec<(Node, u32)>) -> Self {
        let arrived = vec![0; queue_pairs.len() - 1];
        Self { queue_pairs, salt, posted: 0, done: 0, arrived, memories: Vec::new() }
    }

    /// With WRITEs to this memory of the receivers, of [`OPEN`] messages.
    pub fn writing(mut self, memories: Vec<u32>) -> Self {
        self.memories = memories;
        self
    }

    fn kind(&self, index: u64) -> Kind {
        if self.memories.is_empty() || index.is_multiple_of(2) {
            return Kind::Send;
        }
        // Switches replace the key by that of each receiver.
        Kind::Write { address: VIRTUAL_START + index % OPEN * BYTES as u64, key: 0xdead }
    }

    fn post(&mut self, endpoints: &mut BTreeMap<Node, Endpoint>) {
        while self.posted < MESSAGES && self.posted < self.done + OPEN {
            let bytes = contents(self.salt, self.posted);
            for &(node, qpn) in &self.queue_pairs[1..] {
                let endpoint = endpoints.get_mut(&node).unwrap();
                endpoint.receive(qpn, self.posted, vec![0; BYTES]).unwrap();
            }
            let (node, qpn) = self.queue_pairs[0];
            let work = Work {
                id: self.posted,
                kind: self.kind(self.posted),
                bytes: bytes.len() as u32,
                immediate: Some(self.salt as u32),
            };
            endpoints.get_mut(&node).unwrap().send(qpn, work, bytes).unwrap();
            self.posted += 1;
        }
    }

    /// Whether the event was one of this flow's.
    fn take(&mut self, node: Node, endpoint: &Endpoint, event: &Event) -> bool {
        let is_at = |qpn: u32| self.queue_pairs.iter().position(|pair| *pair == (node, qpn));
        match event {
            Event::Sent { qpn, id, status } => {
                if is_at(*qpn) != Some(0) {
                    return false;
                }
                assert_eq!((*id, *status), (self.done, Status::Done));
                self.done += 1;
            }
            Event::Arrived { qpn, arrival, memory } => {
                let Some(place) = is_at(*qpn) else { return false };
                let index = self.arrived[place - 1];
                assert_eq!(arrival.immediate, Some(self.salt as u32));
                assert_eq!(arrival.is_write, self.kind(index) != Kind::Send);
                let start = (index % OPEN) as usize * BYTES;
                let arrived = match arrival.is_write {
                    true => &endpoint.memory(self.memories[place - 1]).unwrap()[start..][..BYTES],
                    false => memory,
                };
                assert!(*arrived == contents(self.salt, index), "message {index} at {node}");
                self.arrived[place - 1] += 1;
            }
        }
        true
    }

    /// No longer expects messages at a queue pair, by its index.
    pub fn lose(&mut self, place: usize) {
        self.queue_pairs.remove(place);
        self.arrived.remove(place - 1);
    }

    /// Whether all have everything.
    pub fn is_over(&self) -> bool {
        self.done == MESSAGES && self.arrived.iter().all(|arrived| *arrived == MESSAGES)
    }
}

/// Sends until all have everything.
pub fn run(flows: &mut [Flow], endpoints: &mut BTreeMap<Node, Endpoint>) {
    let deadline = Instant::now() + PATIENCE;
    while !flows.iter().all(Flow::is_over) {
        let done: Vec<u64> = flows.iter().map(|flow| flow.done).collect();
        assert!(Instant::now() < deadline, "{done:?}");
        turn(flows, endpoints);
    }
}

/// Posts and receives once at all endpoints.
pub fn turn(flows: &mut [Flow], endpoints: &mut BTreeMap<Node, Endpoint>) {
    flows.iter_mut().for_each(|flow| flow.post(endpoints));
    for (&node, endpoint) in endpoints {
        endpoint.progress(Duration::ZERO).unwrap();
        while let Some(event) = endpoint.completed() {
            assert!(flows.iter_mut().any(|flow| flow.take(node, endpoint, &event)), "{event:?}");
        }
    }
}
