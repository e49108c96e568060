//! The adapter of a simulated member: what posting, starting and receiving costs, by the paper's costs.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use collective::model::WriteCosts;
use transport::{
    Completion, EndpointId, OneSidedWrites, PeerMemory, PostError, ReadLease, Token, Transport,
    Waker, WriteLease,
};
use transport_sim::{LinkConfig, SimConfig, SimLink, SimTransport};

/// When members have something to do without an event of the network.
pub type Timers = Rc<RefCell<BinaryHeap<Reverse<(Duration, usize)>>>>;

/// Lengths of writes on their way in one direction of a link: a completion does not tell them.
type Lengths = Arc<Mutex<VecDeque<usize>>>;

/// One end of a link.
pub struct PortLink {
    link: SimLink,
    outgoing: Lengths,
    incoming: Lengths,
}

/// Both ends of a link.
pub fn ends(near: SimLink, far: SimLink) -> (PortLink, PortLink) {
    let [there, back]: [Lengths; 2] = Default::default();
    let far = PortLink { link: far, outgoing: Arc::clone(&back), incoming: Arc::clone(&there) };
    (PortLink { link: near, outgoing: there, incoming: back }, far)
}

/// The network between adapters: Tt as its rate, and what delays but occupies nothing as its latency.
pub fn network(costs: &WriteCosts) -> SimConfig {
    let latency = costs.library_us + costs.dma_start_us + costs.adapter_us;
    let latency_ns = (latency * 1e3) as u64;
    SimConfig {
        port_rate_bytes_per_s: (1e6 / costs.transmit_us_per_byte) as u64,
        link: LinkConfig { latency_ns, ..LinkConfig::IDEAL },
        trace_events: 0,
        ..SimConfig::IDEAL
    }
}

enum Post {
    Send { from: ReadLease, immediate: u32, token: Token },
    Write { from: ReadLease, key: u32, offset: u64, immediate: Option<u32>, token: Token },
}

/// A transport with the costs of an adapter. A message of b bytes takes
/// `Tm + Td + 2 (Ts + Tn + Tc b) + Tt b` to an idle member, as in the paper's model. Meanwhile it occupies
/// - the sender's processor for Td + Tc b, and its adapter for the longer of Ts + Tn and Tt b;
/// - the receiver's adapter for as long: the worst case of the paper, in which adapters' work does not overlap.
///
/// A message into a posted receive takes Tm more, for which the receiver's library matches it, and posting a receive
/// occupies the processor for Td: what one-sided writes spare.
///
/// Control words cost their latency only.
pub struct Port {
    inner: SimTransport,
    member: usize,
    costs: WriteCosts,
    timers: Timers,
    links: BTreeMap<EndpointId, (Lengths, Lengths)>,
    /// Until when the processor, the adapter's sending and its receiving part are busy.
    processor_until: Duration,
    transmit_until: Duration,
    receive_until: Duration,
    /// By the time at which they leave the adapter.
    leaving: VecDeque<(Duration, EndpointId, Post)>,
    /// By the time at which they are there.
    arriving: VecDeque<(Duration, Completion)>,
}

fn time(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3).round() as u64)
}

impl Port {
    pub fn new(inner: SimTransport, member: usize, costs: WriteCosts, timers: Timers) -> Self {
        Self {
            inner,
            member,
            costs,
            timers,
            links: BTreeMap::new(),
            processor_until: Duration::ZERO,
            transmit_until: Duration::ZERO,
            receive_until: Duration::ZERO,
            leaving: VecDeque::new(),
            arriving: VecDeque::new(),
        }
    }

    fn copy(&self, bytes: usize) -> Duration {
        time(self.costs.copy_us_per_byte * bytes as f64)
    }

    fn adapter(&self) -> Duration {
        time(self.costs.dma_start_us + self.costs.adapter_us)
    }

    /// For how long a message occupies an adapter.
    fn occupied(&self, bytes: usize) -> Duration {
        self.adapter().max(time(self.costs.transmit_us_per_byte * bytes as f64))
    }

    fn wake_at(&self, at: Duration) {
        self.timers.borrow_mut().push(Reverse((at, self.member)));
    }

