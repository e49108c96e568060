//! One group, and messages in it one after another.

use std::sync::mpsc::{self, Receiver};

use rdmc::{Group, GroupSettings, Offload, Region, SmallMessages, Window};

use super::{
    lines::{next_line, reply},
    orders::{Answer, Done, Job, Memory},
    recorder::{Recorder, Supply, await_completion},
    state::{Member, TRANSFER_TIMEOUT},
};
use crate::{
    clock::{ClockId, now_ns},
    contents::{check, fill, seed},
    outcome::Outcome,
    procfs, timeline,
};

/// Opens the connections' windows before the time starts.
const WARM_UP_BYTES: u64 = 8 << 20;

/// Joins, sends or receives, and closes.
pub fn take_part(member: &mut Member<'_>, job: &Job, orders: &Receiver<String>) -> Outcome<Done> {
    let pool = member.memory_for(job.messages as usize, job.message_bytes);
    let context = &member.context;
    let (sender, events) = mpsc::channel();
    let fault = member.fault.take();
    let report_blocks = fault.is_some();
    let supply = Supply::new(job.memory, pool.clone(), job.messages, job.message_bytes);
    let recorder =
        Recorder { supply, events: sender, fault, block_bytes: job.block_bytes, blocks: 0 };
    let schedule = match &member.args.equipment.racks[..] {
        [] => job.schedule(member.args.members)?,
        racks => job.schedule_in(racks)?,
    };
    let mut settings = GroupSettings::new(job.number, member.addresses.clone(), member.args.rank)
        .schedule(schedule);
    settings.block_bytes = Some(job.block_bytes);
    settings.window = Some(Window { receives: job.window, sends: job.window });
    settings.messages_in_flight = job.messages_in_flight;
    settings.report_blocks = report_blocks;
    settings.verify = job.verify;
    settings.small = job.small.then(|| SmallMessages {
        bytes_max: u32::try_from(job.message_bytes).unwrap_or(u32::MAX),
        members_max: member.args.members,
        ..SmallMessages::default()
    });
    settings.send_queue_max = u32::MAX;
    settings.offload = member.args.equipment.offload;
    let group = context.create_group_with(settings, recorder)?;
    check_offload(&group)?;

    let is_root = member.args.rank == 0;
    let mut objects = Vec::new();
    if is_root {
        for message in 1..=job.messages {
            let object = pool.take().ok_or("no memory is left")?;
            fill(&mut object.write(0..object.len())?, seed(job.number, message));
            objects.push(object);
        }
        group.try_send(Region::zeroed(job.message_bytes.min(WARM_UP_BYTES) as usize))?;
    }
    let warm = await_completion(&events, 1)?.completed;
    if !is_root {
        warm.into_iter().for_each(|(_, region)| pool.put(region));
    }
    timeline::take();
    reply(&Answer::Ready)?;
    if is_root {
        next_line(orders)?;
    }
    let sent_again_before = procfs::segments_sent_again()?;
    let cpu_before = now_ns(ClockId::ProcessCPUTime);
    let started_ns = now_ns(ClockId::Monotonic);
    for object in objects {
        group.try_send(object)?;
    }
    let all = await_completion(&events, job.messages)?;
    let cpu_ns = now_ns(ClockId::ProcessCPUTime) - cpu_before;
    let sent_again = procfs::segments_sent_again()? - sent_again_before;
    // Checking takes processor time, which would delay members that still receive.
    group.close(TRANSFER_TIMEOUT)?;
    for (message, region) in all.completed {
        if !is_root {
            check(&region.read(0..region.len())?, seed(job.number, message))?;
        }
        // Other memory is not used again.
        if is_root || job.memory == Memory::AheadTouched {
            pool.put(region);
        }
    }
    Ok(Done {
        started_ns: is_root.then_some(started_ns),
        received_ns: all.received_ns,
        cpu_ns,
        sent_again,
        timeline: timeline::take(),
    })
}

/// Without offload a run that asks for it measures something else, and fails.
pub fn check_offload(group: &Group) -> Outcome<()> {
    match group.offload() {
        Offload::Unavailable(reason) => Err(format!("no offload: {reason}").into()),
        _ => Ok(()),
    }
}
