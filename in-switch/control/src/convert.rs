//! Conversion of messages; received ones are validated here.

use std::net::IpAddr;

use mcrdma::{
    GroupKey, MEMBERS_MAX, REGIONS_MAX, Region,
    plan::{Group, Member},
};
use roce::{Mac, Serial};

use crate::{ControlError, ErrorKind, proto};

fn invalid(what: &str, found: impl std::fmt::Display) -> ControlError {
    ControlError::new(ErrorKind::Invalid, format!("{found} is no {what}"))
}

/// An IP address.
pub fn address(text: &str) -> Result<IpAddr, ControlError> {
    text.parse().map_err(|_| invalid("IP address", format_args!("{text:?}")))
}

/// An Ethernet address.
pub fn mac(text: &str) -> Result<Mac, ControlError> {
    text.parse().map_err(|_| invalid("Ethernet address", format_args!("{text:?}")))
}

/// An Ethernet address, or empty.
pub fn optional_mac(text: &str) -> Result<Option<Mac>, ControlError> {
    if text.is_empty() { Ok(None) } else { mac(text).map(Some) }
}

/// An Ethernet address, or empty.
pub fn optional_mac_to_proto(mac: Option<Mac>) -> String {
    mac.map(|mac| mac.to_string()).unwrap_or_default()
}

/// A 24-bit number; `what` names it in the error.
pub fn serial(what: &str, number: u32) -> Result<u32, ControlError> {
    if number < Serial::COUNT {
        Ok(number)
    } else {
        Err(invalid(what, format_args!("{number:#x}")))
    }
}

/// A group's key.
pub fn key(key: Option<&proto::Key>) -> Result<GroupKey, ControlError> {
    let missing = || ControlError::new(ErrorKind::Invalid, "the request names no group");
    let key = key.ok_or_else(missing)?;
    Ok(GroupKey { sender: address(&key.sender)?, id: serial("queue pair number", key.id)? })
}

/// A group's key as a message.
pub fn key_to_proto(key: GroupKey) -> proto::Key {
    proto::Key { sender: key.sender.to_string(), id: key.id }
}

/// A group; `instance` is the number that its sender has drawn for it.
pub fn group(group: Option<&proto::Group>, instance: u64) -> Result<Group, ControlError> {
    let missing = || ControlError::new(ErrorKind::Invalid, "the request has no group");
    let group = group.ok_or_else(missing)?;
    Ok(Group {
        key: key(group.key.as_ref())?,
        sender_mac: optional_mac(&group.sender_mac)?,
        sender_qpn: serial("queue pair number", group.sender_qpn)?,
        psn_first: Serial::new(serial("packet number", group.psn_first)?),
        instance,
        virtual_address: address(&group.virtual_address)?,
        virtual_mac: mac(&group.virtual_mac)?,
        all_notifications: group.all_notifications,
        members: members(&group.members)?,
    })
}

/// 1 to [`MEMBERS_MAX`] members, each with at most [`REGIONS_MAX`] regions.
pub fn members(members: &[proto::Member]) -> Result<Vec<Member>, ControlError> {
    let count = members.len();
    if !(1..=MEMBERS_MAX).contains(&count) {
        let message = format!("{count} members; a group has 1 to {MEMBERS_MAX}");
        return Err(ControlError::new(ErrorKind::Limit, message));
    }
    members.iter().map(member).collect()
}

fn member(member: &proto::Member) -> Result<Member, ControlError> {
    let count = member.regions.len();
    if count > REGIONS_MAX {
        let message = format!(
            "{count} memory regions of {}; at most {REGIONS_MAX}: register fewer and larger ones",
            member.address
        );
        return Err(ControlError::new(ErrorKind::Limit, message));
    }
    let region = |region: &proto::Region| Region {
        start: region.start,
        bytes: region.bytes,
        member_start: region.member_start,
        member_key: region.member_key,
    };
    Ok(Member {
        address: address(&member.address)?,
        mac: optional_mac(&member.mac)?,
        qpn: serial("queue pair number", member.qpn)?,
        psn_offset: serial("packet number", member.psn_offset)?,
        regions: member.regions.iter().map(region).collect(),
        delegation: member.delegation.clone(),
    })
}

/// A group as a message.
pub fn group_to_proto(group: &Group) -> proto::Group {
    proto::Group {
        key: Some(key_to_proto(group.key)),
        sender_mac: optional_mac_to_proto(group.sender_mac),
        sender_qpn: group.sender_qpn,
        psn_first: group.psn_first.get(),
        virtual_address: group.virtual_address.to_string(),
        virtual_mac: group.virtual_mac.to_string(),
        all_notifications: group.all_notifications,
        members: group.members.iter().map(member_to_proto).collect(),
    }
}

/// A member as a message.
pub fn member_to_proto(member: &Member) -> proto::Member {
    let region = |region: &Region| proto::Region {
        start: region.start,
        bytes: region.bytes,
        member_start: region.member_start,
        member_key: region.member_key,
    };
    proto::Member {
        address: member.address.to_string(),
        mac: optional_mac_to_proto(member.mac),
        qpn: member.qpn,
        psn_offset: member.psn_offset,
        regions: member.regions.iter().map(region).collect(),
        delegation: member.delegation.clone(),
    }
}
