//! Members that may have failed, as far as this switch can tell: their port has lost its carrier, or
//! they have stopped acknowledging what others acknowledge, or what has come from the sender.
//!
//! It only reports: the sender's host asks the member's, and tells its application before
//! the group continues without the member. The report has to come in time: a real adapter gives up after
//! eight timeouts of 134 ms.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use control::{ControlError, ErrorKind, proto};
use data_plane::MemberState;
use mcrdma::{GroupKey, Port};
use roce::Serial;
use routes::Carriers;

use crate::{
    forwarding::lock, registry::Registry, settings::Liveness, state::State, suspicion::Suspected,
};

/// Observes the members of all groups whose answers are merged here.
pub(crate) struct Observer {
    registry: Arc<Registry>,
    settings: Liveness,
    carriers: Mutex<Carriers>,
}

impl Observer {
    /// In the network namespace of this thread.
    pub(crate) fn open(registry: Arc<Registry>, settings: Liveness) -> Result<Self, ControlError> {
        let failed = |error| ControlError::new(ErrorKind::Failed, format!("{error}"));
        let carriers = Mutex::new(Carriers::open().map_err(failed)?);
        Ok(Self { registry, settings, carriers })
    }

    /// How often [`Observer::observe`] is to be called.
    pub(crate) const fn interval(&self) -> Duration {
        self.settings.interval
    }

    /// Reports members that seem to have failed. Costs nothing while no group is watched.
    pub(crate) fn observe(&self) {
        if !self.registry.reports.are_read() {
            return;
        }
        let up = match lock(&self.carriers).up() {
            Ok(up) => Some(up.clone()),
            Err(error) => {
                tracing::warn!(%error, "carriers cannot be read");
                None
            }
        };
        for (key, entry) in self.registry.all() {
            // One that is being changed is observed the next time.
            if let Ok(mut state) = entry.try_lock()
                && state.is_first
            {
                self.observe_group(key, &mut state, up.as_ref());
            }
        }
    }

    fn observe_group(&self, key: GroupKey, state: &mut State, up: Option<&BTreeSet<Port>>) {
        let Some(group) = &state.group else { return };
        let (now, after) = (self.registry.clock.now(), &self.settings);
        let members: Vec<MemberState> = self.registry.plane().members(key);
        let is_member = |address| group.members.iter().any(|member| member.address == address);
        let members: Vec<_> =
            members.into_iter().filter(|member| is_member(member.address)).collect();
        let cut_off = up.map_or_else(BTreeSet::new, |up| {
            let copies = state.split.copies.iter();
            let dead = copies.filter(|copy| copy.hops.iter().all(|hop| !up.contains(&hop.port)));
            let indices = dead.flat_map(|copy| &copy.members);
            indices.filter_map(|&index| Some(group.members.get(index)?.address)).collect()
        });
        let cut_off = state.failing.cut_off.observe(now, &cut_off, after.carrier_lost_after);
        let entered = self.registry.plane().entered(key);
        let silent = behind(&members, entered);
        let silent = state.failing.silent.observe(now, &silent, after.silent_after);
        for (member, lasting) in cut_off {
            let why = "the port to it has had no carrier for";
            self.report(key, member, why, lasting, true);
        }
        let others = behind(&members, None);
        for (at, lasting) in silent {
            let (member, _) = at;
            let why = match others.contains(&at) {
                true => "it has not acknowledged what others have for",
                false => "it has not acknowledged what was sent for",
            };
            self.report(key, member, why, lasting, false);
        }
    }

    fn report(
        &self,
        key: GroupKey,
        member: IpAddr,
        why: &str,
        lasting: Duration,
        is_cut_off: bool,
    ) {
        let (name, ms) = (&self.registry.paths.name, lasting.as_millis());
        let reason = format!("switch {name}: {why} {ms} ms");
        tracing::info!(%key, %member, reason, "suspected");
        let suspicion = proto::Suspicion { member: member.to_string(), reason, is_cut_off };
        self.registry.reports.send(Suspected { key, suspicion });
    }
}

/// Members that expect an earlier packet than others, or one that has come from the sender: what was sent, they have
/// not acknowledged.
fn behind(members: &[MemberState], entered: Option<Serial>) -> BTreeSet<(IpAddr, u32)> {
    let expected = members.iter().map(|member| member.expected);
    let first = expected.chain(entered.map(|psn| psn.plus(1))).reduce(Serial::max);
    let Some(first) = first else { return BTreeSet::new() };
    let behind = members.iter().filter(|member| first.is_after(member.expected));
    behind.map(|member| (member.address, member.expected.get())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u8, expected: u32) -> MemberState {
        let address = IpAddr::from([10, 0, 0, number]);
        MemberState { address, expected: Serial::new(expected), msn: Serial::new(0) }
    }

    #[test]
    fn those_behind_others_are_found_also_where_numbers_wrap() {
        let found = |members: &[MemberState], entered: Option<u32>| -> Vec<u32> {
            let behind = behind(members, entered.map(Serial::new));
            behind.into_iter().map(|(_, expected)| expected).collect()
        };
        assert_eq!(found(&[], Some(5)), [0; 0]);
        assert_eq!(found(&[member(1, 5)], None), [0; 0], "one alone may be idle");
        assert_eq!(found(&[member(1, 5), member(2, 5)], None), [0; 0]);
        assert_eq!(found(&[member(1, 5), member(2, 9), member(3, 7)], None), [5, 7]);
        assert_eq!(found(&[member(1, 0xff_fffe), member(2, 3)], None), [0xff_fffe]);
        // What came last may have been sent again.
        assert_eq!(found(&[member(1, 5)], Some(4)), [0; 0]);
        assert_eq!(found(&[member(1, 5)], Some(1)), [0; 0]);
        assert_eq!(found(&[member(1, 5)], Some(5)), [5]);
        assert_eq!(found(&[member(1, 5), member(2, 6)], Some(8)), [5, 6]);
        assert_eq!(found(&[member(1, 0xff_ffff)], Some(0)), [0xff_ffff]);
    }
}
