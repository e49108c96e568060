//! Which groups a switch takes: not all of one host's, and none that draws packets to a host that has not
//! agreed.

use std::{collections::BTreeMap, time::Instant};

use control::delegation::Delegation;
use mcrdma::{GroupKey, Merging, plan::Group};
use rustls::RootCertStore;

use crate::held::Entry;

/// How many other groups there are of this one's sender, also from an agent before (`orphans`).
pub(crate) fn others_of(
    held: &BTreeMap<GroupKey, Entry>,
    orphans: &BTreeMap<GroupKey, Instant>,
    key: GroupKey,
) -> usize {
    let first = GroupKey { id: 0, ..key };
    let all = first..=GroupKey { id: u32::MAX, ..key };
    let left = orphans.range(all.clone()).map(|(key, _)| key);
    let left = left.filter(|other| !held.contains_key(other) && **other != key).count();
    left + held.range(all).filter(|(other, _)| **other != key).count()
}

/// What the sender takes for its peer is a member's, so that nobody's packets are drawn to another
/// host; and the switch answers who asks for it only if that member has agreed. Whether it has.
/// `told`: how the switch merges the group's answers so far.
///
/// Errors: why the group is refused.
pub(crate) fn check_virtual_peer(
    authorities: &RootCertStore,
    group: &Group,
    told: Option<&Merging>,
) -> Result<bool, String> {
    let (address, mac) = (group.virtual_address, group.virtual_mac);
    if !group.proof.is_empty() {
        let proven = Delegation::to(group).check(authorities, group);
        return proven
            .map(|()| true)
            .map_err(|why| format!("{}: {address} at {mac} is not proven: {why}", group.key));
    }
    let is_members = group.members.iter().any(|m| (m.address, m.mac) == (address, Some(mac)));
    // The member whose it was may have been taken out since.
    let is_there = told.is_some_and(|told| told.virtual_address == address);
    if is_members || is_there {
        return Ok(false);
    }
    Err(format!(
        "{}: {address} at {mac}, which the sender takes for its peer's, are no member's, and no member has lent them",
        group.key
    ))
}
