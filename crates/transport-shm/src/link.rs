//! One end of a link.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;
use transport::{
    Cause, Completion, EndpointId, FileAccess, PeerMemory, PostError, ReadLease, Token, WriteLease,
};

use crate::{
    direct::Heard,
    incoming::{Exposed, Incoming, outside},
    offer::ShmLink,
    outgoing::Outgoing,
    record::Record,
    ring::{BEAT_AT, RingReader, RingWriter, Shared, check_ring, segment_bytes},
    settings::ShmSettings,
    sleep::Sleep,
    socket::{self, Message, Missing, Received},
};

/// The most messages that are read from a socket in one pass.
const MESSAGES_MAX: usize = 64;
/// The most memory of a peer that is mapped: pieces, and bytes, of which a hostile peer's need not exist. Writes to others
/// pass through the ring.
const MAPPED_MAX: usize = 1024;
const MAPPED_BYTES_MAX: u64 = 1 << 40;
/// What this process lacks when the system drops a file that a peer has passed, and the remedy.
const NO_DESCRIPTORS: &str =
    "this process has no file descriptors left; raise its limit, `ulimit -n`";

/// One end of a link. Its methods append what has completed.
pub(crate) struct Link {
    id: EndpointId,
    socket: OwnedFd,
    own: PeerMemory,
    /// The peer's segment, once it was received.
    peer: Option<RingReader<PeerMemory>>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// This end's memory, which the peer may write.
    exposed: Exposed,
    /// The peer's memory, as far as it is mapped here.
    targets: FxHashMap<u32, PeerMemory>,
    mapped_bytes: u64,
    direct_writes: bool,
    direct_copies: bool,
    /// Until when a close waits for space.
    closing: Option<Instant>,
    /// The socket's other end is closed.
    has_hung_up: bool,
    end: Option<End>,
    sleep: Sleep,
    /// The peer's last heartbeat, and when it was seen.
    beat: u64,
    heard: Instant,
}

/// How a link has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Closed,
    Broken(Cause),
}

