//! What a receiver decides while it gets a copy, as a state machine: it has no thread, no clock and
//! no connection.
//!
//! Whoever drives it tells it what has happened; what it wants done it asks of a [`Stage`]. An error
//! ends the session; whether what has come is kept then, and what the root is told, is for
//! [`ReceiveError`] to say.

use std::{collections::BTreeMap, io};

use rdmc::{Error, Failure};

use super::error::ReceiveError;
use crate::{
    Verified,
    leftover::Leftover,
    messages::{GIVEN_UP, Offer, Start, ToReceiver, ToRoot, blamed, join_predicate, predicate},
    ranges::{RangeList, Ranges},
};

/// Does what a session wants done. Whatever fails here ends the session.
pub trait Stage {
    /// A group that was joined.
    type Group;

    /// Keeps a group that was joined, until it ends.
    fn stands(&mut self, number: u64, group: Self::Group);
    /// A group that was joined too late fails at all its members.
    fn let_go(&mut self, number: u64, group: Self::Group);
    /// A group has closed or failed by itself.
    fn ended(&mut self, number: u64);
    /// Says something to the root. Errors: it is lost.
    fn tell(&mut self, message: &ToRoot) -> Result<(), Error>;
    /// Makes the target, or takes that of an earlier session; answers what is in it then.
    fn prepare(&mut self, offer: &Offer) -> Result<Option<Leftover>, ReceiveError>;
    /// Names of the fabrics that could be used here, best first.
    fn fabrics(&self) -> Vec<String>;
    /// Starts this fabric; answers the port at which members reach this one.
    fn start_fabric(&mut self, offer: &Offer, fabric: &str) -> Result<u16, ReceiveError>;
    /// This much of the target is right already. From now on what is in place is digested, without
    /// gaps, and at last [`Session::digested`] is told. Whether nothing is missing.
    fn start_copy(&mut self, has: &Ranges) -> Result<bool, ReceiveError>;
    /// What is in place.
    fn has(&self) -> Ranges;
    /// Starts to join; answered by [`Session::joined`]. Errors: terms that make no group.
    fn join(&mut self, start: Start) -> Result<(), String>;
    /// Sends these parts of the copy in a group that was joined, and closes it; answered by
    /// [`Session::ended`].
    fn send(&mut self, group: u64, ranges: &Ranges) -> Result<(), Error>;
    /// Waits for the source of a group to close it; answered by [`Session::ended`].
    fn await_close(&mut self, group: u64);
    /// Ends a group that was joined; answered by [`Session::ended`], if it has not ended before.
    fn abort(&mut self, group: u64, reason: &str);
    /// Gives the copy its name; answers whether it had it already.
    fn publish(&mut self, proof: &Verified) -> Result<bool, ReceiveError>;
    /// The most memory that this process has had resident.
    fn peak_resident_bytes(&self) -> Option<u64>;
}

/// A group that is being joined or has been, until it ends.
struct Membership {
    is_joined: bool,
    /// What this receiver sends in it; `None` if it receives.
    sends: Option<Ranges>,
}

/// From the offer until the copy has its name.
pub struct Session {
    offer: Offer,
    /// The root has chosen a fabric, and groups may come.
    is_receiving: bool,
    groups: BTreeMap<u64, Membership>,
    own_digest: Option<blake3::Hash>,
    root_digest: Option<blake3::Hash>,
    verified: Option<Verified>,
}

impl Session {
    /// Prepares what is offered. Errors: it cannot be, or must not; the root is lost.
    pub fn begin(stage: &mut impl Stage, offer: Offer) -> Result<Self, ReceiveError> {
        let leftover = stage.prepare(&offer)?;
        tell(stage, &ToRoot::Prepared { fabrics: stage.fabrics(), leftover })?;
        Ok(Self {
            offer,
            is_receiving: false,
            groups: BTreeMap::new(),
            own_digest: None,
            root_digest: None,
            verified: None,
        })
    }

    /// The root has said something. True once the copy has its name, after which nothing more is to
    /// be told.
    pub fn told(
        &mut self,
        stage: &mut impl Stage,
        message: ToReceiver,
    ) -> Result<bool, ReceiveError> {
        match message {
            ToReceiver::Use { fabric, has } if !self.is_receiving => {
                self.is_receiving = true;
                let port = stage.start_fabric(&self.offer, &fabric)?;
                // Space may be lacking for what is missing, which has to be known before anything is sent.
                let is_whole = stage.start_copy(&has.within(self.offer.manifest.bytes))?;
                tell(stage, &ToRoot::Ready { port })?;
                if is_whole {
                    self.whole(stage)?;
                }
            }
            ToReceiver::Start(start) if self.is_receiving => self.start(stage, start)?,
            ToReceiver::Leave { round } if self.is_receiving => self.leave(stage, round)?,
            ToReceiver::Digest { digest } if self.is_receiving => {
                self.root_digest = Some(blake3::Hash::from_bytes(digest));
                self.compare(stage)?;
            }
            ToReceiver::Publish if self.is_receiving => {
                self.publish(stage)?;
                return Ok(true);
            }
            message => unexpected(message)?,
        }
        Ok(false)
    }

