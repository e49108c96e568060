//! A scenario from a seed: mostly small, with every extreme now and then.

use rdmc::Algorithm;

use super::scenario::{
    Answer, ApplicationPlan, Fault, GroupPlan, MemberPlan, Scenario, SendPlan, Told,
};
use crate::{
    clock::Clock,
    dice::Dice,
    faults::PlannedFault,
    member_fault::MemberFault,
    network::{NetworkPlan, SlowLink},
    subject::Limits,
};

/// Distinguishes these random choices from those during the run.
const PURPOSE: u64 = 1;

/// Distinguishes choices that were added later, so that seeds keep what they had before.
const PURPOSE_LATER: u64 = 5;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Returns the scenario of a seed; it also depends on the limits.
pub(super) fn draw(seed: u64, limits: &Limits) -> Scenario {
    let mut dice = Dice::new(seed, PURPOSE);
    let (least, most) = (*limits.members.start(), *limits.members.end());
    let size = dice.between(u64::from(least), u64::from(most)) as u32;
    let network = network(&mut dice, size);
    let rate = network.rate_bytes_per_s;
    let members = (0..size).map(|_| member(&mut dice, rate)).collect();
    let group_count = if dice.percent(30) { 2 } else { 1 };
    let mut groups: Vec<GroupPlan> =
        (0..group_count).map(|index| group(&mut dice, size, index + 1)).collect();
    if group_count == 2 && dice.percent(40) {
        groups[1].after = Some(0);
        if dice.percent(70) {
            groups[1].number = groups[0].number;
        }
    }
    let mut scenario = Scenario { seed, network, members, groups, faults: Vec::new() };
    if scenario.groups.iter().any(|group| group.offload) {
        // The network drops completions once they were reported, so one poll must return all of
        // them.
        scenario.members.iter_mut().for_each(|member| member.batch = 0);
    }
    let mut later = Dice::new(seed, PURPOSE_LATER);
    draw_later(&mut later, &mut scenario);
    scenario.faults = faults(&mut dice, &scenario);
    if scenario.groups[0].verify && later.percent(40) {
        let what = Fault::Corrupt { member: later.below(u64::from(size)) as u32 };
        scenario.faults.push(PlannedFault { step: later.magnitude(1, 500), what });
        scenario.faults.sort_by_key(|fault| fault.step);
    }
    // Without a stall timeout only the network can detect faults.
    if scenario.faults.iter().all(|fault| fault.what.holds_ns() == 0) && dice.percent(20) {
        scenario.groups.iter_mut().for_each(|group| group.stall_timeout_ms = 0);
    }
    // Waiting for a port that another group uses is no stall.
    for index in 0..scenario.groups.len() {
        let crowded_ms = scenario.crowded_ns(index).div_ceil(MS);
        let group = &mut scenario.groups[index];
        if group.stall_timeout_ms > 0 {
            group.stall_timeout_ms = group.stall_timeout_ms.max(crowded_ms);
        }
    }
    scenario
}

fn draw_later(dice: &mut Dice, scenario: &mut Scenario) {
    for group in &mut scenario.groups {
        group.told = match dice.below(10) {
            0 | 1 => Told::Each,
            2 | 3 if !group.closes_early => Told::BeforeClosing,
            _ => Told::No,
        };
    }
    let verify = dice.percent(25);
    scenario.groups.iter_mut().for_each(|group| group.verify = verify);
    if dice.percent(3) {
        for group in &mut scenario.groups {
            let message = dice.below(group.sends.len() as u64 + 1);
            let rank = dice.below(group.applications.len() as u64) as usize;
            group.applications[rank].answer = Answer::InUse { message };
        }
    }
    let are_beside = dice.percent(10);
    for member in &mut scenario.members {
        let period_ns = dice.magnitude(100 * US, 3 * MS);
        member.beside_ns = if are_beside && dice.percent(90) { period_ns } else { 0 };
    }
    if are_beside && dice.percent(50) {
        // The last receivers wait for longer than the stall timeout.
        scenario.network.rate_bytes_per_s = 1_000_000;
        let size = u64::from(scenario.size());
        let group = &mut scenario.groups[0];
        group.algorithm = Algorithm::Sequential.name().to_owned();
        group.stall_timeout_ms = dice.between(5, 10);
        group.block_bytes = group.block_bytes.max(50);
        let bytes = (dice.between(15_000, 30_000) / size) as usize;
        group.sends.push(SendPlan { at_ns: 0, bytes, shared: false });
    }
}

