//! Traces of groups: what the program has noted, for each group that is traced.

use std::collections::BTreeMap;

use aya::maps::{MapData, RingBuf};
use mcrdma::{GroupKey, Traced};

use super::layout;

/// The program's events, until they are taken.
pub(crate) struct Traces {
    /// Of all groups.
    events: RingBuf<MapData>,
    /// By group: what was read and not taken yet, and how many were lost before the trace had begun.
    begun: BTreeMap<GroupKey, (Traced, u64)>,
}

impl Traces {
    pub(crate) const fn new(events: RingBuf<MapData>) -> Self {
        Self { events, begun: BTreeMap::new() }
    }

    /// Whether a group is traced.
    pub(crate) fn contains(&self, key: GroupKey) -> bool {
        self.begun.contains_key(&key)
    }

    /// `lost`: this many of its packets have been lost up to now.
    pub(crate) fn begin(&mut self, key: GroupKey, lost: u64) {
        // What is left of a group that was removed is none of it.
        self.read();
        self.begun.insert(key, (Traced::default(), lost));
    }

    pub(crate) fn end(&mut self, key: GroupKey) {
        self.begun.remove(&key);
    }

    /// `lost`: as for [`Traces::begin`]. `None`: it is not traced.
    pub(crate) fn take(&mut self, key: GroupKey, lost: u64) -> Option<Traced> {
        self.read();
        let (traced, before) = self.begun.get_mut(&key)?;
        let mut taken = traced.take();
        taken.lost += lost.saturating_sub(*before);
        Some(taken)
    }

    fn read(&mut self) {
        while let Some(event) = self.events.next() {
            if let Some((key, packet)) = layout::read_event(&event)
                && let Some((traced, _)) = self.begun.get_mut(&key)
            {
                traced.add(packet);
            }
        }
    }
}
