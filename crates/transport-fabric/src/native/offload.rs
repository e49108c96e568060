//! Operations that the provider starts by itself: deferred work of libfabric.
//!
//! Every operation has a counter. For a receive, it counts the block. For a send, it is the send's
//! own trigger: it counts one when the send is armed, one for each operation that the send waits
//! for (added by the provider when that operation's counter is complete), and finally the send
//! itself. Each operation that is done also adds one to a shared counter, so a poll reads a single
//! number.
//!
//! Deferred work is reported by counters alone, which neither contain the length of a block nor end
//! a wait: a receive reports the length it was posted with, and a wait polls every millisecond.
//! Only endpoints and counters of one domain can depend on each other, so blocks use the first
//! rail.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use transport::{Cause, Completion, EndpointId, FutureRead, PostError, Token, WriteLease};

use crate::native::{
    device::Device,
    link::{ANYBODY, Link, OFFLOAD_TAG},
    pinned::{self, Pinned},
    sys::{Counter, Errno, Object},
};

/// Identifies an operation for its caller.
type Name = (EndpointId, Token);

/// All offloaded operations of a transport.
#[derive(Default)]
pub struct Offload {
    /// The number of operations done; opened when it is first needed.
    done: Option<Arc<Counter>>,
    /// How many of those were processed.
    seen: u64,
    /// In posting order.
    ops: BTreeMap<u64, Op>,
    next_number: u64,
    known: HashMap<Name, State>,
    /// Entries of `known` to be removed: those not reported yet, and those reported.
    settled: Vec<Name>,
    reported: Vec<Name>,
    immediates: HashSet<(EndpointId, u32)>,
    /// Operations that were not passed to the provider yet.
    waiting: BTreeSet<(EndpointId, u64)>,
    /// Operations by the context of their completions with an error.
    by_context: HashMap<u64, u64>,
}

#[derive(Clone, Copy)]
enum State {
    Open(u64),
    Done,
    Cancelled,
}

struct Op {
    name: Name,
    immediate: u32,
    /// Kept for as long as the provider may use it; dropped before the lease.
    pinned: Option<Arc<Pinned>>,
    held: Held,
    counter: Arc<Counter>,
    /// The transfer starts when the counter reaches this value.
    threshold: u64,
    /// Sends that wait for this operation.
    followers: Vec<u64>,
    /// The send starts when all that it waits for is done.
    is_armed: bool,
    /// The context of completions with an error, once the provider has the operation.
    context: Option<u64>,
}

enum Held {
    Receive(WriteLease),
    Send(FutureRead),
}

/// The outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Cancelled,
}

impl Op {
    fn is_done(&self) -> bool {
        self.counter.value() > self.threshold
    }

    fn is_send(&self) -> bool {
        matches!(self.held, Held::Send(_))
    }
}

fn failed(error: Errno) -> PostError {
    PostError::System(format!("offloading: {}", error.text()))
}

impl Offload {
    /// Returns whether any operation is open: waits then have to poll counters.
    pub fn is_busy(&self) -> bool {
        !self.ops.is_empty()
    }

    pub fn post_receive(
        &mut self,
        device: &Device,
        name: Name,
        into: WriteLease,
        immediate: u32,
    ) -> Result<(), PostError> {
        let endpoint = name.0;
        if self.immediates.contains(&(endpoint, immediate)) {
            let what = format!("immediate {immediate} is in use by another offloaded receive");
            return Err(PostError::System(what));
        }
        let counter = self.open_counter(device)?;
        self.add(name, immediate, Held::Receive(into), counter, 0)?;
        self.immediates.insert((endpoint, immediate));
        Ok(())
    }

