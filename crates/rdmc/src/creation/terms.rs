//! The settings that must be the same at all members of a group.

use std::net::SocketAddr;

use engine::GroupSettings;
use schedule::Schedule;
use serde::{Deserialize, Serialize};

use crate::{Offload, Protection};

/// The member list is compared in at most this many parts, so that a difference can be located
/// without sending the whole list.
const PARTS_MAX: usize = 256;

/// The settings of a group at one member that must be the same at all; compared when two members
/// connect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    members: u32,
    root: u32,
    algorithm: u8,
    block_bytes: u64,
    messages_in_flight: u32,
    /// Whether the network relays blocks by itself: requested, and supported.
    offload: bool,
    pub(crate) streams: u8,
    fabric: String,
    /// Its name.
    protection: String,
    /// Limits of small messages: bytes, slots, members.
    small: Option<[u32; 3]>,
    /// Hash of the schedule's layout beyond the fields above: the racks.
    layout: [u8; 8],
    /// Hashes of the member list, in equal parts.
    addresses: Vec<[u8; 8]>,
}

impl Terms {
    /// Makes the terms of a group from the address of each member, the streams per neighbour, the
    /// name of the fabric, the use of offload, and the protection of links.
    pub(crate) fn new(
        settings: &GroupSettings,
        addresses: &[SocketAddr],
        streams: u8,
        fabric: &str,
        offload: Offload,
        protection: Protection,
    ) -> Self {
        let schedule = &settings.schedule;
        let part = addresses.len().div_ceil(PARTS_MAX).max(1);
        Self {
            members: schedule.members(),
            root: schedule.root(),
            algorithm: schedule.algorithm().code(),
            block_bytes: settings.block_bytes,
            messages_in_flight: settings.messages_in_flight,
            offload: offload.is_used(),
            streams,
            fabric: fabric.to_owned(),
            protection: protection.name().to_owned(),
            small: settings.small.map(|small| [small.bytes_max, small.slots, small.members_max]),
            layout: layout(schedule),
            addresses: addresses.chunks(part).map(hash_addresses).collect(),
        }
    }

    /// Describes the first difference; `self` is called "here" and `theirs` "there".
    pub(crate) fn difference(&self, theirs: &Self) -> Option<String> {
        let name =
            |code| schedule::Algorithm::from_code(code).map_or("unknown".into(), |a| a.to_string());
        let fields = [
            ("number of members", self.members.to_string(), theirs.members.to_string()),
            ("root", self.root.to_string(), theirs.root.to_string()),
            ("algorithm", name(self.algorithm), name(theirs.algorithm)),
            ("block size", self.block_bytes.to_string(), theirs.block_bytes.to_string()),
            (
                "messages in flight",
                self.messages_in_flight.to_string(),
                theirs.messages_in_flight.to_string(),
            ),
            ("offload", on_off(self.offload).into(), on_off(theirs.offload).into()),
            ("streams per neighbour", self.streams.to_string(), theirs.streams.to_string()),
            ("fabric", self.fabric.clone(), theirs.fabric.clone()),
            ("protection of links", self.protection.clone(), theirs.protection.clone()),
            (
                "small messages (bytes, slots, members)",
                format!("{:?}", self.small),
                format!("{:?}", theirs.small),
            ),
        ];
        if let Some((what, own, other)) = fields.into_iter().find(|(_, own, other)| own != other) {
            return Some(format!("{what}: {own} here, {other} there"));
        }
        if self.layout != theirs.layout {
            return Some("the racks of the members".into());
        }
        let part = (self.members as usize).div_ceil(PARTS_MAX).max(1);
        let at = self.addresses.iter().zip(&theirs.addresses).position(|(own, other)| own != other);
        match at {
            Some(index) if part == 1 => Some(format!("the address of member {index}")),
            Some(index) => {
                let (first, last) = (index * part, (index + 1) * part - 1);
                Some(format!("the addresses of members {first} to {last}"))
            }
            None if self.addresses.len() != theirs.addresses.len() => {
                Some("the length of the member list".into())
            }
            None => None,
        }
    }
}

fn on_off(used: bool) -> &'static str {
    if used { "used" } else { "not used" }
}

