//! The receiver's ends of links, in which it gets chunks of an object that it fetches and passes them on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::Read,
    ops::ControlFlow,
    sync::{Arc, mpsc::Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use rdmc::{Error, Failure, Group, LeaseError, Message};

use super::{
    error::ReceiveError,
    membership::{Copy, MemberEvent},
    reception::Reception,
    root_link::Event,
};
use crate::{
    link::{LinkSender, NUMBER_BYTES, WAIT},
    messages::ALTERED,
    ranges::Ranges,
    resume::{ChunkDigests, Chunking},
    sending::own_failure,
    watched::Watched,
};

/// What the root has said.
#[derive(Default)]
struct Said {
    /// Digests of chunks, by number.
    digests: BTreeMap<u32, [u8; 32]>,
    /// Groups of which nothing more is taken, also of what has arrived.
    left: BTreeSet<u64>,
}

/// What the threads of all links of a session share.
#[derive(Default)]
pub(super) struct Links {
    said: Arc<Watched<Said>>,
    /// Changes when a chunk was received.
    arrivals: Arc<Watched<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Links {
    /// Adds digests of an object with this division. Errors: it has no such chunks, or others were sent for them before.
    pub(super) fn add_digests(
        &self,
        chunking: Chunking,
        ChunkDigests(digests): ChunkDigests,
    ) -> Result<(), ReceiveError> {
        let add = |said: &mut Said| {
            let mut are_good = true;
            for (chunk, digest) in digests {
                let (start, end) = chunking.range(chunk);
                are_good &= start < end && *said.digests.entry(chunk).or_insert(digest) == digest;
            }
            are_good
        };
        let what =
            || ReceiveError::System("the root sent digests of parts that there are not".into());
        self.said.change(add).then_some(()).ok_or_else(what)
    }

    /// Sends what the other member lacks, on a thread that ends with the group.
    pub(super) fn send(
        &mut self,
        group: &Arc<Group>,
        copy: &Copy,
        missing: &Ranges,
        events: Sender<Event>,
    ) -> Result<(), Error> {
        let number = group.settings().number;
        let has = copy.clone();
        let sender = LinkSender {
            group: Arc::clone(group),
            region: copy.region.clone(),
            has: Box::new(move || has.has()),
            arrivals: Arc::clone(&self.arrivals),
            sent: Arc::default(),
        };
        // Fails only if the session has ended.
        let done = move |outcome| {
            let _ = events.send(Event::Group(MemberEvent::Ended(number, outcome)));
        };
        let thread = sender.start(missing, done)?;
        self.keep(thread);
        Ok(())
    }

    /// Takes what the other member sends, on a thread that ends with the group.
    pub(super) fn receive(
        &mut self,
        group: &Arc<Group>,
        copy: &Copy,
        events: Sender<Event>,
        reception: &Arc<Reception>,
    ) -> Result<(), Error> {
        // A group that has failed is noticed by the thread.
        let _ = group.start_close();
        let receiver = LinkReceiver {
            group: Arc::clone(group),
            copy: copy.clone(),
            chunking: Chunking::of_links(copy.region.len() as u64),
            said: Arc::clone(&self.said),
            arrivals: Arc::clone(&self.arrivals),
            events,
            reception: Arc::clone(reception),
        };
        let body = move || receiver.run();
        let thread = thread::Builder::new().name("rdmc-link-rx".into()).spawn(body);
        let thread = thread.map_err(|error| crate::system::system("starting a thread", error))?;
        self.keep(thread);
        Ok(())
    }

    /// Ends the receiving end of a link, also if its group has closed and chunks of it wait for their digests.
    pub(super) fn leave(&self, group: u64) {
        self.said.change(|said| said.left.insert(group));
    }

    /// Keeps a thread to be waited for. A host that shares may have any number of them one after another.
    fn keep(&mut self, thread: JoinHandle<()>) {
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.push(thread);
    }

    /// Waits for the threads, whose groups have ended.
    pub(super) fn join(&mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct LinkReceiver {
    group: Arc<Group>,
    copy: Copy,
    chunking: Chunking,
    said: Arc<Watched<Said>>,
    arrivals: Arc<Watched<()>>,
    events: Sender<Event>,
    reception: Arc<Reception>,
}

impl LinkReceiver {
    fn run(&self) {
        let outcome = loop {
            match self.take_chunk() {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        self.notify(MemberEvent::Ended(self.group.settings().number, outcome));
    }

    /// Fails only if the session has ended.
    fn notify(&self, event: MemberEvent) {
        let _ = self.events.send(Event::Group(event));
    }

    /// Takes the next chunk, if there is one.
    fn take_chunk(&self) -> Result<ControlFlow<()>, Failure> {
        let Some(number) = self.next()? else { return Ok(ControlFlow::Break(())) };
        let number = self.bytes(number, NUMBER_BYTES as u64)?;
        let number = <[u8; NUMBER_BYTES]>::try_from(number.as_slice()).map(u32::from_le_bytes);
        let number = number.map_err(|error| self.fail(&error))?;
        let range = self.chunking.range(number);
        let chunk = self.next()?.filter(|_| range.0 < range.1);
        let chunk = chunk.ok_or_else(|| self.fail(&format!("there is no chunk {number}")))?;
        let chunk = self.bytes(chunk, range.1 - range.0)?;
        let group = self.group.settings().number;
        let find = |said: &Said| match said.left.contains(&group) {
            true => Some(None),
            false => said.digests.get(&number).copied().map(Some),
        };
        let digest = self.said.wait(find, || self.group.failure().is_some()).flatten();
        let digest = digest.ok_or_else(|| self.failure(&"it has ended"))?;
        if blake3::hash(&chunk) != digest {
            tracing::warn!(at = range.0, "{ALTERED}");
            self.notify(MemberEvent::Altered(self.group.settings().number, range.0));
            return Err(self.failure(&ALTERED));
        }
        self.write(range.0 as usize, &chunk)?;
        self.reception.chunk_verified(range);
        if self.copy.add(range) {
            self.notify(MemberEvent::Complete);
        }
        self.arrivals.change(|()| ());
        Ok(ControlFlow::Continue(()))
    }

    /// The next message; none once the group has closed.
    fn next(&self) -> Result<Option<Message>, Failure> {
        loop {
            match self.group.receive(WAIT) {
                Err(Error::Timeout { .. }) => {}
                received => return received.map_err(|error| self.failure(&error)),
            }
        }
    }

    /// All bytes of a message, which has to have this length.
    fn bytes(&self, mut message: Message, bytes: u64) -> Result<Vec<u8>, Failure> {
        if message.len() != bytes {
            return Err(self.fail(&format!("a message of {} bytes, not {bytes}", message.len())));
        }
        let mut all = Vec::with_capacity(bytes as usize);
        message.read_to_end(&mut all).map_err(|error| self.failure(&error))?;
        Ok(all)
    }

    /// Writes a chunk. The session finds an error of storage itself, which ends it.
    fn write(&self, at: usize, chunk: &[u8]) -> Result<(), Failure> {
        loop {
            let written = match self.copy.region.write_stored(at..at + chunk.len()) {
                Ok(lease) => lease.copy_from(chunk).map_err(|error| error.to_string()),
                // Another link, which ends, writes the same; or it is sent on to one that lacks another part of it.
                Err(LeaseError::InUse { .. }) if self.group.failure().is_none() => {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(error) => Err(error.to_string()),
            };
            return written.map_err(|error| self.fail(&error));
        }
    }

    /// Ends the group, for this reason.
    fn fail(&self, reason: &dyn fmt::Display) -> Failure {
        self.group.abort(&reason.to_string());
        self.failure(reason)
    }

    /// The failure of the group, of which a call has failed.
    fn failure(&self, error: &dyn fmt::Display) -> Failure {
        self.group.failure().unwrap_or_else(|| own_failure(self.group.settings(), error))
    }
}