impl Link {
    /// Passes this end's segment to the peer. Errors: the system's.
    pub(crate) fn open(
        id: EndpointId,
        link: ShmLink,
        settings: &ShmSettings,
        now: Instant,
    ) -> Result<Self, PostError> {
        let ring_bytes = settings.ring_bytes;
        let (socket, segment) = link.into_parts();
        let own = segment
            .pass(&socket, ring_bytes)
            .map_err(|error| PostError::System(error.to_string()))?;
        Ok(Self {
            id,
            socket,
            outgoing: Outgoing::new(id, RingWriter::new(own.clone(), ring_bytes)),
            own,
            peer: None,
            incoming: Incoming::new(id),
            exposed: Exposed::default(),
            targets: FxHashMap::default(),
            mapped_bytes: 0,
            direct_writes: settings.direct_writes,
            direct_copies: settings.direct_copies,
            closing: None,
            has_hung_up: false,
            end: None,
            sleep: Sleep::default(),
            beat: 0,
            heard: now,
        })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether posts are accepted.
    pub(crate) fn is_open(&self) -> bool {
        self.closing.is_none() && self.end.is_none()
    }

    pub(crate) fn post_receive(&mut self, into: WriteLease, token: Token) {
        self.incoming.push_receive(into, token);
    }

    pub(crate) fn post_send(&mut self, from: ReadLease, immediate: u32, token: Token) {
        self.outgoing.push_block(from, immediate, token);
    }

    /// Returns false if megabytes of words wait.
    pub(crate) fn write_word(&mut self, word: &[u8]) -> bool {
        self.outgoing.push_word(word)
    }

    /// Lets the peer write into memory. Errors: the key is in use.
    pub(crate) fn expose(&mut self, key: u32, memory: PeerMemory) -> Result<(), PostError> {
        if self.exposed.contains_key(&key) {
            return Err(PostError::System(format!("memory is exposed as {key} already")));
        }
        if self.direct_writes
            && let Ok(file) = memory.share(FileAccess::Write)
        {
            let message = Message::Exposed { key, bytes: memory.len() as u64 };
            if let Err(error) = socket::send(&self.socket, message, Some(file.as_fd())) {
                tracing::debug!(endpoint = self.id.0, %error, "memory is not passed to the peer");
                unshare(&memory);
            }
        }
        self.exposed.insert(key, memory);
        Ok(())
    }

    /// Places a write into the peer's memory, if that is mapped. Returns whether it fits.
    #[inline]
    pub(crate) fn place(&self, key: u32, offset: u64, bytes: &[u8]) -> Option<bool> {
        let memory = self.targets.get(&key)?;
        Some(usize::try_from(offset).is_ok_and(|at| memory.publish(at, bytes).is_ok()))
    }

    /// Completes a write that was placed, or queues it if the peer has to copy it.
    pub(crate) fn post_write(
        &mut self,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
        mut placed: Option<bool>,
        completed: &mut Vec<Completion>,
    ) {
        if placed.is_none() {
            // The memory may have been exposed meanwhile.
            self.read_messages();
            placed = self.place(key, offset, &from);
        }
        match placed {
            Some(true) => {
                self.outgoing.push_placed(from, immediate, token);
                if immediate.is_none() {
                    self.wake_peer(true);
                    return;
                }
            }
            Some(false) => {
                let exposed = self.targets.get(&key).map_or(0, PeerMemory::len);
                let why = outside(key, offset, from.bytes() as u64, exposed);
                self.outgoing.push_refused(token);
                self.break_by(Cause::Protocol(why));
                return;
            }
            None => self.outgoing.push_write(from, key, offset, immediate, token),
        }
        self.write(false, completed);
    }

    /// Returns whether the peer may write memory of this end.
    pub(crate) fn exposes(&self) -> bool {
        !self.exposed.is_empty()
    }

    pub(crate) fn close(&mut self, until: Instant) {
        self.closing = Some(until);
    }

    pub(crate) fn break_by(&mut self, cause: Cause) {
        self.end.get_or_insert(End::Broken(cause));
    }

    /// Reads and writes what can be without waiting. Returns whether that was anything.
    pub(crate) fn advance(&mut self, completed: &mut Vec<Completion>) -> bool {
        if self.end.is_some() {
            return true;
        }
        // What a peer that closes now has written is in its ring by now.
        let has_hung_up = self.has_hung_up;
        if self.closing.is_some() {
            self.advance_close(has_hung_up);
            return self.has_ended();
        }
        let has_read = match self.read(completed) {
            Ok(has_read) => has_read,
            Err(end) => {
                self.end = Some(end);
                return true;
            }
        };
        let has_copied = self.copy(completed);
        if has_hung_up {
            let why = "its process has ended, or has released the link".into();
            self.end = Some(End::Broken(Cause::Lost(why)));
            return true;
        }
        self.write(has_read, completed) || has_copied
    }

    /// Reads what the peer has written. Returns whether that was anything. Errors: how the link ends.
    fn read(&mut self, completed: &mut Vec<Completion>) -> Result<bool, End> {
        let protocol = |why| End::Broken(Cause::Protocol(why));
        let Some(ring) = &mut self.peer else { return Ok(false) };
        let pass = self.incoming.read(ring, &self.own, &self.exposed, completed);
        let pass = pass.map_err(protocol)?;
        if pass.has_ended {
            return Err(End::Broken(Cause::ClosedByPeer));
        }
        for heard in std::mem::take(&mut self.incoming.heard) {
            self.hear(heard, completed).map_err(protocol)?;
        }
        Ok(pass.has_read)
    }

    /// Takes what the peer has said of blocks that are copied. Errors: how it broke the protocol.
    fn hear(&mut self, heard: Heard, completed: &mut Vec<Completion>) -> Result<(), String> {
        match heard {
            Heard::Challenge(_) if !self.direct_copies => {}
            Heard::Challenge(proof) => {
                let address = self.outgoing.source.place(proof)?;
                self.outgoing.push_answer(Record::Proof { address });
            }
            Heard::Proof(address) => match self.incoming.copies.trust(address)? {
                Ok(()) => self.outgoing.push_answer(Record::Readable),
                Err(why) => tracing::debug!(endpoint = self.id.0, why, "cannot copy directly"),
            },
            Heard::Readable => self.outgoing.source.set_readable()?,
            Heard::Copied => {
                let token = self.outgoing.source.complete()?;
                completed.push(Completion::Sent { endpoint: self.id, token });
            }
        }
        Ok(())
    }

    /// Copies a piece of a block out of the peer's memory, if it refers to one. Returns whether it did.
    fn copy(&mut self, completed: &mut Vec<Completion>) -> bool {
        if !self.incoming.copies.are_due() {
            return false;
        }
        match self.incoming.copies.step(self.id, completed) {
            Ok(true) => self.outgoing.push_answer(Record::Copied),
            Ok(false) => {}
            Err(cause) => self.break_by(cause),
        }
        true
    }

    /// Writes what was posted. `has_read`: the peer may write again what this end has read. Returns whether anything was
    /// read or written.
    pub(crate) fn write(&mut self, has_read: bool, completed: &mut Vec<Completion>) -> bool {
        let Some(ring) = &self.peer else { return self.outgoing.advance(completed) };
        if self.outgoing.is_waiting()
            && let Err(why) = self.outgoing.look(ring.segment())
        {
            self.break_by(Cause::Protocol(why.into()));
            return true;
        }
        let has_written = self.outgoing.advance(completed);
        if has_read || has_written {
            self.wake_peer(has_written);
        }
        has_read || has_written
    }

    fn advance_close(&mut self, has_hung_up: bool) {
        if let Some(ring) = &self.peer
            && let Err(why) = self.outgoing.look(ring.segment())
        {
            self.break_by(Cause::Protocol(why.into()));
            return;
        }
        if self.outgoing.advance_last() || has_hung_up {
            self.end = Some(End::Closed);
        }
        self.wake_peer(true);
    }

    /// Wakes the peer if it sleeps, and the news concerns it: records, or space that it needs.
    fn wake_peer(&mut self, are_records: bool) {
        let Some(ring) = &self.peer else { return };
        if self.sleep.has_to_wake(ring.segment(), are_records) {
            // If it has many unread messages, or has ended, it wakes anyway.
            let _ = socket::send(&self.socket, Message::Wake, None);
        }
    }

    /// Says that this end is about to sleep; [`Link::has_news`] follows.
    pub(crate) fn doze(&mut self) {
        let needs_space = self.outgoing.is_waiting() || self.closing.is_some();
        self.sleep.doze(&self.own, needs_space);
    }

    /// Says that this end is awake.
    pub(crate) fn wake(&mut self) {
        self.sleep.wake(&self.own);
    }

    /// Returns whether [`Link::advance`] would find anything.
    pub(crate) fn has_news(&self) -> bool {
        self.end.is_some()
            || self.incoming.copies.are_due()
            || self
                .peer
                .as_ref()
                .is_some_and(|ring| ring.has_news() || self.outgoing.has_news(ring.segment()))
    }

    /// Stores a heartbeat.
    pub(crate) fn store_beat(&mut self, beat: u64) {
        Shared::publish(&self.own, BEAT_AT, beat);
    }

    /// Looks at the peer's heartbeat, and at the deadline of a close.
    pub(crate) fn look(&mut self, now: Instant, silence_timeout: Duration) {
        if let Some(ring) = &self.peer {
            let beat = ring.segment().load(BEAT_AT);
            if beat != self.beat {
                (self.beat, self.heard) = (beat, now);
            }
        }
        if self.closing.is_some_and(|until| now >= until) {
            self.end.get_or_insert(End::Closed);
        } else if now.saturating_duration_since(self.heard) > silence_timeout {
            let silence_ms = u64::try_from(silence_timeout.as_millis()).unwrap_or(u64::MAX);
            self.break_by(Cause::Silent(silence_ms));
        }
    }

    /// Returns until when a close waits.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.closing
    }

