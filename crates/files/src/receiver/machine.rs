//! A receiver's decisions, as a state machine without threads, clock and connections.
//!
//! The driver passes events in; operations go out through [`Effects`]. An error ends the session; [`ReceiveError`]
//! decides whether the partial copy is kept and what the last message to the root is.

use std::{collections::BTreeMap, io};

use rdmc::{Error, Failure};

use super::error::ReceiveError;
use crate::{
    Verified,
    changes::Changes,
    messages::{
        ALTERED, ALTERED_LISTING, Blamed, GIVEN_UP, Start, ToReceiver, ToRoot, blamed,
        join_predicate, predicate, unjoined,
    },
    ranges::{RangeList, Ranges},
    reason::shortened,
    resume::ChunkDigests,
    stream_message::StreamMessage,
    subtrees::SubtreeDigest,
};

/// The error for digests of chunks in a session that fetches nothing.
pub(super) const UNEXPECTED_CHUNKS: &str = "the root sent digests of parts of what is not fetched";

/// Carries out what a session decides. An error ends the session.
pub trait Effects {
    /// A group that was joined.
    type Group;

    /// Keeps a joined group until it ends.
    fn add_group(&mut self, number: u64, group: Self::Group);
    /// Drops a group that was joined too late; it fails at all members.
    fn discard_group(&mut self, number: u64, group: Self::Group);
    /// Releases a group that has closed or failed.
    fn remove_group(&mut self, number: u64);
    /// Queues a message to the root. Errors: it is lost.
    fn send_message(&mut self, message: &ToRoot) -> Result<(), Error>;
    /// Adds the next part of the listing of a tree. True if it was the last. Errors: it is of another length.
    fn add_listing(&mut self, part: &[u8]) -> Result<bool, ReceiveError>;
    /// Takes the listing that has come in a group. False if it is not the one that was offered.
    fn take_relayed_listing(&mut self) -> bool;
    /// Opens the offered target, new or from an earlier session; returns what it keeps of a tree, and the digests of other
    /// existing chunks.
    fn prepare(&mut self) -> Result<(Ranges, Option<ChunkDigests>), ReceiveError>;
    /// What of the prepared copy is there already.
    fn changes(&self) -> Changes;
    /// Names of the fabrics that this host can use, best first.
    fn fabrics(&self) -> Vec<String>;
    /// Starts this fabric; returns the port at which other members reach this one.
    fn start_fabric(&mut self, fabric: &str) -> Result<u16, ReceiveError>;
    /// Starts the copy with these ranges in place, and a digest of the contiguous part that completes with
    /// [`super::Event::OwnDigest`]. True if nothing is missing.
    fn start_copy(&mut self, has: &Ranges) -> Result<bool, ReceiveError>;
    /// The ranges in place.
    fn has(&self) -> Ranges;
    /// Errors: the copy could not be written or read. Any group that accesses it fails by that.
    fn check_storage(&self) -> Result<(), ReceiveError>;
    /// Starts to join, without ranges to get the listing of a tree; completes with [`super::Event::Joined`]. Errors: invalid terms.
    fn join(&mut self, start: Start) -> Result<(), String>;
    /// What is reported to the root about an error of joining: the predicate of a sentence about the member that it blames.
    fn explain(&mut self, error: &Error) -> String {
        join_predicate(error)
    }
    /// Sends these ranges of the copy in a joined group and closes it; completes with [`MemberEvent::Ended`].
    ///
    /// [`MemberEvent::Ended`]: super::MemberEvent::Ended
    fn send_ranges(&mut self, group: u64, ranges: &Ranges) -> Result<(), Error>;
    /// Reads these ranges at the URL that was offered into the copy, sends them in a joined group as they come, and closes it;
    /// completes with some [`super::Event::Read`], and as [`Effects::send_ranges`]. Errors: nothing was offered.
    fn read_ranges(&mut self, _group: u64, _ranges: &Ranges) -> Result<(), Error> {
        Err(Error::Transport("this is not read at a URL".into()))
    }
    /// Waits for the source of a group to close it.
    fn await_close(&mut self, group: u64);
    /// Ends a joined group, if it has not ended before.
    fn abort(&mut self, group: u64, reason: &str);
    /// The root has announced a message of a stream. Errors: this is no stream; the message does not follow.
    fn announce(&mut self, message: StreamMessage) -> Result<(), ReceiveError>;
    /// Adds the root's digests of chunks of what is fetched. Errors: nothing is fetched; it has no such chunks.
    fn add_chunks(&mut self, _digests: ChunkDigests) -> Result<(), ReceiveError> {
        Err(ReceiveError::System(UNEXPECTED_CHUNKS.into()))
    }
    /// The digest of what is written out of a stream; of a copy nothing, since it completes with
    /// [`super::Event::OwnDigest`].
    fn written_digest(&self) -> Option<blake3::Hash>;
    /// Writes the verified copy to disk and does everything else that publishing it takes, but for what others can see. Errors: this is
    /// no copy; the system's.
    fn store(&mut self, _proof: &Verified) -> Result<(), ReceiveError> {
        Err(ReceiveError::System("the root ordered to store what is no copy".into()))
    }
    /// Publishes the copy; true if it had its name already. `None` if it completes with [`super::Event::Published`].
    fn publish(&mut self, proof: &Verified) -> Result<Option<bool>, ReceiveError>;
    /// Peak resident memory of this process.
    fn peak_resident_bytes(&self) -> Option<u64>;
}

