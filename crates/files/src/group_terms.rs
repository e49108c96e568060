//! What is sent to members about a group that they are to join.

use std::net::SocketAddr;

use rdmc::{Algorithm, Error, GroupSettings, Scheduling, Window};
use serde::{Deserialize, Serialize};

/// The most hosts of a push, including those that joined.
pub(crate) const HOSTS_MAX: usize = 10_000;
/// These and the root.
const MEMBERS_MAX: usize = HOSTS_MAX + 1;

/// A group as it is described to its members, on control connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupTerms {
    /// Number of the group, never used again.
    pub number: u64,
    /// The rank of the member that receives this.
    pub rank: u32,
    /// Addresses of the members' contexts, by rank; [`GroupSettings::UNKNOWN`] of those that the member does not connect to.
    #[serde(with = "known")]
    pub addresses: Vec<SocketAddr>,
    /// The rack of each rank.
    #[serde(with = "runs")]
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

    /// What is sent to the member of this rank, which connects to these neighbours: lists of all would take as many bytes in all
    /// as the
    /// square of their number.
    pub fn told(&self, rank: u32, neighbours: &[u32]) -> Self {
        let mut told = Self { rank, ..self.clone() };
        for (of, address) in (0..).zip(&mut told.addresses) {
            if of != rank && !neighbours.contains(&of) {
                *address = GroupSettings::UNKNOWN;
            }
        }
        told
    }
}

/// Addresses on the wire: the number of members, and those that are known, by rank.
mod known {
    use super::*;
    use serde::{Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        addresses: &[SocketAddr],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let known = addresses.iter().zip(0_u32..);
        let known = known.filter(|&(&address, _)| address != GroupSettings::UNKNOWN);
        let known: Vec<(u32, &SocketAddr)> = known.map(|(address, rank)| (rank, address)).collect();
        (addresses.len() as u32, known).serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Vec<SocketAddr>, D::Error> {
        let (members, known) = <(u32, Vec<(u32, SocketAddr)>)>::deserialize(from)?;
        if members as usize > MEMBERS_MAX {
            return Err(Error::custom("too many members"));
        }
        let mut addresses = vec![GroupSettings::UNKNOWN; members as usize];
        for (rank, address) in known {
            let of_rank = addresses.get_mut(rank as usize);
            *of_rank.ok_or_else(|| Error::custom("an address of no member"))? = address;
        }
        Ok(addresses)
    }
}

/// Racks on the wire: how many consecutive ranks are in which.
mod runs {
    use super::*;
    use serde::{Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(racks: &[u32], to: S) -> Result<S::Ok, S::Error> {
        let runs: Vec<(u32, u32)> =
            racks.chunk_by(|a, b| a == b).map(|run| (run.len() as u32, run[0])).collect();
        runs.serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u32>, D::Error> {
        let mut racks = Vec::new();
        for (ranks, rack) in Vec::<(u32, u32)>::deserialize(from)? {
            if racks.len() + ranks as usize > MEMBERS_MAX {
                return Err(Error::custom("racks of too many members"));
            }
            racks.resize(racks.len() + ranks as usize, rack);
        }
        Ok(racks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_told_of_its_neighbours_and_itself() {
        let address = |rank: u32| SocketAddr::from(([10, 0, (rank >> 8) as u8, rank as u8], 7));
        let whole = GroupTerms {
            rank: 0,
            addresses: (0..1000).map(address).collect(),
            racks: (0..1000).map(|rank| rank / 100).collect(),
            algorithm: Algorithm::BinomialPipeline.code(),
            ..terms()
        };
        let mut neighbours = whole.settings().unwrap().neighbours().unwrap();
        for rank in [1, 700, 999] {
            let linked = neighbours(rank);
            let told = whole.told(rank, &linked);
            let sent = postcard::to_allocvec(&told).unwrap();
            assert!(sent.len() < 300, "{} bytes to rank {rank}", sent.len());
            let got: GroupTerms = postcard::from_bytes(&sent).unwrap();
            assert_eq!((&got.addresses, &got.racks), (&told.addresses, &whole.racks));
            assert_eq!(got.settings().unwrap().neighbours().unwrap()(rank), linked);
            for (of, &known) in (0..).zip(&got.addresses) {
                let is_needed = of == rank || linked.contains(&of);
                assert_eq!(known, if is_needed { address(of) } else { GroupSettings::UNKNOWN });
            }
        }
    }

    #[test]
    fn lists_of_too_many_members_are_refused() {
        let sent = |members: usize| {
            let addresses = vec![GroupSettings::UNKNOWN; members];
            let terms = GroupTerms { addresses, racks: vec![0; members], ..terms() };
            postcard::from_bytes::<GroupTerms>(&postcard::to_allocvec(&terms).unwrap())
        };
        assert!(sent(MEMBERS_MAX).is_ok());
        assert!(sent(MEMBERS_MAX + 1).is_err());
    }

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
