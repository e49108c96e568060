//! A long link between the two racks of a lab: its rate, its queue, its delay, and the packets that it loses.

use std::{
    collections::VecDeque,
    fs::File,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use packet_socket::{Batch, Interface, Offload};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{
    Error, Lab, Link, command, make,
    namespaces::of_switch,
    passage::{Distance, Fate, Passage},
    state::Lock,
};

/// The longest wait for a frame: how late a stop is noticed.
const PATIENCE: Duration = Duration::from_millis(20);
/// For frames that have arrived while the thread did not run.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
/// An Ethernet header with a VLAN tag.
const FRAME_BYTES: usize = 18;
const IPV4: [u8; 2] = [8, 0];

/// What became of the IPv4 packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongLinkCounts {
    /// Arrived at the other rack.
    pub carried: u64,
    /// Their bytes, as Ethernet frames.
    pub carried_bytes: u64,
    /// Lost by [`Distance::loss`].
    pub lost: u64,
    /// Dropped since the queue was full.
    pub dropped: u64,
    /// Not taken by the other rack, which does not limit what enters it.
    pub refused: u64,
    /// Longer than a packet of the link: several that the kernel has merged, and that would be lost together.
    pub merged: u64,
}

#[derive(Debug, Default)]
struct Counters {
    carried: AtomicU64,
    carried_bytes: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
    merged: AtomicU64,
}

/// A running long link. It joins the racks until it is dropped; then they are apart.
///
/// Two threads forward the frames, which costs this machine a few microseconds of processor time for each: it carries
/// 200 Mbit/s of full packets beside a group on two cores. A thread that looks up to 2 ms late loses none of the rate.
#[derive(Debug)]
pub struct LongLink {
    stop: Arc<AtomicBool>,
    /// By direction, as the rack that it leaves.
    counters: [Arc<Counters>; 2],
    directions: Vec<JoinHandle<()>>,
}

impl LongLink {
    /// Puts a long link between the two racks of this lab, in place of their uplinks and the switch that joins them.
    /// What is not IPv4 passes at once and is not counted: where ARP is lost, its retry after a second would be measured.
    ///
    /// Errors: the lab has not exactly two racks; not root; a loss that is no part.
    pub fn between_racks(lab: &Lab, link: Link, distance: &Distance) -> Result<Self, Error> {
        if lab.settings().racks != 2 {
            return Err(Error::Usage("a long link joins two racks".into()));
        }
        if !(0.0..=1.0).contains(&distance.loss) {
            return Err(Error::Usage(format!("a loss is 0 to 1, not {}", distance.loss)));
        }
        let switch = of_switch(lab.name());
        let lock = Lock::take()?;
        let devices = |rack| [make::leaving(rack), make::entering(rack)];
        let unlimited: Vec<String> =
            (0..2).flat_map(devices).map(|device| format!("qdisc del dev {device} root")).collect();
        command::batch(&lock, "tc", Some(&switch), &unlimited)?;
        // Packets are to be lost one by one: the kernel cuts up before the link what TCP hands over at once.
        let lines = (0..2).flat_map(|rack| {
            let [leaving, entering] = devices(rack);
            [format!("link set {leaving} gso_max_segs 1"), format!("link set {entering} nomaster")]
        });
        command::batch(&lock, "ip", Some(&switch), &lines.collect::<Vec<_>>())?;
        drop(lock);
        let mut long =
            Self { stop: Arc::default(), counters: Default::default(), directions: Vec::new() };
        for rack in 0..2 {
            long.start(rack, &switch, link, distance)?;
        }
        Ok(long)
    }

    /// What became of packets so far, by the rack that they left.
    pub fn counts(&self) -> [LongLinkCounts; 2] {
        self.counters.each_ref().map(|counters| {
            let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            LongLinkCounts {
                carried: of(&counters.carried),
                carried_bytes: of(&counters.carried_bytes),
                lost: of(&counters.lost),
                dropped: of(&counters.dropped),
                refused: of(&counters.refused),
                merged: of(&counters.merged),
            }
        })
    }

