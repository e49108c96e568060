//! The sending half of a stream: posts and control words in, bytes out, completions out.

use std::{collections::VecDeque, io::IoSlice, ops::Range};

use rustix::io::Errno;
use transport::{Completion, EndpointId, PROOF_BYTES};

use crate::{
    byte_stream::ByteStream,
    messages,
    moved::Moved,
    outbound::Outbound,
    posted_send::{Head, PostedSend},
    selected::Selected,
    wire::{HEADER_BYTES, Header},
};

/// The most new segments that one write may begin; more would only help blocks and writes of
/// a few KiB.
const SEGMENTS_PER_CALL: usize = 32;

/// The least number of bytes to write at once, even when the budget of the round is nearly used up.
const WRITE_BYTES_MIN: usize = 64 << 10;

/// Up to this many bytes are copied into one buffer, which costs less than a list of pieces.
const SHORT_BYTES_MAX: usize = 512;

/// The sending half of one stream.
///
/// The order of output: the staged bytes, the rest of the segment that was begun (whose header is
/// the end of the staged bytes), the waiting control frames, then one header and segment after
/// another, of which channels take turns. So control words and other channels overtake all blocks except for the segment
/// being written.
pub(crate) struct Outgoing {
    /// Selected is the channel whose segments are written now.
    channels: Selected<Outbound>,
    /// Channels with sends, in turn.
    turns: VecDeque<u32>,
    /// The channel that the peer has selected behind `control`, and the segment before it.
    selected: u32,
    segment_bytes: usize,
    /// Bytes being written; the first `staged_done` of them were written.
    staged: Vec<u8>,
    staged_done: usize,
    /// Bytes left of the segment of the first send that was begun.
    segment_rest: Option<usize>,
    /// Whole frames that wait for the next segment boundary.
    control: Vec<u8>,
    /// How many bytes of control frames were queued, and how many of these were written, so far.
    queued_bytes: u64,
    written_bytes: u64,
    /// The memory of [`Outgoing::plan`], empty between calls.
    plan: Vec<Planned>,
}

/// A new segment that a write may begin.
struct Planned {
    number: u32,
    /// Of its send in its channel.
    index: usize,
    head: Head,
    /// What is written at once of its bytes of the block.
    part: Range<usize>,
}

impl Outgoing {
    /// Begins with one channel, number 0: the only one, or, on a shared connection, one that no group has.
    pub(crate) fn new(segment_bytes: usize, endpoint: EndpointId) -> Self {
        Self {
            channels: Selected::new(Outbound::new(endpoint)),
            turns: VecDeque::new(),
            selected: 0,
            segment_bytes,
            staged: Vec::new(),
            staged_done: 0,
            segment_rest: None,
            control: Vec::new(),
            queued_bytes: 0,
            written_bytes: 0,
            plan: Vec::new(),
        }
    }

    /// Adds a channel of a shared connection.
    pub(crate) fn add(&mut self, number: u32, endpoint: EndpointId) {
        self.channels.add(number, Outbound::new(endpoint));
    }

    /// Returns a channel; `None` if it has ended.
    pub(crate) fn channel(&mut self, number: u32) -> Option<&mut Outbound> {
        self.channels.get_mut(number)
    }

    /// Makes the next channel current that has a send for which `is_ready` holds, and puts it behind the
    /// others. Returns false if there is none.
    fn take_turn(&mut self, is_ready: impl Fn(&Outbound) -> bool) -> bool {
        for _ in 0..self.turns.len() {
            let Some(number) = self.turns.pop_front() else { return false };
            let Some(channel) = self.channel(number) else { continue };
            channel.has_turn = !channel.sends.is_empty();
            if !channel.has_turn {
                continue;
            }
            let is_ready = is_ready(channel);
            self.turns.push_back(number);
            if is_ready {
                return self.channels.select(number);
            }
        }
        false
    }

    pub(crate) fn post(&mut self, number: u32, send: PostedSend) {
        let Some(channel) = self.channel(number) else { return };
        channel.sends.push_back(send);
        if !std::mem::replace(&mut channel.has_turn, true) {
            self.turns.push_back(number);
        }
    }

    /// Looks how much has arrived of the blocks of a channel that are sent while they arrive. Returns whether there
    /// are any.
    pub(crate) fn follow(&mut self, number: u32) -> bool {
        let Some(channel) = self.channel(number) else { return false };
        channel.sends.iter_mut().fold(false, |any, send| send.follow() | any)
    }