    /// Whether this group is of use once it is joined.
    pub fn is_joining(&self, group: u64) -> bool {
        self.groups.get(&group).is_some_and(|membership| !membership.is_joined)
    }

    /// A group was joined, or could not be.
    pub fn joined(
        &mut self,
        stage: &mut impl Stage,
        group: u64,
        outcome: Result<(), Error>,
    ) -> Result<(), ReceiveError> {
        // One that was left meanwhile fails at its members.
        let Some(membership) = self.groups.get_mut(&group) else { return Ok(()) };
        match outcome {
            Ok(()) => {
                membership.is_joined = true;
                match &membership.sends {
                    Some(ranges) => {
                        if let Err(error) = stage.send(group, ranges) {
                            stage.abort(group, &error.to_string());
                        }
                    }
                    None => stage.await_close(group),
                }
                Ok(())
            }
            Err(error) => {
                self.groups.remove(&group);
                tell_failure(stage, group, culprit(&error), join_predicate(&error))
            }
        }
    }

    /// A group has closed with success, or failed: nobody touches the target for it any more.
    pub fn ended(
        &mut self,
        stage: &mut impl Stage,
        group: u64,
        outcome: Result<(), Failure>,
    ) -> Result<(), ReceiveError> {
        if self.groups.remove(&group).is_none() {
            return Ok(());
        }
        match outcome {
            Ok(()) => tell(stage, &ToRoot::RoundClosed { round: group }),
            Err(failure) => tell_failure(stage, group, blamed(&failure), predicate(&failure)),
        }
    }

    /// The last byte is in place.
    pub fn whole(&mut self, stage: &mut impl Stage) -> Result<(), ReceiveError> {
        tell(stage, &ToRoot::Whole)
    }

    /// The digest of the whole copy is known, or it cannot be read back.
    pub fn digested(
        &mut self,
        stage: &mut impl Stage,
        digest: io::Result<blake3::Hash>,
    ) -> Result<(), ReceiveError> {
        self.own_digest = Some(digest.map_err(ReceiveError::ReadBack)?);
        self.compare(stage)
    }

    fn start(&mut self, stage: &mut impl Stage, start: Start) -> Result<(), ReceiveError> {
        let group = start.round;
        let sends = (start.rank == 0).then(|| start.ranges.within(self.offer.manifest.bytes));
        match stage.join(start) {
            Ok(()) => {
                self.groups.insert(group, Membership { is_joined: false, sends });
                Ok(())
            }
            Err(detail) => tell_failure(stage, group, None, detail),
        }
    }

    /// A group that was joined says itself when nothing touches the target any more; one that is
    /// still being joined never gets as far, since nothing is sent in it.
    fn leave(&mut self, stage: &mut impl Stage, group: u64) -> Result<(), ReceiveError> {
        match self.groups.get(&group) {
            Some(Membership { is_joined: true, .. }) => {
                stage.abort(group, GIVEN_UP);
                Ok(())
            }
            Some(_) => {
                self.groups.remove(&group);
                tell_failure(stage, group, None, "left".into())
            }
            None => Ok(()),
        }
    }

    fn compare(&mut self, stage: &mut impl Stage) -> Result<(), ReceiveError> {
        let (Some(own), Some(root)) = (self.own_digest, self.root_digest) else { return Ok(()) };
        let outcome = Verified::compare(own, root);
        if let Err(error) = &outcome {
            tracing::debug!(%error, "verification");
        }
        self.verified = outcome.ok();
        tell(stage, &ToRoot::Compared { equal: self.verified.is_some() })
    }

    fn publish(&mut self, stage: &mut impl Stage) -> Result<(), ReceiveError> {
        let unverified = || ReceiveError::System("was told to publish an unverified copy".into());
        let was_there = stage.publish(&self.verified.take().ok_or_else(unverified)?)?;
        let peak_resident_bytes = stage.peak_resident_bytes();
        // The copy is there whether or not the root still listens.
        let _ = stage.tell(&ToRoot::Published { peak_resident_bytes, was_there });
        Ok(())
    }
}

fn tell(stage: &mut impl Stage, message: &ToRoot) -> Result<(), ReceiveError> {
    stage.tell(message).map_err(ReceiveError::Root)
}

fn tell_failure(
    stage: &mut impl Stage,
    round: u64,
    member: Option<u32>,
    detail: String,
) -> Result<(), ReceiveError> {
    let has = RangeList::from(&stage.has());
    tell(stage, &ToRoot::RoundFailed { round, member, detail, has })
}

/// Whom an error of joining a group names.
pub(super) fn culprit(error: &Error) -> Option<u32> {
    match error {
        Error::Member { member, .. } => Some(*member),
        Error::Failed(failure) => blamed(failure),
        _ => None,
    }
}

/// What words of the root mean that are not expected now: mostly nothing.
pub(super) fn unexpected(message: ToReceiver) -> Result<(), ReceiveError> {
    match message {
        ToReceiver::Abort { reason, keep } => Err(ReceiveError::Aborted { reason, keep }),
        // Only heartbeats, and late words of groups that are over.
        ToReceiver::Alive | ToReceiver::Leave { .. } => Ok(()),
        message => Err(ReceiveError::System(format!("the root said out of turn: {message:?}"))),
    }
}
