//! What is replicated: a file or a tree, which can be read again, or a stream, which is read once.

use std::{collections::BTreeMap, time::Duration};

use super::{
    blame::Blame,
    effects::Effects,
    group::PushGroup,
    host::{Host, Step},
    hosts::Hosts,
    parts::{Holder, Part, parts},
    readers::Readers,
    settings::PushError,
    shares::Shares,
    source_digest::{Mismatch, SourceDigest},
    source_look::SourceLook,
    stream_source::{self, StreamSource},
};
use crate::{
    digests::Digests,
    messages::PIECE_BYTES,
    subtrees::{SubtreeDigest, Subtrees},
};

/// The reason for a host whose copy differs from a source that gave the same digest twice.
const DIFFERS: &str = "its copy differs from the source, which has the same digest as before: either it was \
                       written to during the push and its modification time was kept, or that machine's \
                       memory or network is faulty. Run the push again";
/// The same for a stream.
const STREAM_DIFFERS: &str = "what it wrote differs from what was read here";

/// The object of a push.
pub(super) enum Object {
    Source(Box<Source>),
    Stream(Box<StreamSource>),
}

/// A file or a tree, or nothing.
pub(super) struct Source {
    bytes: u64,
    /// Of a tree, whose files have digests of their own: the length of its listing.
    listing_bytes: Option<u64>,
    digest: SourceDigest,
    look: SourceLook,
    /// If hosts read it themselves.
    readers: Option<Readers>,
}

impl Source {
    pub(super) fn new(bytes: u64, listing_bytes: Option<u64>) -> Box<Self> {
        let (digest, look, readers) = Default::default();
        Box::new(Self { bytes, listing_bytes, digest, look, readers })
    }
}

impl Object {
    /// Hosts read it themselves, a tree with this division.
    pub(super) fn read_by_hosts(&mut self, subtrees: Subtrees) {
        if let Self::Source(source) = self {
            source.digest = SourceDigest::of_readers();
            source.readers = Some(Readers::new(subtrees));
        }
    }

    /// A host has read subtrees that begin at these places.
    ///
    /// Errors: another one has read something else there.
    pub(super) fn on_read_at(
        &mut self,
        effects: &impl Effects,
        host: usize,
        digests: &[(u64, SubtreeDigest)],
    ) -> Result<(), PushError> {
        let Self::Source(source) = self else { return Ok(()) };
        let Some(readers) = &mut source.readers else { return Ok(()) };
        let read = readers.on_read(host, digests);
        match read.is_ok_and(|files| source.digest.on_read(files)) {
            true => Ok(()),
            false => Err(effects.source_differs()),
        }
    }

