//! The settings that must be the same at all members of a group or a team.

use std::net::SocketAddr;

use engine::GroupSettings;
use schedule::Schedule;
use serde::{Deserialize, Serialize};

use crate::{Offload, Protection, TeamSettings};

/// The member list is compared in at most this many parts, so that a difference can be located
/// without sending the whole list.
const PARTS_MAX: usize = 256;
const UNKNOWN: SocketAddr = crate::GroupSettings::UNKNOWN;

/// The settings at one member that must be the same at all; compared when two members connect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Terms {
    /// Of a group.
    Group(GroupTerms),
    /// Of a team.
    Team(TeamTerms),
}

impl Terms {
    /// Returns how many connections each link has.
    pub(crate) fn streams(&self) -> u8 {
        match self {
            Self::Group(terms) => terms.streams,
            Self::Team(_) => 1,
        }
    }

    /// Describes the first difference; `self` is called "here" and `theirs` "there".
    pub(crate) fn difference(&self, theirs: &Self) -> Option<String> {
        match (self, theirs) {
            (Self::Group(own), Self::Group(theirs)) => own.difference(theirs),
            (Self::Team(own), Self::Team(theirs)) => own.difference(theirs),
            (Self::Group(_), _) => Some("it is a group here, a team there".into()),
            (Self::Team(_), _) => Some("it is a team here, a group there".into()),
        }
    }
}

/// Describes a difference of settings that member `own` has found.
pub(crate) fn different(own: u32, from: u32, group: u64, difference: &str) -> String {
    format!(
        "members {own} and {from} have different settings for group {group}: {difference} (seen from member {own})"
    )
}

/// Describes that another member was asked.
pub(crate) fn not_member(own: u32, to: u32) -> String {
    format!("this is member {own}, not member {to}: the member lists differ")
}

/// The terms of a team.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TeamTerms {
    slots: u32,
    slot_bytes: u32,
    /// [`TeamSettings::ways`], as text.
    ways: Option<String>,
    fabric: String,
    /// Its name.
    protection: String,
    members: Addresses,
}

impl TeamTerms {
    /// Makes the terms of a team over a fabric of this name.
    pub fn new(settings: &TeamSettings, fabric: &str, protection: Protection) -> Self {
        Self {
            slots: settings.slots,
            slot_bytes: settings.slot_bytes,
            ways: settings.ways.map(|ways| ways.to_string()),
            fabric: fabric.to_owned(),
            protection: protection.name().to_owned(),
            members: Addresses::new(&settings.members),
        }
    }

    fn difference(&self, theirs: &Self) -> Option<String> {
        let ways = |terms: &Self| terms.ways.clone().unwrap_or_else(|| "by rank 0's costs".into());
        let fields = [
            ("slots", self.slots.to_string(), theirs.slots.to_string()),
            ("slot bytes", self.slot_bytes.to_string(), theirs.slot_bytes.to_string()),
            ("choice of ways", ways(self), ways(theirs)),
            ("fabric", self.fabric.clone(), theirs.fabric.clone()),
            ("protection of links", self.protection.clone(), theirs.protection.clone()),
        ];
        first_difference(&fields).or_else(|| self.members.difference(&theirs.members))
    }
}

/// The members' addresses, in a form that is short for any number of members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Addresses {
    members: u32,
    /// Hashes of the member list, in equal parts; none if it is known in part.
    parts: Vec<[u8; 8]>,
}

impl Addresses {
    pub(crate) fn new(addresses: &[SocketAddr]) -> Self {
        let part = addresses.len().div_ceil(PARTS_MAX).max(1);
        let members = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let parts = match addresses.contains(&UNKNOWN) {
            true => Vec::new(),
            false => addresses.chunks(part).map(hash_addresses).collect(),
        };
        Self { members, parts }
    }

    /// Whether it has no more parts than any list of members: peers make it.
    pub(crate) fn is_bounded(&self) -> bool {
        self.parts.len() <= PARTS_MAX
    }

    pub(crate) fn difference(&self, theirs: &Self) -> Option<String> {
        if self.members != theirs.members {
            return Some(format!(
                "number of members: {} here, {} there",
                self.members, theirs.members
            ));
        }
        if self.parts.is_empty() || theirs.parts.is_empty() {
            return None;
        }
        let part = (self.members as usize).div_ceil(PARTS_MAX).max(1);
        let at = self.parts.iter().zip(&theirs.parts).position(|(own, other)| own != other);
        match at {
            Some(index) if part == 1 => Some(format!("the address of member {index}")),
            Some(index) => {
                let (first, last) = (index * part, (index + 1) * part - 1);
                Some(format!("the addresses of members {first} to {last}"))
            }
            None if self.parts.len() != theirs.parts.len() => {
                Some("the length of the member list".into())
            }
            None => None,
        }
    }
}

/// Describes the first of these that differs here and there.
fn first_difference(fields: &[(&str, String, String)]) -> Option<String> {
    let differing = fields.iter().find(|(_, own, other)| own != other);
    differing.map(|(what, own, other)| format!("{what}: {own} here, {other} there"))
}

/// The terms of a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupTerms {
    members: u32,
    root: u32,
    algorithm: u8,
    block_bytes: u64,
    messages_in_flight: u32,
    /// Whether the network relays blocks by itself: requested, and supported.
    offload: bool,
    verify: bool,
    pub(crate) streams: u8,
    fabric: String,
    /// Its name.
    protection: String,
    /// Limits of small messages: bytes, slots, members.
    small: Option<[u32; 3]>,
    /// Hash of the schedule's layout beyond the fields above: the racks.
    layout: [u8; 8],
    addresses: Addresses,
}

