//! Messages of applications and daemons about groups; received ones are validated here.

use std::net::IpAddr;

use mcrdma::{
    MEMBERS_MAX, REGIONS_MAX,
    plan::{Group, Member, Proposal},
};
use roce::{Mac, Serial, rc::MemoryRegion};

use crate::{
    ControlError, ErrorKind,
    convert::{address, mac, optional_mac, optional_mac_to_proto, serial},
    proto,
};

/// Longest application data of a group.
pub const APPLICATION_DATA_BYTES_MAX: usize = 4096;
/// Longest name of a service, and address of a daemon.
pub const NAME_BYTES_MAX: usize = 255;
/// Longer reasons are truncated.
pub const REASON_BYTES_MAX: usize = 1000;
/// Path MTUs of InfiniBand: payload of a packet.
const MTUS_BYTES: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// A memory region, by the virtual addresses that the sender uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Its first address.
    pub start: u64,
    /// Its length in bytes, at least 1.
    pub bytes: u64,
}

/// A group, as it is offered to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The sender's address.
    pub sender: IpAddr,
    /// Its queue pair.
    pub sender_qpn: u32,
    /// PSN of its first packet, the same for all members.
    pub psn_first: u32,
    /// Payload of a packet: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu_bytes: u32,
    /// Memory that it may write, by the addresses that it uses.
    pub regions: Vec<Extent>,
    /// Opaque data of the sending application, at most [`APPLICATION_DATA_BYTES_MAX`].
    pub application_data: Vec<u8>,
    /// Random number that the sender's daemon has drawn for this group.
    pub instance: u64,
}

/// A member's acceptance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acceptance {
    /// Its address, which its host's certificate has to name.
    pub address: IpAddr,
    /// The Ethernet address of that interface.
    pub mac: Mac,
    /// Its queue pair.
    pub qpn: u32,
    /// Its memory: as many regions as the sender has, each at least as long.
    pub regions: Vec<MemoryRegion>,
}

/// A member to invite.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invited {
    /// `HOST:PORT` of its daemon.
    pub daemon: String,
    /// The name by which its application listens.
    pub service: String,
}

/// A group to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewGroup {
    /// The sender's address, which this host's certificate has to name.
    pub sender: IpAddr,
    /// Its Ethernet address, by which bridges find its port. Not needed by routers, nor by bridges that have
    /// an address in its subnet.
    pub sender_mac: Option<Mac>,
    /// Its queue pair, which sends to no other group.
    pub sender_qpn: u32,
    /// Payload of a packet: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu_bytes: u32,
    /// 1 to 64.
    pub members: Vec<Invited>,
    /// Memory of each member for WRITEs, by the addresses that the sender uses; at most [`REGIONS_MAX`] regions, which
    /// do not overlap.
    pub regions: Vec<Extent>,
    /// For the members' applications; at most [`APPLICATION_DATA_BYTES_MAX`].
    pub application_data: Vec<u8>,
    /// Whether it continues without members that fail, as long as one is left.
    pub continues: bool,
    /// Every CNP is forwarded to the sender, as in the paper.
    pub all_notifications: bool,
}

/// An error of kind [`ErrorKind::Invalid`].
pub fn invalid(why: impl Into<String>) -> ControlError {
    ControlError::new(ErrorKind::Invalid, why)
}

/// A reason that was received, truncated.
pub fn reason(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
    text
}

/// A name that was received; `what` is named in the error.
pub fn name(what: &str, text: &str) -> Result<String, ControlError> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    if is_name {
        return Ok(text.to_owned());
    }
    Err(invalid(format!("a {what} has 1 to {NAME_BYTES_MAX} bytes, without control characters")))
}

fn mtu(bytes: u32) -> Result<u32, ControlError> {
    if MTUS_BYTES.contains(&bytes) {
        return Ok(bytes);
    }
    Err(invalid(format!("packets do not have {bytes} bytes, but one of {MTUS_BYTES:?}")))
}

fn check_data(data: &[u8]) -> Result<Vec<u8>, ControlError> {
    if data.len() <= APPLICATION_DATA_BYTES_MAX {
        return Ok(data.to_vec());
    }
    let why =
        format!("{} bytes of application data; at most {APPLICATION_DATA_BYTES_MAX}", data.len());
    Err(ControlError::new(ErrorKind::Limit, why))
}

