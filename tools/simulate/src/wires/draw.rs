//! Two ends from a seed: mostly small, with every extreme now and then.

use super::{
    fault::{PlannedWireFault, WireFault},
    scenario::{
        ChannelPlan, ConnectionPlan, ENDS, FlowPlan, MessagePlan, Protection, WireEndPlan,
        WireNetworkPlan, WireScenario, WritePlan,
    },
};
use crate::dice::Dice;

/// Distinguishes these random choices from those during the run.
const PURPOSE: u64 = 40;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// The most segments of a block, and how often it may fill a line: each costs time.
const SEGMENTS_MAX: usize = 400;
const LINES_MAX: usize = 60;

/// Returns the scenario of a seed.
pub(super) fn draw(seed: u64) -> WireScenario {
    let mut dice = Dice::new(seed, PURPOSE);
    let network = network(&mut dice);
    let segment_bytes = [0; 2].map(|_| match dice.below(6) {
        0 => dice.between(1, 20) as usize,
        1 | 2 => dice.magnitude(20, 16_000) as usize,
        _ => 64 << 10,
    });
    let silence_ms = dice.between(20, 400);
    let mut ends = segment_bytes.map(|segment_bytes| WireEndPlan {
        segment_bytes,
        silence_ms: if dice.percent(70) {
            silence_ms
        } else {
            dice.between(silence_ms, 2 * silence_ms)
        },
        drain_ms: dice.magnitude(1, 500),
        idle_ms: dice.magnitude(1, 1_000),
        rate_max: dice.percent(10).then(|| dice.magnitude(WireEndPlan::RATE_LEAST, 1 << 27)),
        poll_delay_ns_max: dice.rarely(40, 10, silence_ms * MS / 40),
        threads: 1,
    });
    for end in ends.iter_mut().filter(|end| end.rate_max.is_none()) {
        end.threads = dice.pick(&[1, 1, 1, 2, 2, 3, 8]);
    }
    let span_ns = dice.magnitude(10 * US, 100 * MS);
    let segments = SEGMENTS_MAX * segment_bytes[0].min(segment_bytes[1]);
    let longest = segments.min(LINES_MAX * network.capacity_bytes);
    let count = dice.pick(&[1, 1, 1, 2, 3]);
    let connections = (0..count).map(|_| connection(&mut dice, span_ns, longest)).collect();
    let mut scenario = WireScenario { seed, network, ends, connections, faults: Vec::new() };
    let progress_ms = scenario.progress_ns() / MS + 1;
    scenario.ends.iter_mut().for_each(|end| end.silence_ms = end.silence_ms.max(progress_ms));
    let least_ms = |it: &WireScenario| (it.last_ns() + it.moving_ns()) / MS + 10;
    let drains = dice.percent(75);
    if drains {
        // Few heartbeats until everything is over.
        let silence_ms = least_ms(&scenario) / 16;
        scenario.ends.iter_mut().for_each(|end| end.silence_ms = end.silence_ms.max(silence_ms));
    }
    scenario.faults = faults(&mut dice, &scenario, span_ns);
    if drains {
        // Closes wait for all that is under way, and shared connections for whoever still comes.
        let least_ms = least_ms(&scenario);
        for end in &mut scenario.ends {
            end.drain_ms = end.drain_ms.max(least_ms);
            end.idle_ms = end.idle_ms.max(least_ms);
        }
    }
    scenario
}

fn network(dice: &mut Dice) -> WireNetworkPlan {
    WireNetworkPlan {
        latency_ns: dice.rarely(80, US, 400 * US),
        jitter_ns_max: dice.rarely(50, 10, 400 * US),
        capacity_bytes: dice.magnitude(1, 4 << 20).max(dice.pick(&[8, 256, 256, 4096])) as usize,
        cuts_percent: dice.pick(&[0, 10, 30, 60, 90]),
        interrupts_percent: dice.pick(&[0, 0, 2, 20]),
    }
}

fn connection(dice: &mut Dice, span_ns: u64, longest: usize) -> ConnectionPlan {
    let is_shared = dice.percent(60);
    let protections = [Protection::None, Protection::Encrypted, Protection::Encrypted];
    let protection = dice.pick(&protections);
    let channels = if is_shared { dice.pick(&[1, 1, 2, 2, 3, 5]) } else { 1 };
    let messages = if is_shared { dice.below(4) } else { 0 };
    ConnectionPlan {
        streams: if dice.percent(60) { 1 } else { dice.between(2, 8) as usize },
        protection,
        is_shared,
        start_ns: [0; 2].map(|_| dice.rarely(40, 10, span_ns.min(4 * MS))),
        channels: (0..channels).map(|_| channel(dice, span_ns, longest)).collect(),
        messages: (0..messages)
            .map(|_| MessagePlan {
                from: dice.below(2) as usize,
                at_ns: dice.below(span_ns),
                bytes: dice.magnitude(9, 64 << 10).min(9 + longest as u64) as usize,
            })
            .collect(),
    }
}

