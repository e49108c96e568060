//! One direction of a stream: bytes on their way, in order, and what ends it.

use std::collections::VecDeque;

use rustix::io::Errno;

use super::scenario::WireNetworkPlan;
use crate::dice::Dice;

/// How the bytes of a line end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineEnd {
    /// Its writer has closed it.
    Closed,
    /// The stream was reset.
    Reset,
}

/// One direction of a stream, from its writer to its reader.
#[derive(Default)]
pub(super) struct Line {
    on_the_way: VecDeque<(u64, Vec<u8>)>,
    way_bytes: usize,
    arrived: Vec<u8>,
    /// How many of the bytes that have arrived were read.
    taken: usize,
    last_arrival_ns: u64,
    /// Until when nothing arrives; `u64::MAX`: for ever.
    stalled_until_ns: u64,
    /// The end, and when it arrives.
    end: Option<(u64, LineEnd)>,
    /// The end that has arrived.
    ended: Option<LineEnd>,
    /// When the writer, of which bytes were refused, is told that it can write.
    tells_writer_ns: Option<u64>,
    /// It is told once something was read.
    waits_for_room: bool,
    /// Something has changed for the reader, or for the writer, since they were told.
    pub(super) is_news_to_reader: bool,
    pub(super) is_news_to_writer: bool,
    /// When bytes were read last.
    pub(super) last_read_ns: u64,
    /// Since when there is something to read, or was last.
    readable_since_ns: u64,
    /// Bits that change in the next byte.
    alters_next: Option<u8>,
}

impl Line {
    /// Takes bytes, all of them or fewer. Errors: it takes none now, or the stream was reset.
    pub(super) fn write(
        &mut self,
        bytes: &[u8],
        plan: &WireNetworkPlan,
        dice: &mut Dice,
        now_ns: u64,
    ) -> Result<usize, Errno> {
        if self.end.is_some() {
            return Err(Errno::PIPE);
        }
        let room = plan.capacity_bytes.saturating_sub(self.way_bytes + self.unread());
        let is_cut = room > 1 && dice.percent(plan.cuts_percent);
        let some = if is_cut { dice.between(1, room as u64) as usize } else { room };
        let accepted = some.min(bytes.len());
        if accepted < bytes.len() && accepted < room {
            self.tells_writer_ns = Some(now_ns + dice.between(1_000, 10_000));
        } else if accepted < bytes.len() {
            self.waits_for_room = true;
        }
        if accepted == 0 && !bytes.is_empty() {
            return Err(if dice.percent(10) { Errno::NOBUFS } else { Errno::AGAIN });
        }
        let mut rest = &bytes[..accepted];
        while !rest.is_empty() {
            let is_cut = rest.len() > 1 && dice.percent(plan.cuts_percent);
            let cut = if is_cut { dice.between(1, rest.len() as u64) as usize } else { rest.len() };
            let (part, behind) = rest.split_at(cut);
            self.send(
                part.to_vec(),
                now_ns + plan.latency_ns + dice.between(0, plan.jitter_ns_max),
            );
            rest = behind;
        }
        Ok(accepted)
    }

    fn send(&mut self, mut part: Vec<u8>, at_ns: u64) {
        if let Some(bits) = self.alters_next.take() {
            part[0] ^= bits;
        }
        self.last_arrival_ns = self.last_arrival_ns.max(at_ns);
        self.way_bytes += part.len();
        self.on_the_way.push_back((self.last_arrival_ns, part));
    }

    /// Returns bytes that can be read now. Errors: there are none, or the stream was reset.
    pub(super) fn read(&mut self, bytes_max: usize, now_ns: u64) -> Result<&[u8], Errno> {
        let bytes = bytes_max.min(self.unread());
        if bytes == 0 {
            return match self.ended {
                Some(LineEnd::Closed) => Ok(&[]),
                Some(LineEnd::Reset) => Err(Errno::CONNRESET),
                None => Err(Errno::AGAIN),
            };
        }
        if self.taken > self.arrived.len() / 2 {
            self.arrived.drain(..self.taken);
            self.taken = 0;
        }
        self.taken += bytes;
        self.last_read_ns = now_ns;
        self.is_news_to_writer |= std::mem::take(&mut self.waits_for_room);
        Ok(&self.arrived[self.taken - bytes..self.taken])
    }

