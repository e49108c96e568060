//! A data plane that records its calls, as an adapter of an ASIC would get them.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use data_plane::{DataPlane, Entry, MemberState, PlaneError};
use mcrdma::{
    AnswerCounters, Counters, GroupCounters, GroupKey, Merging, Replication, Source, Traced,
};
use roce::Serial;

/// A call of the data plane.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "parameters of the methods of DataPlane")]
pub enum Call {
    Insert { key: GroupKey, replication: Replication, merging: Option<Merging> },
    Replace { key: GroupKey, replication: Replication },
    Relocate { key: GroupKey, sender_qpn: u32, members: Vec<Source> },
    Remove { key: GroupKey },
    RemoveAddress { address: IpAddr },
    RemoveMember { key: GroupKey, sender_qpn: u32, member: IpAddr },
    Trace { key: GroupKey, is_on: bool },
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    groups: Vec<Entry>,
    removed: Vec<(GroupKey, IpAddr)>,
}

/// The plane; clones are the same one.
#[derive(Clone, Default)]
pub struct Recording(Arc<Mutex<State>>);

impl Recording {
    /// Its calls since the last time.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DataPlane for Recording {
    fn name(&self) -> &'static str {
        "recording"
    }

    fn insert(
        &mut self,
        key: GroupKey,
        replication: &Replication,
        merging: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        let mut state = self.lock();
        let entry = (key, replication.clone(), merging.cloned());
        state.groups.push(entry.clone());
        let (key, replication, merging) = entry;
        state.calls.push(Call::Insert { key, replication, merging });
        Ok(())
    }

    fn replace(&mut self, key: GroupKey, replication: &Replication) -> Result<(), PlaneError> {
        self.lock().calls.push(Call::Replace { key, replication: replication.clone() });
        Ok(())
    }

    fn relocate(
        &mut self,
        key: GroupKey,
        sender_qpn: u32,
        members: &[Source],
    ) -> Result<(), PlaneError> {
        self.lock().calls.push(Call::Relocate { key, sender_qpn, members: members.to_vec() });
        Ok(())
    }

    fn remove(
        &mut self,
        key: GroupKey,
        _: &Replication,
        _: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        let mut state = self.lock();
        state.groups.retain(|(known, ..)| *known != key);
        state.removed.retain(|(known, _)| *known != key);
        state.calls.push(Call::Remove { key });
        Ok(())
    }

    fn remove_address(&mut self, address: IpAddr) {
        self.lock().calls.push(Call::RemoveAddress { address });
    }

    fn remove_member(
        &mut self,
        key: GroupKey,
        sender_qpn: u32,
        member: IpAddr,
        _: &[Source],
    ) -> Result<bool, PlaneError> {
        let mut state = self.lock();
        let is_there = !state.removed.contains(&(key, member));
        if is_there {
            state.removed.push((key, member));
            state.calls.push(Call::RemoveMember { key, sender_qpn, member });
        }
        Ok(is_there)
    }

    /// All have just begun.
    fn members(&self, _: GroupKey, _: u32, merging: &Merging) -> Vec<MemberState> {
        let state = |source: &Source| MemberState {
            address: source.address,
            expected: merging.psn_first,
            msn: Serial::new(0),
        };
        merging.members.iter().map(state).collect()
    }

    fn entered(&self, _: GroupKey) -> Option<Serial> {
        None
    }

    fn groups(&self) -> Result<Vec<Entry>, PlaneError> {
        Ok(self.lock().groups.clone())
    }

    fn trace(&mut self, key: GroupKey, _: u32, is_on: bool) -> Result<(), PlaneError> {
        self.lock().calls.push(Call::Trace { key, is_on });
        Ok(())
    }

    /// Nothing has passed.
    fn take_traced(&mut self, _: GroupKey) -> Result<Option<Traced>, PlaneError> {
        Ok(Some(Traced::default()))
    }

    fn counters(&self) -> Result<Counters, PlaneError> {
        Ok(Counters::default())
    }

    /// Nothing has passed.
    fn group_counters(
        &self,
        _: GroupKey,
        _: u32,
        merging: Option<&Merging>,
    ) -> Result<GroupCounters, PlaneError> {
        let members = merging.into_iter().flat_map(|merging| &merging.members);
        let none = |member: &Source| (member.address, AnswerCounters::default());
        Ok(GroupCounters { members: members.map(none).collect(), ..GroupCounters::default() })
    }
}
