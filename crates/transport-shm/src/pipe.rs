//! A stream of bytes between two processes, through a ring of each in place of a socket.
//!
//! Positions, sleeps and what a dying process leaves are those of [`crate::ring`], without records: bytes count from the beginning,
//! and the reader's end of them is the writer's last release store. A socket tells the end of a stream, and wakes an end that waits
//! for it.

use std::{
    fmt,
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::io::Errno;
use transport::{FileAccess, PeerMemory};

use crate::{
    error::ShmError,
    offer::{Deadline, ShmLink},
    ring::{CONSUMED_AT, RING_AT, Shared, WRITTEN_AT, check_ring, segment_bytes},
    sleep::Sleep,
    socket::{self, Message, Missing, Received},
};

/// How often an end waits before it reads what has woken it: unread messages are few, so that the socket accepts more.
const DOZES_MAX: u32 = 16;
/// The most messages that are read at once.
const MESSAGES_MAX: usize = 64;

/// This end of a pipe whose peer has not passed its memory yet.
pub struct PipeEnd {
    socket: OwnedFd,
    own: PeerMemory,
    ring_bytes: usize,
}

/// A stream of bytes to a process of this machine, in both directions, which never blocks.
///
/// What the peer can write, its own segment, is hostile: numbers in it are checked, and bytes copied out once.
pub struct ShmPipe {
    socket: OwnedFd,
    own: PeerMemory,
    ring_bytes: usize,
    peer: PeerMemory,
    peers_ring_bytes: usize,
    /// How many bytes were written.
    written: u64,
    /// How many of them the peer has read, as last seen.
    consumed: u64,
    /// How many of the peer's bytes were read.
    read: u64,
    sleep: Sleep,
    dozes: u32,
    is_dozing: bool,
    has_hung_up: bool,
}

impl PipeEnd {
    /// Passes this end's segment, with a ring of this length, a power of two from 4 KiB to 64 MiB, to the peer. Does not wait.
    ///
    /// Errors: the length; the system's.
    pub fn begin(link: ShmLink, ring_bytes: usize) -> Result<Self, ShmError> {
        let (socket, segment) = link.into_parts();
        let own = segment.pass(&socket, ring_bytes)?;
        Ok(Self { socket, own, ring_bytes })
    }

    /// Waits up to `timeout` for the memory of the peer, which does the same.
    ///
    /// Errors: [`ShmError::TimedOut`]; it passes something else, or has ended; the system has no memory or file descriptors left.
    pub fn finish(self, timeout: Duration) -> Result<ShmPipe, ShmError> {
        let until = Deadline::new(timeout, "waiting for the memory of a peer's process");
        let (ring_bytes, file) = loop {
            until.wait_for(self.socket.as_fd())?;
            match socket::receive(&self.socket) {
                Received::Nothing => {}
                Received::Message(Message::Hello { ring_bytes }, Ok(file)) => {
                    break (ring_bytes, file);
                }
                Received::Message(Message::Hello { .. }, Err(Missing::NotTaken)) => {
                    let step = "taking the memory of a peer's process";
                    return Err(ShmError::at(step)(Errno::MFILE));
                }
                _ => return Err(ShmError::NoMemory),
            }
        };
        let peers_ring_bytes = usize::try_from(ring_bytes).map_err(|_| ShmError::NoMemory)?;
        check_ring(peers_ring_bytes).map_err(|_| ShmError::NoMemory)?;
        let peer = PeerMemory::of_peer(&file, segment_bytes(peers_ring_bytes), FileAccess::Read)
            .map_err(ShmError::at("mapping the memory of a peer's process"))?;
        let Self { socket, own, ring_bytes } = self;
        Ok(ShmPipe {
            socket,
            own,
            ring_bytes,
            peer,
            peers_ring_bytes,
            written: 0,
            consumed: 0,
            read: 0,
            sleep: Sleep::default(),
            dozes: 0,
            is_dozing: false,
            has_hung_up: false,
        })
    }
}

impl ShmPipe {
    /// Reads into these slices in order, and returns how many bytes; 0 once the peer has ended and all was read.
    ///
    /// Errors: `AGAIN` if nothing is there; `PROTO` if the peer's numbers are impossible.
    pub fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let mut arrived = self.arrived()?;
        if arrived == 0 {
            // What was written before the end is there when that is known.
            self.take_messages();
            arrived = self.arrived()?;
        }
        if arrived == 0 {
            return if self.has_hung_up { Ok(0) } else { Err(Errno::AGAIN) };
        }
        let mut bytes = 0;
        for slice in into {
            let part = slice.len().min(arrived - bytes);
            let start = (self.read as usize).wrapping_add(bytes) & (self.peers_ring_bytes - 1);
            let (head, tail) = slice[..part].split_at_mut(part.min(self.peers_ring_bytes - start));
            Shared::copy_out(&self.peer, RING_AT + start, head);
            Shared::copy_out(&self.peer, RING_AT, tail);
            bytes += part;
        }
        self.read += bytes as u64;
        Shared::publish(&self.own, CONSUMED_AT, self.read);
        // A peer that is woken for every few bytes writes few.
        if arrived - bytes <= self.peers_ring_bytes / 2 {
            self.wake_peer(false);
        }
        Ok(bytes)
    }

    /// Writes these slices in order, as far as they fit, and returns how many bytes.
    ///
    /// Errors: `AGAIN` if nothing fits; `PIPE` if the peer is known to have ended; `PROTO` if its numbers are impossible.
    pub fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if self.has_hung_up {
            return Err(Errno::PIPE);
        }
        let wanted: usize = from.iter().map(|slice| slice.len()).sum();
        if self.free_bytes() < wanted {
            self.look()?;
        }
        let free = self.free_bytes();
        if free == 0 && wanted > 0 {
            return Err(Errno::AGAIN);
        }
        let mut bytes = 0;
        for slice in from {
            let part = &slice[..slice.len().min(free - bytes)];
            let start = (self.written as usize).wrapping_add(bytes) & (self.ring_bytes - 1);
            let (head, tail) = part.split_at(part.len().min(self.ring_bytes - start));
            Shared::copy_in(&self.own, RING_AT + start, head);
            Shared::copy_in(&self.own, RING_AT, tail);
            bytes += part.len();
        }
        self.written += bytes as u64;
        Shared::publish(&self.own, WRITTEN_AT, self.written);
        self.wake_peer(true);
        Ok(bytes)
    }

    /// Returns whether a read would not return `AGAIN`, as far as is known without asking the system.
    pub fn can_read(&self) -> bool {
        self.has_hung_up || self.arrived() != Ok(0)
    }

    /// Returns whether more fits than the last write has seen.
    pub fn has_space(&self) -> bool {
        self.has_hung_up || self.peer.load(CONSUMED_AT) != self.consumed
    }

    /// Lets the peer wake this end by the socket from now on, for bytes to read and, if so, for space. Look for both afterwards,
    /// before waiting.
    pub fn doze(&mut self, needs_space: bool) {
        self.is_dozing = true;
        self.dozes = self.dozes.wrapping_add(1);
        if self.dozes.is_multiple_of(DOZES_MAX) {
            self.take_messages();
        }
        self.sleep.doze(&self.own, needs_space);
    }

    /// Says that this end looks at the ring by itself: the peer need not wake it.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.is_dozing) {
            self.sleep.wake(&self.own);
        }
    }

    /// Returns how many bytes can be read. Errors: impossibly many.
    fn arrived(&self) -> Result<usize, Errno> {
        let arrived = self.peer.load(WRITTEN_AT).wrapping_sub(self.read);
        let arrived = usize::try_from(arrived).map_err(|_| Errno::PROTO)?;
        if arrived <= self.peers_ring_bytes { Ok(arrived) } else { Err(Errno::PROTO) }
    }

    fn free_bytes(&self) -> usize {
        self.ring_bytes - (self.written - self.consumed) as usize
    }

    /// Looks how much the peer has read. Errors: more than was written, or less than before.
    fn look(&mut self) -> Result<(), Errno> {
        let consumed = self.peer.load(CONSUMED_AT);
        if !(self.consumed..=self.written).contains(&consumed) {
            return Err(Errno::PROTO);
        }
        self.consumed = consumed;
        Ok(())
    }

    fn wake_peer(&mut self, are_bytes: bool) {
        if self.sleep.has_to_wake(&self.peer, are_bytes) {
            // If it has many unread messages, or has ended, it wakes anyway.
            let _ = socket::send(&self.socket, Message::Wake, None);
        }
    }

    /// Takes what has woken this end, and notices the end of the peer, or that it says anything else.
    fn take_messages(&mut self) {
        for _ in 0..MESSAGES_MAX {
            match socket::receive(&self.socket) {
                Received::Message(Message::Wake, _) => {}
                Received::Nothing => return,
                _ => {
                    self.has_hung_up = true;
                    return;
                }
            }
        }
    }
}

