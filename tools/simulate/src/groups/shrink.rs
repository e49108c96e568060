//! Reductions of a scenario, which may still fail.

use super::scenario::{Answer, Fault, Scenario, Told};
use crate::{clock::Clock, network::NetworkPlan, subject::Smaller};

/// Adds smaller scenarios, the most effective reduction first.
pub(super) fn reduce(from: &Scenario, to: &mut Smaller<'_, Scenario>) {
    for group in 0..from.groups.len() {
        to.with(|it| remove_group(it, group));
    }
    for member in (0..from.size()).rev() {
        to.with(|it| remove_member(it, member));
    }
    to.without_each(|it| &mut it.faults);
    for (group, plan) in from.groups.iter().enumerate() {
        for message in (0..plan.sends.len()).rev() {
            to.with(|it| {
                it.groups[group].sends.remove(message);
            });
            to.with(|it| it.groups[group].sends[message].bytes /= 2);
            to.with(|it| it.groups[group].sends[message].at_ns = 0);
            to.with(|it| it.groups[group].sends[message].shared = false);
        }
        to.with(|it| it.groups[group].start_ns = 0);
        to.with(|it| it.groups[group].small = None);
        to.with(|it| it.groups[group].told = Told::No);
        let is_corrupted = |it: &Scenario| {
            it.faults.iter().any(|fault| matches!(fault.what, Fault::Corrupt { .. }))
        };
        if !is_corrupted(from) {
            to.with(|it| it.groups[group].verify = false);
        }
        to.with(|it| it.groups[group].offload = false);
        to.with(|it| it.groups[group].closes_early = false);
        to.with(|it| it.groups[group].close_ns = 0);
        to.with(|it| it.groups[group].messages_in_flight = 1);
        for rank in 0..plan.applications.len() {
            to.with(|it| it.groups[group].applications[rank].answer = Answer::Exact);
            to.with(|it| it.groups[group].applications[rank].rude = false);
            to.with(|it| it.groups[group].applications[rank].report_blocks = false);
            to.with(|it| it.groups[group].applications[rank].close_ns = None);
            to.with(|it| it.groups[group].applications[rank].window = (1, 1));
        }
    }
    for rank in 0..from.members.len() {
        to.with(|it| it.members[rank].start_ns = 0);
        to.with(|it| it.members[rank].poll_delay_ns_max = 0);
        to.with(|it| it.members[rank].batch = 0);
        to.with(|it| it.members[rank].clock = Clock::RIGHT);
        to.with(|it| it.members[rank].rate_bytes_per_s = None);
        to.with(|it| it.members[rank].beside_ns = 0);
    }
    NetworkPlan::reduce(to, |it| &mut it.network);
}

fn remove_group(scenario: &mut Scenario, index: usize) {
    scenario.groups.remove(index);
    for group in &mut scenario.groups {
        group.after = group.after.filter(|&after| after != index);
        group.after = group.after.map(|after| after - usize::from(after > index));
    }
    scenario.faults.retain_mut(|fault| match &mut fault.what {
        Fault::Abort { group, .. } | Fault::Refuse { group, .. } | Fault::Mute { group, .. } => {
            let is_other = *group != index;
            *group -= usize::from(*group > index);
            is_other
        }
        _ => true,
    });
}

/// Removes a member; the others keep their order. If it was a root, the next one becomes the root.
fn remove_member(scenario: &mut Scenario, rank: u32) {
    scenario.members.remove(rank as usize);
    let size = scenario.size().max(1);
    let renamed = |member: u32| if member > rank { member - 1 } else { member };
    for group in &mut scenario.groups {
        group.applications.remove(rank as usize);
        group.root = renamed(group.root) % size;
    }
    scenario.network.slow_links.retain_mut(|link| {
        let is_other = !link.members.contains(&rank);
        link.members = link.members.map(renamed);
        is_other
    });
    scenario.faults.retain_mut(|fault| fault.what.without(rank));
}