    pub fn post_send(
        &mut self,
        device: &Device,
        name: Name,
        from: FutureRead,
        immediate: u32,
        after: &[Name],
        completed: &mut Vec<Completion>,
    ) -> Result<(), PostError> {
        let mut open = Vec::new();
        let mut is_cancelled = false;
        for before in after {
            match self.known.get(before) {
                Some(State::Open(number)) => open.push(*number),
                Some(State::Done) => {}
                Some(State::Cancelled) => is_cancelled = true,
                None => {
                    let what = format!("operation {:?} of {:?} is not known", before.1, before.0);
                    return Err(PostError::System(what));
                }
            }
        }
        if is_cancelled {
            drop(from);
            self.settle(name, State::Cancelled);
            completed.push(Completion::Cancelled { endpoint: name.0, token: name.1 });
            return Ok(());
        }
        if open.is_empty() {
            from.read_now().map_err(|error| PostError::System(error.to_string()))?;
        }
        let counter = self.open_counter(device)?;
        counter.increment().map_err(failed)?;
        for number in &open {
            let before = &self.ops[number];
            // A send behind another one of its endpoint starts as soon as that one has started.
            // (The provider sockets must not start it when that one is done, since it then holds a
            // lock of the endpoint.)
            let is_queued_behind = before.is_send() && before.name.0 == name.0;
            let level = before.threshold + u64::from(!is_queued_behind);
            before.counter.then_add(level, &counter).map_err(failed)?;
        }
        for number in &open {
            let follower = self.next_number;
            self.ops.entry(*number).and_modify(|before| before.followers.push(follower));
        }
        let threshold = 1 + open.len() as u64;
        self.add(name, immediate, Held::Send(from), counter, threshold)
    }

    /// Opens a counter whose completion is added to the shared counter.
    fn open_counter(&mut self, device: &Device) -> Result<Arc<Counter>, PostError> {
        if self.done.is_none() {
            self.done = Some(Counter::open(&device.domain).map_err(failed)?);
        }
        Counter::open(&device.domain).map_err(failed)
    }

    fn add(
        &mut self,
        name: Name,
        immediate: u32,
        held: Held,
        counter: Arc<Counter>,
        threshold: u64,
    ) -> Result<(), PostError> {
        if let Some(done) = &self.done {
            counter.then_add(threshold + 1, done).map_err(failed)?;
        }
        let number = self.next_number;
        self.next_number += 1;
        let is_armed = matches!(held, Held::Send(_));
        let op = Op {
            name,
            immediate,
            held,
            counter,
            threshold,
            followers: Vec::new(),
            is_armed,
            context: None,
            pinned: None,
        };
        self.ops.insert(number, op);
        self.known.insert(name, State::Open(number));
        self.waiting.insert((name.0, number));
        Ok(())
    }

    /// Passes the operations that wait for this link to the provider, if the link is up; an error
    /// breaks the link. Returns false if the provider's queue is full, which does not report when
    /// it has space.
    pub fn start(&mut self, link: &mut Link, device: &Device) -> bool {
        let Some((endpoint, peer)) = link.offload_path() else { return true };
        let id = link.id;
        while let Some(&(_, number)) = self.waiting.range((id, 0)..=(id, u64::MAX)).next() {
            if let Some(op) = self.ops.get_mut(&number) {
                match op.start(&endpoint, peer, device) {
                    Ok(Some(context)) => drop(self.by_context.insert(context, number)),
                    Ok(None) => return false,
                    Err(cause) => {
                        link.break_by(cause);
                        return true;
                    }
                }
            }
            self.waiting.remove(&(id, number));
        }
        true
    }

    /// Reports the operations that are done.
    pub fn advance(&mut self, completed: &mut Vec<Completion>) {
        let Some(done) = self.done.as_ref().map(|done| done.value()) else { return };
        // A receive may have been processed just before it was counted.
        let mut missing = done.saturating_sub(self.seen);
        if missing == 0 {
            return;
        }
        let mut over = Vec::new();
        for (&number, op) in &self.ops {
            if missing == 0 {
                break;
            }
            if op.is_done() {
                over.push(number);
                missing -= 1;
            }
        }
        over.into_iter().for_each(|number| self.finish(number, Outcome::Done, completed));
    }

    /// Returns the link of the failed operation with this context, and whether it is a receive.
    pub fn failed(&self, context: u64) -> Option<(EndpointId, bool)> {
        let op = self.ops.get(self.by_context.get(&context)?)?;
        Some((op.name.0, !op.is_send()))
    }

    /// Must precede the closing of an endpoint: stops its sends that have not started.
    pub fn disarm(&mut self, endpoint: EndpointId) {
        for op in self.ops.values_mut().filter(|op| op.name.0 == endpoint) {
            op.disarm();
        }
    }

    /// Must precede the closing of all endpoints.
    pub fn disarm_all(&mut self) {
        for op in self.ops.values_mut() {
            op.disarm();
        }
    }

    /// Must follow the closing of an endpoint: nothing accesses the memory of its operations any
    /// more.
    pub fn end(&mut self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        let of_it = |(_, op): &(&u64, &Op)| op.name.0 == endpoint;
        let numbers: Vec<u64> = self.ops.iter().filter(of_it).map(|(&number, _)| number).collect();
        for number in numbers {
            let Some(op) = self.ops.get(&number) else { continue };
            let outcome = if op.is_done() { Outcome::Done } else { Outcome::Cancelled };
            self.finish(number, outcome, completed);
        }
    }

