//! One TCP stream of a connection: its two halves, its readiness, and when it last moved bytes.

use std::time::Duration;

use rustix::io::Errno;
use transport::{Cause, Completion, EndpointId, Neighbour};

use crate::{
    byte_stream::{ByteStream, Readiness},
    counters::TcpCounters,
    incoming::Incoming,
    limit::{Direction, Limit},
    link::StreamKeys,
    outgoing::Outgoing,
    peer::{Peer, identify_to_peer},
    protected::{Bytes, CORRUPT, REFUSED},
};

/// The least that one system call costs against the budget of a round, so that a peer cannot cause
/// many of them with few bytes.
const CALL_BYTES: usize = 4 << 10;

/// Shared state for one round of service.
pub(crate) struct Round<'a> {
    pub(crate) now: Duration,
    pub(crate) completed: &'a mut Vec<Completion>,
    pub(crate) counters: &'a mut TcpCounters,
    pub(crate) sending: &'a mut Limit,
    pub(crate) receiving: &'a mut Limit,
    /// The direction in which it is the connection's turn, if it has waited for its limit.
    pub(crate) turn: Option<Direction>,
    /// How often commands were taken from the thread that posts; `None` if that is this one.
    pub(crate) commands_taken: Option<u64>,
}

impl Round<'_> {
    /// Returns how many bytes the limit lets pass now in this direction; 0 if the connection has to
    /// wait for its turn.
    fn room(&self, direction: Direction) -> usize {
        let limit = match direction {
            Direction::Send => &self.sending,
            Direction::Receive => &self.receiving,
        };
        limit.room(self.now, self.turn == Some(direction))
    }
}

/// A stream of a new connection.
#[derive(Debug)]
pub struct NewStream<S> {
    /// The bytes of it.
    pub bytes: S,
    /// Its keys; `None` if it is not protected.
    pub keys: Option<StreamKeys>,
    /// Blocks may be copied out of the memory of the process at the other end, if it is one of this machine.
    pub copies_directly: bool,
}

pub(crate) struct Stream<S> {
    pub(crate) bytes: Bytes<S>,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// Readiness as far as is known: set by events, cleared when a call moves fewer bytes than
    /// requested. Events are edge-triggered, so it is cleared only once the socket is empty (or
    /// full).
    readable: bool,
    writable: bool,
    /// The event queue has reported that the peer closed its direction; no further edge will
    /// follow.
    read_closed: bool,
    /// Why writing failed. Reported only once everything was read: what the peer has sent before
    /// is a better cause than a broken pipe.
    write_failed: Option<String>,
    /// Blocks wait for the limit of the transport before they are sent.
    pub(crate) send_held: bool,
    /// Bytes may wait for the limit of the transport before they are read.
    pub(crate) receive_held: bool,
    /// Something was read when commands had been taken this often, and is parsed after they have been taken again: the peer may
    /// have sent it since this end posted, by another thread, what it is for.
    unparsed_since: Option<u64>,
    /// Blocks may be copied out of the memory of the process at the other end, if it is one of this machine.
    pub(crate) copies_directly: bool,
    /// The process at the other end, as far as that matters for direct copies.
    peer: Peer,
    /// That process was notified that this one has this end.
    is_identified: bool,
    pub(crate) last_received: Duration,
    pub(crate) last_written: Duration,
}

impl<S: ByteStream> Stream<S> {
    pub(crate) fn new(
        new: NewStream<S>,
        segment_bytes: usize,
        endpoint: EndpointId,
        is_shared: bool,
        now: Duration,
    ) -> Self {
        let NewStream { bytes, keys, copies_directly } = new;
        let bytes = match keys.map(StreamKeys::into_records) {
            Some((opener, sealer)) => Bytes::protected(bytes, opener, sealer),
            None => Bytes::Plain(bytes),
        };
        Self {
            bytes,
            incoming: Incoming::new(endpoint, is_shared),
            outgoing: Outgoing::new(segment_bytes, endpoint),
            // Before the first event: nothing was received, and the send buffer is empty.
            readable: false,
            writable: true,
            read_closed: false,
            write_failed: None,
            send_held: false,
            receive_held: false,
            unparsed_since: None,
            copies_directly,
            peer: Peer::default(),
            is_identified: false,
            last_received: now,
            last_written: now,
        }
    }

