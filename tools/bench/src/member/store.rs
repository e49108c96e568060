//! Many groups with the same root, and objects that it sends on request in one or another of them,
//! as a replicated store does.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
};

use rdmc::{
    Algorithm, Application, Failure, Group, GroupSettings, Incoming, Region, RegionPool, Window,
};

use super::{
    lines::{next_line, reply},
    orders::{Answer, Order},
    state::{Member, TIMEOUT, TRANSFER_TIMEOUT},
    workload::{Object, Workload},
};
use crate::{
    clock::{ClockId, now_ns},
    contents::{check_from, fill},
    file_limit::raise_file_limit,
    outcome::Outcome,
};

/// Opens the connections of each group that is used, before the time starts.
const WARM_UP_BYTES: usize = 1 << 20;
/// Of the contents of all objects.
const SEED: u64 = 0xD6E8_FEB8_6659_FD93;
/// Objects begin one word apart in the source's memory, so that no two have the same contents.
const WORD: usize = 8;

/// From callbacks to the main thread; objects are indices into [`Workload::objects`].
enum Event {
    Warm,
    Arrived { object: usize, at_ns: u64 },
    Complete { object: usize, region: Region },
    Failed(String),
}

/// The callbacks of one group.
struct Recorder {
    /// Of this group, by number of the message; message 0 warms up.
    objects: Vec<usize>,
    pool: RegionPool,
    events: Sender<Event>,
}

impl Recorder {
    fn object(&self, message: u64) -> Option<usize> {
        self.objects.get(usize::try_from(message).ok()?.checked_sub(1)?).copied()
    }

    fn send_event(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

impl Application for Recorder {
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        if message == 0 {
            return Incoming::Into(Region::zeroed(bytes as usize));
        }
        self.pool.take().map_or(Incoming::Refuse("no memory is left".into()), Incoming::Into)
    }

    fn received(&mut self, message: u64) {
        let at_ns = now_ns(ClockId::Monotonic);
        if let Some(object) = self.object(message) {
            self.send_event(Event::Arrived { object, at_ns });
        }
    }

    fn complete(&mut self, message: u64, region: Region) {
        match self.object(message) {
            Some(object) => self.send_event(Event::Complete { object, region }),
            None => self.send_event(Event::Warm),
        }
    }

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        self.send_event(Event::Failed(failure.to_string()));
    }
}

/// A part of the memory from which all objects are sent.
struct Piece {
    all: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.all[self.range.clone()]
    }
}

/// This member's groups, by their index among all.
struct Part<'a> {
    workload: &'a Workload,
    groups: HashMap<usize, Group>,
    pool: RegionPool,
    events: Receiver<Event>,
}

/// Answers the processor time of this member, in ns, from warm-up to the last object, without checking contents.
pub fn take_part(
    member: &mut Member<'_>,
    workload: &Workload,
    orders: &Receiver<String>,
) -> Outcome<u64> {
    raise_file_limit()?;
    let rank = member.args.rank;
    let own = || workload.objects.iter().filter(|object| workload.takes_part(rank, object));
    let is_root = rank == 0;
    let longest = own().map(|object| object.bytes).max().unwrap_or(0);
    let pool = match is_root {
        true => RegionPool::new(0, 0),
        false => member.memory_for(workload.in_flight, longest.max(1)),
    };
    let part = join_groups(member, workload, pool)?;
    part.warm_up(is_root)?;
    let all = is_root.then(|| {
        let mut bytes = vec![0; longest as usize + WORD * workload.objects.len()];
        fill(&mut bytes, SEED);
        Arc::new(bytes)
    });
    reply(&Answer::Ready)?;
    let cpu_before = now_ns(ClockId::ProcessCPUTime);
    let checking_ns = match &all {
        Some(all) => part.send(all, orders)?,
        None => part.receive(own().count())?,
    };
    let cpu_ns = now_ns(ClockId::ProcessCPUTime) - cpu_before - checking_ns;
    let Order::Close = serde_json::from_str(&next_line(orders)?)? else {
        return Err("expected an order to close".into());
    };
    // In the same order at all members: closing waits for all members of a group.
    for index in 0..workload.groups.len() {
        part.groups.get(&index).map_or(Ok(()), |group| group.close(TIMEOUT))?;
    }
    Ok(cpu_ns)
}