    /// Queues a frame of a channel.
    fn push(&mut self, number: u32, header: Header, body: &[u8]) {
        if self.selected != number {
            self.selected = number;
            self.push_own(Header::Channel { number }, &[]);
        }
        self.push_own(header, body);
    }

    /// Queues a frame of the connection.
    fn push_own(&mut self, header: Header, body: &[u8]) {
        self.control.extend_from_slice(&header.encode());
        self.control.extend_from_slice(body);
        self.queued_bytes += (HEADER_BYTES + body.len()) as u64;
    }

    pub(crate) fn push_control(&mut self, number: u32, word: &[u8]) {
        self.push(number, Header::Control { bytes: word.len() }, word);
    }

    pub(crate) fn push_heartbeat(&mut self) {
        self.push_own(Header::Heartbeat, &[]);
    }

    pub(crate) fn push_message(&mut self, message: &[u8]) {
        messages::parts(message, |header, part| self.push_own(header, part));
    }

    pub(crate) fn push_introduction(&mut self, number: u32, pid: u32) {
        self.push(number, Header::Introduction { pid }, &[]);
    }

    /// Asks the peer to place a proof in its memory, unless this end is closing.
    pub(crate) fn push_challenge(&mut self, number: u32, proof: [u8; PROOF_BYTES]) {
        self.push_answer(number, Header::Challenge, &proof);
    }

    /// Tells the peer where its proof was placed, unless this end is closing.
    pub(crate) fn push_proof(&mut self, number: u32, address: u64) {
        self.push_answer(number, Header::Proof, &address.to_le_bytes());
    }

    /// Tells the peer that its memory can be read, unless this end is closing.
    pub(crate) fn push_readable(&mut self, number: u32) {
        self.push_answer(number, Header::Readable, &[]);
    }

    /// Tells the peer that a block was copied, unless this end is closing.
    pub(crate) fn push_copied(&mut self, number: u32, block: u32) {
        self.push_answer(number, Header::Copied { block }, &[]);
    }

    fn push_answer(&mut self, number: u32, header: Header, body: &[u8]) {
        if self.channel(number).is_some_and(|channel| !channel.cut) {
            self.push(number, header, body);
        }
    }

    /// Refers the peer to the next blocks, as far as they may be copied and are there.
    fn refer(&mut self) {
        let is_referred = |channel: &Outbound| channel.can_send() && !channel.has_segment();
        while self.segment_rest.is_none()
            && self.take_turn(is_referred)
            && let Some((header, address)) = self.channels.current.take_reference()
        {
            self.push(self.channels.number, header, &address.to_le_bytes());
        }
    }

    /// Returns how many bytes of control frames wait.
    pub(crate) fn control_backlog_bytes(&self) -> usize {
        self.control.len()
    }

    /// Returns whether there is anything to write.
    pub(crate) fn is_pending(&self) -> bool {
        let can_send = |number: &u32| self.channels.get(*number).is_some_and(Outbound::can_send);
        self.is_urgent() || self.turns.iter().any(can_send)
    }

    /// Returns whether there is anything to write besides new segments.
    pub(crate) fn is_urgent(&self) -> bool {
        self.staged_done < self.staged.len()
            || self.segment_rest.is_some()
            || !self.control.is_empty()
    }

    /// Cancels the sends of a channel that have not begun, and appends a bye to the rest. Nothing may be posted on it
    /// afterwards.
    pub(crate) fn finish(&mut self, number: u32, completed: &mut Vec<Completion>) {
        let begun = usize::from(self.segment_rest.is_some() && number == self.channels.number);
        let Some(channel) = self.channel(number) else { return };
        channel.cancel(begun, completed);
        if !std::mem::replace(&mut channel.cut, true) {
            self.push(number, Header::Bye, &[]);
            let bye_at = self.queued_bytes;
            self.channel(number).iter_mut().for_each(|channel| channel.bye_at = bye_at);
        }
    }

    /// Returns how many bytes the stream had accepted, of `accepted_bytes`, when it was first seen here that the bye of a channel is
    /// among them; `None` if it is not.
    pub(crate) fn bye_end(&mut self, number: u32, accepted_bytes: u64) -> Option<u64> {
        let written_bytes = self.written_bytes;
        let Some(channel) = self.channel(number) else { return Some(0) };
        (channel.bye_at <= written_bytes).then(|| *channel.bye_end.get_or_insert(accepted_bytes))
    }