/// A group that this receiver joins or has joined, until it ends.
struct Membership {
    rank: u32,
    is_joined: bool,
    /// The ranges that this receiver sends; `None` if it receives.
    sends: Option<Ranges>,
    /// It reads them at a URL.
    reads: bool,
}

/// How the listing of a tree comes to a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListingComes {
    /// There is none, or it has come.
    Not,
    /// In messages of the root.
    Directly,
    /// In a group or, if that fails, in messages of the root.
    InGroup,
}

/// A session from the offer until the copy is published.
pub struct ReceiverMachine {
    /// Length of the object; without an end for a stream.
    bytes: u64,
    /// The root may send parts of the listing that have come otherwise.
    may_list_again: bool,
    listing: ListingComes,
    /// The root has chosen a fabric and may start groups.
    is_receiving: bool,
    groups: BTreeMap<u64, Membership>,
    own_digest: Option<blake3::Hash>,
    root_digest: Option<blake3::Hash>,
    verified: Option<Verified>,
}

impl ReceiverMachine {
    /// Prepares what was offered, of this length, once its listing has come. Errors: it cannot be prepared or is refused; the root is
    /// lost.
    pub fn begin(
        effects: &mut impl Effects,
        bytes: u64,
        listing: ListingComes,
    ) -> Result<Self, ReceiveError> {
        match listing {
            ListingComes::Not => prepare(effects)?,
            ListingComes::Directly => {}
            ListingComes::InGroup => {
                let fabrics = effects.fabrics();
                send(effects, &ToRoot::NeedsListing { fabrics })?;
            }
        }
        Ok(Self {
            bytes,
            may_list_again: listing == ListingComes::InGroup,
            listing,
            is_receiving: false,
            groups: BTreeMap::new(),
            own_digest: None,
            root_digest: None,
            verified: None,
        })
    }

    /// A message from the root. True once the copy is published; no event may follow.
    pub fn on_message(
        &mut self,
        effects: &mut impl Effects,
        message: ToReceiver,
    ) -> Result<bool, ReceiveError> {
        match message {
            ToReceiver::Listing { part } if self.listing != ListingComes::Not => {
                if effects.add_listing(&part)? {
                    self.listing = ListingComes::Not;
                    prepare(effects)?;
                }
            }
            // It was on the way when the listing came from a group that has failed elsewhere.
            ToReceiver::Listing { .. } if self.may_list_again => {}
            ToReceiver::Use { fabric, .. } if self.listing == ListingComes::InGroup => {
                let port = effects.start_fabric(&fabric)?;
                send(effects, &ToRoot::Ready { port })?;
            }
            ToReceiver::Start(start)
                if self.listing == ListingComes::InGroup
                    && start.ranges.is_empty()
                    && self.groups.is_empty() =>
            {
                self.start(effects, start)?;
            }
            ToReceiver::Use { fabric, has } if !self.is_receiving => {
                self.is_receiving = true;
                let port = effects.start_fabric(&fabric)?;
                // Before `Ready`: it reserves space, whose lack must be reported before anything is sent.
                let is_complete = effects.start_copy(&has.within(self.bytes))?;
                send(effects, &ToRoot::Ready { port })?;
                if is_complete {
                    self.on_complete(effects)?;
                }
            }
            ToReceiver::Start(start) if self.is_receiving => self.start(effects, start)?,
            ToReceiver::Leave { group } if self.is_receiving || self.may_list_again => {
                self.leave(effects, group)?;
            }
            ToReceiver::Announce(message) if self.is_receiving => effects.announce(message)?,
            ToReceiver::Chunks(digests) if self.is_receiving => effects.add_chunks(digests)?,
            ToReceiver::Digest { digest } if self.is_receiving => {
                self.own_digest = effects.written_digest().or(self.own_digest);
                self.root_digest = Some(blake3::Hash::from_bytes(digest));
                self.compare(effects)?;
            }
            ToReceiver::Store if self.is_receiving => self.store(effects)?,
            ToReceiver::Publish if self.is_receiving => return self.publish(effects),
            message => unexpected_message(message)?,
        }
        Ok(false)
    }

