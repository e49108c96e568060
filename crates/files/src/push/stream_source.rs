//! What the root has read of a stream: messages that some host has not written out, and what is sent of them when.
//!
//! A state machine below the root's, which passes events and the time in. Groups of a stream follow one after another;
//! each begins where the slowest host is.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use rdmc::Region;

use super::{
    effects::Effects,
    group::PushGroup,
    host::{Host, Step},
    parts::{Holder, Part},
    settings::PushError,
};
use crate::{messages::ToReceiver, stream_message::StreamMessage};

/// What is sent as one message while others are under way; less if none is.
const MESSAGE_BYTES: usize = 4 << 20;
/// The length of messages for the choice of an algorithm, and the most under way.
pub(super) const MESSAGES: (u64, u32) = (MESSAGE_BYTES as u64, 8);
/// How long what was read may wait for more of the same message.
const PENDING_MAX: Duration = Duration::from_millis(100);
/// Once some host has not written out this many messages, only long ones are sent.
const SHORT_MESSAGES_MAX: usize = 64;
/// The most that is kept because some host has not written it: the root's memory.
const KEPT_BYTES_MAX: u64 = 128 << 20;
/// The most reads under way.
const READS_MAX: usize = 16;
/// The reason for a host without relays before it that got other bytes than those that were sent.
const ALTERED_IN_VAIN: &str = "bytes that it received were changed in transit, again after this machine sent them directly: its \
                               link, its memory or that of this machine is faulty";
/// The number of altered groups in a push, reported by any host, after which the root sends all data itself.
const ALTERATIONS_MAX: u32 = 3;

/// What the reader of a stream gives.
#[derive(Debug)]
pub enum StreamPart {
    Bytes(Vec<u8>),
    /// The end, with the digest of everything.
    End(blake3::Hash),
}

/// What was read and is not at all hosts.
#[derive(Default)]
pub(super) struct StreamSource {
    messages: VecDeque<(StreamMessage, Region)>,
    /// Read, and not in a message.
    pending: Vec<u8>,
    /// Since when some of that waits.
    pending_since: Option<Duration>,
    /// How much was read.
    end: u64,
    /// The digest of everything, once all is read.
    digest: Option<blake3::Hash>,
    /// Of the digests of the pieces of all messages.
    pieces: blake3::Hasher,
    /// Reads under way.
    reads: usize,
    /// Up to which place messages were announced to each host.
    announced: BTreeMap<usize, u64>,
    /// How many groups have got other bytes than those that were sent.
    alterations: u32,
    /// The next group has no relays.
    is_direct: bool,
    /// How much all hosts that were left had when the push ended early.
    stopped_at: Option<u64>,
}

impl StreamSource {
    /// The reader has answered.
    pub(super) fn on_read(&mut self, part: StreamPart, now: Duration) {
        self.reads = self.reads.saturating_sub(1);
        match part {
            StreamPart::Bytes(bytes) if bytes.is_empty() => {}
            StreamPart::Bytes(bytes) => {
                self.pending_since.get_or_insert(now);
                self.pending.extend_from_slice(&bytes);
                self.end += bytes.len() as u64;
            }
            StreamPart::End(digest) => self.digest = Some(digest),
        }
    }

    /// How much was read so far.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The digest of everything, once all is read.
    pub(super) fn digest(&self) -> Option<blake3::Hash> {
        self.digest
    }

    /// The end of the last message.
    fn messages_end(&self) -> u64 {
        self.end - self.pending.len() as u64
    }

    /// Where the first message that is kept begins: the place at which the next group begins.
    fn messages_start(&self) -> u64 {
        self.messages.front().map_or(self.messages_end(), |(message, _)| message.at)
    }

    /// All is read and in messages.
    fn is_final(&self) -> bool {
        self.digest.is_some() && self.pending.is_empty()
    }

    /// Whether a host has written out everything.
    pub(super) fn is_all_at(&self, host: &Host) -> bool {
        self.is_final() && host.has.covers((0, self.end))
    }

    /// How much all hosts that have not failed have written, or had when the push ended early.
    pub(super) fn prefix(&self, hosts: &[Host]) -> u64 {
        let alive = hosts.iter().filter(|host| host.is_open() || host.step == Step::Published);
        let written = alive.map(|host| host.has.prefix()).min().unwrap_or(0).min(self.end);
        self.stopped_at.unwrap_or(written)
    }

    /// Whether all hosts have more than when this group began.
    pub(super) fn has_progressed(&self, hosts: &[Host], group: &PushGroup) -> bool {
        group.part.ranges.iter().all(|(start, _)| self.prefix(hosts) > start)
    }

    /// The push ends early. Returns what is good everywhere, for hosts' reasons.
    pub(super) fn stop(&mut self, hosts: &[Host]) -> String {
        let prefix = self.prefix(hosts);
        self.stopped_at = Some(prefix);
        format!("; all remaining hosts have the first {prefix} bytes")
    }

    /// What receivers compare at the end: the digest of the digests of the pieces of all messages.
    pub(super) fn digest_of_pieces(&self) -> blake3::Hash {
        self.pieces.finalize()
    }

