//! One TCP stream of an endpoint: its two halves, its readiness, and when it last moved bytes.

use std::{net::Shutdown, time::Instant};

use mio::net::TcpStream;
use rustix::io::Errno;
use transport::{Cause, Completion, EndpointId};

use crate::{
    counters::TcpCounters,
    incoming::Incoming,
    limit::{Direction, Limit},
    link::StreamKeys,
    neighbour::Neighbour,
    outgoing::Outgoing,
};

/// The least that one system call costs against the budget of a round, so that a peer cannot cause
/// many of them with few bytes.
const CALL_BYTES: usize = 4 << 10;

/// Shared state for one round of service.
pub(crate) struct Round<'a> {
    pub(crate) endpoint: EndpointId,
    pub(crate) now: Instant,
    pub(crate) completed: &'a mut Vec<Completion>,
    pub(crate) counters: &'a mut TcpCounters,
    pub(crate) sending: &'a mut Limit,
    pub(crate) receiving: &'a mut Limit,
    /// The direction in which it is the endpoint's turn, if it has waited for its limit.
    pub(crate) turn: Option<Direction>,
}

impl Round<'_> {
    /// Returns how many bytes the limit lets pass now in this direction; 0 if the endpoint has to
    /// wait for its turn.
    fn room(&self, direction: Direction) -> usize {
        let limit = match direction {
            Direction::Send => &self.sending,
            Direction::Receive => &self.receiving,
        };
        limit.room(self.now, self.turn == Some(direction))
    }
}

pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
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
    write_shut: bool,
    /// Blocks wait for the limit of the transport before they are sent.
    pub(crate) send_held: bool,
    /// Bytes may wait for the limit of the transport before they are read.
    pub(crate) receive_held: bool,
    /// In a close only: this stream moves no more bytes.
    pub(crate) lost: bool,
    /// Blocks may be copied out of the memory of the process at the other end, if it is one of this machine.
    copies_directly: bool,
    pub(crate) last_received: Instant,
    pub(crate) last_written: Instant,
}

impl Stream {
    pub(crate) fn new(
        socket: TcpStream,
        segment_bytes: usize,
        keys: Option<StreamKeys>,
        now: Instant,
    ) -> Self {
        let (opener, sealer) = keys.map(StreamKeys::into_records).unzip();
        Self {
            socket,
            incoming: Incoming::new(opener),
            outgoing: Outgoing::new(segment_bytes, sealer),
            // Before the first event: nothing was received, and the send buffer is empty.
            readable: false,
            writable: true,
            read_closed: false,
            write_failed: None,
            write_shut: false,
            send_held: false,
            receive_held: false,
            lost: false,
            copies_directly: false,
            last_received: now,
            last_written: now,
        }
    }

    /// Offers this end's memory to the peer, and reads the peer's if that does the same; before anything
    /// else is sent.
    pub(crate) fn copy_directly(&mut self) {
        self.copies_directly = true;
        if let Some(introduction) = self.outgoing.offered.introduce(&self.socket) {
            self.outgoing.push_introduction(introduction);
        }
    }

    pub(crate) fn on_event(&mut self, event: &mio::event::Event) {
        let closed = event.is_read_closed() || event.is_error();
        self.read_closed |= closed;
        self.readable |= closed || event.is_readable();
        self.writable |= event.is_writable();
    }

    /// Returns whether there are bytes to read, as far as is known.
    pub(crate) fn can_read(&self) -> bool {
        self.readable && !self.incoming.received_bye() && !self.lost
    }

    /// Returns whether there are bytes to write that do not wait for the limit and the socket accepts
    /// some, as far as is known.
    fn can_write(&self) -> bool {
        let has_bytes =
            if self.send_held { self.outgoing.is_urgent() } else { self.outgoing.is_pending() };
        self.writable && self.write_failed.is_none() && !self.lost && has_bytes
    }

    /// Returns whether a round of service would move bytes, as far as is known.
    pub(crate) fn is_ready(&self) -> bool {
        self.can_write()
            || (self.can_read() && !self.receive_held)
            || self.incoming.references.can_copy()
    }

    /// Marks the stream as ready again if it seems blocked. If a call moved only a part of the
    /// requested bytes although the socket was neither filled nor emptied, memory has failed, and
    /// no edge follows.
    pub(crate) fn retry(&mut self) {
        self.writable = true;
        self.readable = true;
    }

    /// Marks the stream as readable, so that the next round tries.
    pub(crate) fn retry_read(&mut self) {
        self.readable = true;
    }

    /// Returns whether there are bytes to write that the socket did not accept.
    pub(crate) fn waits_to_write(&self) -> bool {
        !self.writable && self.outgoing.is_pending()
    }