fn channel(dice: &mut Dice, span_ns: u64, longest: usize) -> ChannelPlan {
    let is_echoed = dice.percent(25);
    let mut close = || dice.percent(15).then(|| dice.below(2 * span_ns));
    let closes_ns = [close(), close()];
    ChannelPlan {
        asked_by: dice.below(2) as usize,
        at_ns: dice.below(span_ns),
        answer_ns: dice.rarely(50, 10, span_ns),
        is_refused: dice.percent(10),
        closes_ns,
        is_echoed,
        flows: ENDS.map(|_| flow(dice, longest, is_echoed)),
    }
}

fn flow(dice: &mut Dice, longest: usize, is_echoed: bool) -> FlowPlan {
    let mut blocks: Vec<usize> =
        (0..dice.pick(&[0, 1, 2, 3, 8])).map(|_| block(dice, longest)).collect();
    if is_echoed {
        // Short ones have arrived before they can be sent on.
        blocks.iter_mut().for_each(|bytes| *bytes = (*bytes * 4).min(longest).min(200_000));
    }
    let writes = if dice.percent(60) { 0 } else { dice.between(1, 6) };
    let write =
        |_| WritePlan { bytes: block(dice, longest).min(40_000), is_reported: dice.percent(50) };
    let writes = (0..writes).map(write).collect();
    FlowPlan {
        blocks,
        window: dice.between(1, 4) as usize,
        words: dice.below(12) as u32,
        fills_record: longest > 100_000 && dice.percent(20),
        writes,
    }
}

fn block(dice: &mut Dice, longest: usize) -> usize {
    let bytes = match dice.below(8) {
        0 => 0,
        1 => dice.between(1, 9),
        2 => (64 << 10) + dice.below(3) - 1,
        3 => dice.magnitude(1, 200_000),
        _ => dice.magnitude(1, 30_000),
    };
    longest.min(bytes as usize)
}

fn faults(dice: &mut Dice, scenario: &WireScenario, span_ns: u64) -> Vec<PlannedWireFault> {
    let count = match dice.below(10) {
        0..=3 => 0,
        4..=7 => 1,
        8 => 2,
        _ => dice.between(3, 5),
    };
    let mut faults: Vec<PlannedWireFault> = (0..count)
        .map(|_| PlannedWireFault {
            at_ns: dice.below(span_ns * 3 / 2),
            what: fault(dice, scenario),
        })
        .collect();
    faults.sort_by_key(|fault| fault.at_ns);
    faults
}

fn fault(dice: &mut Dice, scenario: &WireScenario) -> WireFault {
    let connection = dice.below(scenario.connections.len() as u64) as usize;
    let streams = scenario.connections[connection].streams as u64;
    let (stream, end) = (dice.below(streams) as usize, dice.below(2) as usize);
    match dice.below(20) {
        0..=2 => WireFault::Reset { connection, stream },
        3..=7 => WireFault::Stall {
            connection,
            stream: dice.percent(50).then_some(stream),
            from: dice.percent(50).then_some(end),
            for_ns: duration(dice, scenario),
        },
        8..=12 => WireFault::Alter {
            connection,
            stream,
            from: end,
            at: dice.magnitude(1, 100_000) as usize,
            bit: dice.below(8) as u8,
        },
        13..=16 => {
            let longest_ns = 3 * scenario.ends[0].silence_ms * MS;
            WireFault::Pause { end, for_ns: duration(dice, scenario).unwrap_or(longest_ns) }
        }
        17 | 18 => WireFault::Kill { end },
        _ => WireFault::BreakOff { end, connection },
    }
}

/// Returns a duration that is harmlessly short, near the silence timeout, or for ever.
fn duration(dice: &mut Dice, scenario: &WireScenario) -> Option<u64> {
    let silence_ns = scenario.ends[0].silence_ms * MS;
    match dice.below(5) {
        0 | 1 => Some(dice.magnitude(100, silence_ns / 5)),
        2 | 3 => Some(dice.between(silence_ns / 3, 3 * silence_ns)),
        _ => None,
    }
}