fn network(dice: &mut Dice, size: u32) -> NetworkPlan {
    let two = |dice: &mut Dice| -> [u32; 2] {
        let one = dice.below(u64::from(size)) as u32;
        [one, (one + 1 + dice.below(u64::from(size) - 1) as u32) % size]
    };
    // Most runs are much shorter than all timeouts, some much longer.
    let rate_bytes_per_s = 1_000_000_000 / dice.pick(&[1, 1, 1, 10, 100]);
    let slow_count = if size > 1 && dice.percent(20) { dice.between(1, 2) } else { 0 };
    let network = NetworkPlan::draw(dice, rate_bytes_per_s);
    NetworkPlan {
        shared_ports: dice
            .percent(30)
            .then(|| (dice.magnitude(8, 4_000), dice.between(1, 4) as u32)),
        cut_through_bytes: dice.percent(50).then(|| dice.magnitude(1, 2_000)),
        slow_links: (0..slow_count)
            .map(|_| {
                let rate_bytes_per_s = NetworkPlan::slower(dice, rate_bytes_per_s);
                SlowLink { members: two(dice), rate_bytes_per_s }
            })
            .collect(),
        ..network
    }
}

fn member(dice: &mut Dice, rate: u64) -> MemberPlan {
    let clock = Clock::draw(dice);
    MemberPlan {
        start_ns: dice.rarely(25, 10, MS),
        poll_delay_ns_max: dice.rarely(25, 10, 20 * US),
        batch: if dice.percent(20) { dice.between(1, 3) as u32 } else { 0 },
        clock,
        rate_bytes_per_s: dice.percent(10).then(|| NetworkPlan::slower(dice, rate)),
        beside_ns: 0,
    }
}

fn group(dice: &mut Dice, size: u32, number: u64) -> GroupPlan {
    let block_bytes = if dice.percent(80) { dice.between(20, 200) } else { dice.between(1, 20) };
    let small = dice.percent(35).then(|| (dice.between(1, 6) as u32, dice.between(0, 80) as u32));
    let are_many = small.is_some() && dice.percent(40);
    let count_max = if are_many { 40 } else { dice.between(1, 6) };
    let count = dice.between(0, count_max);
    let mut at_ns = 0;
    let mut sends = Vec::new();
    for _ in 0..count {
        at_ns += dice.rarely(20, 100, 2 * MS);
        let is_small = are_many && dice.percent(90);
        let bytes = if is_small { dice.below(81) as usize } else { length(dice, block_bytes) };
        sends.push(SendPlan { at_ns, bytes, shared: dice.percent(20) });
    }
    let closes_early = dice.percent(5);
    let close_ns = if closes_early { dice.below(at_ns + 1) } else { dice.rarely(20, 100, 2 * MS) };
    GroupPlan {
        number,
        after: None,
        start_ns: dice.rarely(15, 10, 3 * MS),
        algorithm: dice.pick(&Algorithm::ALL).name().to_owned(),
        root: dice.below(u64::from(size)) as u32,
        rack: dice.between(1, 4) as u32,
        block_bytes,
        messages_in_flight: dice.between(1, 4) as u32,
        offload: dice.percent(20),
        small,
        stall_timeout_ms: dice.between(5, 40),
        sends,
        close_ns,
        closes_early,
        told: Told::No,
        verify: false,
        applications: (0..size).map(|_| application(dice)).collect(),
    }
}

