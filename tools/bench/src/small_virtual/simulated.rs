//! In virtual time: the real engines over a network of a data centre, up to a thousand members.

use std::time::Duration;

use engine::{Engine, Event, GroupSettings, SmallMessages};
use rdmc::{Algorithm, Region, Schedule};
use transport_sim::{SimConfig, SimNet, SimTransport};

use crate::{
    outcome::Outcome,
    sim::{GROUP, take_events},
};

/// For each block at both of its ports, and for each write at its source: what a program or a network
/// card needs for one.
pub const OVERHEAD_NS: u64 = 1_000;

/// Slots of a ring, and fewer for long messages: all rings share one machine's memory.
const SLOTS: u32 = 16;
const SLOTS_OF_LONG: u32 = 4;
const LONG_BYTES: u64 = 16 << 10;

/// The times of one path.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From the send of one message until the last receiver has it, in seconds.
    pub latency: f64,
    /// The same of all messages, sent at once.
    pub all: f64,
}

/// Sends one message, and then several at once, each of `bytes` bytes.
pub fn measure(members: u32, bytes: u64, messages: u64, written: bool) -> Outcome<Times> {
    let mut world = World::new(members, bytes, written)?;
    world.run()?;
    let latency = world.deliver(1, bytes)?;
    let all = world.deliver(messages, bytes)?;
    Ok(Times { latency: latency.as_secs_f64(), all: all.as_secs_f64() })
}

struct World {
    network: SimNet,
    engines: Vec<Engine<SimTransport>>,
    /// How many messages each member has received, and when the last one came.
    received: Vec<(u64, Duration)>,
}

impl World {
    fn new(members: u32, bytes: u64, written: bool) -> Outcome<Self> {
        let config = SimConfig {
            block_overhead_ns: OVERHEAD_NS,
            write_overhead_ns: Some(OVERHEAD_NS),
            trace_events: 0,
            ..SimConfig::default()
        };
        let network = SimNet::new(config, 1);
        let mut engines: Vec<_> = (0..members).map(|_| Engine::new(network.member())).collect();
        let schedule = Schedule::new(Algorithm::BinomialPipeline, members, 0)?;
        let settings = |rank| {
            let mut settings = GroupSettings::new(GROUP, rank, schedule.clone());
            settings.block_bytes = bytes;
            let slots = if bytes >= LONG_BYTES { SLOTS_OF_LONG } else { SLOTS };
            let limits =
                SmallMessages { bytes_max: u32::try_from(bytes)?, slots, members_max: members };
            settings.small = written.then_some(limits);
            settings.stall_timeout = None;
            Outcome::Ok(settings)
        };
        let mut links: Vec<_> = engines.iter().map(|_| Vec::new()).collect();
        for one in 0..members {
            for other in settings(one)?.neighbours().into_iter().filter(|&other| one < other) {
                let (link, back) = network.connect(one as usize, other as usize);
                links[one as usize].push((other, link));
                links[other as usize].push((one, back));
            }
        }
        for ((rank, engine), links) in (0..).zip(&mut engines).zip(links) {
            engine.create(settings(rank)?, links)?;
        }
        let received = vec![(0, Duration::ZERO); members as usize];
        Ok(Self { network, engines, received })
    }

    /// Sends messages at once. Answers how long it takes until the last receiver has the last.
    fn deliver(&mut self, messages: u64, bytes: u64) -> Outcome<Duration> {
        let start = self.network.now();
        let before = self.received.clone();
        for _ in 0..messages {
            self.engines[0].send(GROUP, Region::zeroed(bytes as usize))?;
        }
        self.poll(0)?;
        self.run()?;
        let receivers = || self.received.iter().zip(&before).skip(1);
        if let Some((now, then)) = receivers().find(|(now, then)| now.0 != then.0 + messages) {
            return Err(format!("{} of {messages} messages arrived", now.0 - then.0).into());
        }
        let last = receivers().map(|((_, at), _)| *at).max().unwrap_or(start);
        Ok(last.saturating_sub(start))
    }

    fn run(&mut self) -> Outcome<()> {
        while let Some(member) = self.network.step() {
            self.poll(member)?;
        }
        Ok(())
    }

    /// Polls one member until it has no more events.
    fn poll(&mut self, member: usize) -> Outcome<()> {
        for event in take_events(&mut self.engines[member], member)? {
            if let Event::Received { .. } = event {
                let (count, at) = &mut self.received[member];
                (*count, *at) = (*count + 1, self.network.now());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_message_leaves_the_root_once_for_each_receiver_and_takes_one_hop() {
        let written = |members| measure(members, 1, 10, true).unwrap().latency;
        // The root's port is busy for 1 us for each receiver, and the way takes 5 us.
        let hop = |receivers: f64| (receivers * OVERHEAD_NS as f64 + 5_000.0) * 1e-9;
        for members in [2, 8, 64] {
            let expected = hop(f64::from(members - 1));
            let found = written(members);
            assert!((found / expected - 1.0).abs() < 0.02, "{members} members: {found}");
        }
    }

    #[test]
    fn relaying_wins_in_the_end() {
        let paths = |members, bytes| {
            [false, true].map(|written| measure(members, bytes, 40, written).unwrap())
        };
        let [relayed, written] = paths(2, 1);
        assert!(written.all < relayed.all, "{written:?} {relayed:?}");
        let [relayed, written] = paths(8, 1);
        assert!(written.latency < relayed.latency, "{written:?} {relayed:?}");
        let [relayed, written] = paths(256, 64 << 10);
        assert!(relayed.all < written.all && relayed.latency < written.latency);
    }
}
