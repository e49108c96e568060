//! Admission: the quota of a host, and whether members have agreed to a group.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use control::delegation;
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

/// Checks that each member has agreed to its entry. Returns for how long.
///
/// Errors: which member has not, why, and the remedy.
pub(crate) fn check_members(
    authorities: &RootCertStore,
    group: &Group,
) -> Result<BTreeMap<IpAddr, Duration>, String> {
    let proposal = group.proposal();
    let mut all = BTreeMap::new();
    for member in &group.members {
        let lasts = delegation::check(authorities, &proposal, member);
        let lasts = lasts.map_err(|why| format!("{}: {why}", group.key))?;
        let of_member = all.entry(member.address).or_insert(lasts);
        *of_member = lasts.min(*of_member);
    }
    Ok(all)
}

/// Checks that the virtual peer's addresses are a member's, so that no group attracts another host's
/// packets. Returns whether the switch may answer ARP for them: members have signed their addresses.
/// `installed`: the group's merging entry, if there is one.
///
/// Errors: why the group is refused.
pub(crate) fn check_virtual_peer(
    group: &Group,
    installed: Option<&Merging>,
) -> Result<bool, String> {
    let (address, mac) = (group.virtual_address, group.virtual_mac);
    if group.members.iter().any(|m| (m.address, m.mac) == (address, Some(mac))) {
        return Ok(true);
    }
    // That member may have been removed since.
    match installed.filter(|merging| merging.virtual_address == address) {
        Some(merging) => Ok(merging.virtual_mac == Some(mac)),
        None => Err(format!(
            "{}: {address} at {mac}, the addresses of the sender's virtual peer, belong to no member",
            group.key
        )),
    }
}