    /// Whether this receiver is joining this group.
    pub fn is_joining(&self, group: u64) -> bool {
        self.groups.get(&group).is_some_and(|membership| !membership.is_joined)
    }

    /// A group was joined, or joining failed.
    pub fn on_joined(
        &mut self,
        effects: &mut impl Effects,
        group: u64,
        outcome: Result<(), Error>,
    ) -> Result<(), ReceiveError> {
        // A group that was left meanwhile fails at its members.
        let Some(membership) = self.groups.get_mut(&group) else { return Ok(()) };
        match outcome {
            Ok(()) => {
                membership.is_joined = true;
                match &membership.sends {
                    Some(ranges) => {
                        let sent = match membership.reads {
                            true => effects.read_ranges(group, ranges),
                            false => effects.send_ranges(group, ranges),
                        };
                        if let Err(error) = sent {
                            effects.abort(group, &error.to_string());
                        }
                    }
                    None => effects.await_close(group),
                }
                Ok(())
            }
            Err(error) => {
                let own_rank = membership.rank;
                self.groups.remove(&group);
                let detail = effects.explain(&error);
                let blamed = blamed_by(&error, own_rank);
                let unconnected = match error {
                    Error::Timeout { unconnected, .. } => unconnected,
                    _ => Vec::new(),
                };
                send_failure(effects, group, blamed, unconnected, detail)
            }
        }
    }

    /// A group has closed with success, or failed. It does not access the target any more, except that a write may be in progress
    /// ([`super::Deferred`]).
    pub fn on_ended(
        &mut self,
        effects: &mut impl Effects,
        group: u64,
        outcome: Result<(), Failure>,
    ) -> Result<(), ReceiveError> {
        if self.groups.remove(&group).is_none() {
            return Ok(());
        }
        match outcome {
            Ok(()) => send(effects, &ToRoot::GroupClosed { group }),
            Err(failure) => report_failure(effects, group, blamed(&failure), predicate(&failure)),
        }
    }

    /// What has arrived in a group at this place in a stream is not what was announced: leaves the group.
    pub fn on_altered(
        &mut self,
        effects: &mut impl Effects,
        group: u64,
        at: u64,
    ) -> Result<(), ReceiveError> {
        if self.groups.contains_key(&group) {
            send(effects, &ToRoot::Altered { group, at })?;
            effects.abort(group, ALTERED);
        }
        Ok(())
    }

    /// What a group was to bring of the listing has come.
    pub fn on_listed(
        &mut self,
        effects: &mut impl Effects,
        group: u64,
    ) -> Result<(), ReceiveError> {
        if self.listing != ListingComes::InGroup || !self.groups.contains_key(&group) {
            return Ok(());
        }
        if !effects.take_relayed_listing() {
            effects.abort(group, ALTERED_LISTING);
            return Ok(());
        }
        self.listing = ListingComes::Not;
        prepare(effects)
    }

    /// The last byte is in place.
    pub fn on_complete(&mut self, effects: &mut impl Effects) -> Result<(), ReceiveError> {
        send(effects, &ToRoot::Complete)
    }

    /// Subtrees of files were read at a URL.
    pub fn on_read(
        &mut self,
        effects: &mut impl Effects,
        digests: Vec<(u64, SubtreeDigest)>,
    ) -> Result<(), ReceiveError> {
        send(effects, &ToRoot::Read { digests })
    }

    /// The digest of the whole copy is known, or reading it back failed.
    pub fn on_digest(
        &mut self,
        effects: &mut impl Effects,
        digest: io::Result<blake3::Hash>,
    ) -> Result<(), ReceiveError> {
        self.own_digest = Some(digest.map_err(ReceiveError::ReadBack)?);
        self.compare(effects)
    }

    fn start(&mut self, effects: &mut impl Effects, start: Start) -> Result<(), ReceiveError> {
        let (group, rank, reads) = (start.group.number, start.group.rank, start.reads);
        let sends = (rank == 0).then(|| start.ranges.within(self.bytes));
        match effects.join(start) {
            Ok(()) => {
                self.groups.insert(group, Membership { rank, is_joined: false, sends, reads });
                Ok(())
            }
            Err(detail) => report_failure(effects, group, Some(itself(rank)), detail),
        }
    }