    /// Takes what has come over the socket.
    pub(crate) fn read_messages(&mut self) {
        for _ in 0..MESSAGES_MAX {
            if self.has_hung_up || self.end.is_some() {
                return;
            }
            match socket::receive(&self.socket) {
                Received::Nothing => return,
                Received::Ended => self.has_hung_up = true,
                Received::Invalid => self.break_by(Cause::Protocol("an invalid message".into())),
                Received::Message(message, file) => {
                    if let Err(cause) = self.take_message(message, file) {
                        self.break_by(cause);
                    }
                }
            }
        }
    }

    /// Errors: how the peer broke the protocol; its segment cannot be mapped here.
    fn take_message(
        &mut self,
        message: Message,
        file: Result<OwnedFd, Missing>,
    ) -> Result<(), Cause> {
        match message {
            Message::Wake => Ok(()),
            Message::Hello { ring_bytes } => {
                let bytes = usize::try_from(ring_bytes).unwrap_or(usize::MAX);
                if self.peer.is_some() || check_ring(bytes).is_err() {
                    return Err(protocol("a second segment, or one of an impossible length"));
                }
                let file = file.map_err(|missing| match missing {
                    Missing::NotSent => protocol("no segment"),
                    Missing::NotTaken => not_mapped(&NO_DESCRIPTORS),
                })?;
                let segment = PeerMemory::of_peer(&file, segment_bytes(bytes), FileAccess::Read)
                    .map_err(|error| match error.kind() {
                        io::ErrorKind::OutOfMemory => not_mapped(&error),
                        _ => protocol(format!("a segment that cannot be used: {error}")),
                    })?;
                self.peer = Some(RingReader::new(segment, bytes));
                self.challenge();
                // It may sleep since before this end has written what is in the ring, and could not see that it does.
                self.wake_peer(true);
                Ok(())
            }
            Message::Exposed { key, bytes } => {
                let mapped_bytes = self.mapped_bytes.saturating_add(bytes);
                let is_much = self.targets.len() >= MAPPED_MAX || mapped_bytes > MAPPED_BYTES_MAX;
                // There is none if this process has no file descriptors left.
                let Some(file) = file.ok().filter(|_| !is_much) else { return Ok(()) };
                let length = usize::try_from(bytes).unwrap_or(usize::MAX);
                let memory = match PeerMemory::of_peer(&file, length, FileAccess::Write) {
                    Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return Ok(()),
                    mapped => mapped.map_err(|error| {
                        protocol(format!("exposed memory that cannot be used: {error}"))
                    })?,
                };
                self.mapped_bytes = mapped_bytes;
                if self.targets.insert(key, memory).is_some() {
                    return Err(protocol(format!("memory is exposed as {key} already")));
                }
                Ok(())
            }
        }
    }