    /// Adds a channel of a shared connection.
    pub(crate) fn add(&mut self, number: u32, endpoint: EndpointId) {
        self.incoming.channels.add(number, endpoint);
        self.outgoing.add(number, endpoint);
    }

    /// Offers this end's memory to the peer of a channel, and reads the peer's if that does the same, where both are processes of
    /// one machine; before anything else is sent.
    pub(crate) fn introduce(&mut self, number: u32) {
        if self.copies_directly
            && let Some(channel) = self.outgoing.channel(number)
        {
            let pid = channel.offered.introduce();
            self.outgoing.push_introduction(number, pid);
        }
    }

    pub(crate) fn on_ready(&mut self, readiness: Readiness) {
        self.read_closed |= readiness.is_read_closed;
        self.readable |= readiness.can_read;
        self.writable |= readiness.can_write;
    }

    /// Returns whether there are bytes to read, or to parse, as far as is known.
    pub(crate) fn can_read(&self) -> bool {
        self.unparsed_since.is_some() || self.readable && !self.incoming.received_bye()
    }

    /// Returns whether there are bytes to write that do not wait for the limit and the socket accepts
    /// some, as far as is known.
    fn can_write(&self) -> bool {
        let has_bytes = if self.send_held { self.is_urgent() } else { self.is_pending() };
        self.writable && self.write_failed.is_none() && has_bytes
    }

    /// Returns whether there is anything to write.
    fn is_pending(&self) -> bool {
        self.bytes.has_unwritten() || self.outgoing.is_pending()
    }

    /// Returns whether there is anything to write besides new segments.
    pub(crate) fn is_urgent(&self) -> bool {
        self.bytes.has_unwritten() || self.outgoing.is_urgent()
    }

    /// Returns whether a round of service would move bytes, as far as is known.
    pub(crate) fn is_ready(&self) -> bool {
        self.can_write()
            || (self.can_read() && !self.receive_held)
            || !self.incoming.channels.news.copying.is_empty()
    }

    /// Marks the stream as ready again if it seems blocked. If a call moved only a part of the
    /// requested bytes although the socket was neither filled nor emptied, memory has failed, and
    /// no edge follows.
    pub(crate) fn retry(&mut self) {
        self.writable = true;
        self.readable = true;
    }

    /// Returns whether bytes to read are told of by events alone.
    pub(crate) fn needs_events(&self) -> bool {
        !self.bytes.is_watched()
    }

    /// Marks the stream as readable, so that the next round tries.
    pub(crate) fn retry_read(&mut self) {
        self.readable = true;
    }

    /// Returns whether no bytes are accepted, as far as is known.
    pub(crate) fn is_full(&self) -> bool {
        !self.writable
    }

    /// Returns whether there are bytes to write that the socket did not accept.
    pub(crate) fn waits_to_write(&self) -> bool {
        !self.writable && self.is_pending()
    }

    /// Writes, reads and copies, about `budget_bytes` each.
    pub(crate) fn serve(
        &mut self,
        round: &mut Round<'_>,
        budget_bytes: usize,
    ) -> Result<(), Cause> {
        self.write(round, budget_bytes)?;
        self.read(round, budget_bytes)?;
        if self.copy(round, budget_bytes) {
            self.write(round, budget_bytes)?;
        }
        Ok(())
    }

