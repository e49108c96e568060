//! A team from a seed: mostly small, with every extreme now and then.

use collective::{HEADER_BYTES, Op, Type};

use super::{
    calls::{CallKind, CallPlan, FoldPlan, FunctionPlan, OtherCall},
    fault::TeamFault,
    scenario::{TeamMemberPlan, TeamScenario},
};
use crate::{
    clock::Clock, dice::Dice, faults::PlannedFault, member_fault::MemberFault,
    network::NetworkPlan, subject::Limits,
};

/// Distinguishes these random choices from those during the run.
const PURPOSE: u64 = 20;

/// The same for the choice of ways.
const PURPOSE_OF_WAYS: u64 = 24;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Most teams have at most this many members.
const MEMBERS_USUAL: u64 = 7;

/// The most bytes of an operation's memory, but for few long ones.
const MEMORY_BYTES_USUAL: u64 = 6_000;

/// Returns the team of a seed; it also depends on the limits.
pub(super) fn draw(seed: u64, limits: &Limits) -> TeamScenario {
    let mut dice = Dice::new(seed, PURPOSE);
    let (least, most) = (u64::from(*limits.members.start()), u64::from(*limits.members.end()));
    let usual = most.min(MEMBERS_USUAL.max(least));
    let size =
        if dice.percent(92) { dice.between(least, usual) } else { dice.between(least, most) };
    let rate = 1_000_000_000 / dice.pick(&[1, 1, 1, 10, 100]);
    let network = NetworkPlan::draw(&mut dice, rate);
    let (slots, slot_bytes) = match dice.below(20) {
        // As by default.
        0 => (16, 4096),
        1..=4 => (dice.between(1, 3) as u32, dice.between(64, 80) as u32),
        _ => (dice.between(1, 8) as u32, dice.between(64, 400) as u32),
    };
    let ring_bytes = u64::from(slots) * u64::from(slot_bytes - HEADER_BYTES as u32);
    let count = if dice.percent(10) { dice.between(10, 30) } else { dice.between(0, 9) };
    let calls = (0..count).map(|_| call(&mut dice, size, ring_bytes)).collect();
    let members = (0..size).map(|_| member(&mut dice, network.rate_bytes_per_s)).collect();
    let degrees = match dice.below(3) {
        0 => Vec::new(),
        1 => vec![(u64::MAX, dice.between(1, size) as u32)],
        _ => vec![(dice.between(0, 200), dice.between(1, size) as u32), (u64::MAX, 2)],
    };
    let mut ways = Dice::new(seed, PURPOSE_OF_WAYS);
    let mut scenario = TeamScenario {
        seed,
        network,
        slots,
        slot_bytes,
        degrees,
        exchange_bytes: ways.pick(&[0, 8, 256, 4096]),
        long_bytes: if ways.percent(50) { ways.magnitude(16, 4_000) } else { u64::MAX },
        block_bytes: ways.magnitude(16, 4_000) as u32,
        costs: ways.percent(40).then(|| [1, 1].map(|least| ways.magnitude(least, 100_000) as u32)),
        probed: ways.percent(50).then(|| ways.between(1, size.max(2) - 1) as u32),
        ask_after_ns: MS,
        timeout_ns: 0,
        calls,
        members,
        faults: Vec::new(),
    };
    // Without faults nothing takes half of the timeout, also where a fault makes a port slow.
    let undisturbed_ns = scenario.moving_ns() + scenario.computing_ns();
    scenario.timeout_ns = 2 * undisturbed_ns + dice.between(5, 40) * MS;
    scenario.faults = faults(&mut dice, &scenario);
    let slower_ns = scenario.moving_ns() + scenario.computing_ns();
    scenario.timeout_ns = scenario.timeout_ns.max(2 * slower_ns);
    scenario.ask_after_ns = scenario.timeout_ns / dice.between(8, 30);
    if dice.percent(30) {
        // Timeouts find what the network would find later.
        scenario.network.silence_timeout_ms = 3 * scenario.timeout_ns / MS;
    }
    scenario
}

fn member(dice: &mut Dice, rate: u64) -> TeamMemberPlan {
    let clock = Clock::draw(dice);
    // Some wait for each operation, others run ahead.
    let window = if dice.percent(50) { 1 } else { dice.between(1, 12) as usize };
    TeamMemberPlan {
        start_ns: dice.rarely(25, 10, MS),
        poll_delay_ns_max: dice.rarely(25, 10, 20 * US),
        batch: if dice.percent(20) { dice.between(1, 3) as u32 } else { 0 },
        clock,
        rate_bytes_per_s: dice.percent(10).then(|| NetworkPlan::slower(dice, rate)),
        window,
        lends: window == 1 && dice.percent(40),
        compute_ns_max: dice.rarely(40, 10, 500 * US),
    }
}