/// The socket that wakes this end.
impl AsFd for ShmPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for PipeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeEnd").field("ring_bytes", &self.ring_bytes).finish()
    }
}

impl fmt::Debug for ShmPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShmPipe").field("ring_bytes", &self.ring_bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Instant};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::offer::Offer;

    const PATIENCE: Duration = Duration::from_secs(60);
    const RING: usize = 4096;

    fn pipes(ring_bytes: [usize; 2]) -> [ShmPipe; 2] {
        let offer = Offer::make().unwrap();
        let one = ShmLink::connect(offer.bytes()).unwrap();
        let other = offer.accept(PATIENCE).unwrap();
        let ends = [PipeEnd::begin(one, ring_bytes[0]), PipeEnd::begin(other, ring_bytes[1])];
        ends.map(|end| end.unwrap().finish(PATIENCE).unwrap())
    }

    fn write(pipe: &mut ShmPipe, bytes: &[u8]) -> Result<usize, Errno> {
        let (one, other) = bytes.split_at(bytes.len() / 3);
        pipe.write(&[IoSlice::new(one), IoSlice::new(other)])
    }

    fn read(pipe: &mut ShmPipe, bytes: usize) -> Result<Vec<u8>, Errno> {
        let mut into = vec![0; bytes];
        let (one, other) = into.split_at_mut(bytes / 2);
        let count = pipe.read(&mut [IoSliceMut::new(one), IoSliceMut::new(other)])?;
        into.truncate(count);
        Ok(into)
    }

    /// Returns whether the peer has woken this end.
    fn is_woken(pipe: &ShmPipe, wait: Duration) -> bool {
        let wait = Timespec::try_from(wait).unwrap();
        poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&wait)).unwrap() > 0
    }

    #[test]
    fn bytes_of_all_lengths_pass_around_the_end() {
        let [mut one, mut other] = pipes([RING, 2 * RING]);
        for length in 1..=RING {
            let bytes: Vec<u8> = (0..length).map(|at| (at ^ length) as u8).collect();
            assert_eq!(write(&mut one, &bytes), Ok(length));
            assert_eq!(write(&mut other, &bytes), Ok(length));
            assert_eq!(read(&mut other, length + 1).unwrap(), bytes);
            assert_eq!(read(&mut one, length).unwrap(), bytes);
            assert_eq!(read(&mut one, 1), Err(Errno::AGAIN));
        }
    }

    #[test]
    fn a_full_ring_takes_what_was_read_of_it() {
        let [mut one, mut other] = pipes([RING; 2]);
        assert_eq!(write(&mut one, &[7; RING + 5]), Ok(RING));
        assert_eq!(write(&mut one, &[8]), Err(Errno::AGAIN));
        one.doze(true);
        assert!(!one.has_space() && !one.can_read());
        assert_eq!(read(&mut other, RING / 2 - 1).unwrap().len(), RING / 2 - 1);
        assert!(!is_woken(&one, Duration::ZERO), "more than half of it is full");
        assert!(one.has_space());
        read(&mut other, 1).unwrap();
        assert!(is_woken(&one, Duration::ZERO));
        assert_eq!(write(&mut one, &[8; RING]), Ok(RING / 2));
        assert_eq!(read(&mut other, RING).unwrap()[RING / 2..], [8; RING / 2]);
    }

    #[test]
    fn only_an_end_that_waits_is_woken_and_once() {
        let [mut one, mut other] = pipes([RING; 2]);
        // More often than a socket takes unread messages.
        for _ in 0..2_000 {
            write(&mut one, b"a").unwrap();
            other.doze(false);
            assert!(other.can_read(), "it has come before");
            other.wake();
            assert_eq!(read(&mut other, 2).unwrap(), b"a");
            other.doze(false);
            assert!(!other.can_read());
            write(&mut one, b"b").unwrap();
            write(&mut one, b"c").unwrap();
            assert!(is_woken(&other, Duration::ZERO));
            other.wake();
            assert_eq!(read(&mut other, 9).unwrap(), b"bc");
        }
        other.take_messages();
        assert!(!is_woken(&other, Duration::ZERO));
    }

    #[test]
    fn what_was_written_before_the_end_is_read() {
        let [mut one, mut other] = pipes([RING; 2]);
        write(&mut one, b"last").unwrap();
        drop(one);
        assert!(is_woken(&other, Duration::ZERO));
        assert_eq!(read(&mut other, 3).unwrap(), b"las");
        assert_eq!(write(&mut other, b"it is not known yet"), Ok(19));
        assert_eq!(read(&mut other, 3).unwrap(), b"t");
        assert_eq!(read(&mut other, 3).unwrap(), b"");
        assert!(other.can_read() && other.has_space());
        assert_eq!(write(&mut other, b"x"), Err(Errno::PIPE));
    }

    #[test]
    fn impossible_numbers_are_refused() {
        for written in [RING as u64 + 1, u64::MAX, 1 << 63] {
            let [mut one, other] = pipes([RING; 2]);
            Shared::publish(&other.own, WRITTEN_AT, written);
            assert!(one.can_read());
            assert_eq!(read(&mut one, 9), Err(Errno::PROTO), "{written}");
        }
        for consumed in [2, u64::MAX] {
            let [mut one, other] = pipes([RING; 2]);
            write(&mut one, b"1").unwrap();
            Shared::publish(&other.own, CONSUMED_AT, consumed);
            assert!(one.has_space());
            assert_eq!(write(&mut one, &[0; RING]), Err(Errno::PROTO), "{consumed}");
        }
    }

    #[test]
    fn only_memory_makes_a_pipe() {
        let offer = Offer::make().unwrap();
        let silent = ShmLink::connect(offer.bytes()).unwrap();
        let end = PipeEnd::begin(offer.accept(PATIENCE).unwrap(), RING).unwrap();
        let error = end.finish(Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, ShmError::TimedOut(_)), "{error}");
        let mut pipe = PipeEnd::begin(silent, RING).unwrap().finish(PATIENCE).unwrap();
        assert_eq!(
            read(&mut pipe, 1).unwrap(),
            b"",
            "the other end passed its memory and is closed"
        );
        let offer = Offer::make().unwrap();
        let socket = ShmLink::connect(offer.bytes()).unwrap().into_parts().0;
        let end = PipeEnd::begin(offer.accept(PATIENCE).unwrap(), RING).unwrap();
        socket::send(&socket, Message::Hello { ring_bytes: RING as u64 }, None).unwrap();
        assert!(matches!(end.finish(PATIENCE), Err(ShmError::NoMemory)));
        for ring_bytes in [0, 2048, 5000] {
            let offer = Offer::make().unwrap();
            let link = ShmLink::connect(offer.bytes()).unwrap();
            assert!(matches!(PipeEnd::begin(link, ring_bytes), Err(ShmError::Setting(_))));
        }
    }

    /// Both ends sleep whenever they have nothing to do, so a lost wake-up ends the test.
    #[test]
    fn two_threads_pass_bytes_and_sleep() {
        const BYTES: usize = 3_000_000;
        let [mut one, mut other] = pipes([RING; 2]);
        let byte = |at: usize| (at % 251) as u8;
        let deadline = Instant::now() + PATIENCE;
        let sleep = move |pipe: &mut ShmPipe, needs_space: bool| {
            assert!(Instant::now() < deadline, "a wake-up is lost");
            pipe.doze(needs_space);
            if !(pipe.can_read() || needs_space && pipe.has_space()) {
                is_woken(pipe, PATIENCE);
                // As often as it is woken: this wait is not for edges.
                pipe.take_messages();
            }
            pipe.wake();
        };
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut at = 0;
                while at < BYTES {
                    let length = (at % 1_777).clamp(1, BYTES - at);
                    let part: Vec<u8> = (at..at + length).map(byte).collect();
                    match write(&mut one, &part) {
                        Ok(count) => at += count,
                        Err(_) => sleep(&mut one, true),
                    }
                }
                while read(&mut one, 1) == Err(Errno::AGAIN) {
                    sleep(&mut one, false);
                }
            });
            let mut at = 0;
            while at < BYTES {
                match read(&mut other, 1 + at % 2_999) {
                    Ok(part) => {
                        assert!(part.iter().zip(at..).all(|(&it, at)| it == byte(at)));
                        at += part.len();
                    }
                    Err(_) => sleep(&mut other, false),
                }
            }
            write(&mut other, b"x").unwrap();
        });
    }
}
