//! What root and receivers say to each other on their control connections.
//!
//! Either may hang up at any time; the other then cleans up. Both speak at least every
//! second (see [`crate::control::silence`]), so a peer that has vanished is noticed.

use std::{net::SocketAddr, time::Duration};

use rdmc::{Algorithm, Error, Failure, FailureKind, GroupSettings, Secret, Waited, Window};
use serde::{Deserialize, Serialize};

use crate::{Manifest, control::check_failure_deadline, leftover::Leftover, ranges::RangeList};

/// From a receiver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToRoot {
    /// The first message: which host this is, as the root named it when it had it started.
    Hello { host: String },
    /// The target is prepared. Fabrics that this host could use, best first, by name; and what is
    /// there of an earlier session.
    Prepared { fabrics: Vec<String>, leftover: Option<Leftover> },
    /// The fabric has been started; other members reach this one at its address and this port.
    Ready { port: u16 },
    /// How much of the file is there; also says that this receiver is alive.
    Progress { bytes: u64 },
    /// How much was read or written so far besides receiving: a sign of progress while a target is
    /// prepared, verified or published.
    Worked { bytes: u64 },
    /// The groups of a measurement stand.
    Joined { round: u64 },
    /// The last message that was sent has come, in a measurement.
    Received { round: u64 },
    /// Whom this receiver has waited for in a group, since it stands.
    Waited { round: u64, waited: Vec<WaitedFor> },
    /// The last byte of the file is in place.
    Whole,
    /// The copy was compared with the root's digest.
    Compared { equal: bool },
    /// This group has closed: all of its members have all of its bytes.
    RoundClosed { round: u64 },
    /// This group failed or could not be joined; nobody touches the target for it any more. What
    /// of the file is there.
    RoundFailed { round: u64, member: Option<u32>, detail: String, has: RangeList },
    /// The copy has its name; it had it already, if it was there before.
    Published { peak_resident_bytes: Option<u64>, was_there: bool },
    /// This receiver cannot go on, or cannot even prepare its target. The last message.
    Failed { reason: String },
}

/// How long somebody has waited for a member of its group: [`rdmc::Waited`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WaitedFor {
    pub member: u32,
    pub to_take_us: u64,
    pub to_give_us: u64,
}

impl From<Waited> for WaitedFor {
    fn from(waited: Waited) -> Self {
        Self {
            member: waited.member,
            to_take_us: waited.to_take.as_micros() as u64,
            to_give_us: waited.to_give.as_micros() as u64,
        }
    }
}

impl From<WaitedFor> for Waited {
    fn from(waited: WaitedFor) -> Self {
        Self {
            member: waited.member,
            to_take: Duration::from_micros(waited.to_take_us),
            to_give: Duration::from_micros(waited.to_give_us),
        }
    }
}

/// From the root.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToReceiver {
    /// The first message: what is to come.
    Offer(Offer),
    /// The first message instead: measurements are to come, and no file.
    Bench(Terms),
    /// Join these groups and receive messages into memory.
    Measure(Measure),
    /// Start this fabric, by name. This much of what is there of an earlier session is right.
    Use { fabric: String, has: RangeList },
    /// Join this group, and send in it (rank 0) or receive.
    Start(Start),
    /// The group has failed: leave it, and say so by [`ToRoot::RoundFailed`] if not done yet.
    Leave { round: u64 },
    /// The digest of the source, to compare the whole copy with.
    Digest { digest: [u8; 32] },
    /// The copy was right and the source has not changed: give it its name.
    Publish,
    /// Nothing more is to come. The last message.
    Finish,
    /// This host is given up. Whether to keep what has come for a later session, or to remove it.
    /// The last message.
    Abort { reason: String, keep: bool },
    /// The root is alive.
    Alive,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offer {
    pub manifest: Manifest,
    /// A path at the receiver, which may confine it to a directory.
    pub destination: String,
    /// By which a receiver sees whether it is worth its while to read a file of this length that it has.
    pub probe: [u8; 32],
    /// Parts of the source take no space; what is zero in copies takes none then, either.
    pub has_holes: bool,
    pub terms: Terms,
}

/// How the members of a session come together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// Connections to each neighbour.
    pub streams: u8,
    /// How to wait for completions, by name.
    pub completion: String,
    /// How links are protected, by name.
    pub protection: String,
    /// After how long without a sign of life a member is lost.
    pub failure_deadline_ms: u32,
    /// The session's, by which its members know each other.
    #[serde(with = "secret_bytes")]
    pub secret: Secret,
}

impl Terms {
    /// Errors: it is out of range.
    pub fn failure_deadline(&self) -> Result<Duration, String> {
        let deadline = Duration::from_millis(u64::from(self.failure_deadline_ms));
        check_failure_deadline(deadline)?;
        Ok(deadline)
    }
}

