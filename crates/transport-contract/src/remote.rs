//! A transport in its own process, which can be killed and stopped as hosts are.
//!
//! Leases stay in the test's process: bytes of sends are copied when they are posted, those of
//! receives when they are reported.

mod member;
mod process;
mod protocol;
mod remote_member;

use std::{
    collections::HashMap,
    convert::Infallible,
    marker::PhantomData,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use transport::{
    Completion, EndpointId, OneSidedWrites, PeerMemory, PostError, ReadLease, Token, Transport,
    Waker, WriteLease,
};

use crate::harness::Network;
use process::Process;
use protocol::{Event, Reply, Request};
pub use remote_member::RemoteMember;

/// Does in a member's process what tests ask for; elsewhere nothing. To be called by the test `processes::member` of
/// the test program.
pub fn run_member<M: RemoteMember>() {
    if std::env::var_os(process::MEMBER).is_some() {
        member::run::<M>();
    }
}

/// Makes a network of members in processes, each pair connected; member i is started as the i-th bytes say.
pub fn connected_remotes<M: RemoteMember>(how: &[Vec<u8>]) -> Network<Remote<M>> {
    let mut remotes: Vec<Remote<M>> = how.iter().map(|how| Remote::start(how)).collect();
    remotes.iter_mut().for_each(Remote::await_start);
    let members = remotes.len();
    let mut endpoints = vec![vec![None; members]; members];
    let pairs = (0..members).flat_map(|right| (0..right).map(move |left| (left, right)));
    for (left, right) in pairs {
        let (head, tail) = remotes.split_at_mut(right);
        let (one, other) = head[left].connect(&mut tail[0]);
        endpoints[left][right] = Some(one);
        endpoints[right][left] = Some(other);
    }
    Network { members: remotes.into_iter().map(Some).collect(), endpoints }
}

/// A member. Dropping it ends the transport in an ordered way.
pub struct Remote<M: RemoteMember> {
    /// `None` once it was killed.
    process: Option<Process>,
    is_stopped: bool,
    origin: Instant,
    block_bytes_max: u64,
    can_write: bool,
    sends: HashMap<Token, ReadLease>,
    receives: HashMap<Token, WriteLease>,
    exposed: HashMap<(EndpointId, u32), PeerMemory>,
    member: PhantomData<M>,
}

impl<M: RemoteMember> Remote<M> {
    /// Starts a transport in a process by [`RemoteMember::start`]; [`Remote::await_start`] follows.
    pub fn start(how: &[u8]) -> Self {
        let process = Process::start(M::clean_up);
        process.tell(&Request::Start, how);
        Self {
            process: Some(process),
            is_stopped: false,
            origin: Instant::now(),
            block_bytes_max: 0,
            can_write: false,
            sends: HashMap::new(),
            receives: HashMap::new(),
            exposed: HashMap::new(),
            member: PhantomData,
        }
    }

    /// Waits until the transport has started.
    pub fn await_start(&mut self) {
        let Reply::Started { block_bytes_max, can_write } =
            self.process().receive(Duration::ZERO).0
        else {
            panic!("it does not start");
        };
        (self.block_bytes_max, self.can_write) = (block_bytes_max, can_write);
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it lives")
    }

    /// Connects two members.
    pub fn connect(&mut self, other: &mut Self) -> (EndpointId, EndpointId) {
        let (Reply::Listening, offer) = self.ask(&Request::Listen, &[]) else {
            panic!("it does not listen");
        };
        let (Reply::Opened { endpoint: far }, answer) = other.ask(&Request::Dial, &offer) else {
            panic!("it does not connect");
        };
        let (Reply::Opened { endpoint: near }, _) = self.ask(&Request::Accept, &answer) else {
            panic!("it does not accept");
        };
        (EndpointId(near), EndpointId(far))
    }

    /// Lets the transport work for a second, without waiting for its reports.
    pub fn leave_alone(&mut self) {
        self.process().tell(&Request::Poll { wait: Duration::from_secs(1) }, &[]);
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Stops the process permanently.
    pub fn stop(&mut self) {
        self.process().stop();
        self.is_stopped = true;
    }

    fn ask(&mut self, request: &Request, bytes: &[u8]) -> (Reply, Vec<u8>) {
        let wait = if let Request::Poll { wait } = request { *wait } else { Duration::ZERO };
        self.process().tell(request, bytes);
        self.process().receive(wait)
    }

    fn post(&mut self, request: &Request, bytes: &[u8]) -> Result<(), PostError> {
        match self.ask(request, bytes).0 {
            Reply::Posted(posted) => posted.map_err(Into::into),
            other => panic!("{other:?} of {request:?}"),
        }
    }

    /// Applies changes of the process's memory to the memory here; leases are dropped before
    /// completions are reported.
    fn take_in(&mut self, event: Event, bytes: &mut &[u8]) -> Option<Completion> {
        let mut take = |count: u64| bytes.split_off(..count as usize).expect("they come with it");
        let (id, name) = (EndpointId, Token);
        Some(match event {
            Event::Sent { endpoint, token } => {
                self.sends.remove(&name(token));
                Completion::Sent { endpoint: id(endpoint), token: name(token) }
            }
            Event::Received { endpoint, token, bytes, immediate } => {
                let block = take(bytes);
                if let Some(mut into) = self.receives.remove(&name(token)) {
                    into[..block.len()].copy_from_slice(block);
                }
                let (endpoint, token) = (id(endpoint), name(token));
                Completion::Received { endpoint, token, bytes, immediate }
            }
            Event::Control { endpoint, word } => {
                Completion::Control { endpoint: id(endpoint), word }
            }
            Event::Memory { endpoint, key, bytes } => {
                let memory = &self.exposed[&(id(endpoint), key)];
                memory.copy_in(0, take(bytes)).expect("it is as long");
                return None;
            }
            Event::Written { endpoint, immediate } => {
                Completion::Written { endpoint: id(endpoint), immediate }
            }
            Event::Cancelled { endpoint, token } => {
                self.sends.remove(&name(token));
                self.receives.remove(&name(token));
                Completion::Cancelled { endpoint: id(endpoint), token: name(token) }
            }
            Event::Broken { endpoint, why } => {
                self.exposed.retain(|&(at, _), _| at.0 != endpoint);
                Completion::Broken { endpoint: id(endpoint), cause: why.into() }
            }
            Event::Closed { endpoint } => {
                self.exposed.retain(|&(at, _), _| at.0 != endpoint);
                Completion::Closed { endpoint: id(endpoint) }
            }
        })
    }
}

impl<M: RemoteMember> Drop for Remote<M> {
    fn drop(&mut self) {
        if self.is_stopped || thread::panicking() || self.process.is_none() {
            return;
        }
        let (Reply::Ended, _) = self.ask(&Request::End, &[]) else {
            panic!("it does not end");
        };
        self.process.take().into_iter().for_each(Process::put_back);
    }
}

impl<M: RemoteMember> Transport for Remote<M> {
    /// Members are connected by [`Remote::connect`].
    type Link = Infallible;

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn block_bytes_max(&self) -> u64 {
        self.block_bytes_max
    }

    fn open(&mut self, link: Infallible) -> Result<EndpointId, PostError> {
        match link {}
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        let bytes = into.bytes() as u64;
        self.post(&Request::Receive { endpoint: endpoint.0, bytes, token: token.0 }, &[])?;
        self.receives.insert(token, into);
        Ok(())
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let bytes = from.bytes() as u64;
        let block = if bytes > self.block_bytes_max { &[] } else { &*from };
        let (endpoint, called) = (endpoint.0, token.0);
        self.post(&Request::Send { endpoint, bytes, immediate, token: called }, block)?;
        self.sends.insert(token, from);
        Ok(())
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        self.post(&Request::Word { endpoint: endpoint.0 }, word)
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        if self.can_write { Some(self) } else { None }
    }

    fn close(&mut self, endpoint: EndpointId) {
        self.ask(&Request::Close { endpoint: endpoint.0 }, &[]);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        let (Reply::Polled(events), bytes) = self.ask(&Request::Poll { wait }, &[]) else {
            panic!("it does not poll");
        };
        let mut bytes = bytes.as_slice();
        completions.extend(events.into_iter().filter_map(|event| self.take_in(event, &mut bytes)));
    }

    fn flush(&mut self) {
        self.post(&Request::Flush, &[]).expect("a flush has no errors");
    }

    fn waker(&self) -> Waker {
        let outbox = self.process.as_ref().map(|process| Arc::clone(&process.outbox));
        Arc::new(move || {
            // The process may have ended.
            let _ = outbox.as_ref().map(|outbox| outbox.send(&Request::Wake, &[]));
        })
    }
}

impl<M: RemoteMember> OneSidedWrites for Remote<M> {
    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        let mut contents = vec![0; memory.len()];
        memory.copy_out(0, &mut contents).expect("it is all of it");
        self.post(&Request::Expose { endpoint: endpoint.0, key }, &contents)?;
        self.exposed.insert((endpoint, key), memory);
        Ok(())
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
        let (endpoint, called) = (endpoint.0, token.0);
        self.post(&Request::Write { endpoint, key, offset, immediate, token: called }, &from)?;
        self.sends.insert(token, from);
        Ok(())
    }
}