fn call(dice: &mut Dice, size: u64, ring_bytes: u64) -> CallPlan {
    let mut call = CallPlan {
        kind: match dice.below(13) {
            0 | 1 => CallKind::Barrier,
            2..=4 => CallKind::Broadcast,
            5 => CallKind::AllGather,
            6 | 7 => CallKind::Reduce(fold(dice)),
            8 => CallKind::ReduceScatter(fold(dice)),
            9 => CallKind::Scatter,
            10 => CallKind::Gather,
            _ => CallKind::AllReduce(fold(dice)),
        },
        root: 0,
        elements: 1,
    };
    if call.kind.has_root() {
        call.root = dice.below(size) as u32;
    }
    let most =
        if dice.percent(5) { 4 * ring_bytes } else { MEMORY_BYTES_USUAL.min(4 * ring_bytes) };
    let parts = if call.team_kind().has_parts() { size } else { 1 };
    let bytes = match dice.below(8) {
        0 => 0,
        1 => dice.between(1, 9),
        // As long as a ring, or a little longer.
        2 => ring_bytes + dice.below(3) * call.bytes(),
        _ => dice.magnitude(1, most),
    };
    call.elements = match call.kind {
        CallKind::Barrier => 0,
        _ => bytes.min(most) / parts / call.bytes(),
    };
    call
}

fn fold(dice: &mut Dice) -> FoldPlan {
    if dice.percent(40) {
        return FoldPlan::Function(dice.pick(&FunctionPlan::ALL));
    }
    let element = dice.pick(&Type::ALL);
    let ops: Vec<Op> = Op::ALL.into_iter().filter(|op| op.check(element).is_ok()).collect();
    let op = dice.pick(&ops);
    // Any bits of floating point in any order have one greatest.
    let is_exact = element.is_integer() || dice.percent(60);
    FoldPlan::Operator { element: element.name().into(), op: op.name().into(), is_exact }
}

fn faults(dice: &mut Dice, scenario: &TeamScenario) -> Vec<PlannedFault<TeamFault>> {
    let count = match dice.below(10) {
        0..=2 => 0,
        3..=7 => 1,
        8 => 2,
        _ => dice.between(3, 5),
    };
    // The approximate number of steps without faults.
    let room = u64::from(scenario.slot_bytes) - HEADER_BYTES as u64;
    let pieces = |call: &CallPlan| call.memory_bytes(scenario.size()) / room + 3;
    let steps =
        u64::from(scenario.size()) * (2 * scenario.calls.iter().map(pieces).sum::<u64>() + 6);
    PlannedFault::draw(dice, count, steps, 30, |dice, step| PlannedFault {
        step,
        what: fault(dice, scenario),
    })
}

fn fault(dice: &mut Dice, scenario: &TeamScenario) -> TeamFault {
    let size = u64::from(scenario.size());
    let member = dice.below(size) as u32;
    match dice.below(20) {
        0..=2 => TeamFault::Member(MemberFault::Kill { member }),
        3 | 4 if size > 1 => TeamFault::Member(MemberFault::draw_reset(dice, member, size)),
        5..=7 => {
            TeamFault::Member(MemberFault::Freeze { member, for_ns: duration(dice, scenario) })
        }
        8 | 9 => {
            let for_ns = duration(dice, scenario).unwrap_or(3 * scenario.timeout_ns);
            TeamFault::Member(MemberFault::Pause { member, for_ns })
        }
        10 | 11 if size > 1 => {
            let duration = |dice: &mut Dice| duration(dice, scenario);
            TeamFault::Member(MemberFault::draw_partition(dice, member, size, duration))
        }
        12 => TeamFault::Abort { member },
        13 => TeamFault::Drop { member },
        14 => TeamFault::Leave { member },
        15..=17 => TeamFault::Differ { member, by: dice.pick(&OtherCall::ALL) },
        18 => TeamFault::TimeOut { member },
        _ => {
            let bytes_per_s = NetworkPlan::slower(dice, scenario.network.rate_bytes_per_s);
            TeamFault::Member(MemberFault::Rate { member, bytes_per_s })
        }
    }
}

/// Returns a duration that is harmlessly short, near the timeout, or for ever.
fn duration(dice: &mut Dice, scenario: &TeamScenario) -> Option<u64> {
    match dice.below(5) {
        0 | 1 => Some(dice.magnitude(100, scenario.timeout_ns / 8)),
        2 | 3 => Some(dice.between(scenario.timeout_ns / 4, 3 * scenario.timeout_ns)),
        _ => None,
    }
}