    /// A joined group reports its end by an event. One that is still being joined has not accessed the target, and
    /// never will, since nothing is sent in it.
    fn leave(&mut self, effects: &mut impl Effects, group: u64) -> Result<(), ReceiveError> {
        match self.groups.get(&group) {
            Some(Membership { is_joined: true, .. }) => {
                effects.abort(group, GIVEN_UP);
                Ok(())
            }
            Some(_) => {
                self.groups.remove(&group);
                report_failure(effects, group, None, "left".into())
            }
            None => Ok(()),
        }
    }

    fn compare(&mut self, effects: &mut impl Effects) -> Result<(), ReceiveError> {
        let (Some(own), Some(root)) = (self.own_digest, self.root_digest) else { return Ok(()) };
        let outcome = Verified::compare(own, root);
        if let Err(error) = &outcome {
            tracing::debug!(%error, "verification");
        }
        self.verified = outcome.ok();
        send(effects, &ToRoot::Compared { equal: self.verified.is_some() })
    }

    fn store(&mut self, effects: &mut impl Effects) -> Result<(), ReceiveError> {
        effects.store(self.verified.as_ref().ok_or_else(unverified)?)?;
        send(effects, &ToRoot::Stored)
    }

    fn publish(&mut self, effects: &mut impl Effects) -> Result<bool, ReceiveError> {
        let published = effects.publish(&self.verified.take().ok_or_else(unverified)?)?;
        let is_published = published.is_some();
        published.into_iter().for_each(|was_there| self.on_published(effects, was_there));
        Ok(is_published)
    }

    /// The copy has its name, or the command that takes a stream has succeeded.
    pub fn on_published(&mut self, effects: &mut impl Effects, was_there: bool) {
        let peak_resident_bytes = effects.peak_resident_bytes();
        // The copy is published even if the root is lost.
        let _ = effects.send_message(&ToRoot::Published { peak_resident_bytes, was_there });
    }
}

fn prepare(effects: &mut impl Effects) -> Result<(), ReceiveError> {
    let (kept, digests) = effects.prepare()?;
    let kept = RangeList::from(&kept);
    let (fabrics, changes) = (effects.fabrics(), effects.changes());
    send(effects, &ToRoot::Prepared { fabrics, kept, digests, changes })
}

/// The error for an order that needs a verified copy.
fn unverified() -> ReceiveError {
    ReceiveError::System("was ordered to publish an unverified copy".into())
}

fn send(effects: &mut impl Effects, message: &ToRoot) -> Result<(), ReceiveError> {
    effects.send_message(message).map_err(ReceiveError::Root)
}

fn report_failure(
    effects: &mut impl Effects,
    group: u64,
    blamed: Option<Blamed>,
    detail: String,
) -> Result<(), ReceiveError> {
    send_failure(effects, group, blamed, Vec::new(), detail)
}

fn send_failure(
    effects: &mut impl Effects,
    group: u64,
    blamed: Option<Blamed>,
    unconnected: Vec<u32>,
    detail: String,
) -> Result<(), ReceiveError> {
    // No other member is to blame, and no further group would succeed.
    effects.check_storage()?;
    let has = RangeList::from(&effects.has());
    send(effects, &ToRoot::GroupFailed { group, blamed, unconnected, detail, has })
}

/// The member that an error of joining a group blames: this one if it concerns no other and not the switches.
pub(super) fn blamed_by(error: &Error, own_rank: u32) -> Option<Blamed> {
    match error {
        Error::Failed(failure) => blamed(failure),
        Error::Member { .. } | Error::Timeout { .. } => {
            unjoined(error).map(|member| Blamed { member, noticed_by: None })
        }
        Error::Peer { .. } | Error::InSwitch { .. } => None,
        _ => Some(itself(own_rank)),
    }
}

/// What a member of this rank reports that cannot join for a reason of its own.
fn itself(rank: u32) -> Blamed {
    Blamed { member: rank, noticed_by: None }
}

/// Handles a message of the root that is not expected now.
pub(super) fn unexpected_message(message: ToReceiver) -> Result<(), ReceiveError> {
    match message {
        ToReceiver::Abort { reason, keep } => {
            Err(ReceiveError::Aborted { reason: shortened(&reason), keep })
        }
        // Keepalives, and late messages of groups that have ended.
        ToReceiver::Alive | ToReceiver::Leave { .. } => Ok(()),
        message => Err(ReceiveError::System(format!(
            "unexpected message from the root: {}",
            message.kind()
        ))),
    }
}