    /// Asks the peer to show that its memory may be read.
    fn challenge(&mut self) {
        if !self.direct_copies {
            return;
        }
        match self.incoming.copies.challenge(self.socket.as_fd()) {
            Ok(proof) => self.outgoing.push_answer(Record::Challenge { proof }),
            Err(why) => tracing::debug!(endpoint = self.id.0, why, "cannot copy directly"),
        }
    }

    /// Returns whether the link has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Hands back all memory, completes all posts and reports the end.
    pub(crate) fn tear_down(mut self, completed: &mut Vec<Completion>) {
        let Some(end) = self.end.take() else { return };
        self.outgoing.cancel(completed);
        self.incoming.cancel(completed);
        let endpoint = self.id;
        // Before the end is reported.
        drop(self);
        completed.push(match end {
            End::Closed => {
                tracing::debug!(endpoint = endpoint.0, "closed");
                Completion::Closed { endpoint }
            }
            End::Broken(cause) => {
                tracing::debug!(endpoint = endpoint.0, %cause, "broken");
                Completion::Broken { endpoint, cause }
            }
        });
    }
}

impl Drop for Link {
    /// Takes the exposed memory from the peer.
    fn drop(&mut self) {
        self.exposed.values().for_each(unshare);
    }
}

fn protocol(why: impl Into<String>) -> Cause {
    Cause::Protocol(why.into())
}

/// The peer's segment cannot be mapped: this end lacks something.
fn not_mapped(error: &dyn fmt::Display) -> Cause {
    Cause::Memory { access: "mapped", error: error.to_string() }
}

fn unshare(memory: &PeerMemory) {
    if let Err(error) = memory.unshare() {
        tracing::warn!(%error, "memory stays writable for a peer whose link has ended");
    }
}
