//! A long link between the two racks of a lab: its delay, and the packets that it loses.

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

use crate::{Error, Lab, command, make, namespaces::of_switch, state::Lock};

/// The longest wait for a frame: how late a stop is noticed.
const PATIENCE: Duration = Duration::from_millis(20);
/// For frames that have arrived while the thread did not run.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
/// An Ethernet header with a VLAN tag.
const FRAME_BYTES: usize = 18;
const IPV4: [u8; 2] = [8, 0];

/// What a long link does to packets, in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// How long each packet takes, in addition to its time in queues: half the round trip.
    pub delay: Duration,
    /// Which part of all IPv4 packets is lost, each independently of others. ARP is not: its retries after
    /// a second would be measured instead.
    pub loss: f64,
    /// Of the generator that chooses the lost packets.
    pub seed: u64,
}

/// What became of the packets of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongLinkCounts {
    /// Carried to the other rack.
    pub carried: u64,
    /// Lost by [`Distance::loss`].
    pub lost: u64,
    /// Dropped by the full queue of the other rack.
    pub refused: u64,
    /// Longer than a packet of the link: several that the kernel has merged, and that would be lost together.
    pub merged: u64,
}

#[derive(Debug, Default)]
struct Counters {
    carried: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
    merged: AtomicU64,
}

/// A running long link. It joins the racks until it is dropped; then they are apart.
///
/// Rate and queue are those of the racks' uplinks. Two threads forward the frames, which costs this machine a few
/// microseconds of processor time for each: it carries 200 Mbit/s of full packets beside a group on two cores.
#[derive(Debug)]
pub struct LongLink {
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    directions: Vec<JoinHandle<()>>,
}

impl LongLink {
    /// Puts a long link between the two racks of this lab, in place of the switch that joins them.
    ///
    /// Errors: the lab has not exactly two racks; not root; a loss that is no part.
    pub fn between_racks(lab: &Lab, distance: &Distance) -> Result<Self, Error> {
        if lab.settings().racks != 2 {
            return Err(Error::Usage("a long link joins two racks".into()));
        }
        if !(0.0..=1.0).contains(&distance.loss) {
            return Err(Error::Usage(format!("a loss is 0 to 1, not {}", distance.loss)));
        }
        let switch = of_switch(lab.name());
        // Packets are to be lost one by one: the kernel cuts up before the link what TCP hands over at once.
        let lines = (0..2).flat_map(|rack| {
            let (leaving, entering) = (make::leaving(rack), make::entering(rack));
            [format!("link set {leaving} gso_max_segs 1"), format!("link set {entering} nomaster")]
        });
        command::batch(&Lock::take()?, "ip", Some(&switch), &lines.collect::<Vec<_>>())?;
        let mut link =
            Self { stop: Arc::default(), counters: Arc::default(), directions: Vec::new() };
        for rack in 0..2 {
            link.start([make::entering(rack), make::entering(1 - rack)], &switch, lab, distance)?;
        }
        Ok(link)
    }

    /// What became of packets so far.
    pub fn counts(&self) -> LongLinkCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LongLinkCounts {
            carried: of(&self.counters.carried),
            lost: of(&self.counters.lost),
            refused: of(&self.counters.refused),
            merged: of(&self.counters.merged),
        }
    }

    /// Starts the thread of one direction, and waits until it forwards.
    fn start(
        &mut self,
        [from, to]: [String; 2],
        switch: &str,
        lab: &Lab,
        distance: &Distance,
    ) -> Result<(), Error> {
        let path = format!("/run/netns/{switch}");
        let (sender, ready) = mpsc::channel();
        let frame_bytes_max = lab.settings().link.mtu_bytes as usize + FRAME_BYTES;
        let (stop, counters) = (Arc::clone(&self.stop), Arc::clone(&self.counters));
        let seed = distance.seed.wrapping_mul(2).wrapping_add(self.directions.len() as u64);
        let Distance { delay, loss, .. } = *distance;
        let carry = move || {
            let way = open(&path, &from, &to).map(|[from, to]| Way {
                from,
                to,
                delay,
                loss: Loss { part: loss, state: seed },
                frame_bytes_max,
                counters,
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

/// One direction.
struct Way {
    from: Interface,
    to: Interface,
    delay: Duration,
    loss: Loss,
    frame_bytes_max: usize,
    counters: Arc<Counters>,
    on_the_way: VecDeque<(Instant, Offload, Vec<u8>)>,
}

impl Way {
    fn carry(mut self, stop: &AtomicBool) {
        let mut batch = Batch::new();
        while !stop.load(Ordering::Relaxed) {
            let next = self.on_the_way.front().map(|(due, ..)| *due);
            let wait = next.map_or(PATIENCE, |due| due.saturating_duration_since(Instant::now()));
            // It fails once the lab is gone, before this is stopped.
            if self.from.receive(&mut batch, wait.min(PATIENCE)).is_err() {
                return;
            }
            let now = Instant::now();
            for (offload, frame) in batch.frames() {
                if frame.len() > self.frame_bytes_max {
                    count(&self.counters.merged);
                }
                if frame.get(12..14) == Some(&IPV4) && self.loss.is_next_lost() {
                    count(&self.counters.lost);
                } else {
                    self.on_the_way.push_back((now + self.delay, offload, frame.to_vec()));
                }
            }
            self.deliver(Instant::now());
        }
    }

    fn deliver(&mut self, now: Instant) {
        let due = self.on_the_way.partition_point(|(due, ..)| *due <= now);
        for (_, offload, frame) in self.on_the_way.drain(..due) {
            let sent = self.to.send(offload, &frame);
            let Counters { carried, refused, .. } = &*self.counters;
            count(if sent.is_ok() { carried } else { refused });
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Chooses the lost packets: SplitMix64.
struct Loss {
    part: f64,
    state: u64,
}

impl Loss {
    fn is_next_lost(&mut self) -> bool {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((mixed >> 11) as f64 / (1_u64 << 53) as f64) < self.part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_as_frequent_as_told_and_the_same_with_the_same_seed() {
        let lost = |part, seed| {
            let mut loss = Loss { part, state: seed };
            (0..100_000).filter(|_| loss.is_next_lost()).collect::<Vec<u32>>()
        };
        assert!(lost(0.0, 1).is_empty());
        assert_eq!(lost(1.0, 1).len(), 100_000);
        let one = lost(0.01, 7);
        assert!((900..1_100).contains(&one.len()), "{}", one.len());
        assert_eq!(one, lost(0.01, 7));
        assert_ne!(one, lost(0.01, 8));
    }
}