impl GroupTerms {
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
        Self {
            members: schedule.members(),
            root: schedule.root(),
            algorithm: schedule.algorithm().code(),
            block_bytes: settings.block_bytes,
            messages_in_flight: settings.messages_in_flight,
            offload: offload.is_used(),
            verify: settings.verify,
            streams,
            fabric: fabric.to_owned(),
            protection: protection.name().to_owned(),
            small: settings.small.map(|small| [small.bytes_max, small.slots, small.members_max]),
            layout: layout(schedule),
            addresses: Addresses::new(addresses),
        }
    }

    fn difference(&self, theirs: &Self) -> Option<String> {
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
            ("verification", on_off(self.verify).into(), on_off(theirs.verify).into()),
            ("streams per neighbour", self.streams.to_string(), theirs.streams.to_string()),
            ("fabric", self.fabric.clone(), theirs.fabric.clone()),
            ("protection of links", self.protection.clone(), theirs.protection.clone()),
            (
                "small messages (bytes, slots, members)",
                format!("{:?}", self.small),
                format!("{:?}", theirs.small),
            ),
        ];
        if let Some(difference) = first_difference(&fields) {
            return Some(difference);
        }
        if self.layout != theirs.layout {
            return Some("the racks of the members".into());
        }
        self.addresses.difference(&theirs.addresses)
    }
}

fn on_off(used: bool) -> &'static str {
    if used { "used" } else { "not used" }
}

/// Hashes what the schedule depends on besides the terms' other fields: the racks, where it needs them.
fn layout(schedule: &Schedule) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    for rank in 0..schedule.members() {
        hasher.update(&schedule.announcer(rank).unwrap_or(u32::MAX).to_le_bytes());
        if let Some(rack) = schedule.rack(rank) {
            hasher.update(&rack.to_le_bytes());
        }
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

    fn terms(members: u32, root: u32, change: impl Fn(&mut GroupSettings)) -> GroupTerms {
        let schedule = Schedule::new(Algorithm::Chain, members, root).unwrap();
        let mut settings = GroupSettings::new(1, 0, schedule);
        change(&mut settings);
        let addresses: Vec<SocketAddr> = (0..members)
            .map(|rank| SocketAddr::from(([10, 0, (rank >> 8) as u8, rank as u8], 7)))
            .collect();
        GroupTerms::new(&settings, &addresses, 1, "tcp", Offload::NotAsked, Protection::default())
    }

    #[test]
    fn equal_terms_have_no_difference() {
        assert_eq!(terms(600, 3, |_| {}).difference(&terms(600, 3, |_| {})), None);
    }

    #[test]
    fn each_difference_is_named() {
        let own = terms(4, 0, |_| {});
        let difference = |other: GroupTerms| own.difference(&other).unwrap();
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
        other.protection = "none".into();
        assert!(difference(other).contains("protection of links: encrypt here, none"));
        let mut other = terms(4, 0, |_| {});
        other.offload = true;
        assert!(difference(other).contains("offload: not used here, used there"));
        assert!(
            difference(terms(4, 0, |it| it.verify = true)).contains("verification: not used here")
        );
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
            GroupTerms::new(
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
        // These have the same announcers.
        let difference = racks(&[0, 0, 0]).difference(&racks(&[0, 0, 1]));
        assert!(difference.unwrap().contains("racks"));

        let schedule = Schedule::new(Algorithm::Chain, 600, 0).unwrap();
        let settings = GroupSettings::new(1, 0, schedule);
        let mut addresses = vec![SocketAddr::from(([10, 0, 0, 1], 7)); 600];
        let own = GroupTerms::new(
            &settings,
            &addresses,
            1,
            "tcp",
            Offload::NotAsked,
            Protection::default(),
        );
        addresses[31].set_port(8);
        let other = GroupTerms::new(
            &settings,
            &addresses,
            1,
            "tcp",
            Offload::NotAsked,
            Protection::default(),
        );
        assert!(own.difference(&other).unwrap().contains("members 30 to 32"));
    }

    #[test]
    fn teams_are_compared_with_teams() {
        let team = |change: fn(&mut TeamSettings)| {
            let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
            let mut settings = TeamSettings::new(1, (1..4).map(address).collect(), 0);
            change(&mut settings);
            Terms::Team(TeamTerms::new(&settings, "tcp", Protection::default()))
        };
        let own = team(|_| {});
        assert_eq!(own.difference(&team(|settings| settings.rank = 2)), None);
        let difference = |other: &Terms| own.difference(other).unwrap();
        assert!(difference(&team(|it| it.slots = 3)).contains("slots: 16 here, 3 there"));
        let trees = |it: &mut TeamSettings| it.ways = Some("degree=1".parse().unwrap());
        let chosen = difference(&team(trees));
        assert!(chosen.contains("choice of ways: by rank 0's costs here, degree=1,exchange="));
        assert!(
            difference(&team(|it| it.members.truncate(2))).contains("members: 3 here, 2 there")
        );
        assert!(difference(&team(|it| it.members[1].set_port(9))).contains("address of member 1"));
        let group = Terms::Group(terms(3, 0, |_| {}));
        assert_eq!(difference(&group), "it is a team here, a group there");
        assert_eq!(group.difference(&own).unwrap(), "it is a group here, a team there");
    }
}