/// Returns a message length: often a boundary value.
fn length(dice: &mut Dice, block_bytes: u64) -> usize {
    let blocks = dice.magnitude(1, 24);
    let bytes = match dice.below(8) {
        0 => dice.below(2),
        1 => dice.between(1, 80),
        2 => block_bytes * blocks - 1,
        3 => block_bytes * blocks,
        4 => block_bytes * blocks + 1,
        _ => block_bytes * blocks + dice.below(block_bytes),
    };
    bytes as usize
}

fn application(dice: &mut Dice) -> ApplicationPlan {
    let answer = match dice.below(10) {
        0 | 1 => Answer::Late { ns_max: dice.magnitude(10, MS / 2) },
        2 => Answer::Larger { bytes: dice.magnitude(1, 300) as usize },
        3 => Answer::Wrong { too_small: dice.percent(50), then_ns: dice.rarely(50, 10, MS / 2) },
        _ => Answer::Exact,
    };
    ApplicationPlan {
        window: (dice.between(1, 8) as u32, dice.between(1, 8) as u32),
        report_blocks: dice.percent(30),
        answer,
        close_ns: dice.percent(70).then(|| dice.rarely(50, 10, 3 * MS)),
        rude: dice.percent(10),
    }
}

fn faults(dice: &mut Dice, scenario: &Scenario) -> Vec<PlannedFault<Fault>> {
    let count = match dice.below(10) {
        0..=2 => 0,
        3..=6 => 1,
        7 | 8 => 2,
        _ => dice.between(3, 5),
    };
    // The approximate number of steps without faults.
    let blocks = |group: &GroupPlan| -> u64 {
        group.sends.iter().map(|send| send.bytes as u64 / group.block_bytes + 3).sum()
    };
    let moved: u64 = scenario.groups.iter().map(blocks).sum();
    let steps = u64::from(scenario.size()) * (2 * moved + 6);
    PlannedFault::draw(dice, count, steps, 30, |dice, step| {
        let what = fault(dice, scenario);
        // Messages are announced early in a run, and can be refused only then.
        let early = matches!(what, Fault::Refuse { .. } | Fault::Mute { .. }) && dice.percent(70);
        PlannedFault { step: if early { step.div_ceil(10) } else { step }, what }
    })
}

fn fault(dice: &mut Dice, scenario: &Scenario) -> Fault {
    let size = u64::from(scenario.size());
    let member = dice.below(size) as u32;
    let group = dice.below(scenario.groups.len() as u64) as usize;
    match dice.below(16) {
        0..=3 => Fault::Member(MemberFault::Kill { member }),
        4 | 5 if size > 1 => Fault::Member(MemberFault::draw_reset(dice, member, size)),
        6 | 7 => Fault::Member(MemberFault::Freeze { member, for_ns: duration(dice) }),
        8 | 9 => {
            Fault::Member(MemberFault::Pause { member, for_ns: duration(dice).unwrap_or(100 * MS) })
        }
        10 | 11 if size > 1 => {
            Fault::Member(MemberFault::draw_partition(dice, member, size, duration))
        }
        12 => Fault::Abort { member, group },
        13 => Fault::Refuse { member, group },
        14 => Fault::Mute { member, group },
        _ => {
            let bytes_per_s = NetworkPlan::slower(dice, scenario.network.rate_bytes_per_s);
            Fault::Member(MemberFault::Rate { member, bytes_per_s })
        }
    }
}

/// Returns a duration that is harmlessly short, longer than most timeouts, or for ever.
fn duration(dice: &mut Dice) -> Option<u64> {
    match dice.below(5) {
        0 | 1 => Some(dice.magnitude(100, MS)),
        2 | 3 => Some(dice.magnitude(MS, 60 * MS)),
        _ => None,
    }
}
