//! What applications and daemons say of a group. What comes from others is checked here.

use std::net::IpAddr;

use mcrdma::{
    MEMBERS_MAX, REGIONS_MAX,
    plan::{Group, Member},
};
use roce::{Mac, Serial, rc::MemoryRegion};

use crate::{
    ControlError, ErrorKind,
    convert::{address, mac, optional_mac, optional_mac_told, serial},
    proto,
};

/// Words of the sending application's own.
pub const WORDS_BYTES_MAX: usize = 4096;
/// A service's name, and a daemon's address.
pub const NAME_BYTES_MAX: usize = 255;
/// Reasons are cut off there.
const REASON_BYTES_MAX: usize = 1000;
/// Payloads of packets that there are.
const MTUS_BYTES: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Memory, by the addresses that the sender uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Its first address.
    pub start: u64,
    /// Its length, at least 1.
    pub bytes: u64,
}

/// What a member has to know of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The sender's address.
    pub sender: IpAddr,
    /// Its queue pair.
    pub sender_qpn: u32,
    /// Number of its first packet, the same at all members.
    pub psn_first: u32,
    /// Payload of a packet: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu_bytes: u32,
    /// Memory that it may write, as it addresses it.
    pub regions: Vec<Extent>,
    /// The sending application's own, at most [`WORDS_BYTES_MAX`].
    pub words: Vec<u8>,
}

/// How a member takes part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acceptance {
    /// Its address, for which its host's certificate has to be.
    pub address: IpAddr,
    /// The Ethernet address of that interface.
    pub mac: Mac,
    /// Its queue pair, whose peer is the sender's.
    pub qpn: u32,
    /// Its memory: as many regions as the sender has, each at least as long.
    pub regions: Vec<MemoryRegion>,
}

/// Who is asked to be a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invited {
    /// HOST:PORT of its daemon.
    pub daemon: String,
    /// What its application listens as.
    pub service: String,
}

/// A group that an application wants to send to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewGroup {
    /// The sender's address, for which this host's certificate has to be.
    pub sender: IpAddr,
    /// Its Ethernet address, by which bridges know where it is. They find it out by themselves if they
    /// have an address in its subnet; routers need none.
    pub sender_mac: Option<Mac>,
    /// Its queue pair, which sends to no other group.
    pub sender_qpn: u32,
    /// Payload of a packet: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu_bytes: u32,
    /// 1 to 64.
    pub members: Vec<Invited>,
    /// Memory of each member that WRITEs go to, by the addresses that the sender uses; at most 16
    /// regions, which do not overlap.
    pub regions: Vec<Extent>,
    /// For the members' applications; at most [`WORDS_BYTES_MAX`].
    pub words: Vec<u8>,
    /// Whether it goes on without members that fail, as long as one is left.
    pub goes_on: bool,
    /// Each congestion notification goes to the sender, as the paper has it.
    pub all_notifications: bool,
}

/// What was asked makes no sense.
pub fn invalid(why: impl Into<String>) -> ControlError {
    ControlError::new(ErrorKind::Invalid, why)
}

/// Words of another host's, no longer than they need to be.
pub fn reason(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
    text
}

/// A name that others have given; `what` says of what.
pub fn name(what: &str, text: &str) -> Result<String, ControlError> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    if is_name {
        return Ok(text.to_owned());
    }
    Err(invalid(format!("a {what} has 1 to {NAME_BYTES_MAX} bytes, and none to steer terminals")))
}

fn mtu(bytes: u32) -> Result<u32, ControlError> {
    if MTUS_BYTES.contains(&bytes) {
        return Ok(bytes);
    }
    Err(invalid(format!("packets do not have {bytes} bytes, but one of {MTUS_BYTES:?}")))
}

fn words(words: &[u8]) -> Result<Vec<u8>, ControlError> {
    if words.len() <= WORDS_BYTES_MAX {
        return Ok(words.to_vec());
    }
    let why = format!("{} bytes of words; at most {WORDS_BYTES_MAX}", words.len());
    Err(ControlError::new(ErrorKind::Limit, why))
}