    /// Its length; of a stream, what was read so far.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Source(source) => source.bytes,
            Self::Stream(stream) => stream.end(),
        }
    }

    pub(super) fn as_stream(&self) -> Option<&StreamSource> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Source(_) => None,
        }
    }

    pub(super) fn as_stream_mut(&mut self) -> Option<&mut StreamSource> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Source(_) => None,
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// When something is due if nothing happens.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Source(source) => source.look.deadline(),
            Self::Stream(stream) => stream.deadline(),
        }
    }

    /// Of a tree: starts to read what this host lacks, unless it was read before.
    pub(super) fn read_for(
        &mut self,
        effects: &mut impl Effects,
        host: &Host,
    ) -> Result<(), PushError> {
        if let Self::Source(source) = self
            && source.listing_bytes.is_some()
            && source.readers.is_none()
        {
            let lacking = source.digest.request(&host.kept, source.bytes);
            if !lacking.is_empty() {
                effects.digest_source(&lacking)?;
            }
        }
        Ok(())
    }

    /// The source was read. False if the digests differ from the first ones.
    pub(super) fn on_digests(&mut self, digests: Digests) -> bool {
        match self {
            Self::Source(source) => source.digest.on_read(digests),
            Self::Stream(_) => true,
        }
    }

    /// The source was looked at again, and has not changed.
    pub(super) fn on_unchanged(&mut self) {
        if let Self::Source(source) = self {
            source.look.on_unchanged();
        }
    }

    /// What the next groups replicate.
    pub(super) fn parts(&mut self, holders: &[Holder<'_>], shares: &Shares<'_>) -> Vec<Part> {
        match self {
            Self::Source(source) => match &mut source.readers {
                Some(readers) => readers.parts(source.bytes, holders, shares),
                None => parts(source.bytes, holders, shares),
            },
            Self::Stream(stream) => stream.part(holders).into_iter().collect(),
        }
    }

    /// For the choice of an algorithm: the length of the messages of a part, and the most of them under way.
    pub(super) fn messages(&self, part: &Part) -> (u64, u32) {
        let ranges = &part.ranges;
        match self {
            Self::Source(source) if part.is_listing() => (source.listing_bytes.unwrap_or(0), 1),
            Self::Source(_) if part.reads => (PIECE_BYTES.min(ranges.bytes()), 16),
            Self::Source(_) => (ranges.bytes(), ranges.iter().count().clamp(2, 16) as u32),
            Self::Stream(_) => stream_source::MESSAGES,
        }
    }

    /// Whether a host has everything, and no more will come.
    pub(super) fn is_all_at(&self, host: &Host) -> bool {
        match self {
            Self::Source(source) => host.has.covers((0, source.bytes)),
            Self::Stream(stream) => stream.is_all_at(host),
        }
    }

    /// What a host compares its complete copy with, once that is known.
    fn digest_of_copy(&self, host: &Host) -> Option<blake3::Hash> {
        match self {
            Self::Source(source) => {
                source.digest.of_copy(source.listing_bytes.is_some(), &host.kept, source.bytes)
            }
            Self::Stream(stream) => Some(stream.digest_of_pieces()),
        }
    }

    /// A copy differs from what was read. Returns why its host has to be given up; nothing while the source is read again.
    ///
    /// Errors: the source has changed.
    fn on_mismatch(
        &mut self,
        effects: &mut impl Effects,
    ) -> Result<Option<&'static str>, PushError> {
        let Self::Source(source) = self else { return Ok(Some(STREAM_DIFFERS)) };
        effects.check_source()?;
        match source.digest.on_mismatch() {
            Mismatch::ReadAgain(ranges) => effects.digest_source(&ranges)?,
            Mismatch::Wait => {}
            Mismatch::CopyIsWrong => return Ok(Some(DIFFERS)),
        }
        Ok(None)
    }

    /// Of these hosts with verified copies, those that may publish: the source was looked at after that. What was read of a
    /// stream cannot change. `together`: all of them, or none.
    pub(super) fn publishable(
        &mut self,
        effects: &mut impl Effects,
        hosts: &[Host],
        verified: Vec<usize>,
        together: bool,
        now: Duration,
    ) -> Result<Vec<usize>, PushError> {
        let Self::Source(source) = self else { return Ok(verified) };
        let starts = verified.iter().map(|&host| (host, hosts[host].start)).collect();
        let look = source.look.judge(starts, together, now)?;
        if look.begins {
            effects.look_at_source()?;
        }
        Ok(look.unchanged)
    }

    /// Lets hosts with complete copies compare them. Returns hosts to give up because theirs differ, with the reason.
    ///
    /// Errors: the source has changed.
    pub(super) fn verify(
        &mut self,
        effects: &mut impl Effects,
        hosts: &mut Hosts<'_>,
        now: Duration,
    ) -> Result<Vec<(usize, &'static str)>, PushError> {
        let mut given_up = Vec::new();
        for host in 0..hosts.len() {
            if hosts[host].step == Step::Mismatch {
                given_up.extend(self.on_mismatch(effects)?.map(|reason| (host, reason)));
            }
            if hosts[host].step == Step::Ready && self.is_all_at(&hosts[host]) {
                let digest = self.digest_of_copy(&hosts[host]);
                hosts.set_complete(effects, host, now);
                if let Some(digest) = digest {
                    hosts.compare(effects, host, digest, now);
                }
            }
        }
        Ok(given_up)
    }

    /// A group has failed. Returns the hosts to give up for what they got of a stream, with the reason.
    pub(super) fn on_failed(
        &mut self,
        group: &PushGroup,
        hosts: &[Host],
        blame: &mut Blame,
    ) -> Vec<(usize, &'static str)> {
        let Self::Stream(stream) = self else { return Vec::new() };
        if stream.has_progressed(hosts, group) {
            blame.progressed();
        }
        stream.on_failed(group)
    }

    /// Sends what was read of a stream, and lets it be read on. Returns a group to be replaced.
    pub(super) fn send(
        &mut self,
        effects: &mut impl Effects,
        hosts: &[Host],
        groups: &mut BTreeMap<u64, PushGroup>,
        now: Duration,
    ) -> Result<Option<u64>, PushError> {
        match self {
            Self::Source(_) => Ok(None),
            // One group at a time.
            Self::Stream(stream) => {
                let group = groups.iter_mut().next().map(|(&number, state)| (number, state));
                stream.advance(effects, hosts, group, now)
            }
        }
    }
}