    /// Returns how many bytes have arrived and were not read.
    pub(super) fn unread(&self) -> usize {
        self.arrived.len() - self.taken
    }

    /// Returns whether there is something to read, or the end.
    fn is_readable(&self) -> bool {
        self.unread() > 0 || self.ended.is_some()
    }

    /// Returns whether there was something to read, or the end, that is there now.
    pub(super) fn was_readable(&self, at_ns: u64) -> bool {
        self.is_readable() && self.readable_since_ns <= at_ns
    }

    /// Returns whether it is reset, or will be.
    pub(super) fn is_reset(&self) -> bool {
        self.end.is_some_and(|(_, end)| end == LineEnd::Reset)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Ends it behind what is on the way.
    pub(super) fn close(&mut self, at_ns: u64) {
        self.end.get_or_insert((at_ns.max(self.last_arrival_ns), LineEnd::Closed));
    }

    /// Ends it at this time, whatever is on the way then.
    pub(super) fn reset(&mut self, at_ns: u64) {
        if self.ended.is_none() {
            self.end = Some((at_ns, LineEnd::Reset));
        }
    }

    /// Nothing arrives until then.
    pub(super) fn stall(&mut self, until_ns: u64) {
        self.stalled_until_ns = self.stalled_until_ns.max(until_ns);
    }

    /// Changes bits of a byte on the way, or of the next one.
    pub(super) fn alter(&mut self, at: usize, bits: u8) {
        let mut rest = at.checked_rem(self.way_bytes).unwrap_or(0);
        for (_, part) in &mut self.on_the_way {
            if let Some(byte) = part.get_mut(rest) {
                *byte ^= bits;
                return;
            }
            rest -= part.len();
        }
        self.alters_next = Some(bits);
    }

    /// Exchanges the first two bytes on the way, for a planted bug.
    pub(super) fn swap(&mut self) {
        if let Some((_, part)) = self.on_the_way.front_mut()
            && part.len() > 1
        {
            part.swap(0, 1);
        }
    }

    /// Returns when something happens.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let part = self.on_the_way.front().map(|&(at_ns, _)| at_ns);
        let end = self.end.filter(|_| self.ended.is_none()).map(|(at_ns, _)| at_ns);
        let arrives =
            part.into_iter().chain(end).min().map(|at_ns| at_ns.max(self.stalled_until_ns));
        let told = self.tells_writer_ns;
        arrives.into_iter().chain(told).min().filter(|&at_ns| at_ns < u64::MAX)
    }

    /// Lets arrive what has to by now.
    pub(super) fn advance(&mut self, now_ns: u64) {
        if self.tells_writer_ns.take_if(|at_ns| *at_ns <= now_ns).is_some() {
            self.is_news_to_writer = true;
        }
        if self.stalled_until_ns > now_ns || self.ended.is_some() {
            return;
        }
        if !self.is_readable() {
            self.readable_since_ns = now_ns;
        }
        let until_ns = match self.end {
            Some((at_ns, LineEnd::Reset)) => at_ns.min(now_ns),
            _ => now_ns,
        };
        while self.on_the_way.front().is_some_and(|&(at_ns, _)| at_ns <= until_ns)
            && let Some((_, part)) = self.on_the_way.pop_front()
        {
            self.way_bytes -= part.len();
            self.arrived.extend_from_slice(&part);
            self.is_news_to_reader = true;
        }
        if let Some((_, end)) = self.end.filter(|&(at_ns, _)| at_ns <= now_ns) {
            if end == LineEnd::Reset {
                self.on_the_way.clear();
                self.way_bytes = 0;
            }
            self.ended = Some(end);
            self.is_news_to_reader = true;
        }
    }
}
