//! Which groups a switch takes: not all of one host's, and none that draws packets to a host that has not
//! agreed.

use std::collections::BTreeMap;

use mcrdma::{GroupKey, plan::Group};

use super::{Entry, Registry, lock};
use control::{ControlError, ErrorKind, delegation::Delegation};

impl Registry {
    /// How many other groups there are of this one's sender, also from an agent before.
    pub(super) fn others_of(&self, held: &BTreeMap<GroupKey, Entry>, key: GroupKey) -> usize {
        let first = GroupKey { id: 0, ..key };
        let all = first..=GroupKey { id: u32::MAX, ..key };
        let orphans = lock(&self.orphans);
        let left = orphans.range(all.clone()).map(|(key, _)| key);
        let left = left.filter(|other| !held.contains_key(other) && **other != key).count();
        left + held.range(all).filter(|(other, _)| **other != key).count()
    }

    /// What the sender takes for its peer is a member's, so that nobody's packets are drawn to another
    /// host; and the switch answers who asks for it only if that member has agreed. Whether it has.
    pub(super) fn check_virtual_peer(&self, group: &Group) -> Result<bool, ControlError> {
        if !group.proof.is_empty() {
            let proven = Delegation::to(group).check(&self.authorities, group);
            return proven.map(|()| true).map_err(|why| {
                let (address, mac) = (group.virtual_address, group.virtual_mac);
                let why = format!("{}: {address} at {mac} is not proven: {why}", group.key);
                self.refused(ErrorKind::Denied, why)
            });
        }
        let (address, mac) = (group.virtual_address, group.virtual_mac);
        let is_members = group.members.iter().any(|m| (m.address, m.mac) == (address, Some(mac)));
        // The member whose it was may have been taken out since.
        let told = self.plane().get(group.key).and_then(|(_, merging)| merging);
        let is_there = told.is_some_and(|told| told.virtual_address == address);
        if is_members || is_there {
            return Ok(false);
        }
        let why = format!(
            "{}: {address} at {mac}, which the sender takes for its peer's, are no member's, and no member has lent them",
            group.key
        );
        Err(self.refused(ErrorKind::Denied, why))
    }
}
