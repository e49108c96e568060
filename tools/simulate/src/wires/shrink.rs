//! Reductions of a scenario of the wire, which may still fail.

use super::scenario::{FlowPlan, WireScenario};
use crate::subject::Smaller;

/// Adds smaller scenarios, the most effective reduction first.
pub(super) fn reduce(from: &WireScenario, to: &mut Smaller<'_, WireScenario>) {
    for number in (0..from.connections.len()).rev() {
        to.with(|it| {
            it.connections.remove(number);
            it.faults.retain_mut(|fault| fault.what.without(number));
        });
    }
    to.without_each(|it| &mut it.faults);
    for (number, connection) in from.connections.iter().enumerate() {
        for channel in (0..connection.channels.len()).rev() {
            to.with(|it| drop(it.connections[number].channels.remove(channel)));
            to.with(|it| it.connections[number].channels[channel].closes_ns = [None; 2]);
            to.with(|it| it.connections[number].channels[channel].is_echoed = false);
            to.with(|it| it.connections[number].channels[channel].answer_ns = 0);
            to.with(|it| it.connections[number].channels[channel].at_ns = 0);
            for end in 0..2 {
                flows(to, from, |it| &mut it.connections[number].channels[channel].flows[end]);
            }
        }
        for message in (0..connection.messages.len()).rev() {
            to.with(|it| {
                it.connections[number].messages.remove(message);
            });
            to.with(|it| it.connections[number].messages[message].bytes = 9);
        }
        to.with(|it| it.connections[number].streams -= 1);
        to.with(|it| it.connections[number].start_ns = [0; 2]);
    }
    for end in 0..2 {
        to.with(|it| it.ends[end].rate_max = None);
        to.with(|it| it.ends[end].threads = 1);
        to.with(|it| it.ends[end].threads = it.ends[end].threads.min(2));
        to.with(|it| it.ends[end].poll_delay_ns_max = 0);
        to.with(|it| it.ends[end].segment_bytes = 64 << 10);
    }
    to.with(|it| it.network.cuts_percent = 0);
    to.with(|it| it.network.interrupts_percent = 0);
    to.with(|it| it.network.jitter_ns_max = 0);
    to.with(|it| it.network.latency_ns = 0);
    to.with(|it| it.network.capacity_bytes = 1 << 20);
}

/// Reduces what one end sends on a channel.
fn flows(
    to: &mut Smaller<'_, WireScenario>,
    from: &WireScenario,
    flow: impl Fn(&mut WireScenario) -> &mut FlowPlan,
) {
    let plan = flow(&mut from.clone()).clone();
    for block in (0..plan.blocks.len()).rev() {
        to.with(|it| {
            flow(it).blocks.remove(block);
        });
        to.with(|it| flow(it).blocks[block] /= 2);
    }
    for write in (0..plan.writes.len()).rev() {
        to.with(|it| {
            flow(it).writes.remove(write);
        });
        to.with(|it| flow(it).writes[write].bytes /= 2);
    }
    to.with(|it| flow(it).words /= 2);
    to.with(|it| flow(it).words = flow(it).words.saturating_sub(1));
    to.with(|it| flow(it).window = 1);
    to.with(|it| flow(it).fills_record = false);
}
