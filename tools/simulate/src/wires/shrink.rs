//! Reductions of a scenario of the wire, which may still fail.

use super::scenario::{FlowPlan, WireScenario};

/// Returns smaller valid scenarios, the most effective reduction first.
pub fn smaller_wires(from: &WireScenario) -> Vec<WireScenario> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut WireScenario)| {
        let mut candidate = from.clone();
        change(&mut candidate);
        all.push(candidate);
    };
    for number in (0..from.connections.len()).rev() {
        with(&|it| {
            it.connections.remove(number);
            it.faults.retain_mut(|fault| fault.what.without(number));
        });
    }
    for fault in 0..from.faults.len() {
        with(&|it| {
            it.faults.remove(fault);
        });
    }
    for (number, connection) in from.connections.iter().enumerate() {
        for channel in (0..connection.channels.len()).rev() {
            with(&|it| drop(it.connections[number].channels.remove(channel)));
            with(&|it| it.connections[number].channels[channel].closes_ns = [None; 2]);
            with(&|it| it.connections[number].channels[channel].is_echoed = false);
            with(&|it| it.connections[number].channels[channel].answer_ns = 0);
            with(&|it| it.connections[number].channels[channel].at_ns = 0);
            for end in 0..2 {
                flows(
                    &mut with,
                    |it| &mut it.connections[number].channels[channel].flows[end],
                    from,
                );
            }
        }
        for message in (0..connection.messages.len()).rev() {
            with(&|it| {
                it.connections[number].messages.remove(message);
            });
            with(&|it| it.connections[number].messages[message].bytes = 9);
        }
        with(&|it| it.connections[number].streams -= 1);
        with(&|it| it.connections[number].start_ns = [0; 2]);
    }
    for end in 0..2 {
        with(&|it| it.ends[end].rate_max = None);
        with(&|it| it.ends[end].poll_delay_ns_max = 0);
        with(&|it| it.ends[end].segment_bytes = 64 << 10);
    }
    with(&|it| it.network.cuts_percent = 0);
    with(&|it| it.network.interrupts_percent = 0);
    with(&|it| it.network.jitter_ns_max = 0);
    with(&|it| it.network.latency_ns = 0);
    with(&|it| it.network.capacity_bytes = 1 << 20);
    all.retain(|candidate| candidate.check().is_ok() && candidate != from);
    all
}

/// Reduces what one end sends on a channel.
fn flows(
    with: &mut impl FnMut(&dyn Fn(&mut WireScenario)),
    flow: impl Fn(&mut WireScenario) -> &mut FlowPlan,
    from: &WireScenario,
) {
    let plan = flow(&mut from.clone()).clone();
    for block in (0..plan.blocks.len()).rev() {
        with(&|it| {
            flow(it).blocks.remove(block);
        });
        with(&|it| flow(it).blocks[block] /= 2);
    }
    for write in (0..plan.writes.len()).rev() {
        with(&|it| {
            flow(it).writes.remove(write);
        });
        with(&|it| flow(it).writes[write].bytes /= 2);
    }
    with(&|it| flow(it).words /= 2);
    with(&|it| flow(it).words = flow(it).words.saturating_sub(1));
    with(&|it| flow(it).window = 1);
    with(&|it| flow(it).fills_record = false);
}