/// For control connections alone, which are encrypted.
mod secret_bytes {
    use rdmc::Secret;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(secret: &Secret, into: S) -> Result<S::Ok, S::Error> {
        secret.to_bytes().serialize(into)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        <[u8; 32]>::deserialize(from).map(Secret::from_bytes)
    }
}

/// One measurement at one host: messages of one length, one after another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measure {
    pub start: Start,
    /// Length of each message.
    pub bytes: u64,
    /// A group back to the root, in which each message is answered by one of the same length.
    /// Without it, [`ToRoot::Received`] answers.
    pub echo: Option<Start>,
}

/// The longest message that is measured, in bytes: a host holds it in memory.
pub const MEASURED_BYTES_MAX: u64 = 16 << 30;

/// How long all members may take to join a group.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(15);

/// A group that replicates a part of the file: rank 0 has it, and sends each of its ranges as a
/// message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Number of the group, new for each attempt.
    pub round: u64,
    pub rank: u32,
    /// The bytes that travel; none in a measurement.
    pub ranges: RangeList,
    /// Of each member's context, by rank.
    pub addresses: Vec<SocketAddr>,
    /// The rack of each rank.
    pub racks: Vec<u32>,
    pub algorithm: u8,
    pub block_bytes: u64,
    pub window_receives: u32,
    pub window_sends: u32,
    pub messages_in_flight: u32,
    /// Whether the network is to relay by itself, where it can.
    pub offload: bool,
}

impl Start {
    /// The group at the member that this was sent to. Errors: terms that make no group.
    pub fn group_settings(&self) -> Result<GroupSettings, Error> {
        let refuse = |name, value, allowed: &str| {
            Err(Error::Setting { name, value, allowed: allowed.to_owned() })
        };
        let Some(algorithm) = Algorithm::from_code(self.algorithm) else {
            let value = format!("number {}", self.algorithm);
            return refuse("algorithm", value, "one that all hosts know: the same version of rdmc");
        };
        if self.addresses.len() != self.racks.len() {
            return refuse("racks", format!("{:?}", self.racks), "one for each member");
        }
        let window = Window { receives: self.window_receives, sends: self.window_sends };
        let settings = GroupSettings::new(self.round, self.addresses.clone(), self.rank)
            .algorithm(algorithm)
            .racks(self.racks.clone())
            .block_bytes(self.block_bytes)
            .window(window)
            .messages_in_flight(self.messages_in_flight)
            .offload(self.offload)
            // A message for each range, all queued at once.
            .send_queue_max(u32::MAX);
        settings.make_schedule()?;
        Ok(settings)
    }
}

/// Why members leave a group that the root has given up.
pub(crate) const GIVEN_UP: &str = "the root has given this group up";

/// Whom a failure blames: nobody, if a member has only left as it was told.
pub(crate) fn blamed(failure: &Failure) -> Option<u32> {
    let has_left = failure.kind == FailureKind::Application && failure.detail == GIVEN_UP;
    failure.member.filter(|_| !has_left)
}

/// What a group's member has done or suffered, without the numbers that only the library uses:
/// the predicate of a sentence about that member.
pub(crate) fn predicate(failure: &Failure) -> String {
    match failure.detail.as_str() {
        "" => failure.kind.to_string(),
        detail => format!("{}: {detail}", failure.kind),
    }
}

/// The same for a group that could not be joined.
pub(crate) fn join_predicate(error: &Error) -> String {
    match error {
        Error::Failed(failure) => predicate(failure),
        Error::Member { cause, .. } => format!("could not be joined: {cause}"),
        other => format!("could not be joined: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Start {
        Start {
            round: 1,
            rank: 1,
            ranges: RangeList::default(),
            addresses: vec![([127, 0, 0, 1], 1).into(); 2],
            racks: vec![0, 0],
            algorithm: Algorithm::Chain.code(),
            block_bytes: 10,
            window_receives: 2,
            window_sends: 2,
            messages_in_flight: 2,
            offload: true,
        }
    }

    #[test]
    fn terms_that_make_no_group_are_refused() {
        let settings = start().group_settings().unwrap();
        assert!(settings.members.len() == 2 && settings.offload);
        let unknown = Start { algorithm: 99, ..start() }.group_settings().unwrap_err();
        assert!(unknown.to_string().contains("number 99"), "{unknown}");
        assert!(Start { racks: vec![0], ..start() }.group_settings().is_err());
        let empty = Start { racks: vec![], addresses: vec![], ..start() };
        assert!(empty.group_settings().is_err());
    }
}