    /// When [`StreamSource::advance`] has something to do if nothing happens.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let since = self.pending_since.filter(|_| self.messages.len() < SHORT_MESSAGES_MAX)?;
        Some(since + PENDING_MAX)
    }

    /// Whether what was read is to be sent now: enough for a message, or nothing is under way, or it has waited.
    fn is_due(&self, now: Duration) -> bool {
        let has_ended = self.digest.is_some() || self.messages.is_empty();
        let is_due = self.pending.len() >= MESSAGE_BYTES || has_ended;
        !self.pending.is_empty() && (is_due || self.deadline().is_some_and(|at| now >= at))
    }

    /// Makes what was read a message.
    fn take_message(&mut self) {
        let message = StreamMessage::of(self.messages_end(), &self.pending);
        self.pending_since = None;
        for digest in &message.digests {
            self.pieces.update(digest);
        }
        let region = Region::from_vec(std::mem::take(&mut self.pending));
        self.messages.push_back((message, region));
    }

    /// Drops what all hosts have written, and lets the reader go on if there is room.
    fn release_and_read(&mut self, effects: &mut impl Effects, prefix: u64) {
        while self.messages.front().is_some_and(|(message, _)| message.end() <= prefix) {
            self.messages.pop_front();
        }
        let kept_bytes = self.end - self.messages_start();
        if self.digest.is_none() && kept_bytes < KEPT_BYTES_MAX {
            while self.reads < READS_MAX {
                self.reads += 1;
                effects.read();
            }
        }
    }

    /// The next group: all hosts that lack something, or may get more.
    pub(super) fn part(&self, holders: &[Holder<'_>]) -> Option<Part> {
        let lacks = |holder: &&Holder<'_>| !self.is_final() || !holder.has.covers((0, self.end));
        let hosts: Vec<usize> = holders.iter().filter(lacks).map(|holder| holder.host).collect();
        let ranges = [(self.messages_start(), u64::MAX)].into_iter().collect();
        (!hosts.is_empty()).then_some(Part::of(None, hosts, ranges))
    }

    /// Whether the root sends to each host itself in the next group, and up to which place in the stream.
    pub(super) fn direct_until(&self) -> Option<u64> {
        self.is_direct.then(|| self.messages_end())
    }

    /// Makes messages of what was read; announces and sends them in this group, if it takes messages. Returns the group if
    /// another has to replace it, in which hosts relay again.
    pub(super) fn advance(
        &mut self,
        effects: &mut impl Effects,
        hosts: &[Host],
        group: Option<(u64, &mut PushGroup)>,
        now: Duration,
    ) -> Result<Option<u64>, PushError> {
        let prefix = self.prefix(hosts);
        let group = group.filter(|(_, group)| !group.is_failing());
        // What is announced as the first message of a group has to be sent in it, also if all have written it meanwhile.
        let sent_until = group.as_ref().map_or(u64::MAX, |(_, group)| group.sent_until);
        self.release_and_read(effects, prefix.min(sent_until));
        if self.is_due(now) {
            self.take_message();
        }
        let Some((number, group)) = group else { return Ok(None) };
        if group.announced_until < self.messages_end() {
            group.announced_until = self.messages_end();
            group.members().for_each(|host| self.announce(effects, host));
        }
        let is_repeated = group.direct_until.is_some_and(|until| prefix >= until);
        if is_repeated && !group.is_closing && self.alterations < ALTERATIONS_MAX {
            self.is_direct = false;
            return Ok(Some(number));
        }
        if group.is_running() {
            self.send(effects, number, group)?;
        }
        Ok(None)
    }

    /// Announces each message once to a host, whatever groups it is sent in.
    fn announce(&mut self, effects: &mut impl Effects, host: usize) {
        let end = self.messages_end();
        let announced = self.announced.entry(host).or_insert(0);
        for (message, _) in self.messages.iter().filter(|(message, _)| message.at >= *announced) {
            effects.send_message(host, &ToReceiver::Announce(message.clone()));
        }
        *announced = end;
    }

    fn send(
        &self,
        effects: &mut impl Effects,
        number: u64,
        group: &mut PushGroup,
    ) -> Result<(), PushError> {
        if group.sent_until < self.messages_end() {
            let new = self.messages.iter().filter(|(message, _)| message.at >= group.sent_until);
            for (_, region) in new {
                effects.send_region(number, region)?;
            }
            group.sent_until = self.messages_end();
        }
        if self.is_final() && !std::mem::replace(&mut group.is_closing, true) {
            effects.close(number);
        }
        Ok(())
    }

    /// A group has failed. Returns the hosts that got other bytes than those that the root itself had sent them, with the
    /// reason to give them up.
    pub(super) fn on_failed(&mut self, group: &PushGroup) -> Vec<(usize, &'static str)> {
        if group.altered.is_empty() {
            return Vec::new();
        }
        self.alterations += 1;
        self.is_direct = true;
        let in_vain = group.altered.iter().filter(|_| group.direct_until.is_some());
        in_vain.map(|&host| (host, ALTERED_IN_VAIN)).collect()
    }
}