    /// Forgets a channel of a shared connection, which was finished, and cancels its send that was begun. The peer waits for
    /// the rest of its segment, which is copied.
    pub(crate) fn remove(&mut self, number: u32, completed: &mut Vec<Completion>) {
        if number == self.channels.number
            && let Some(rest_bytes) = self.segment_rest.take()
            && let Some(send) = self.channels.current.sends.front()
        {
            self.staged.extend_from_slice(&send.contents()[send.sent_bytes..][..rest_bytes]);
        }
        if let Some(channel) = self.channel(number) {
            channel.cancel(0, completed);
        }
        self.channels.remove(number);
    }

    /// Cancels all sends of all channels at once; nothing more is written.
    pub(crate) fn abandon(&mut self, completed: &mut Vec<Completion>) {
        self.channels.iter_mut().for_each(|channel| channel.cancel(0, completed));
        self.staged.clear();
        self.staged_done = 0;
        self.segment_rest = None;
        self.control.clear();
    }

    /// Writes once. `budget_bytes` is roughly how much may be written in this round; with
    /// 0, no segment is begun.
    pub(crate) fn write(
        &mut self,
        stream: &mut impl ByteStream,
        budget_bytes: usize,
        completed: &mut Vec<Completion>,
    ) -> Result<Moved, Errno> {
        if budget_bytes > 0 {
            self.refer();
        }
        let mut plan = std::mem::take(&mut self.plan);
        plan.clear();
        let mut left_bytes = budget_bytes.max(WRITE_BYTES_MIN);
        let rest = self.rest_of_segment(&mut left_bytes);
        // New segments may follow only if the rest of the begun one is passed to the kernel whole.
        let is_whole = rest.len() == self.segment_rest.unwrap_or(0);
        let begins = is_whole && budget_bytes > 0;
        self.plan(if begins { left_bytes } else { 0 }, &mut plan);
        let mut slices = [IoSlice::new(&[]); 3 + 2 * SEGMENTS_PER_CALL];
        slices[0] = IoSlice::new(&self.staged[self.staged_done..]);
        slices[1] = IoSlice::new(rest);
        slices[2] = IoSlice::new(if is_whole { &self.control } else { &[] });
        let mut used = 3;
        for Planned { number, index, head, part } in &plan {
            let Some(channel) = self.channels.get(*number) else { break };
            slices[used] = IoSlice::new(head.as_slice());
            slices[used + 1] = IoSlice::new(&channel.sends[*index].contents()[part.clone()]);
            used += 2;
        }
        let slices = &slices[..used];
        let wanted = slices.iter().map(|slice| slice.len()).sum();
        let bytes = match wanted {
            ..=SHORT_BYTES_MAX => write_gathered(stream, slices)?,
            _ => stream.write(slices)?,
        };
        self.advance(bytes, &plan, completed);
        self.plan = plan;
        Ok(Moved { bytes, wanted })
    }

    /// Returns the payload left of the begun segment, at most `left_bytes`, which is reduced by its
    /// length.
    fn rest_of_segment(&self, left_bytes: &mut usize) -> &[u8] {
        match (self.segment_rest, self.channels.current.sends.front()) {
            (Some(rest_bytes), Some(send)) => {
                let part_bytes = rest_bytes.min(*left_bytes);
                *left_bytes -= part_bytes;
                &send.contents()[send.sent_bytes..][..part_bytes]
            }
            _ => &[],
        }
    }

    /// Chooses the segments that follow the begun one, as many as `left_bytes` allow. Only the last
    /// of them may be partial. Each channel with segments has one, and a single one more.
    fn plan(&self, mut left_bytes: usize, plan: &mut Vec<Planned>) {
        let next = |&number: &u32| {
            let channel = self.channels.get(number)?;
            let begun = self.segment_rest.filter(|_| number == self.channels.number);
            let from = channel.sends.front()?.sent_bytes + begun.unwrap_or(0);
            Some((number, channel, channel.segment_behind(0, from, begun.is_some())?))
        };
        let is_one = self.turns.iter().filter_map(next).nth(1).is_none();
        let mut selected = self.selected;
        for (number, channel, (mut index, mut from)) in self.turns.iter().filter_map(next) {
            for _ in 0..if is_one { SEGMENTS_PER_CALL } else { 1 } {
                if plan.len() == SEGMENTS_PER_CALL || left_bytes == 0 {
                    return;
                }
                let send = &channel.sends[index];
                let (head, range) = segment(send, from, self.segment_bytes, number, &mut selected);
                let part = range.start..range.end.min(range.start.saturating_add(left_bytes));
                left_bytes -= part.len();
                plan.push(Planned { number, index, head, part });
                let Some(behind) = channel.segment_behind(index, range.end, true) else { break };
                (index, from) = behind;
            }
        }
    }