    /// Writes until nothing is pending, the socket is full, the budget is used up, or the limit of
    /// the transport holds back the rest.
    pub(crate) fn write(
        &mut self,
        round: &mut Round<'_>,
        budget_bytes: usize,
    ) -> Result<(), Cause> {
        let mut left = budget_bytes;
        while left > 0 && self.can_write() {
            let room = if self.send_held { 0 } else { round.room(Direction::Send) };
            if room == 0 && !self.is_urgent() {
                self.send_held = true;
                break;
            }
            round.counters.write_calls += 1;
            let budget = left.min(room);
            match self.outgoing.write(&mut self.bytes, budget, round.completed) {
                Ok(moved) => {
                    let bytes = self.bytes.take_written_bytes(moved.bytes);
                    round.sending.take(round.now, bytes);
                    self.last_written = round.now;
                    self.writable = moved.bytes == moved.wanted;
                    round.counters.bytes_out += bytes as u64;
                    left = left.saturating_sub(bytes.max(CALL_BYTES));
                }
                Err(Errno::INTR) => {}
                // `ENOBUFS` is temporary: retried at the next event or tick.
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    self.writable = false;
                    round.counters.fruitless_calls += 1;
                }
                Err(error @ Errno::FAULT) => return Err(memory("read", error)),
                Err(error) => {
                    self.write_failed = Some(words(error));
                    // What the peer has sent is now read to its end, without waiting for an event.
                    self.readable = true;
                    self.read_closed = true;
                }
            }
        }
        Ok(())
    }

    /// Reads until the socket is empty, a bye was received, the budget is used up, or the limit of
    /// the transport holds back the rest.
    pub(crate) fn read(&mut self, round: &mut Round<'_>, budget_bytes: usize) -> Result<(), Cause> {
        if self.unparsed_since.is_some() && self.unparsed_since == round.commands_taken {
            return Ok(());
        }
        if self.unparsed_since.take().is_some() {
            round.counters.late_parses += 1;
            self.parse(round)?;
        }
        let mut left = budget_bytes;
        while left > 0 && self.can_read() && !self.receive_held {
            let room = round.room(Direction::Receive);
            if room == 0 {
                self.receive_held = true;
                break;
            }
            round.counters.read_calls += 1;
            let read = self.incoming.read(&mut self.bytes, left.min(room));
            if self.bytes.take_progress() {
                self.last_received = round.now;
            }
            match read {
                Ok(moved) if moved.bytes == 0 => {
                    let words = self.write_failed.take();
                    return Err(Cause::Lost(
                        words.unwrap_or_else(|| "connection closed before its bye frame".into()),
                    ));
                }
                Ok(moved) => {
                    let bytes = self.bytes.take_read_bytes(moved.bytes);
                    round.receiving.take(round.now, bytes);
                    self.last_received = round.now;
                    let is_full = moved.bytes == moved.wanted;
                    self.readable = is_full || self.read_closed || self.bytes.has_more();
                    round.counters.bytes_in += bytes as u64;
                    left = left.saturating_sub(bytes.max(CALL_BYTES));
                    if round.commands_taken.is_some() {
                        self.unparsed_since = round.commands_taken;
                        return Ok(());
                    }
                    self.parse(round)?;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    round.counters.fruitless_calls += 1;
                    self.readable = false;
                    if let Some(words) = self.write_failed.take() {
                        return Err(Cause::Lost(words));
                    }
                }
                Err(error @ Errno::FAULT) => return Err(memory("written", error)),
                Err(CORRUPT) => return Err(Cause::Corrupt("a record failed its check".into())),
                Err(REFUSED) => return Err(Cause::Corrupt("as the peer reports".into())),
                Err(error) => return Err(Cause::Lost(words(error))),
            }
        }
        Ok(())
    }

    /// Parses what was read.
    fn parse(&mut self, round: &mut Round<'_>) -> Result<(), Cause> {
        self.incoming.parse(round.completed)?;
        self.hear(round);
        Ok(())
    }

    /// Takes what the peers of channels have said of their memory and of this end's.
    fn hear(&mut self, round: &mut Round<'_>) {
        for number in std::mem::take(&mut self.incoming.channels.news.of_memory) {
            if let Err(why) = self.hear_of(number, round) {
                self.incoming.refuse(number, Cause::Protocol(why), round.completed);
            }
        }
    }

    fn hear_of(&mut self, number: u32, round: &mut Round<'_>) -> Result<(), String> {
        self.hear_of_peers_memory(number, round);
        let Some(inbound) = self.incoming.channels.get(number) else { return Ok(()) };
        let references = &mut inbound.references;
        let (challenge, is_readable) = (references.take_challenge(), references.take_readable());
        let copied = references.take_acknowledged();
        // A channel that has ended here has no blocks left to be copied.
        let Some(outbound) = self.outgoing.channel(number).filter(|channel| !channel.cut) else {
            return Ok(());
        };
        if is_readable {
            outbound.offered.set_readable()?;
            round.counters.direct_streams_out += 1;
        }
        copied.into_iter().try_for_each(|block| outbound.complete(block, round.completed))?;
        let Some(proof) = challenge else { return Ok(()) };
        let address = outbound.offered.place(proof)?;
        let socket = self.bytes.socket().filter(|_| !self.is_identified);
        match socket.map_or(Ok(()), identify_to_peer) {
            Ok(()) => {
                self.is_identified = true;
                self.outgoing.push_proof(number, address);
            }
            Err(error) => {
                round.counters.refused_introductions += 1;
                tracing::debug!(endpoint = outbound.endpoint.0, %error, "cannot be read directly");
            }
        }
        Ok(())
    }

    /// Finds out whether the memory of the peer of a channel can be read, as far as it has said something of that.
    fn hear_of_peers_memory(&mut self, number: u32, round: &mut Round<'_>) {
        let Some(inbound) = self.incoming.channels.get(number) else { return };
        let (endpoint, references) = (inbound.endpoint.0, &mut inbound.references);
        let outcome = if let Some(pid) = references.take_introduction()
            && self.copies_directly
            && let Some(socket) = self.bytes.socket()
        {
            self.peer.challenge(pid, socket).map(|proof| {
                references.want(proof);
                self.outgoing.push_challenge(number, proof);
            })
        } else if let Some((address, proof)) = references.take_placed()
            && let Some(socket) = self.bytes.socket()
        {
            let process = self.peer.identify(socket);
            let neighbour = process.and_then(|process| Neighbour::new(process, address, proof));
            neighbour.map(|neighbour| {
                tracing::debug!(endpoint, ?neighbour, "copies directly");
                round.counters.direct_streams_in += 1;
                references.trust(neighbour);
                self.outgoing.push_readable(number);
            })
        } else {
            return;
        };
        if let Err(why) = outcome {
            round.counters.refused_introductions += 1;
            tracing::debug!(endpoint, why, "cannot copy directly");
        }
    }

    /// Copies blocks to which peers have referred, until the budget is used up. Returns whether some peer
    /// has to be notified of some.
    pub(crate) fn copy(&mut self, round: &mut Round<'_>, budget_bytes: usize) -> bool {
        let (mut left, mut any) = (budget_bytes, false);
        while left > 0
            && let Some(&number) = self.incoming.channels.news.copying.first()
        {
            let copied = self.copy_once(number, left, round);
            let bytes = copied.unwrap_or_else(|cause| {
                self.incoming.refuse(number, cause, round.completed);
                0
            });
            left = left.saturating_sub(bytes.max(CALL_BYTES));
            self.incoming.channels.news.copying.remove(0);
            let Some(inbound) = self.incoming.channels.get(number) else { continue };
            let copied = inbound.references.take_copied();
            if inbound.references.can_copy() {
                // Behind the others.
                self.incoming.channels.news.copying.push(number);
            }
            any |= !copied.is_empty();
            copied.iter().for_each(|&block| self.outgoing.push_copied(number, block));
        }
        any
    }

    /// Copies up to `budget_bytes` bytes of a channel's first block, and returns their number.
    fn copy_once(
        &mut self,
        number: u32,
        budget_bytes: usize,
        round: &mut Round<'_>,
    ) -> Result<usize, Cause> {
        let channel = self.incoming.channels.get(number);
        let Some(inbound) = channel.filter(|channel| channel.references.can_copy()) else {
            return Ok(0);
        };
        let endpoint = inbound.endpoint;
        let bytes = inbound.references.copy(budget_bytes, endpoint, round.completed)?;
        round.counters.copies += 1;
        round.counters.bytes_copied += bytes as u64;
        if bytes == 0 {
            // The end of the stream is there or will come.
            self.readable = true;
        }
        Ok(bytes)
    }

    /// Returns whether the bye of a channel was passed to the kernel, with all before it, or nothing more can be.
    pub(crate) fn has_written_bye(&mut self, number: u32) -> bool {
        let end = self.outgoing.bye_end(number, self.bytes.accepted_bytes());
        self.write_failed.is_some() || end.is_some_and(|end| end <= self.bytes.written_bytes())
    }
}

fn memory(access: &'static str, error: Errno) -> Cause {
    Cause::Memory { access, error: words(error) }
}

fn words(error: Errno) -> String {
    std::io::Error::from(error).to_string()
}