fn check_range(start: u64, bytes: u64) -> Result<(), ControlError> {
    // The last byte has an address, too.
    if bytes > 0 && start.checked_add(bytes - 1).is_some() {
        return Ok(());
    }
    Err(invalid(format!("{bytes} bytes at {start:#x} are no memory region")))
}

fn check_count(regions: usize) -> Result<(), ControlError> {
    if regions <= REGIONS_MAX {
        return Ok(());
    }
    let why = format!("{regions} memory regions; at most {REGIONS_MAX}");
    Err(ControlError::new(ErrorKind::Limit, why))
}

fn extents(regions: &[proto::Extent]) -> Result<Vec<Extent>, ControlError> {
    check_count(regions.len())?;
    let mut sorted: Vec<Extent> = Vec::with_capacity(regions.len());
    for &proto::Extent { start, bytes } in regions {
        check_range(start, bytes)?;
        sorted.push(Extent { start, bytes });
    }
    let found = sorted.clone();
    sorted.sort_by_key(|region| region.start);
    match sorted.windows(2).find(|pair| pair[1].start - pair[0].start < pair[0].bytes) {
        None => Ok(found),
        Some(pair) => Err(invalid(format!(
            "the memory regions at {:#x} and {:#x} overlap",
            pair[0].start, pair[1].start
        ))),
    }
}

fn extents_told(regions: &[Extent]) -> Vec<proto::Extent> {
    regions.iter().map(|&Extent { start, bytes }| proto::Extent { start, bytes }).collect()
}

impl Terms {
    /// As it travels. Errors: what was sent is not valid.
    pub fn of(terms: Option<&proto::Terms>) -> Result<Self, ControlError> {
        let terms = terms.ok_or_else(|| invalid("terms are missing"))?;
        Ok(Self {
            sender: address(&terms.sender)?,
            sender_qpn: serial("queue pair number", terms.sender_qpn)?,
            psn_first: serial("packet number", terms.psn_first)?,
            mtu_bytes: mtu(terms.mtu_bytes)?,
            regions: extents(&terms.regions)?,
            words: words(&terms.words)?,
        })
    }

    /// As it travels.
    #[must_use]
    pub fn told(&self) -> proto::Terms {
        proto::Terms {
            sender: self.sender.to_string(),
            sender_qpn: self.sender_qpn,
            psn_first: self.psn_first,
            mtu_bytes: self.mtu_bytes,
            regions: extents_told(&self.regions),
            words: self.words.clone(),
        }
    }

    /// Whether this fits to what a member says that it has.
    pub fn check(&self, accepted: &Acceptance) -> Result<(), ControlError> {
        let [given, wanted] = [accepted.regions.len(), self.regions.len()];
        if given != wanted {
            return Err(invalid(format!("{given} memory regions where the sender has {wanted}")));
        }
        if accepted.address == self.sender {
            return Err(invalid(format!("{} cannot be sender and member", self.sender)));
        }
        if accepted.address.is_ipv4() != self.sender.is_ipv4() {
            let (member, sender) = (accepted.address, self.sender);
            return Err(invalid(format!("{member} is not of the address family of {sender}")));
        }
        let short = accepted.regions.iter().zip(&self.regions).find(|(a, b)| a.bytes < b.bytes);
        short.map_or(Ok(()), |(given, wanted)| {
            let (given, wanted) = (given.bytes, wanted.bytes);
            Err(invalid(format!("a memory region of {given} bytes; the sender's has {wanted}")))
        })
    }
}

impl Acceptance {
    /// With one address, Ethernet address and queue pair, and no memory for WRITEs.
    #[must_use]
    pub const fn new(address: IpAddr, mac: Mac, qpn: u32) -> Self {
        Self { address, mac, qpn, regions: Vec::new() }
    }

    /// The same with memory.
    #[must_use]
    pub fn with(mut self, memory: MemoryRegion) -> Self {
        self.regions.push(memory);
        self
    }