    /// Accounts for `bytes` that the kernel has accepted, in the order in which they were passed.
    fn advance(&mut self, mut bytes: usize, plan: &[Planned], completed: &mut Vec<Completion>) {
        self.advance_begun(&mut bytes, completed);
        if bytes > 0 && !self.control.is_empty() {
            // Everything that was begun is written.
            self.staged.clear();
            self.staged_done = 0;
            std::mem::swap(&mut self.staged, &mut self.control);
            self.advance_begun(&mut bytes, completed);
        }
        for planned in plan {
            if bytes == 0 {
                return;
            }
            self.begin(planned.number);
            self.advance_begun(&mut bytes, completed);
        }
        debug_assert!(bytes == 0, "the kernel accepted more than was passed to it");
    }

    /// Begins the next segment of a channel, which then is behind the others.
    fn begin(&mut self, number: u32) {
        self.channels.select(number);
        if let Some(turn) = self.turns.iter().position(|&other| other == number) {
            self.turns.remove(turn);
            self.turns.push_back(number);
        }
        let Some(send) = self.channels.current.sends.front() else { return };
        let (head, range) =
            segment(send, send.sent_bytes, self.segment_bytes, number, &mut self.selected);
        self.staged.clear();
        self.staged_done = 0;
        self.staged.extend_from_slice(head.as_slice());
        self.segment_rest = Some(range.len());
    }

    /// Accounts for staged bytes that the kernel has accepted.
    fn take_staged(&mut self, bytes: usize) {
        self.staged_done += bytes;
        if self.staged_done == self.staged.len() {
            self.written_bytes = self.queued_bytes - self.control.len() as u64;
        }
    }

    fn advance_begun(&mut self, bytes: &mut usize, completed: &mut Vec<Completion>) {
        let staged_bytes = (self.staged.len() - self.staged_done).min(*bytes);
        self.take_staged(staged_bytes);
        *bytes -= staged_bytes;
        let (Some(rest_bytes), Some(send)) =
            (&mut self.segment_rest, self.channels.current.sends.front_mut())
        else {
            return;
        };
        let payload_bytes = (*rest_bytes).min(*bytes);
        *rest_bytes -= payload_bytes;
        send.sent_bytes += payload_bytes;
        *bytes -= payload_bytes;
        if *rest_bytes > 0 || self.staged_done < self.staged.len() {
            return;
        }
        self.segment_rest = None;
        let whole = send.sent_bytes == send.bytes();
        if !whole && !self.channels.current.cut {
            return;
        }
        let Some(send) = self.channels.current.sends.pop_front() else { return };
        if whole {
            completed.push(sent(self.channels.current.endpoint, send));
        } else {
            completed.push(cancelled(self.channels.current.endpoint, send));
        }
    }
}

/// Returns the head and the bytes of a segment of a channel, behind frames of the channel that is `selected`, and selects its own.
fn segment(
    send: &PostedSend,
    from: usize,
    bytes_max: usize,
    number: u32,
    selected: &mut u32,
) -> (Head, Range<usize>) {
    let (head, range) = send.segment(from, bytes_max);
    match std::mem::replace(selected, number) == number {
        true => (head, range),
        false => (head.selecting(number), range),
    }
}

/// Writes slices of at most [`SHORT_BYTES_MAX`] bytes together from a copy of them.
fn write_gathered(stream: &mut impl ByteStream, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let (mut short, mut bytes) = ([0; SHORT_BYTES_MAX], 0);
    for slice in slices {
        short[bytes..bytes + slice.len()].copy_from_slice(slice);
        bytes += slice.len();
    }
    stream.write(&[IoSlice::new(&short[..bytes])])
}

fn sent(endpoint: EndpointId, send: PostedSend) -> Completion {
    Completion::Sent { endpoint, token: send.into_token() }
}

fn cancelled(endpoint: EndpointId, send: PostedSend) -> Completion {
    Completion::Cancelled { endpoint, token: send.into_token() }
}
