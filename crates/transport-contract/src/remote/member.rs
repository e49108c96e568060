//! A member's process: a transport that carries out requests of a test.

use std::{
    collections::HashMap,
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
};

use rustix::process::{Signal, set_parent_process_death_signal};
use transport::{
    Completion, EndpointId, OneSidedWrites, PeerMemory, Region, Token, Transport, Waker,
};

use super::{
    protocol::{self, Event, Reply, Request},
    remote_member::RemoteMember,
};

/// Bytes around the memory of a receive that must not be written, and the value that they and the
/// memory are filled with.
const MARGIN_BYTES: usize = 64;
const FILL: u8 = 0;

/// Carries out the requests of the test at the other end of standard input, and ends with it.
pub fn run<M: RemoteMember>() {
    // This also covers a test that ends while this process is stopped or blocked.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux can");
    M::clean_up(std::process::id());
    let stdin = io::stdin().as_fd().try_clone_to_owned().expect("descriptors are left");
    let mut stream = UnixStream::from(stdin);
    let (sender, requests) = mpsc::channel();
    let waker = Arc::new(Mutex::new(None));
    thread::spawn({
        let (stream, waker) = (stream.try_clone().expect("descriptors are left"), waker.clone());
        move || listen(stream, &sender, &waker)
    });
    let mut member = None;
    for (request, bytes) in requests {
        let (reply, bytes) = match (request, &mut member) {
            (Request::Start, None) => {
                let member = member.insert(Member::new(M::start(&bytes)));
                *lock(&waker) = Some(member.end.transport().waker());
                (member.started(), Vec::new())
            }
            (Request::End, Some(_)) => {
                member = None;
                (Reply::Ended, Vec::new())
            }
            (request, Some(member)) => {
                (member.answer(request, bytes), std::mem::take(&mut member.payload))
            }
            (request, None) => panic!("{request:?} before a transport is there"),
        };
        if protocol::write(&mut stream, &reply, &bytes).is_err() {
            return;
        }
    }
}

/// Reads requests as they arrive, so that a wake request reaches a poll that waits.
fn listen(
    mut stream: UnixStream,
    requests: &Sender<(Request, Vec<u8>)>,
    waker: &Mutex<Option<Waker>>,
) {
    while let Ok((request, bytes)) = protocol::read(&mut stream) {
        match (request, lock(waker).as_ref()) {
            (Request::Wake, Some(waker)) => waker(),
            // Fails only if the receiver has ended with the test.
            (request, _) => drop(requests.send((request, bytes))),
        }
    }
}

fn lock(waker: &Mutex<Option<Waker>>) -> MutexGuard<'_, Option<Waker>> {
    waker.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Member<M> {
    end: M,
    /// Memory of posts, until they complete.
    posts: HashMap<Token, Region>,
    exposed: HashMap<EndpointId, Vec<(u32, PeerMemory)>>,
    /// Bytes that are sent with the answer.
    payload: Vec<u8>,
}

impl<M: RemoteMember> Member<M> {
    fn new(end: M) -> Self {
        Self { end, posts: HashMap::new(), exposed: HashMap::new(), payload: Vec::new() }
    }

    fn started(&mut self) -> Reply {
        Reply::Started {
            block_bytes_max: self.end.transport().block_bytes_max(),
            can_write: self.end.transport().one_sided().is_some(),
        }
    }

