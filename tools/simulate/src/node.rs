//! A member's access to the simulated network, with its own clock, and checked against the
//! transport's contract.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    time::Duration,
};

use engine::Engine;
use transport::{
    ArrivingRead, Completion, CutThroughSends, EndpointId, FutureRead, OneSidedWrites, PeerMemory,
    PostError, ReadLease, Region, Token, Transport, TriggeredSends, Visibility, Waker, WriteLease,
};
use transport_sim::{SimLink, SimTransport};

use crate::clock::Clock;

/// The open posts and endpoints of one member.
#[derive(Default, Debug)]
pub struct Ledger {
    /// How many operations with a token are posted: small messages share one.
    posts: BTreeMap<(EndpointId, Token), u32>,
    endpoints: BTreeSet<EndpointId>,
    /// Breaches of the transport's contract.
    pub breaches: Vec<String>,
    /// A byte of the next block that is sent is to be changed.
    corrupts: bool,
}

/// A planted bug between a member and its network.
pub trait Bug {
    /// Returns what is sent in place of `from`.
    fn send(&mut self, from: ReadLease) -> ReadLease {
        from
    }

    /// Returns what is sent at once in place of a block that is still arriving, if anything is.
    fn cut_through(&mut self, _from: &ArrivingRead) -> Option<ReadLease> {
        None
    }

    /// Returns what is written in place of `from`. May change the position in the exposed memory.
    fn write(&mut self, from: ReadLease, _offset: &mut u64) -> ReadLease {
        from
    }

    /// Returns what is written instead of a control word, if anything is.
    fn word(&mut self, _endpoint: EndpointId, word: &[u8]) -> Option<Vec<u8>> {
        Some(word.to_vec())
    }

    /// Returns what is reported instead of a completion.
    fn completion(&mut self, completion: Completion) -> Vec<Completion> {
        vec![completion]
    }
}

/// [`Transport`] of a member.
pub struct Node {
    inner: SimTransport,
    clock: Clock,
    batch: usize,
    /// Completions that were not reported to the member yet.
    queue: Rc<RefCell<VecDeque<Completion>>>,
    ledger: Rc<RefCell<Ledger>>,
    planted: Option<Box<dyn Bug>>,
}

/// A member's engine over the simulated network.
pub type MemberEngine = Engine<Node>;

/// The driver's handle of a [`Node`], which belongs to an engine.
#[derive(Clone, Default, Debug)]
pub struct Watch {
    queue: Rc<RefCell<VecDeque<Completion>>>,
    ledger: Rc<RefCell<Ledger>>,
}

impl Watch {
    /// Returns whether another poll would report completions.
    pub fn has_more(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// Takes the breaches of the transport's contract since the last call.
    pub fn take_breaches(&self) -> Vec<String> {
        std::mem::take(&mut self.ledger.borrow_mut().breaches)
    }

    /// Changes a byte of the next block that is sent.
    pub fn corrupt_next(&self) {
        self.ledger.borrow_mut().corrupts = true;
    }

    /// Describes what is still posted or open; empty if nothing is.
    pub fn leaks(&self) -> String {
        let ledger = self.ledger.borrow();
        let posts: u32 = ledger.posts.values().sum();
        if posts == 0 && ledger.endpoints.is_empty() {
            return String::new();
        }
        format!("{posts} posts and {} endpoints are open", ledger.endpoints.len())
    }
}

impl Ledger {
    fn posted(&mut self, endpoint: EndpointId, token: Token) {
        *self.posts.entry((endpoint, token)).or_default() += 1;
    }

    fn completed(&mut self, completion: &Completion) {
        let (endpoint, token) = match completion {
            Completion::Sent { endpoint, token }
            | Completion::Received { endpoint, token, .. }
            | Completion::Cancelled { endpoint, token } => (*endpoint, Some(*token)),
            Completion::Broken { endpoint, .. } | Completion::Closed { endpoint } => {
                let still_posted = self.posts.keys().any(|(posted, _)| posted == endpoint);
                if !self.endpoints.remove(endpoint) || still_posted {
                    self.breaches.push(format!("transport: {completion:?} ends what is not over"));
                }
                return;
            }
            Completion::Written { endpoint, .. } | Completion::Control { endpoint, .. } => {
                (*endpoint, None)
            }
            Completion::Arriving { endpoint, token, .. } => {
                if !self.posts.contains_key(&(*endpoint, *token)) {
                    self.breaches.push(format!("transport: {completion:?}, which was not posted"));
                }
                return;
            }
            _ => return,
        };
        let is_posted = token.is_none_or(|token| match self.posts.get_mut(&(endpoint, token)) {
            Some(count) => {
                *count -= 1;
                if *count == 0 {
                    self.posts.remove(&(endpoint, token));
                }
                true
            }
            None => false,
        });
        if !is_posted || !self.endpoints.contains(&endpoint) {
            self.breaches.push(format!("transport: {completion:?}, which was not posted"));
        }
    }
}

impl Node {
    /// Makes a node. `batch`: how many completions a poll reports at most; 0: all.
    pub fn new(
        inner: SimTransport,
        clock: Clock,
        batch: u32,
        planted: Option<Box<dyn Bug>>,
    ) -> (Self, Watch) {
        let watch = Watch::default();
        let (queue, ledger) = (Rc::clone(&watch.queue), Rc::clone(&watch.ledger));
        let batch = if batch == 0 { usize::MAX } else { batch as usize };
        (Self { inner, clock, batch, queue, ledger, planted }, watch)
    }

