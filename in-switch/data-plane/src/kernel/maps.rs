//! The pinned maps, which outlive the agent.

use std::collections::BTreeSet;

use aya::{
    Pod,
    maps::{HashMap, MapData, MapError, PerCpuHashMap},
};

use mcrdma::GroupKey;

use super::layout::{
    self, AddressBytes, AnswersBytes, GroupBytes, GroupKeyBytes, MemberBytes, MemberKeyBytes,
    RegionsBytes, RegionsKeyBytes, SenderBytes, TrafficBytes,
};

/// The maps that an agent writes, and that the next one finds.
pub(crate) struct Maps {
    pub(crate) groups: HashMap<MapData, GroupKeyBytes, GroupBytes>,
    pub(crate) regions: HashMap<MapData, RegionsKeyBytes, RegionsBytes>,
    pub(crate) senders: HashMap<MapData, GroupKeyBytes, SenderBytes>,
    pub(crate) members: HashMap<MapData, MemberKeyBytes, MemberBytes>,
    pub(crate) answers: HashMap<MapData, GroupKeyBytes, AnswersBytes>,
    pub(crate) addresses: HashMap<MapData, AddressBytes, [u8; 8]>,
    pub(crate) traffic: PerCpuHashMap<MapData, GroupKeyBytes, TrafficBytes>,
}

impl Maps {
    /// Begins or ends tracing of a group.
    pub(crate) fn trace(
        &mut self,
        key: GroupKey,
        sender_qpn: u32,
        is_on: bool,
    ) -> Result<(), MapError> {
        let place = layout::group_key(key.sender, sender_qpn);
        if let Ok(sender) = self.senders.get(&place, 0)
            && layout::read_sender(&sender).id == key.id
        {
            self.senders.insert(place, layout::trace_sender(&sender, is_on), 0)?;
        }
        let place = layout::group_key(key.sender, key.id);
        let group = self.groups.get(&place, 0)?;
        self.groups.insert(place, layout::trace_group(&group, is_on), 0)
    }

    /// Ends the traces of a former agent.
    pub(crate) fn end_traces(&mut self) -> Result<(), MapError> {
        for key in keys(&self.groups)? {
            let group = self.groups.get(&key, 0)?;
            if layout::is_traced(&group) {
                let sender_qpn = layout::read_group_entry(&group).sender_qpn;
                self.trace(layout::read_group_key(&key), sender_qpn, false)?;
            }
        }
        Ok(())
    }

    /// Removes entries of no group, which an agent leaves that is killed during a change: answers to a sender
    /// without a group would be merged for ever. Returns the first generation that is not in use.
    pub(crate) fn remove_strays(&mut self) -> Result<u64, MapError> {
        let mut generations = BTreeSet::new();
        for key in keys(&self.groups)? {
            generations.insert(layout::read_group_entry(&self.groups.get(&key, 0)?).generation);
        }
        for key in self.traffic.keys().collect::<Result<Vec<_>, _>>()? {
            if self.groups.get(&key, 0).is_err() {
                self.traffic.remove(&key)?;
            }
        }
        let mut first = generations.last().map_or(0, |last| last + 1);
        for key in keys(&self.regions)? {
            let generation = layout::regions_generation(&key);
            first = first.max(generation + 1);
            if !generations.contains(&generation) {
                self.regions.remove(&key)?;
            }
        }
        let (mut senders, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for key in keys(&self.senders)? {
            let entry = layout::read_sender(&self.senders.get(&key, 0)?);
            let GroupKey { sender, id: qpn } = layout::read_group_key(&key);
            let group = self.groups.get(&layout::group_key(sender, entry.id), 0).ok();
            if group.is_some_and(|group| layout::read_group_entry(&group).sender_qpn == qpn) {
                senders.insert(key);
                if entry.is_answered != 0 {
                    addresses.insert(entry.virtual_address);
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
        Ok(first)
    }
}

/// Collects the keys first: iterating over a map while it changes may start over.
fn keys<K: Pod, V: Pod>(map: &HashMap<MapData, K, V>) -> Result<Vec<K>, MapError> {
    map.keys().collect()
}
