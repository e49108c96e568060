//! Several groups of the same members at the same time, each with a root of its own.

use std::{
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use rdmc::{Group, GroupSettings, Region, RegionPool, Schedule, Window};

use super::{
    lines::{next_line, reply},
    orders::{Answer, Memory, Order},
    recorder::{Event, Recorder, Supply, await_completion},
    state::{Member, TIMEOUT},
    workload::Together,
};
use crate::{
    clock::{ClockId, now_ns},
    contents::{check, fill, seed},
    outcome::Outcome,
};

/// Opens each group's connections before the time starts.
const WARM_UP_BYTES: u64 = 1 << 20;

/// One group at this member.
struct Part {
    number: u64,
    is_root: bool,
    group: Group,
    events: Receiver<Event>,
    object: Option<Region>,
}

/// Answers when each group's message was all here, by `CLOCK_MONOTONIC`; nothing of the groups
/// whose root this is.
pub fn take_part(
    member: &mut Member<'_>,
    together: &Together,
    orders: &Receiver<String>,
) -> Outcome<Vec<Option<u64>>> {
    let pool = member.memory_for(together.roots.len(), together.message_bytes);
    let mut parts = join_all(member, together, &pool)?;
    for part in parts.iter().filter(|part| part.is_root) {
        let bytes = together.message_bytes.min(WARM_UP_BYTES);
        part.group.try_send(Region::zeroed(bytes as usize))?;
    }
    for part in &mut parts {
        let warm = await_completion(&part.events, 1)?.completed;
        if part.is_root {
            let object = pool.take().ok_or("no memory is left")?;
            fill(&mut object.write(0..object.len())?, seed(part.number, 1));
            part.object = Some(object);
        } else {
            warm.into_iter().for_each(|(_, region)| pool.put(region));
        }
    }
    reply(&Answer::Ready)?;
    let Order::GoAt(at_ns) = serde_json::from_str(&next_line(orders)?)? else {
        return Err("expected an order to go".into());
    };
    thread::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns(ClockId::Monotonic))));
    for part in &mut parts {
        part.object.take().map(|object| part.group.try_send(object)).transpose()?;
    }
    let arrived = parts.iter().map(|part| await_completion(&part.events, 1));
    let arrived = arrived.collect::<Outcome<Vec<_>>>()?;
    // In the same order at all members: closing waits for all members of a group.
    for part in &parts {
        part.group.close(TIMEOUT)?;
    }
    let mut times_ns = Vec::new();
    for (part, messages) in parts.iter().zip(arrived) {
        times_ns.push(messages.received_ns.filter(|_| !part.is_root));
        for (_, region) in messages.completed {
            if !part.is_root {
                check(&region.read(0..region.len())?, seed(part.number, 1))?;
            }
            pool.put(region);
        }
    }
    Ok(times_ns)
}

fn join_all(member: &Member<'_>, together: &Together, pool: &RegionPool) -> Outcome<Vec<Part>> {
    let rank = member.args.rank;
    let schedules = together.schedules(member.args.members)?;
    let join = |(number, schedule): (u64, Schedule)| {
        let (sender, events) = mpsc::channel();
        let supply = Supply::new(Memory::AheadTouched, pool.clone(), 1, together.message_bytes);
        let recorder = Recorder { supply, events: sender, fault: None, block_bytes: 1, blocks: 0 };
        let is_root = schedule.root() == rank;
        let mut settings =
            GroupSettings::new(number, member.addresses.clone(), rank).schedule(schedule);
        settings.block_bytes = Some(together.block_bytes);
        settings.window = Some(Window { receives: together.window, sends: together.window });
        settings.small = None;
        settings.send_queue_max = u32::MAX;
        let group = member.context.create_group_with(settings, recorder)?;
        Ok(Part { number, is_root, group, events, object: None })
    };
    (together.number..).zip(schedules).map(join).collect()
}
