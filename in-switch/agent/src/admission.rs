//! Admission: the quota of a host, and the check of a group's virtual peer.

use std::{collections::BTreeMap, time::Instant};

use control::delegation::Delegation;
use mcrdma::{GroupKey, Merging, plan::Group};
use rustls::RootCertStore;

use crate::state::Entry;

/// Number of other groups of this one's sender, with those of a former agent (`orphans`).
pub(crate) fn others_of(
    state: &BTreeMap<GroupKey, Entry>,
    orphans: &BTreeMap<GroupKey, Instant>,
    key: GroupKey,
) -> usize {
    let first = GroupKey { id: 0, ..key };
    let all = first..=GroupKey { id: u32::MAX, ..key };
    let left = orphans.range(all.clone()).map(|(key, _)| key);
    let left = left.filter(|other| !state.contains_key(other) && **other != key).count();
    left + state.range(all).filter(|(other, _)| **other != key).count()
}

/// Checks that the virtual peer's addresses are a member's, so that no group attracts another host's
/// packets. Returns whether that member has delegated them, so that the switch may answer ARP for them.
/// `installed`: the group's merging entry, if there is one.
///
/// Errors: why the group is refused.
pub(crate) fn check_virtual_peer(
    authorities: &RootCertStore,
    group: &Group,
    installed: Option<&Merging>,
) -> Result<bool, String> {
    let (address, mac) = (group.virtual_address, group.virtual_mac);
    if !group.proof.is_empty() {
        let proven = Delegation::for_group(group).check(authorities, group);
        return proven
            .map(|()| true)
            .map_err(|why| format!("{}: {address} at {mac} is not proven: {why}", group.key));
    }
    let is_members = group.members.iter().any(|m| (m.address, m.mac) == (address, Some(mac)));
    // That member may have been removed since.
    let was_members = installed.is_some_and(|merging| merging.virtual_address == address);
    if is_members || was_members {
        return Ok(false);
    }
    Err(format!(
        "{}: {address} at {mac}, the addresses of the sender's virtual peer, are no member's, and no member has delegated them",
        group.key
    ))
}