    /// Records a post if it was accepted.
    fn note(
        &self,
        endpoint: EndpointId,
        token: Token,
        outcome: Result<(), PostError>,
    ) -> Result<(), PostError> {
        if outcome.is_ok() {
            self.ledger.borrow_mut().posted(endpoint, token);
        }
        outcome
    }
}

impl Transport for Node {
    type Link = SimLink;

    fn now(&self) -> Duration {
        self.clock.shows(self.inner.now().as_nanos() as u64)
    }

    fn block_bytes_max(&self) -> u64 {
        self.inner.block_bytes_max()
    }

    fn open(&mut self, link: SimLink) -> Result<EndpointId, PostError> {
        let endpoint = self.inner.open(link)?;
        self.ledger.borrow_mut().endpoints.insert(endpoint);
        Ok(endpoint)
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        let outcome = self.inner.post_receive(endpoint, into, token);
        self.note(endpoint, token, outcome)
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let from = match &mut self.planted {
            Some(planted) => planted.send(from),
            None => from,
        };
        let is_corrupted =
            from.bytes() > 0 && std::mem::take(&mut self.ledger.borrow_mut().corrupts);
        let from = if is_corrupted { corrupted(&from) } else { from };
        let outcome = self.inner.post_send(endpoint, from, immediate, token);
        self.note(endpoint, token, outcome)
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        match &mut self.planted {
            None => self.inner.write_control(endpoint, word),
            Some(planted) => match planted.word(endpoint, word) {
                Some(word) => self.inner.write_control(endpoint, &word),
                None => Ok(()),
            },
        }
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }

    fn cut_through(&mut self) -> Option<&mut dyn CutThroughSends> {
        let has_them = self.inner.cut_through().is_some();
        has_them.then_some(self as &mut dyn CutThroughSends)
    }

    fn triggered(&mut self) -> Option<&mut dyn TriggeredSends> {
        Some(self)
    }

    fn close(&mut self, endpoint: EndpointId) {
        self.inner.close(endpoint);
    }

    /// Never waits: the driver advances time.
    fn poll(&mut self, completions: &mut Vec<Completion>, _wait: Duration) {
        let mut news = Vec::new();
        self.inner.poll(&mut news, Duration::ZERO);
        let mut ledger = self.ledger.borrow_mut();
        let mut queue = self.queue.borrow_mut();
        for completion in news {
            ledger.completed(&completion);
            match &mut self.planted {
                Some(planted) => queue.extend(planted.completion(completion)),
                None => queue.push_back(completion),
            }
        }
        let count = queue.len().min(self.batch);
        completions.extend(queue.drain(..count));
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }
}

/// Returns a copy of which one byte is another.
fn corrupted(from: &ReadLease) -> ReadLease {
    let mut bytes = from.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    lease_of(bytes)
}

/// Returns a lease of new memory with these bytes.
pub(crate) fn lease_of(bytes: Vec<u8>) -> ReadLease {
    let all = 0..bytes.len();
    Region::from_vec(bytes).read(all).expect("there is no other lease")
}

impl OneSidedWrites for Node {
    fn visibility(&self, endpoint: EndpointId) -> Visibility {
        self.inner.visibility(endpoint)
    }

    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        self.inner.expose(endpoint, key, memory)
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
        let mut offset = offset;
        let from = match &mut self.planted {
            Some(planted) => planted.write(from, &mut offset),
            None => from,
        };
        let outcome = self.inner.post_write(endpoint, from, key, offset, immediate, token);
        self.note(endpoint, token, outcome)
    }
}

impl CutThroughSends for Node {
    fn block_bytes_min(&self) -> u64 {
        self.inner.block_bytes_min()
    }

    fn post_cut_through_send(
        &mut self,
        endpoint: EndpointId,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let instead = self.planted.as_mut().and_then(|planted| planted.cut_through(&from));
        let outcome = match instead {
            Some(whole) => self.inner.post_send(endpoint, whole, immediate, token),
            None => self.inner.post_cut_through_send(endpoint, from, immediate, token),
        };
        self.note(endpoint, token, outcome)
    }
}

impl TriggeredSends for Node {
    fn post_offloaded_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let outcome = self.inner.post_offloaded_receive(endpoint, into, immediate, token);
        self.note(endpoint, token, outcome)
    }

    fn post_offloaded_send(
        &mut self,
        endpoint: EndpointId,
        from: FutureRead,
        immediate: u32,
        token: Token,
        after: &[(EndpointId, Token)],
    ) -> Result<(), PostError> {
        let outcome = self.inner.post_offloaded_send(endpoint, from, immediate, token, after);
        self.note(endpoint, token, outcome)
    }
}