fn join_groups<'a>(
    member: &Member<'_>,
    workload: &'a Workload,
    pool: RegionPool,
) -> Outcome<Part<'a>> {
    let algorithm: Algorithm = workload.algorithm.parse()?;
    let (sender, events) = mpsc::channel();
    let mut groups = HashMap::new();
    for (index, members) in workload.groups.iter().enumerate() {
        let own = |&one: &u32| one == member.args.rank;
        let Some(rank) = members.iter().position(own) else { continue };
        let number = workload.number + index as u64;
        let addresses: Option<Vec<_>> =
            members.iter().map(|&one| member.addresses.get(one as usize).copied()).collect();
        let addresses = addresses.ok_or("a group has members that do not exist")?;
        let mut settings = GroupSettings::new(number, addresses, rank as u32).schedule(algorithm);
        settings.block_bytes = Some(workload.block_bytes);
        settings.window = Some(Window { receives: workload.window, sends: workload.window });
        settings.small = None;
        settings.send_queue_max = u32::MAX;
        let recorder = Recorder {
            objects: workload.objects_of(index).collect(),
            pool: pool.clone(),
            events: sender.clone(),
        };
        groups.insert(index, member.context.create_group_with(settings, recorder)?);
    }
    Ok(Part { workload, groups, pool, events })
}

impl Part<'_> {
    /// One message in each group in which there will be objects.
    fn warm_up(&self, is_root: bool) -> Outcome<()> {
        let is_used = |index: &&usize| self.workload.objects_of(**index).next().is_some();
        let used: Vec<usize> = self.groups.keys().filter(is_used).copied().collect();
        for index in &used {
            if is_root {
                self.groups[index].try_send(Region::zeroed(WARM_UP_BYTES))?;
            }
        }
        for _ in &used {
            match self.next()? {
                Event::Warm => {}
                _ => return Err("an object came before it was sent".into()),
            }
        }
        Ok(())
    }

    /// Sends objects on request. Answers the processor time of checking them: none.
    fn send(&self, all: &Arc<Vec<u8>>, orders: &Receiver<String>) -> Outcome<u64> {
        for _ in 0..self.workload.objects.len() {
            let Order::Send(object) = serde_json::from_str(&next_line(orders)?)? else {
                return Err("expected an order to send".into());
            };
            let Object { group, bytes } =
                *self.workload.objects.get(object).ok_or("there is no such object")?;
            let start = object * WORD;
            let range = start..start + bytes as usize;
            let region = Region::from_shared(Piece { all: Arc::clone(all), range });
            let group = self.groups.get(&group).ok_or("there is no such group")?;
            let at_ns = now_ns(ClockId::Monotonic);
            group.try_send(region)?;
            reply(&Answer::Sent { object, at_ns })?;
        }
        for _ in 0..self.workload.objects.len() {
            self.next()?;
        }
        Ok(0)
    }

    /// Receives this many objects, and checks each before it reports it, so that the next is not
    /// yet sent. Answers the processor time of checking, in ns.
    fn receive(&self, objects: usize) -> Outcome<u64> {
        let mut checking_ns = 0;
        let mut arrived = HashMap::new();
        let mut left = objects;
        while left > 0 {
            match self.next()? {
                Event::Arrived { object, at_ns } => drop(arrived.insert(object, at_ns)),
                Event::Complete { object, region } => {
                    let before = now_ns(ClockId::ThreadCPUTime);
                    let bytes = self.workload.objects[object].bytes as usize;
                    check_from(&region.read(0..bytes)?, SEED, object as u64)?;
                    checking_ns += now_ns(ClockId::ThreadCPUTime) - before;
                    self.pool.put(region);
                    let at_ns = arrived.remove(&object).ok_or("complete before it arrived")?;
                    reply(&Answer::Arrived { object, at_ns })?;
                    left -= 1;
                }
                Event::Warm => return Err("an object came before it was sent".into()),
                Event::Failed(failure) => return Err(failure.into()),
            }
        }
        Ok(checking_ns)
    }

    fn next(&self) -> Outcome<Event> {
        match self.events.recv_timeout(TRANSFER_TIMEOUT) {
            Ok(Event::Failed(failure)) => Err(failure.into()),
            Ok(event) => Ok(event),
            Err(_) => Err("nothing came for ten minutes".into()),
        }
    }
}