    /// Writes, reads and copies, about `budget_bytes` each.
    pub(crate) fn serve(
        &mut self,
        round: &mut Round<'_>,
        budget_bytes: usize,
    ) -> Result<(), Cause> {
        self.write(round, budget_bytes)?;
        self.read(round, budget_bytes)?;
        if self.copy(round, budget_bytes)? {
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
            if room == 0 && !self.outgoing.is_urgent() {
                self.send_held = true;
                break;
            }
            round.counters.write_calls += 1;
            let budget = left.min(room);
            match self.outgoing.write(&self.socket, budget, round.endpoint, round.completed) {
                Ok(moved) => {
                    round.sending.take(round.now, moved.bytes);
                    self.last_written = round.now;
                    self.writable = moved.bytes == moved.wanted;
                    round.counters.bytes_out += moved.bytes as u64;
                    left = left.saturating_sub(moved.bytes.max(CALL_BYTES));
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
        let mut left = budget_bytes;
        while left > 0 && self.can_read() && !self.receive_held {
            let room = round.room(Direction::Receive);
            if room == 0 {
                self.receive_held = true;
                break;
            }
            round.counters.read_calls += 1;
            match self.incoming.read(&self.socket, left.min(room)) {
                Ok(moved) if moved.bytes == 0 => {
                    let words = self.write_failed.take();
                    return Err(Cause::Lost(
                        words.unwrap_or_else(|| "connection closed before its bye frame".into()),
                    ));
                }
                Ok(moved) => {
                    round.receiving.take(round.now, moved.bytes);
                    self.last_received = round.now;
                    self.readable = moved.bytes == moved.wanted || self.read_closed;
                    round.counters.bytes_in += moved.bytes as u64;
                    left = left.saturating_sub(moved.bytes.max(CALL_BYTES));
                    let parsed = self.incoming.parse(round.endpoint, round.completed);
                    if let Err(Cause::Corrupt(_)) = &parsed {
                        self.outgoing.send_corrupt(&self.socket);
                    }
                    parsed?;
                    self.hear(round)?;
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
                Err(error) => return Err(Cause::Lost(words(error))),
            }
        }
        Ok(())
    }

    /// Takes what the peer has said of its memory and of this end's.
    fn hear(&mut self, round: &mut Round<'_>) -> Result<(), Cause> {
        let references = &mut self.incoming.references;
        if let Some(introduction) = references.take_introduction()
            && self.copies_directly
        {
            match Neighbour::find(&self.socket, &introduction) {
                Ok(neighbour) => {
                    tracing::debug!(endpoint = round.endpoint.0, ?neighbour, "copies directly");
                    round.counters.direct_streams_in += 1;
                    references.trust(neighbour);
                    self.outgoing.push_readable();
                }
                Err(why) => {
                    round.counters.refused_introductions += 1;
                    tracing::debug!(endpoint = round.endpoint.0, why, "cannot copy directly");
                }
            }
        }
        if references.take_readable() {
            self.outgoing.offered.set_readable().map_err(Cause::Protocol)?;
            round.counters.direct_streams_out += 1;
        }
        for block in references.take_acknowledged() {
            let offered = &mut self.outgoing.offered;
            offered.complete(block, round.endpoint, round.completed).map_err(Cause::Protocol)?;
        }
        Ok(())
    }

    /// Copies blocks to which the peer has referred, until the budget is used up. Returns whether the peer
    /// has to be told of some.
    pub(crate) fn copy(
        &mut self,
        round: &mut Round<'_>,
        budget_bytes: usize,
    ) -> Result<bool, Cause> {
        let (mut left, references) = (budget_bytes, &mut self.incoming.references);
        while left > 0 && references.can_copy() {
            let bytes = references.copy(left, round.endpoint, round.completed)?;
            round.counters.copies += 1;
            round.counters.bytes_copied += bytes as u64;
            left = left.saturating_sub(bytes.max(CALL_BYTES));
            if bytes == 0 {
                // The end of the stream is there or will come.
                self.readable = true;
            }
        }
        let copied = references.take_copied();
        copied.iter().for_each(|&block| self.outgoing.push_copied(block));
        Ok(!copied.is_empty())
    }

    /// In a close: returns whether everything was written and the peer's bye received. Shuts down
    /// the sending direction as soon as nothing is left to write.
    pub(crate) fn is_finished(&mut self) -> bool {
        if self.lost {
            return true;
        }
        if self.write_failed.is_none() && self.outgoing.is_pending() {
            return false;
        }
        if !self.write_shut {
            self.write_shut = true;
            // An error means that the connection is lost, which the next read reports.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
        self.incoming.received_bye()
    }
}

fn memory(access: &'static str, error: Errno) -> Cause {
    Cause::Memory { access, error: words(error) }
}

fn words(error: Errno) -> String {
    std::io::Error::from(error).to_string()
}
