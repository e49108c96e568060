//! Reductions of a scenario, which may still fail.

use super::{calls::CallPlan, scenario::TeamScenario};
use crate::{clock::Clock, network::NetworkPlan, subject::Smaller};

/// Adds smaller scenarios, the most effective reduction first.
pub(super) fn reduce(from: &TeamScenario, to: &mut Smaller<'_, TeamScenario>) {
    for rank in (0..from.size()).rev() {
        to.with(|it| remove_member(it, rank));
    }
    to.without_each(|it| &mut it.faults);
    for number in (0..from.calls.len()).rev() {
        to.with(|it| {
            it.calls.remove(number);
        });
        to.with(|it| it.calls[number] = CallPlan::BARRIER);
        to.with(|it| it.calls[number].elements /= 2);
        to.with(|it| it.calls[number].root = 0);
    }
    for rank in 0..from.members.len() {
        to.with(|it| it.members[rank].start_ns = 0);
        to.with(|it| it.members[rank].poll_delay_ns_max = 0);
        to.with(|it| it.members[rank].batch = 0);
        to.with(|it| it.members[rank].clock = Clock::RIGHT);
        to.with(|it| it.members[rank].rate_bytes_per_s = None);
        to.with(|it| it.members[rank].window = 1);
        to.with(|it| it.members[rank].lends = false);
        to.with(|it| it.members[rank].compute_ns_max = 0);
    }
    to.with(|it| it.probed = None);
    to.with(|it| it.costs = None);
    to.with(|it| it.degrees.clear());
    to.with(|it| it.exchange_bytes = 0);
    to.with(|it| it.long_bytes = u64::MAX);
    NetworkPlan::reduce(to, |it| &mut it.network);
}

/// Removes a member; the others keep their order. A root that is removed is followed by the next one.
fn remove_member(scenario: &mut TeamScenario, rank: u32) {
    scenario.members.remove(rank as usize);
    let size = scenario.size().max(1);
    for call in &mut scenario.calls {
        let has_root = call.kind.has_root();
        let root = call.root - u32::from(call.root > rank);
        call.root = if has_root { root % size } else { 0 };
    }
    scenario.faults.retain_mut(|planned| planned.what.without(rank));
    scenario.network.slow_links.retain_mut(|link| {
        let is_other = !link.members.contains(&rank);
        link.members = link.members.map(|member| member - u32::from(member > rank));
        is_other
    });
}
