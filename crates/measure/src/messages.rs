//! Messages of root and receivers, inside those of [`files::Gathering`].

use std::{io, net::SocketAddr};

use files::GroupTerms;
use rdmc::{Error, TeamSettings, Thresholds, WaySelection};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{CollectivePlan, reach::Reach};

/// The longest message of a measurement, in bytes: hosts hold it in memory.
pub const MEASURED_BYTES_MAX: u64 = 16 << 30;

/// From the root.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Join these groups and receive messages into memory.
    Measure(Measure),
    /// This measurement has failed: leave its groups.
    Leave { number: u64 },
    /// Join this team and call its operations.
    Collective(MeasureCollective),
    /// Connect to other members.
    Reach(Reach),
}

/// From a receiver, of the measurement with this number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The groups are joined.
    Joined { number: u64 },
    /// The last message has arrived.
    Received { number: u64 },
    /// It failed here. Of a team only if no other member is to blame: the team tells all members who is.
    Failed { number: u64, detail: String },
    /// The members that it could not connect to, each by its rank, with the reason.
    Reached { number: u64, unreachable: Vec<(u32, String)> },
}

/// One measurement at one host: a sequence of messages of one length.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measure {
    /// Its number is the measurement's. All messages use the same memory, so that one follows another.
    pub group: GroupTerms,
    /// Length of each message.
    pub bytes: u64,
    /// A return group, in which the host sends each message back to the root. Without it, it confirms by
    /// [`Answer::Received`].
    pub echo: Option<GroupTerms>,
}

/// A measurement of a team's operations at one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MeasureCollective {
    /// Number of the team and of the measurement, never used again.
    pub number: u64,
    pub rank: u32,
    /// Addresses of the members' contexts, by rank.
    pub addresses: Vec<SocketAddr>,
    pub plan: CollectivePlan,
}

impl MeasureCollective {
    /// The team at the member that this was sent to. Creating it checks them.
    pub fn team_settings(&self) -> TeamSettings {
        let settings = TeamSettings::new(self.number, self.addresses.clone(), self.rank);
        match self.plan.degree {
            // By trees, also where an exchange has fewer steps.
            Some(degree) => settings.ways(WaySelection::ByThresholds(Thresholds::trees(degree))),
            None => settings,
        }
    }
}

/// Errors: none that these messages can have.
pub(crate) fn encode(message: &impl Serialize) -> Result<Vec<u8>, Error> {
    postcard::to_stdvec(message).map_err(|error| Error::System {
        what: "encoding a message".to_owned(),
        error: io::Error::other(error),
    })
}

/// Errors: the predicate of a sentence about the peer that has sent this.
pub(crate) fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, String> {
    postcard::from_bytes(bytes)
        .map_err(|error| format!("sent a message that does not belong to a measurement: {error}"))
}