    /// Marks the start of a poll: operations reported by the previous one are removed.
    pub fn note_poll(&mut self) {
        for name in self.reported.drain(..) {
            // The name may be in use again.
            if !matches!(self.known.get(&name), Some(State::Open(_))) {
                self.known.remove(&name);
            }
        }
    }

    /// Marks the end of a poll, which has reported all settled operations.
    pub fn note_report(&mut self) {
        self.reported.append(&mut self.settled);
    }

    /// Ends an operation, and if it is cancelled, also all that wait for it.
    fn finish(&mut self, number: u64, outcome: Outcome, completed: &mut Vec<Completion>) {
        let mut ending = vec![(number, outcome)];
        while let Some((number, outcome)) = ending.pop() {
            let Some(op) = self.ops.remove(&number) else { continue };
            let (endpoint, token) = op.name;
            self.waiting.remove(&(endpoint, number));
            op.context.and_then(|context| self.by_context.remove(&context));
            drop(op.pinned);
            let bytes = match op.held {
                Held::Receive(lease) => {
                    self.immediates.remove(&(endpoint, op.immediate));
                    Some(lease.bytes() as u64)
                }
                Held::Send(_) => None,
            };
            if outcome == Outcome::Cancelled {
                self.settle(op.name, State::Cancelled);
                completed.push(Completion::Cancelled { endpoint, token });
                for follower in op.followers {
                    if self.ops.get_mut(&follower).is_some_and(Op::disarm) {
                        ending.push((follower, Outcome::Cancelled));
                    }
                }
                continue;
            }
            self.seen += 1;
            self.settle(op.name, State::Done);
            let immediate = op.immediate;
            completed.push(match bytes {
                Some(bytes) => Completion::Received { endpoint, token, bytes, immediate },
                None => Completion::Sent { endpoint, token },
            });
        }
    }

    fn settle(&mut self, name: Name, state: State) {
        self.known.insert(name, state);
        self.settled.push(name);
    }
}

impl Op {
    /// Passes the operation to the provider; `None` if its queue is full. Errors: the cause that
    /// breaks the link.
    fn start(
        &mut self,
        endpoint: &Object,
        peer: u64,
        device: &Device,
    ) -> Result<Option<u64>, Cause> {
        let (start, bytes, memory) = match &mut self.held {
            Held::Receive(lease) => (lease.as_mut_ptr(), lease.bytes(), lease.memory()),
            Held::Send(lease) => (lease.as_ptr().cast_mut(), lease.bytes(), lease.memory()),
        };
        let pinned = device
            .registrar
            .cover(&memory, start, bytes)
            .map_err(|error| Cause::Memory { access: "registered", error })?;
        if pinned.as_ref().is_some_and(|pinned| pinned.is_by_way()) {
            let error = "the device would relay a copy: give offload memory that can be pinned";
            return Err(Cause::Memory { access: "registered", error: error.into() });
        }
        let span = pinned::span(start, bytes, pinned.as_deref());
        let receive = matches!(self.held, Held::Receive(_));
        let peer = if receive { ANYBODY } else { peer };
        let tag = u64::from(self.immediate) << 8 | OFFLOAD_TAG;
        // SAFETY: the lease is held until the counter reports that the operation is done, or the
        // endpoint was closed (`Offload::end`). A send reaches its threshold when the receive into
        // its memory is done, or there was no writer when it was posted; and it is disarmed before
        // its endpoint is closed.
        let queued = unsafe {
            self.counter.then_transfer(self.threshold, receive, endpoint, peer, tag, span)
        };
        match queued {
            Ok(context) => {
                (self.context, self.pinned) = (Some(context), pinned);
                Ok(Some(context))
            }
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(Cause::Lost(format!("offloading failed: {}", error.text()))),
        }
    }

    /// Prevents a send that has not started from starting. Returns false if it has, or is a
    /// receive.
    fn disarm(&mut self) -> bool {
        if !self.is_armed {
            return self.is_send();
        }
        if self.counter.decrement().is_err() {
            return false;
        }
        // With what is added to it from now on, the counter cannot reach the threshold any more.
        self.is_armed = self.context.is_some() && self.counter.value() + 1 >= self.threshold;
        if self.is_armed {
            let _ = self.counter.increment();
        }
        !self.is_armed
    }
}