    /// As it travels. Errors: what was sent is not valid.
    pub fn of(joined: &proto::Joined) -> Result<Self, ControlError> {
        check_count(joined.regions.len())?;
        let memory = |&proto::Memory { start, bytes, key }: &proto::Memory| {
            check_range(start, bytes).map(|()| MemoryRegion { start, bytes, key })
        };
        Ok(Self {
            address: address(&joined.address)?,
            mac: mac(&joined.mac)?,
            qpn: serial("queue pair number", joined.qpn)?,
            regions: joined.regions.iter().map(memory).collect::<Result<_, _>>()?,
        })
    }

    /// As it travels.
    #[must_use]
    pub fn told(&self) -> proto::Joined {
        let memory = |&MemoryRegion { start, bytes, key }: &MemoryRegion| proto::Memory {
            start,
            bytes,
            key,
        };
        proto::Joined {
            address: self.address.to_string(),
            mac: self.mac.to_string(),
            qpn: self.qpn,
            regions: self.regions.iter().map(memory).collect(),
            proof: Vec::new(),
        }
    }

    /// As switches have to know it.
    fn member(&self, extents: &[Extent]) -> Member {
        let region = |(extent, memory): (&Extent, &MemoryRegion)| mcrdma::Region {
            start: extent.start,
            bytes: extent.bytes,
            member_start: memory.start,
            member_key: memory.key,
        };
        Member {
            address: self.address,
            mac: Some(self.mac),
            qpn: self.qpn,
            psn_offset: 0,
            regions: extents.iter().zip(&self.regions).map(region).collect(),
        }
    }
}

impl Invited {
    /// For people.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("member {} ({})", self.daemon, self.service)
    }
}

impl NewGroup {
    /// As it travels. Errors: what was sent is not valid.
    pub fn of(group: &proto::NewGroup) -> Result<Self, ControlError> {
        let count = group.members.len();
        if !(1..=MEMBERS_MAX).contains(&count) {
            let why = format!("{count} members; a group has 1 to {MEMBERS_MAX}");
            return Err(ControlError::new(ErrorKind::Limit, why));
        }
        let invited = |invited: &proto::Invited| {
            let daemon = name("daemon's address", &invited.daemon)?;
            Ok(Invited { daemon, service: name("service's name", &invited.service)? })
        };
        Ok(Self {
            sender: address(&group.sender)?,
            sender_mac: optional_mac(&group.sender_mac)?,
            sender_qpn: serial("queue pair number", group.sender_qpn)?,
            mtu_bytes: mtu(group.mtu_bytes)?,
            members: group.members.iter().map(invited).collect::<Result<_, ControlError>>()?,
            regions: extents(&group.regions)?,
            words: words(&group.words)?,
            goes_on: group.goes_on,
            all_notifications: group.all_notifications,
        })
    }

    /// As it travels.
    #[must_use]
    pub fn told(&self) -> proto::NewGroup {
        let invited = |invited: &Invited| proto::Invited {
            daemon: invited.daemon.clone(),
            service: invited.service.clone(),
        };
        proto::NewGroup {
            sender: self.sender.to_string(),
            sender_qpn: self.sender_qpn,
            mtu_bytes: self.mtu_bytes,
            members: self.members.iter().map(invited).collect(),
            regions: extents_told(&self.regions),
            words: self.words.clone(),
            goes_on: self.goes_on,
            all_notifications: self.all_notifications,
            sender_mac: optional_mac_told(self.sender_mac),
        }
    }

    /// What its members are told.
    #[must_use]
    pub fn terms(&self, psn_first: u32) -> Terms {
        Terms {
            sender: self.sender,
            sender_qpn: self.sender_qpn,
            psn_first,
            mtu_bytes: self.mtu_bytes,
            regions: self.regions.clone(),
            words: self.words.clone(),
        }
    }