fn check_range(start: u64, bytes: u64) -> Result<(), ControlError> {
    // The last byte must have an address.
    if bytes > 0 && start.checked_add(bytes - 1).is_some() {
        return Ok(());
    }
    Err(invalid(format!("{bytes} bytes at {start:#x} are not a memory region")))
}

fn check_count(regions: usize) -> Result<(), ControlError> {
    if regions <= REGIONS_MAX {
        return Ok(());
    }
    let why =
        format!("{regions} memory regions; at most {REGIONS_MAX}: register fewer and larger ones");
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

fn extents_to_proto(regions: &[Extent]) -> Vec<proto::Extent> {
    regions.iter().map(|&Extent { start, bytes }| proto::Extent { start, bytes }).collect()
}

impl Terms {
    /// From a message. Errors: it is invalid.
    pub fn from_proto(terms: Option<&proto::Terms>) -> Result<Self, ControlError> {
        let terms = terms.ok_or_else(|| invalid("terms are missing"))?;
        if terms.instance == 0 {
            return Err(invalid(
                "the group has no random number for members to sign: the sender's daemon is of an older version of \
                 rdmc than this member's; daemons of one group are of one version",
            ));
        }
        Ok(Self {
            sender: address(&terms.sender)?,
            sender_qpn: serial("queue pair number", terms.sender_qpn)?,
            psn_first: serial("packet number", terms.psn_first)?,
            mtu_bytes: mtu(terms.mtu_bytes)?,
            regions: extents(&terms.regions)?,
            application_data: check_data(&terms.application_data)?,
            instance: terms.instance,
        })
    }

    /// The group, as members agree to it.
    #[must_use]
    pub const fn proposal(&self) -> Proposal {
        let Self { sender, sender_qpn, psn_first, instance, .. } = *self;
        Proposal { sender, sender_qpn, psn_first: Serial::new(psn_first), instance }
    }

    /// A member's entry in switches, not signed yet.
    #[must_use]
    pub fn member(&self, accepted: &Acceptance) -> Member {
        let region = |(extent, memory): (&Extent, &MemoryRegion)| mcrdma::Region {
            start: extent.start,
            bytes: extent.bytes,
            member_start: memory.start,
            member_key: memory.key,
        };
        Member {
            address: accepted.address,
            mac: Some(accepted.mac),
            qpn: accepted.qpn,
            psn_offset: 0,
            regions: self.regions.iter().zip(&accepted.regions).map(region).collect(),
            delegation: Vec::new(),
        }
    }

    /// As a message.
    #[must_use]
    pub fn to_proto(&self) -> proto::Terms {
        proto::Terms {
            sender: self.sender.to_string(),
            sender_qpn: self.sender_qpn,
            psn_first: self.psn_first,
            mtu_bytes: self.mtu_bytes,
            regions: extents_to_proto(&self.regions),
            application_data: self.application_data.clone(),
            instance: self.instance,
        }
    }

    /// Checks a member's acceptance against the group.
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
    /// Without memory for WRITEs.
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

    /// From a message. Errors: it is invalid.
    pub fn from_proto(joined: &proto::Joined) -> Result<Self, ControlError> {
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

    /// As a message.
    #[must_use]
    pub fn to_proto(&self) -> proto::Joined {
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
            delegation: Vec::new(),
        }
    }
}

impl Invited {
    /// A name for messages.
    #[must_use]
    pub fn label(&self) -> String {
        format!("member {} ({})", self.daemon, self.service)
    }
}

impl NewGroup {
    /// From a message. Errors: it is invalid.
    pub fn from_proto(group: &proto::NewGroup) -> Result<Self, ControlError> {
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
            application_data: check_data(&group.application_data)?,
            continues: group.continues,
            all_notifications: group.all_notifications,
        })
    }

    /// As a message.
    #[must_use]
    pub fn to_proto(&self) -> proto::NewGroup {
        let invited = |invited: &Invited| proto::Invited {
            daemon: invited.daemon.clone(),
            service: invited.service.clone(),
        };
        proto::NewGroup {
            sender: self.sender.to_string(),
            sender_qpn: self.sender_qpn,
            mtu_bytes: self.mtu_bytes,
            members: self.members.iter().map(invited).collect(),
            regions: extents_to_proto(&self.regions),
            application_data: self.application_data.clone(),
            continues: self.continues,
            all_notifications: self.all_notifications,
            sender_mac: optional_mac_to_proto(self.sender_mac),
        }
    }

    /// The group as it is offered to members, with the numbers that its sender's daemon has drawn.
    #[must_use]
    pub fn terms(&self, psn_first: u32, instance: u64) -> Terms {
        Terms {
            sender: self.sender,
            sender_qpn: self.sender_qpn,
            psn_first,
            mtu_bytes: self.mtu_bytes,
            regions: self.regions.clone(),
            application_data: self.application_data.clone(),
            instance,
        }
    }

    /// The group as it is installed in switches, once all have accepted these terms. The virtual peer has the
    /// first member's addresses. `None`: there are no members, or the first has no Ethernet address.
    #[must_use]
    pub fn group(&self, id: u32, terms: &Terms, members: Vec<Member>) -> Option<Group> {
        let first = members.first()?;
        Some(Group {
            key: mcrdma::GroupKey { sender: self.sender, id },
            sender_mac: self.sender_mac,
            sender_qpn: self.sender_qpn,
            psn_first: Serial::new(terms.psn_first),
            instance: terms.instance,
            virtual_address: first.address,
            virtual_mac: first.mac?,
            all_notifications: self.all_notifications,
            members,
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
            application_data: b"data".to_vec(),
            continues: true,
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
    fn messages_round_trip() {
        let group = new_group();
        assert_eq!(NewGroup::from_proto(&group.to_proto()), Ok(group.clone()));
        let terms = group.terms(9, 77);
        assert_eq!(Terms::from_proto(Some(&terms.to_proto())), Ok(terms.clone()));
        let of_an_older_daemon = proto::Terms { instance: 0, ..terms.to_proto() };
        let refused = Terms::from_proto(Some(&of_an_older_daemon)).unwrap_err();
        assert!(refused.message.contains("an older version of rdmc"), "{refused}");
        let accepted = acceptance();
        assert_eq!(Acceptance::from_proto(&accepted.to_proto()), Ok(accepted.clone()));
        assert_eq!(terms.check(&accepted), Ok(()));
        let installed = group.group(0x80_0001, &terms, vec![terms.member(&accepted)]).unwrap();
        assert_eq!(installed.proposal(), terms.proposal());
        assert_eq!(installed.members[0].regions[1].member_start, 200);
        assert_eq!(installed.virtual_mac, Mac([2, 0, 0, 0, 0, 2]));
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
            (|g| g.application_data = vec![0; 4097], "4097 bytes"),
            (|g| g.regions = vec![g.regions[0]; REGIONS_MAX + 1], "1025 memory regions"),
            (|g| g.regions[0].start = 7, "overlap"),
            (|g| g.regions[0].start = u64::MAX - 6, "not a memory region"),
        ];
        for (change, expected) in changes {
            let mut message = new_group().to_proto();
            change(&mut message);
            let error = NewGroup::from_proto(&message).unwrap_err();
            assert!(error.message.contains(expected), "{error}");
        }
        let mut message = new_group().to_proto();
        message.regions[0].start = u64::MAX - 7;
        assert!(NewGroup::from_proto(&message).is_ok(), "the last byte has an address");
    }

    #[test]
    fn acceptances_have_to_match_the_terms() {
        type Change = fn(&mut Acceptance);
        let changes: [(Change, &str); 4] = [
            (|a| _ = a.regions.pop(), "1 memory regions where the sender has 2"),
            (|a| a.regions[1].bytes = 7, "7 bytes"),
            (|a| a.address = "10.0.0.1".parse().unwrap(), "sender and member"),
            (|a| a.address = "fd00::1".parse().unwrap(), "family"),
        ];
        for (change, expected) in changes {
            let mut accepted = acceptance();
            change(&mut accepted);
            let error = new_group().terms(0, 0).check(&accepted).unwrap_err();
            assert!(error.message.contains(expected), "{error}");
        }
        let mut message = acceptance().to_proto();
        message.mac = "no".into();
        assert!(Acceptance::from_proto(&message).is_err());
        assert!(Terms::from_proto(None).is_err());
    }

    #[test]
    fn reasons_are_truncated_between_characters() {
        assert_eq!(reason("\u{e9}".repeat(600)).len(), 1000);
        assert_eq!(reason(format!("a{}", "\u{e9}".repeat(600))).len(), 999);
    }
}
