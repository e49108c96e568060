//! Reductions of a scenario, which may still fail.

use super::{
    calls::{CallKind, CallPlan},
    scenario::TeamScenario,
};
use crate::clock::Clock;

/// Returns smaller valid scenarios, the most effective reduction first.
pub fn smaller_teams(from: &TeamScenario) -> Vec<TeamScenario> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut TeamScenario)| {
        let mut candidate = from.clone();
        change(&mut candidate);
        all.push(candidate);
    };
    for rank in (0..from.size()).rev() {
        with(&|it| remove_member(it, rank));
    }
    for fault in 0..from.faults.len() {
        with(&|it| {
            it.faults.remove(fault);
        });
    }
    for number in (0..from.calls.len()).rev() {
        with(&|it| {
            it.calls.remove(number);
        });
        with(&|it| it.calls[number] = CallPlan::BARRIER);
        with(&|it| it.calls[number].elements /= 2);
        with(&|it| it.calls[number].root = 0);
    }
    for rank in 0..from.members.len() {
        with(&|it| it.members[rank].start_ns = 0);
        with(&|it| it.members[rank].poll_delay_ns_max = 0);
        with(&|it| it.members[rank].batch = 0);
        with(&|it| it.members[rank].clock = Clock::RIGHT);
        with(&|it| it.members[rank].rate_bytes_per_s = None);
        with(&|it| it.members[rank].window = 1);
        with(&|it| it.members[rank].lends = false);
        with(&|it| it.members[rank].compute_ns_max = 0);
    }
    with(&|it| it.costs = None);
    with(&|it| it.degrees.clear());
    with(&|it| it.exchange_bytes = 0);
    with(&|it| it.long_bytes = u64::MAX);
    with(&|it| it.network.slow_links.clear());
    with(&|it| it.network.block_jitter_percent = 0);
    with(&|it| it.network.delivery_jitter_ns_max = 0);
    with(&|it| it.network.control_jitter_ns_max = 0);
    with(&|it| it.network.latency_ns = 0);
    with(&|it| it.network.loss_detection_ns = 0);
    all.retain(|candidate| candidate.check().is_ok());
    all
}

/// Removes a member; the others keep their order. A root that is removed is followed by the next one.
fn remove_member(scenario: &mut TeamScenario, rank: u32) {
    scenario.members.remove(rank as usize);
    let size = scenario.size().max(1);
    for call in &mut scenario.calls {
        let has_root = matches!(call.kind, CallKind::Broadcast | CallKind::Reduce(_));
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