    /// Starts the thread of the direction that leaves a rack, and waits until it forwards.
    fn start(
        &mut self,
        rack: u32,
        switch: &str,
        link: Link,
        distance: &Distance,
    ) -> Result<(), Error> {
        let path = format!("/run/netns/{switch}");
        let [from, to] = [rack, 1 - rack].map(make::entering);
        let (sender, ready) = mpsc::channel();
        let frame_bytes_max = link.mtu_bytes as usize + FRAME_BYTES;
        let seed = distance.seed.wrapping_mul(2).wrapping_add(u64::from(rack));
        let passage = Passage::new(&Distance { seed, ..*distance }, link.shaper_bits());
        let stop = Arc::clone(&self.stop);
        let counters = Arc::clone(&self.counters[rack as usize]);
        let carry = move || {
            let way = open(&path, &from, &to).map(|[from, to]| Way {
                from,
                to,
                passage,
                frame_bytes_max,
                counters,
                start: Instant::now(),
                on_the_way: VecDeque::new(),
            });
            let (answer, way) = match way {
                Ok(way) => (Ok(()), Some(way)),
                Err(error) => (Err(error), None),
            };
            let _ = sender.send(answer);
            if let Some(way) = way {
                way.carry(&stop);
            }
        };
        let thread = thread::Builder::new().name("lab-long-link".into()).spawn(carry);
        self.directions.push(thread.map_err(Error::while_doing("starting a long link"))?);
        ready.recv().unwrap_or_else(|_| Err(Error::Failed("a long link has ended".into())))
    }
}

impl Drop for LongLink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for direction in self.directions.drain(..) {
            let _ = direction.join();
        }
    }
}

/// Enters a namespace with this thread, and opens these interfaces there.
fn open(namespace: &str, from: &str, to: &str) -> Result<[Interface; 2], Error> {
    let file = File::open(namespace).map_err(Error::while_doing(namespace))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| Error::Failed(format!("{namespace}: {error}")))?;
    let open = |name| Interface::open(name, true).map_err(|error| Error::Failed(error.to_string()));
    let (from, to) = (open(from)?, open(to)?);
    from.reserve(RECEIVE_BUFFER_BYTES).map_err(Error::while_doing("a receive buffer"))?;
    Ok([from, to])
}

/// One direction: moves frames as its passage says.
struct Way {
    from: Interface,
    to: Interface,
    passage: Passage,
    frame_bytes_max: usize,
    counters: Arc<Counters>,
    /// What times of the passage count from.
    start: Instant,
    /// By the time when they arrive.
    on_the_way: VecDeque<(Duration, Offload, Vec<u8>)>,
}

impl Way {
    fn carry(mut self, stop: &AtomicBool) {
        let mut batch = Batch::new();
        while !stop.load(Ordering::Relaxed) {
            let next = self.on_the_way.front().map(|(due, ..)| *due);
            let wait = next.map_or(PATIENCE, |due| due.saturating_sub(self.start.elapsed()));
            // It fails once the lab is gone, before this is stopped.
            if self.from.receive(&mut batch, wait.min(PATIENCE)).is_err() {
                return;
            }
            let now = self.start.elapsed();
            for (offload, frame) in batch.frames() {
                self.accept(now, offload, frame);
            }
            self.deliver();
        }
    }

    fn accept(&mut self, now: Duration, offload: Offload, frame: &[u8]) {
        if frame.get(12..14) != Some(&IPV4) {
            // Address resolution repeats only after a second: if it fails now, it is as with any full device.
            let _ = self.to.send(offload, frame);
            return;
        }
        if frame.len() > self.frame_bytes_max {
            add(&self.counters.merged, 1);
        }
        match self.passage.offer(now, frame.len()) {
            Fate::Arrives(due) => self.on_the_way.push_back((due, offload, frame.to_vec())),
            Fate::Lost => add(&self.counters.lost, 1),
            Fate::Dropped => add(&self.counters.dropped, 1),
        }
    }

    fn deliver(&mut self) {
        let now = self.start.elapsed();
        let due = self.on_the_way.partition_point(|(due, ..)| *due <= now);
        for (_, offload, frame) in self.on_the_way.drain(..due) {
            if self.to.send(offload, &frame).is_ok() {
                add(&self.counters.carried, 1);
                add(&self.counters.carried_bytes, frame.len() as u64);
            } else {
                add(&self.counters.refused, 1);
            }
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