    fn post(&mut self, endpoint: EndpointId, bytes: usize, post: Post) -> Result<(), PostError> {
        let (outgoing, _) = self.links.get(&endpoint).ok_or(PostError::EndpointGone(endpoint))?;
        if matches!(post, Post::Write { .. }) {
            outgoing.lock().unwrap_or_else(PoisonError::into_inner).push_back(bytes);
        }
        let ready = self.inner.now().max(self.processor_until)
            + time(self.costs.post_us)
            + self.copy(bytes);
        self.processor_until = ready;
        let leaves = ready.max(self.transmit_until);
        self.transmit_until = leaves + self.occupied(bytes);
        self.leaving.push_back((leaves, endpoint, post));
        self.wake_at(leaves);
        Ok(())
    }

    /// What has left the adapter goes into the network. An endpoint that has ended meanwhile reports its end.
    fn release(&mut self, now: Duration) {
        while self.leaving.front().is_some_and(|(leaves, ..)| *leaves <= now) {
            let Some((_, endpoint, post)) = self.leaving.pop_front() else { return };
            let _ = match post {
                Post::Send { from, immediate, token } => {
                    self.inner.post_send(endpoint, from, immediate, token)
                }
                Post::Write { from, key, offset, immediate, token } => {
                    match self.inner.one_sided() {
                        Some(writes) => {
                            writes.post_write(endpoint, from, key, offset, immediate, token)
                        }
                        None => Ok(()),
                    }
                }
            };
        }
    }

    fn arrive(&mut self, now: Duration, bytes: usize, completion: Completion) {
        let is_matched = matches!(completion, Completion::Received { .. });
        let matching = if is_matched { time(self.costs.library_us) } else { Duration::ZERO };
        let begins = now.max(self.receive_until);
        self.receive_until = begins + self.occupied(bytes);
        let there = begins + self.adapter() + self.copy(bytes) + matching;
        let there = there.max(self.arriving.back().map_or(there, |(last, _)| *last));
        self.arriving.push_back((there, completion));
        self.wake_at(there);
    }
}

impl Transport for Port {
    type Link = PortLink;

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn block_bytes_max(&self) -> u64 {
        self.inner.block_bytes_max()
    }

    fn open(&mut self, link: PortLink) -> Result<EndpointId, PostError> {
        let endpoint = self.inner.open(link.link)?;
        self.links.insert(endpoint, (link.outgoing, link.incoming));
        Ok(endpoint)
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        self.processor_until =
            self.inner.now().max(self.processor_until) + time(self.costs.post_us);
        self.inner.post_receive(endpoint, into, token)
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let bytes = from.bytes();
        self.post(endpoint, bytes, Post::Send { from, immediate, token })
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        self.inner.write_control(endpoint, word)
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }

    fn close(&mut self, endpoint: EndpointId) {
        self.inner.close(endpoint);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, _wait: Duration) {
        let now = self.inner.now();
        self.release(now);
        let mut fresh = Vec::new();
        self.inner.poll(&mut fresh, Duration::ZERO);
        for completion in fresh {
            match completion {
                Completion::Written { endpoint, .. } => {
                    let incoming = self.links.get(&endpoint).map(|(_, incoming)| incoming);
                    let bytes = incoming.and_then(|incoming| {
                        incoming.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
                    });
                    self.arrive(now, bytes.unwrap_or(0), completion);
                }
                Completion::Received { bytes, .. } => self.arrive(now, bytes as usize, completion),
                other => completions.push(other),
            }
        }
        while self.arriving.front().is_some_and(|(there, _)| *there <= now) {
            completions.extend(self.arriving.pop_front().map(|(_, completion)| completion));
        }
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }
}

impl OneSidedWrites for Port {
    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        let writes = self.inner.one_sided().ok_or(PostError::Unsupported("one-sided writes"))?;
        writes.expose(endpoint, key, memory)
    }

    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) -> Result<(), PostError> {
        let bytes = from.bytes();
        self.post(endpoint, bytes, Post::Write { from, key, offset, immediate, token })
    }
}
