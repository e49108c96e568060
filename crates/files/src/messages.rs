//! What root and receivers say to each other on their control connections.
//!
//! Either may hang up at any time; the other then cleans up. Both speak at least every
//! [`crate::control::SILENCE`], so a peer that has vanished is noticed.

use std::net::SocketAddr;

use rdmc::{Algorithm, Error, Failure, GroupSettings, Schedule, Window};
use serde::{Deserialize, Serialize};

use crate::Manifest;

/// From a receiver.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToRoot {
    /// The first message: which host this is, as the root named it when it had it started.
    Hello { host: String },
    /// The target is prepared. Fabrics that this host could use, best first, by name.
    Prepared { fabrics: Vec<String> },
    /// The fabric has been started; other members reach this one at its address and this port.
    Ready { port: u16 },
    /// How much of the file has come, in this round; also says that this receiver is alive.
    Progress { bytes: u64 },
    /// The groups of a measurement stand.
    Joined { round: u64 },
    /// The last byte of the file is in place, or of a message that is measured.
    Received { round: u64 },
    /// The copy was compared with the root's digest.
    Compared { round: u64, equal: bool },
    /// The group of this round failed or could not be joined. The target waits for another round.
    RoundFailed { round: u64, member: Option<u32>, detail: String },
    /// The copy has its name.
    Published { peak_resident_bytes: Option<u64> },
    /// This receiver cannot go on, or cannot even prepare its target. The last message.
    Failed { reason: String },
}

/// From the root.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToReceiver {
    /// The first message: what is to come.
    Offer(Offer),
    /// The first message instead: measurements are to come, and no file.
    Bench(BenchTerms),
    /// Join these groups and receive messages into memory.
    Measure(Measure),
    /// Start this fabric, by name.
    Use { fabric: String },
    /// Join this group and receive.
    Start(Start),
    /// The round has failed: leave it, and say so by [`ToRoot::RoundFailed`] if not done yet.
    Leave { round: u64 },
    /// Every member has the bytes and the source has not changed: give the copy its name.
    Publish,
    /// Nothing more is to come. The last message.
    Finish,
    /// Remove what has come. The last message.
    Abort { reason: String },
    /// The root is alive.
    Alive,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) manifest: Manifest,
    /// A path at the receiver, which may confine it to a directory.
    pub(crate) destination: String,
    /// Connections to each neighbour.
    pub(crate) streams: u8,
    /// How to wait for completions, by name.
    pub(crate) completion: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BenchTerms {
    /// Connections to each neighbour.
    pub(crate) streams: u8,
    /// How to wait for completions, by name.
    pub(crate) completion: String,
}

/// One measurement at one host: messages of one length, one after another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measure {
    pub(crate) start: Start,
    /// Length of each message.
    pub(crate) bytes: u64,
    /// A group back to the root, in which each message is answered by one of the same length.
    /// Without it, [`ToRoot::Received`] answers.
    pub(crate) echo: Option<Start>,
}

/// The longest message that is measured, in bytes: a host holds it in memory.
pub const MEASURED_BYTES_MAX: u64 = 16 << 30;

/// One attempt to replicate: a group of root and receivers. Its message 0 is the file, message 1
/// the digest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Number of the group, new for each attempt.
    pub(crate) round: u64,
    pub(crate) rank: u32,
    /// Of each member's context, by rank; the root is rank 0.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The rack of each rank.
    pub(crate) racks: Vec<u32>,
    pub(crate) algorithm: u8,
    pub(crate) block_bytes: u64,
    pub(crate) window_receives: u32,
    pub(crate) window_sends: u32,
    pub(crate) messages_in_flight: u32,
    /// Whether the network is to relay by itself, where it can.
    pub(crate) offload: bool,
}

/// Number of the message that holds the file's bytes.
pub(crate) const CONTENTS: u64 = 0;
/// Number of the message that holds the digest.
pub(crate) const DIGEST: u64 = 1;
pub(crate) const DIGEST_BYTES: usize = 32;

impl Start {
    /// The group at the member that this was sent to. Errors: terms that make no group.
    pub(crate) fn group_settings(&self) -> Result<GroupSettings, Error> {
        let setting = |what: String| Error::Setting(what);
        let algorithm = Algorithm::from_code(self.algorithm)
            .ok_or_else(|| setting(format!("algorithm {} is unknown here", self.algorithm)))?;
        if self.addresses.len() != self.racks.len() {
            return Err(setting("a rack is missing for some member".into()));
        }
        let schedule = Schedule::with_racks(algorithm, &self.racks, 0)
            .map_err(|error| setting(error.to_string()))?;
        let mut settings = GroupSettings::new(self.round, self.rank, schedule);
        settings.block_bytes = self.block_bytes;
        settings.window = Window { receives: self.window_receives, sends: self.window_sends };
        settings.messages_in_flight = self.messages_in_flight;
        settings.offload = self.offload;
        Ok(settings)
    }
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
        assert!(settings.schedule.members() == 2 && settings.offload);
        let unknown = Start { algorithm: 99, ..start() }.group_settings().unwrap_err();
        assert!(unknown.to_string().contains("algorithm 99"), "{unknown}");
        assert!(Start { racks: vec![0], ..start() }.group_settings().is_err());
        let empty = Start { racks: vec![], addresses: vec![], ..start() };
        assert!(empty.group_settings().is_err());
    }
}
