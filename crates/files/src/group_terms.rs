//! What members are told of a group that they are to join.

use std::net::SocketAddr;

use rdmc::{Algorithm, Error, GroupSettings, Scheduling, Window};
use serde::{Deserialize, Serialize};

/// A group as its members are told of it, on control connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupTerms {
    /// Number of the group, never used again.
    pub number: u64,
    /// The rank of the member that is told.
    pub rank: u32,
    /// Addresses of the members' contexts, by rank.
    pub addresses: Vec<SocketAddr>,
    /// The rack of each rank.
    pub racks: Vec<u32>,
    /// [`Algorithm::code`].
    pub algorithm: u8,
    /// Length of a block in bytes.
    pub block_bytes: u64,
    /// [`Window::receives`].
    pub window_receives: u32,
    /// [`Window::sends`].
    pub window_sends: u32,
    /// The most messages under way.
    pub messages_in_flight: u32,
    /// Whether the network relays by itself where it can.
    pub offload: bool,
}

impl GroupTerms {
    /// The group at the member that this was sent to, which may queue any number of messages.
    ///
    /// Errors: terms that make no group.
    pub fn settings(&self) -> Result<GroupSettings, Error> {
        let refuse = |name, value, allowed: &str| {
            Err(Error::Setting { name, value, allowed: allowed.to_owned() })
        };
        let Some(algorithm) = Algorithm::from_code(self.algorithm) else {
            let value = format!("number {}", self.algorithm);
            return refuse("algorithm", value, "one that all hosts know: the same version of rdmc");
        };
        if self.addresses.len() != self.racks.len() {
            let value = format!("{} for {} members", self.racks.len(), self.addresses.len());
            return refuse("racks", value, "one for each member");
        }
        let window = Window { receives: self.window_receives, sends: self.window_sends };
        let settings = GroupSettings::new(self.number, self.addresses.clone(), self.rank)
            .schedule(Scheduling::InRacks(algorithm, self.racks.clone()))
            .block_bytes(self.block_bytes)
            .window(window)
            .messages_in_flight(self.messages_in_flight)
            .offload(self.offload)
            // All ranges of a push are queued at once; a message of a measurement comes back before its sender is done with it.
            .send_queue_max(u32::MAX);
        settings.make_schedule()?;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> GroupTerms {
        GroupTerms {
            number: 1,
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
    fn terms_without_a_valid_group_are_refused() {
        let settings = terms().settings().unwrap();
        assert!(settings.members.len() == 2 && settings.offload);
        assert_eq!(settings.send_queue_max, u32::MAX);
        let unknown = GroupTerms { algorithm: 99, ..terms() }.settings().unwrap_err();
        assert!(unknown.to_string().contains("number 99"), "{unknown}");
        assert!(GroupTerms { racks: vec![0], ..terms() }.settings().is_err());
        let empty = GroupTerms { racks: vec![], addresses: vec![], ..terms() };
        assert!(empty.settings().is_err());
    }
}
