//! Messages of root and receivers, inside those of [`files::Gathering`].

use std::{io, net::SocketAddr};

use rdmc::{Algorithm, Error, GroupSettings, TeamSettings, Window};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::CollectivePlan;

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
}

/// One measurement at one host: a sequence of messages of one length.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measure {
    pub group: GroupTerms,
    /// Length of each message.
    pub bytes: u64,
    /// A return group, in which the host sends each message back to the root. Without it, it confirms by
    /// [`Answer::Received`].
    pub echo: Option<GroupTerms>,
}

/// A group of a measurement, at one member. All members are in one rack, and messages follow one another, since all use
/// the same memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupTerms {
    /// Never used again. That of the group from the root is the measurement's.
    pub number: u64,
    pub rank: u32,
    /// Addresses of the members' contexts, by rank.
    pub addresses: Vec<SocketAddr>,
    pub algorithm: u8,
    pub block_bytes: u64,
    pub window_receives: u32,
    pub window_sends: u32,
    /// Whether the network relays by itself where it can.
    pub offload: bool,
}

impl GroupTerms {
    /// Errors: terms that make no group.
    pub fn settings(&self) -> Result<GroupSettings, Error> {
        let Some(algorithm) = Algorithm::from_code(self.algorithm) else {
            return Err(Error::Setting {
                name: "algorithm",
                value: format!("number {}", self.algorithm),
                allowed: "one that all hosts know: the same version of rdmc".to_owned(),
            });
        };
        let window = Window { receives: self.window_receives, sends: self.window_sends };
        let settings = GroupSettings::new(self.number, self.addresses.clone(), self.rank)
            .algorithm(algorithm)
            .block_bytes(self.block_bytes)
            .window(window)
            .messages_in_flight(1)
            .offload(self.offload)
            // The next message is sent when the one before has arrived or come back, which may be before the sender itself is done
            // with it.
            .send_queue_max(u32::MAX);
        settings.make_schedule()?;
        Ok(settings)
    }
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
            Some(degree) => settings.degrees(vec![(u64::MAX, degree)]).exchange_bytes(0),
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
        .map_err(|error| format!("sent a message that is none of a measurement: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_without_a_valid_group_are_refused() {
        let terms = GroupTerms {
            number: 1,
            rank: 1,
            addresses: vec![([127, 0, 0, 1], 1).into(); 2],
            algorithm: Algorithm::Chain.code(),
            block_bytes: 10,
            window_receives: 2,
            window_sends: 2,
            offload: true,
        };
        let settings = terms.settings().unwrap();
        assert!(settings.members.len() == 2 && settings.offload);
        // A message comes back before its sender is done with it: many may be queued.
        assert_eq!(settings.send_queue_max, u32::MAX);
        let unknown = GroupTerms { algorithm: 99, ..terms.clone() }.settings().unwrap_err();
        assert!(unknown.to_string().contains("number 99"), "{unknown}");
        assert!(GroupTerms { addresses: vec![], ..terms }.settings().is_err());
    }
}
