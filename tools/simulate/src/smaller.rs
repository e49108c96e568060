//! Reductions of a scenario, which may still fail.

use crate::{
    clock::Clock,
    scenario::{Answer, Fault, Scenario, Told},
};

/// Returns smaller valid scenarios, the most effective reduction first.
pub(crate) fn smaller_groups(from: &Scenario) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Scenario)| {
        let mut candidate = from.clone();
        change(&mut candidate);
        all.push(candidate);
    };
    for group in 0..from.groups.len() {
        with(&|it| remove_group(it, group));
    }
    for member in (0..from.size()).rev() {
        with(&|it| remove_member(it, member));
    }
    for fault in 0..from.faults.len() {
        with(&|it| {
            it.faults.remove(fault);
        });
    }
    for (group, plan) in from.groups.iter().enumerate() {
        for message in (0..plan.sends.len()).rev() {
            with(&|it| {
                it.groups[group].sends.remove(message);
            });
            with(&|it| it.groups[group].sends[message].bytes /= 2);
            with(&|it| it.groups[group].sends[message].at_ns = 0);
            with(&|it| it.groups[group].sends[message].shared = false);
        }
        with(&|it| it.groups[group].start_ns = 0);
        with(&|it| it.groups[group].small = None);
        with(&|it| it.groups[group].told = Told::No);
        let is_corrupted = |it: &Scenario| {
            it.faults.iter().any(|fault| matches!(fault.what, Fault::Corrupt { .. }))
        };
        if !is_corrupted(from) {
            with(&|it| it.groups[group].verify = false);
        }
        with(&|it| it.groups[group].offload = false);
        with(&|it| it.groups[group].closes_early = false);
        with(&|it| it.groups[group].close_ns = 0);
        with(&|it| it.groups[group].messages_in_flight = 1);
        for rank in 0..plan.applications.len() {
            with(&|it| it.groups[group].applications[rank].answer = Answer::Exact);
            with(&|it| it.groups[group].applications[rank].rude = false);
            with(&|it| it.groups[group].applications[rank].report_blocks = false);
            with(&|it| it.groups[group].applications[rank].close_ns = None);
            with(&|it| it.groups[group].applications[rank].window = (1, 1));
        }
    }
    for rank in 0..from.members.len() {
        with(&|it| it.members[rank].start_ns = 0);
        with(&|it| it.members[rank].poll_delay_ns_max = 0);
        with(&|it| it.members[rank].batch = 0);
        with(&|it| it.members[rank].clock = Clock::RIGHT);
        with(&|it| it.members[rank].rate_bytes_per_s = None);
        with(&|it| it.members[rank].beside_ns = 0);
    }
    with(&|it| it.network.slow_links.clear());
    with(&|it| it.network.block_jitter_percent = 0);
    with(&|it| it.network.delivery_jitter_ns_max = 0);
    with(&|it| it.network.control_jitter_ns_max = 0);
    with(&|it| it.network.latency_ns = 0);
    with(&|it| it.network.loss_detection_ns = 0);
    all.retain(|candidate| candidate.check().is_ok());
    all
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