    fn answer(&mut self, request: Request, bytes: Vec<u8>) -> Reply {
        let (id, name) = (EndpointId, Token);
        match request {
            Request::Start | Request::End | Request::Wake => {
                panic!("{request:?} comes elsewhere")
            }
            Request::Listen => {
                self.payload = self.end.listen();
                Reply::Listening
            }
            Request::Dial => {
                let (endpoint, answer) = self.end.dial(&bytes);
                self.payload = answer;
                Reply::Opened { endpoint: endpoint.0 }
            }
            Request::Accept => Reply::Opened { endpoint: self.end.accept(&bytes).0 },
            Request::Receive { endpoint, bytes, token } => {
                let region = Region::zeroed(bytes as usize + 2 * MARGIN_BYTES);
                let middle = MARGIN_BYTES..MARGIN_BYTES + bytes as usize;
                let into = region.write(middle).expect("it is new");
                let posted = self.end.transport().post_receive(id(endpoint), into, name(token));
                self.posted(posted, token, region)
            }
            Request::Send { endpoint, bytes: length, immediate, token } => {
                let is_here = bytes.len() as u64 == length;
                let region =
                    if is_here { Region::from_vec(bytes) } else { Region::zeroed(length as usize) };
                let from = region.read(0..region.len()).expect("it is new");
                let posted =
                    self.end.transport().post_send(id(endpoint), from, immediate, name(token));
                self.posted(posted, token, region)
            }
            Request::Write { endpoint, key, offset, immediate, token } => {
                let region = Region::from_vec(bytes);
                let from = region.read(0..region.len()).expect("it is new");
                let (to, called) = (id(endpoint), name(token));
                let posted = self.writes().post_write(to, from, key, offset, immediate, called);
                self.posted(posted, token, region)
            }
            Request::Expose { endpoint, key } => {
                let memory = PeerMemory::zeroed(bytes.len());
                memory.copy_in(0, &bytes).expect("it is all of it");
                let exposed = self.writes().expose(id(endpoint), key, memory.clone());
                if exposed.is_ok() {
                    self.exposed.entry(id(endpoint)).or_default().push((key, memory));
                }
                Reply::Posted(exposed.map_err(Into::into))
            }
            Request::Word { endpoint } => {
                let written = self.end.transport().write_control(id(endpoint), &bytes);
                Reply::Posted(written.map_err(Into::into))
            }
            Request::Close { endpoint } => {
                self.end.transport().close(id(endpoint));
                Reply::Closed
            }
            Request::Flush => {
                self.end.transport().flush();
                Reply::Posted(Ok(()))
            }
            Request::Poll { wait } => {
                let mut completions = Vec::new();
                self.end.transport().poll(&mut completions, wait);
                Reply::Polled(self.events(completions))
            }
        }
    }

    fn writes(&mut self) -> &mut dyn OneSidedWrites {
        self.end.transport().one_sided().expect("it was said to have them")
    }

    fn posted(
        &mut self,
        posted: Result<(), transport::PostError>,
        token: u64,
        region: Region,
    ) -> Reply {
        match posted {
            Ok(()) => drop(self.posts.insert(Token(token), region)),
            Err(_) => free(&region),
        }
        Reply::Posted(posted.map_err(Into::into))
    }

    /// Checks the memory of a completed post, and reports its contents.
    fn events(&mut self, completions: Vec<Completion>) -> Vec<Event> {
        let mut events = self.written_memory(&completions);
        for completion in completions {
            match &completion {
                Completion::Sent { token, .. } | Completion::Cancelled { token, .. } => {
                    free(&self.posts.remove(token).expect("it was posted, and is done once"));
                }
                Completion::Received { token, bytes, .. } => {
                    let region = self.posts.remove(token).expect("it was posted, and is done once");
                    self.payload.extend(received(region, *bytes as usize));
                }
                Completion::Broken { endpoint, .. } | Completion::Closed { endpoint } => {
                    for (key, memory) in self.exposed.remove(endpoint).unwrap_or_default() {
                        let alone = memory.try_into_vec().is_ok();
                        assert!(alone, "{completion:?}, but memory {key} was not handed back");
                    }
                }
                _ => {}
            }
            events.push(completion.into());
        }
        events
    }

    fn written_memory(&mut self, completions: &[Completion]) -> Vec<Event> {
        let mut events = Vec::new();
        for (&endpoint, memory) in &self.exposed {
            let here = |completion: &Completion| matches!(completion, Completion::Written { endpoint: at, .. } if *at == endpoint);
            if !completions.iter().any(here) {
                continue;
            }
            for (key, memory) in memory {
                let mut contents = vec![0; memory.len()];
                memory.copy_out(0, &mut contents).expect("it is all of it");
                self.payload.extend_from_slice(&contents);
                let bytes = contents.len() as u64;
                events.push(Event::Memory { endpoint: endpoint.0, key: *key, bytes });
            }
        }
        events
    }
}

/// Checks that the transport has handed memory back.
fn free(region: &Region) {
    assert!(region.is_empty() || region.write(0..region.len()).is_ok(), "a lease is out");
}

/// Returns the block in the memory of a receive, after checking that nothing else was written.
fn received(region: Region, bytes: usize) -> Vec<u8> {
    let mut memory = region.try_into_vec().expect("the transport has given it back");
    let (before, rest) = memory.split_at(MARGIN_BYTES);
    let around = before.iter().chain(&rest[bytes..]);
    assert!(around.copied().all(|byte| byte == FILL), "bytes around the block were written");
    memory.drain(..MARGIN_BYTES);
    memory.truncate(bytes);
    memory
}
