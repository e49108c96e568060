//! A transport in a process of its own, which can be killed and stopped as hosts are.
//!
//! The process is this test program itself, started again to run the one test `member`. Leases stay
//! here: bytes of sends are copied when they are posted, those of receives when they are reported.

pub mod member;
mod protocol;

use std::{
    collections::HashMap,
    convert::Infallible,
    fs,
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use transport::{
    Completion, EndpointId, PostError, ReadLease, Region, Token, Transport, Waker, WriteLease,
};

use crate::common::Place;
use protocol::{Event, Reply, Request};

/// Set where this program is a member.
pub const MEMBER: &str = "RDMC_TEST_IS_MEMBER";

/// No answer takes longer, besides what it was asked to wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// A member's process. Dropping it ends the process.
pub struct Remote {
    child: Child,
    stream: UnixStream,
    /// For requests, since wakes come from any thread.
    outbox: Arc<Mutex<UnixStream>>,
    /// It does not end by itself any more.
    is_stopped: bool,
    origin: Instant,
    block_bytes_max: u64,
    can_write: bool,
    sends: HashMap<Token, ReadLease>,
    receives: HashMap<Token, WriteLease>,
    exposed: HashMap<(EndpointId, u32), Region>,
}

impl Remote {
    /// Starts a process with a transport.
    pub fn start(place: &Place) -> Self {
        let (stream, theirs) = UnixStream::pair().expect("descriptors are left");
        let program = std::env::current_exe().expect("this program knows itself");
        let child = Command::new(program)
            .args(["member", "--exact", "--nocapture", "--test-threads=1"])
            .env(MEMBER, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program can be started");
        let outbox = stream.try_clone().expect("descriptors are left");
        outbox.set_write_timeout(Some(PATIENCE)).expect("a lawful time");
        let mut remote = Self {
            child,
            stream,
            outbox: Arc::new(Mutex::new(outbox)),
            is_stopped: false,
            origin: Instant::now(),
            block_bytes_max: 0,
            can_write: false,
            sends: HashMap::new(),
            receives: HashMap::new(),
            exposed: HashMap::new(),
        };
        let started = remote.ask(&Request::Start(place.clone()), &[]).0;
        let Reply::Started { block_bytes_max, can_write } = started else {
            panic!("it does not start");
        };
        (remote.block_bytes_max, remote.can_write) = (block_bytes_max, can_write);
        remote
    }

    /// Connects two members.
    pub fn connect(&mut self, other: &mut Self) -> (EndpointId, EndpointId) {
        let (Reply::Listening { port }, ours) = self.ask(&Request::Listen, &[]) else {
            panic!("it does not listen");
        };
        let (Reply::Opened { endpoint: far }, theirs) = other.ask(&Request::Dial { port }, &ours)
        else {
            panic!("it does not connect");
        };
        let (Reply::Opened { endpoint: near }, _) = self.ask(&Request::Accept, &theirs) else {
            panic!("it does not accept");
        };
        (EndpointId(near), EndpointId(far))
    }

    /// Kills the process: it does nothing any more from now on.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child that is killed ends");
        self.is_stopped = true;
    }

    /// Stops the process, for good.
    pub fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("a child can be stopped");
        self.is_stopped = true;
    }

    fn ask(&mut self, request: &Request, bytes: &[u8]) -> (Reply, Vec<u8>) {
        let wait = if let Request::Poll { wait } = request { *wait } else { Duration::ZERO };
        self.stream.set_read_timeout(Some(wait + PATIENCE)).expect("a lawful time");
        let sent = {
            let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
            protocol::write(&mut *outbox, request, bytes)
        };
        let answer = sent.and_then(|()| protocol::read(&mut self.stream));
        answer.unwrap_or_else(|error| {
            panic!(
                "process {} ({request:?}): {error}, {:?}",
                self.child.id(),
                self.child.try_wait()
            )
        })
    }

    fn post(&mut self, request: &Request, bytes: &[u8]) -> Result<(), PostError> {
        match self.ask(request, bytes).0 {
            Reply::Posted(posted) => posted.map_err(Into::into),
            other => panic!("{other:?} of {request:?}"),
        }
    }

    /// Does to memory here what was done to that of the process; leases go before they are told of.
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
                let region = &self.exposed[&(id(endpoint), key)];
                let mut memory = region.write(0..region.len()).expect("the test does not look now");
                memory.copy_from_slice(take(bytes));
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

    /// Whether the process has ended within [`PATIENCE`], and well.
    fn has_ended_well(&mut self) -> bool {
        let _ = self.stream.shutdown(Shutdown::Both);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status.success();
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let is_well = self.is_stopped || thread::panicking() || self.has_ended_well();
        // Does nothing to a process that has been waited for.
        let _ = self.child.kill().and_then(|()| self.child.wait());
        remove_shared_memory(self.child.id());
        assert!(is_well, "process {} did not end as it should", self.child.id());
    }
}

/// What libfabric's shm leaves behind of a process that was killed.
fn remove_shared_memory(process: u32) {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let of_it = format!("{process}:");
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&of_it)) {
        let _ = fs::remove_file(entry.path());
    }
}

impl Transport for Remote {
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

    fn can_write(&self) -> bool {
        self.can_write
    }

    fn expose(&mut self, endpoint: EndpointId, key: u32, memory: Region) -> Result<(), PostError> {
        let contents = memory.read(0..memory.len()).expect("nobody writes").to_vec();
        let is_writable = memory.is_writable();
        self.post(&Request::Expose { endpoint: endpoint.0, key, is_writable }, &contents)?;
        self.exposed.insert((endpoint, key), memory);
        Ok(())
    }

    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let (endpoint, called) = (endpoint.0, token.0);
        self.post(&Request::Write { endpoint, key, offset, immediate, token: called }, &from)?;
        self.sends.insert(token, from);
        Ok(())
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

    fn waker(&self) -> Waker {
        let outbox = Arc::clone(&self.outbox);
        Arc::new(move || {
            let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
            // The process may have ended.
            let _ = protocol::write(&mut *outbox, &Request::Wake, &[]);
        })
    }
}