    /// As switches have to know it, once all have accepted. The sender takes it for its first member.
    #[must_use]
    pub fn group(&self, id: u32, psn_first: u32, accepted: &[Acceptance]) -> Option<Group> {
        let first = accepted.first()?;
        Some(Group {
            key: mcrdma::GroupKey { sender: self.sender, id },
            sender_mac: self.sender_mac,
            sender_qpn: self.sender_qpn,
            psn_first: Serial::new(psn_first),
            virtual_address: first.address,
            virtual_mac: first.mac,
            proof: Vec::new(),
            all_notifications: self.all_notifications,
            members: accepted.iter().map(|accepted| accepted.member(&self.regions)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_group() -> NewGroup {
        NewGroup {
            sender: "10.0.0.1".parse().unwrap(),
            sender_mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            sender_qpn: 5,
            mtu_bytes: 1024,
            members: vec![Invited { daemon: "b:1".into(), service: "s".into() }],
            regions: vec![Extent { start: 8, bytes: 8 }, Extent { start: 0, bytes: 8 }],
            words: b"words".to_vec(),
            goes_on: true,
            all_notifications: false,
        }
    }

    fn acceptance() -> Acceptance {
        let memory = |start| MemoryRegion { start, bytes: 8, key: 3 };
        Acceptance {
            address: "10.0.0.2".parse().unwrap(),
            mac: Mac([2, 0, 0, 0, 0, 2]),
            qpn: 7,
            regions: vec![memory(100), memory(200)],
        }
    }

    #[test]
    fn what_is_told_comes_back() {
        let group = new_group();
        assert_eq!(NewGroup::of(&group.told()), Ok(group.clone()));
        let terms = group.terms(9);
        assert_eq!(Terms::of(Some(&terms.told())), Ok(terms.clone()));
        let accepted = acceptance();
        assert_eq!(Acceptance::of(&accepted.told()), Ok(accepted.clone()));
        assert_eq!(terms.check(&accepted), Ok(()));
        let told = group.group(0x80_0001, 9, &[accepted]).unwrap();
        assert_eq!(told.members[0].regions[1].member_start, 200);
        assert_eq!(told.virtual_mac, Mac([2, 0, 0, 0, 0, 2]));
    }

    #[test]
    fn hostile_groups_are_refused() {
        type Change = fn(&mut proto::NewGroup);
        let changes: [(Change, &str); 11] = [
            (|g| g.sender = "host".into(), "no IP address"),
            (|g| g.sender_qpn = 1 << 24, "no queue pair number"),
            (|g| g.mtu_bytes = 1500, "1500"),
            (|g| g.members.clear(), "0 members"),
            (|g| g.members = vec![g.members[0].clone(); 65], "65 members"),
            (|g| g.members[0].service = "s".repeat(256), "service's name"),
            (|g| g.members[0].daemon = "\u{1b}[2J".into(), "daemon's address"),
            (|g| g.words = vec![0; 4097], "4097 bytes"),
            (|g| g.regions = vec![g.regions[0]; 17], "17 memory regions"),
            (|g| g.regions[0].start = 7, "overlap"),
            (|g| g.regions[0].start = u64::MAX - 6, "no memory region"),
        ];
        for (change, words) in changes {
            let mut told = new_group().told();
            change(&mut told);
            let error = NewGroup::of(&told).unwrap_err();
            assert!(error.message.contains(words), "{error}");
        }
        let mut told = new_group().told();
        told.regions[0].start = u64::MAX - 7;
        assert!(NewGroup::of(&told).is_ok(), "the last byte has an address");
    }

    #[test]
    fn what_members_say_has_to_fit() {
        type Change = fn(&mut Acceptance);
        let changes: [(Change, &str); 4] = [
            (|a| _ = a.regions.pop(), "1 memory regions where the sender has 2"),
            (|a| a.regions[1].bytes = 7, "7 bytes"),
            (|a| a.address = "10.0.0.1".parse().unwrap(), "sender and member"),
            (|a| a.address = "fd00::1".parse().unwrap(), "family"),
        ];
        for (change, words) in changes {
            let mut accepted = acceptance();
            change(&mut accepted);
            let error = new_group().terms(0).check(&accepted).unwrap_err();
            assert!(error.message.contains(words), "{error}");
        }
        let mut told = acceptance().told();
        told.mac = "no".into();
        assert!(Acceptance::of(&told).is_err());
        assert!(Terms::of(None).is_err());
    }

    #[test]
    fn reasons_are_cut_between_characters() {
        assert_eq!(reason("\u{e9}".repeat(600)).len(), 1000);
        assert_eq!(reason(format!("a{}", "\u{e9}".repeat(600))).len(), 999);
    }
}
