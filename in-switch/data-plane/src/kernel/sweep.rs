//! What an agent finds that was killed in the middle of a change, or of one that was.

use std::collections::BTreeSet;

use aya::{
    Pod,
    maps::{HashMap, MapData, MapError},
};

use super::{KernelPlane, layout};
use crate::PlaneError;

impl KernelPlane {
    /// Removes what belongs to no group: a sender without one would have answers merged for ever.
    /// Finds the first generation that no group has.
    pub(super) fn sweep(&mut self) -> Result<(), PlaneError> {
        self.settle()?;
        self.is_unsettled = true;
        let failed = self.failed("remove what belongs to no group");
        self.remove_strays().map_err(failed)
    }

    fn remove_strays(&mut self) -> Result<(), MapError> {
        let mut generations = BTreeSet::new();
        for key in keys(&self.groups)? {
            generations.insert(layout::group_generation(&self.groups.get(&key, 0)?));
        }
        self.generation = generations.last().map_or(0, |last| last + 1);
        for key in keys(&self.regions)? {
            let generation = layout::regions_generation(&key);
            self.generation = self.generation.max(generation + 1);
            if !generations.contains(&generation) {
                self.regions.remove(&key)?;
            }
        }
        let (mut senders, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for key in keys(&self.senders)? {
            let told = self.senders.get(&key, 0)?;
            let (sender, qpn) = layout::read_sender_key(&key);
            let group = layout::group_key(sender, layout::sender_group(&told));
            let group = self.groups.get(&group, 0).ok();
            if group.is_some_and(|group| layout::group_sender_qpn(&group) == qpn) {
                senders.insert(key);
                if layout::is_answered(&told) {
                    addresses.insert(layout::address(layout::virtual_address(&told)));
                }
            } else {
                self.senders.remove(&key)?;
            }
        }
        for key in keys(&self.answers)?.into_iter().filter(|key| !senders.contains(key)) {
            self.answers.remove(&key)?;
        }
        for key in keys(&self.members)? {
            let (sender, qpn, _) = layout::read_member_key(&key);
            if !senders.contains(&layout::group_key(sender, qpn)) {
                self.members.remove(&key)?;
            }
        }
        for key in keys(&self.addresses)?.into_iter().filter(|key| !addresses.contains(key)) {
            self.addresses.remove(&key)?;
        }
        Ok(())
    }
}

/// All keys first: a map that changes while it is walked may begin again.
fn keys<K: Pod, V: Pod>(map: &HashMap<MapData, K, V>) -> Result<Vec<K>, MapError> {
    map.keys().collect()
}