/// Hashes the layout of racks. Only announcers are hashed, since the schedule itself is a function:
/// racks that differ and affect the schedule change the announcer of some member.
fn layout(schedule: &Schedule) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    for rank in 0..schedule.members() {
        hasher.update(&schedule.announcer(rank).unwrap_or(u32::MAX).to_le_bytes());
    }
    shorten(&hasher.finalize())
}

fn hash_addresses(addresses: &[SocketAddr]) -> [u8; 8] {
    let text: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    shorten(&blake3::hash(text.join(",").as_bytes()))
}

fn shorten(hash: &blake3::Hash) -> [u8; 8] {
    let mut short = [0; 8];
    short.copy_from_slice(&hash.as_bytes()[..8]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedule::Algorithm;

    fn terms(members: u32, root: u32, change: impl Fn(&mut GroupSettings)) -> Terms {
        let schedule = Schedule::new(Algorithm::Chain, members, root).unwrap();
        let mut settings = GroupSettings::new(1, 0, schedule);
        change(&mut settings);
        let addresses: Vec<SocketAddr> = (0..members)
            .map(|rank| SocketAddr::from(([10, 0, (rank >> 8) as u8, rank as u8], 7)))
            .collect();
        Terms::new(&settings, &addresses, 1, "tcp", Offload::NotAsked, Protection::default())
    }

    #[test]
    fn equal_terms_have_no_difference() {
        assert_eq!(terms(600, 3, |_| {}).difference(&terms(600, 3, |_| {})), None);
    }

    #[test]
    fn each_difference_is_named() {
        let own = terms(4, 0, |_| {});
        let difference = |other: Terms| own.difference(&other).unwrap();
        assert!(difference(terms(5, 0, |_| {})).contains("members: 4 here, 5 there"));
        assert!(difference(terms(4, 1, |_| {})).contains("root: 0 here, 1 there"));
        let other = terms(4, 0, |settings| settings.block_bytes = 7);
        assert!(difference(other).contains("block size: 65536 here, 7 there"));
        let other = terms(4, 0, |settings| settings.messages_in_flight = 9);
        assert!(difference(other).contains("in flight"));
        let mut other = terms(4, 0, |_| {});
        other.fabric = "verbs".into();
        assert!(difference(other).contains("fabric: tcp here, verbs there"));
        let mut other = terms(4, 0, |_| {});
        other.protection = "encrypt".into();
        assert!(difference(other).contains("protection of links: authenticate here, encrypt"));
        let mut other = terms(4, 0, |_| {});
        other.offload = true;
        assert!(difference(other).contains("offload: not used here, used there"));
        let other = terms(4, 0, |settings| settings.small = None);
        assert!(difference(other).contains("small messages"));
        let other = terms(4, 0, |settings| {
            settings.schedule = Schedule::new(Algorithm::Sequential, 4, 0).unwrap();
        });
        assert!(difference(other).contains("chain here, sequential there"));
    }

    #[test]
    fn racks_and_addresses_are_compared() {
        let racks = |racks: &[u32]| {
            let schedule = Schedule::with_racks(Algorithm::ChainOfRacks, racks, 0).unwrap();
            Terms::new(
                &GroupSettings::new(1, 0, schedule),
                &[],
                1,
                "tcp",
                Offload::NotAsked,
                Protection::default(),
            )
        };
        let difference = racks(&[0, 0, 1, 1]).difference(&racks(&[0, 1, 0, 1]));
        assert!(difference.unwrap().contains("racks"));

        let schedule = Schedule::new(Algorithm::Chain, 600, 0).unwrap();
        let settings = GroupSettings::new(1, 0, schedule);
        let mut addresses = vec![SocketAddr::from(([10, 0, 0, 1], 7)); 600];
        let own =
            Terms::new(&settings, &addresses, 1, "tcp", Offload::NotAsked, Protection::default());
        addresses[31].set_port(8);
        let other =
            Terms::new(&settings, &addresses, 1, "tcp", Offload::NotAsked, Protection::default());
        assert!(own.difference(&other).unwrap().contains("members 30 to 32"));
    }
}
