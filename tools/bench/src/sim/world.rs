//! The group itself: engines, the network between them, and programs that pause.

use std::time::Duration;

use engine::{Engine, Event, GroupSettings};
use rdmc::{Region, Schedule, Window};
use transport_sim::{Jitter, LinkConfig, Ports, SimConfig, SimNet, SimTransport};

use crate::{delays::Delays, outcome::Outcome};

/// Bytes in a block; each takes [`BLOCK_NS`] on a port. Small, since 1,024 members share one memory.
const BLOCK_BYTES: u64 = 64;
/// A block time.
pub const BLOCK_NS: u64 = 1_000;
const RATE_BYTES_PER_S: u64 = BLOCK_BYTES * 1_000_000_000 / BLOCK_NS;
/// The number of every simulated group.
pub const GROUP: u64 = 1;

/// Where ports are shared: sixteen parts of a block, of which a connection has four on their way.
const SHARED: Ports = Ports::Shared { part_bytes: BLOCK_BYTES / 16, parts_under_way: 4 };

/// What a simulated group is like.
#[derive(Clone, Debug)]
pub struct Shape {
    pub members: u32,
    pub blocks: u32,
    pub seed: u64,
    /// In parts of a block time.
    pub jitter: f64,
    /// In block times.
    pub latency: f64,
    pub window: u32,
    pub offload: bool,
    /// Whether ports are shared by all connections, instead of serving one block after another.
    pub shared: bool,
    /// Whether a block is sent on while it arrives.
    pub cut_through: bool,
    /// Whether copies are carried and compared.
    pub check: bool,
    /// Two members between which blocks take this many block times.
    pub slow_link: Option<([u32; 2], u64)>,
    /// A member whose blocks take this many block times.
    pub slow_member: Option<(u32, u64)>,
    /// Whether it is noted when each block is where.
    pub arrivals: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            members: 2,
            blocks: 1,
            seed: 1,
            jitter: 0.0,
            latency: 0.0,
            window: Window::default().receives,
            offload: false,
            shared: false,
            cut_through: false,
            check: true,
            slow_link: None,
            slow_member: None,
            arrivals: false,
        }
    }
}

impl Shape {
    fn link(&self, one: u32, other: u32) -> LinkConfig {
        let latency_ns = (self.latency * BLOCK_NS as f64) as u64;
        let slow =
            self.slow_link.filter(|(hosts, _)| hosts.contains(&one) && hosts.contains(&other));
        let rate_bytes_per_s = slow.map_or(u64::MAX, |(_, times)| RATE_BYTES_PER_S / times);
        LinkConfig { latency_ns, rate_bytes_per_s }
    }
}

/// A member whose program pauses, at random or once.
pub struct Late {
    member: usize,
    delays: Delays,
    /// When it pauses once, and for how long.
    once: Option<(Duration, Duration)>,
    /// The end of the current pause.
    until: Option<Duration>,
}

impl Late {
    /// `delay` in block times.
    pub fn new(member: usize, delay: f64, probability: f64, seed: u64) -> Self {
        let delays = Delays::new(block_times(delay), probability, seed);
        Self { member, delays, once: None, until: None }
    }

    /// At the first thing that it has to do `at` block times after the send or later, `delay` block
    /// times long.
    pub fn once(member: usize, at: f64, delay: f64) -> Self {
        let once = Some((block_times(at), block_times(delay)));
        Self { once, ..Self::new(member, 0.0, 0.0, 0) }
    }

    fn counted_from(self, start: Duration) -> Self {
        Self { once: self.once.map(|(at, delay)| (start + at, delay)), ..self }
    }

    /// Whether this program pauses now.
    fn is_late(&mut self, now: Duration) -> bool {
        match self.until {
            Some(until) if now < until => return true,
            Some(_) => self.until = None,
            None => {
                let once = self.once.take_if(|(at, _)| now >= *at).map(|(_, delay)| delay);
                self.until = once.or_else(|| self.delays.draw()).map(|delay| now + delay);
            }
        }
        self.until.is_some()
    }
}

fn block_times(count: f64) -> Duration {
    Duration::from_nanos((count * BLOCK_NS as f64) as u64)
}

/// A group in a simulated network.
pub struct World {
    network: SimNet,
    engines: Vec<Engine<SimTransport>>,
    object: Vec<u8>,
    check: bool,
    late: Vec<Late>,
    /// When the message was sent.
    started: Duration,
    /// When each member had the message.
    received: Vec<Option<Duration>>,
    /// When each member had each block.
    arrivals: Vec<Vec<Duration>>,
    closed: usize,
}

impl World {
    /// Members that are connected and have sent nothing.
    pub fn new(shape: &Shape, schedule: &Schedule) -> Outcome<Self> {
        let config = SimConfig {
            port_rate_bytes_per_s: RATE_BYTES_PER_S,
            ports: if shape.shared { SHARED } else { Ports::InOrder },
            cut_through_bytes: shape.cut_through.then_some(BLOCK_BYTES / 16),
            block_jitter: Jitter::BlockTimes(shape.jitter),
            carry_bytes: shape.check,
            trace_events: 0,
            ..SimConfig::IDEAL
        };
        let network = SimNet::new(config, shape.seed);
        let mut engines: Vec<_> =
            (0..shape.members).map(|_| Engine::new(network.member())).collect();
        if let Some((member, times)) = shape.slow_member {
            network.set_port_rate(member as usize, RATE_BYTES_PER_S / times);
        }
        let mut links: Vec<_> = engines.iter().map(|_| Vec::new()).collect();
        for one in 0..shape.members {
            for other in schedule.neighbours(one).filter(|&other| one < other) {
                let link = shape.link(one, other);
                let (link, back) = network.connect_with(one as usize, other as usize, link);
                links[one as usize].push((other, link));
                links[other as usize].push((one, back));
            }
        }
        for ((rank, engine), links) in (0..).zip(&mut engines).zip(links) {
            let mut settings = GroupSettings::new(GROUP, rank, schedule.clone());
            settings.block_bytes = BLOCK_BYTES;
            settings.small = None;
            settings.window = Window { receives: shape.window, sends: shape.window };
            settings.offload = shape.offload;
            settings.report_blocks = shape.arrivals;
            // Virtual time passes only with events: a stalled run ends by itself.
            settings.stall_timeout = None;
            engine.create(settings, links)?;
        }
        let object =
            (0..u64::from(shape.blocks) * BLOCK_BYTES).map(|index| ((index * 31) >> 3) as u8);
        Ok(Self {
            network,
            engines,
            object: object.collect(),
            check: shape.check,
            late: Vec::new(),
            started: Duration::ZERO,
            received: vec![None; shape.members as usize],
            arrivals: vec![vec![Duration::ZERO; shape.blocks as usize]; shape.members as usize],
            closed: 0,
        })
    }

    /// These programs pause from the next send on.
    pub fn be_late(&mut self, late: Vec<Late>) {
        self.late = late;
    }

    /// Sends the message, and runs until there are no more events.
    pub fn deliver(&mut self) -> Outcome<()> {
        // Credits that are granted when groups are created are of no message.
        let late = std::mem::take(&mut self.late);
        self.run()?;
        self.started = self.network.now();
        self.late = late.into_iter().map(|late| late.counted_from(self.started)).collect();
        self.engines[0].send(GROUP, Region::from_vec(self.object.clone()))?;
        self.poll(0)?;
        self.run()?;
        let receivers = self.engines.len() - 1;
        let received = self.received.iter().flatten().count();
        if received != receivers {
            return Err(format!("{received} of {receivers} receivers have the message").into());
        }
        Ok(())
    }

    /// Delivers one message and closes. Answers in block times, until the last member has the message.
    pub fn deliver_alone(mut self) -> Outcome<f64> {
        self.deliver()?;
        self.close()?;
        Ok(self.block_times_without(None))
    }

    /// From the send until all members but this one had the message.
    pub fn time_without(&self, member: Option<u32>) -> Duration {
        let others = (0..).zip(&self.received).filter(|&(rank, _)| Some(rank) != member);
        let last = others.filter_map(|(_, received)| *received).max();
        last.map_or(Duration::ZERO, |last| last.saturating_sub(self.started))
    }

    /// The same in block times.
    pub fn block_times_without(&self, member: Option<u32>) -> f64 {
        self.time_without(member).as_nanos() as f64 / BLOCK_NS as f64
    }

    /// When each member had each block, in block times; with [`Shape::arrivals`].
    pub fn arrivals(&self) -> Vec<Vec<f64>> {
        let times = |at: &Duration| at.as_nanos() as f64 / BLOCK_NS as f64;
        self.arrivals.iter().map(|blocks| blocks.iter().map(times).collect()).collect()
    }

    /// Closes the group at all members.
    pub fn close(&mut self) -> Outcome<()> {
        for engine in &mut self.engines {
            engine.close(GROUP)?;
        }
        for member in 0..self.engines.len() {
            self.poll(member)?;
        }
        self.run()?;
        if self.closed != self.engines.len() {
            return Err(format!("{} of {} members closed", self.closed, self.engines.len()).into());
        }
        Ok(())
    }

    fn run(&mut self) -> Outcome<()> {
        while let Some(member) = self.next() {
            let now = self.network.now();
            let mut own = self.late.iter_mut().filter(|late| late.member == member);
            if !own.any(|late| late.is_late(now)) {
                self.poll(member)?;
            }
        }
        Ok(())
    }

    /// The member with the next event.
    fn next(&mut self) -> Option<usize> {
        let standing = self.late.iter().filter_map(|late| Some((late.until?, late.member)));
        match standing.min() {
            Some((until, late)) => self.network.run_until(until).or(Some(late)),
            None => self.network.step(),
        }
    }

    /// Polls one member until it has no more events.
    fn poll(&mut self, member: usize) -> Outcome<()> {
        for event in take_events(&mut self.engines[member], member)? {
            match event {
                Event::Block { offset, .. } => {
                    let block = (offset / BLOCK_BYTES) as usize;
                    self.arrivals[member][block] = self.network.now();
                }
                Event::Received { .. } => self.received[member] = Some(self.network.now()),
                Event::Complete { region, .. } => self.check(member, region)?,
                Event::Closed { .. } => self.closed += 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn check(&self, member: usize, region: Region) -> Outcome<()> {
        let same = region.try_into_vec().is_ok_and(|copy| copy == self.object);
        if self.check && !same {
            Err(format!("the copy of member {member} is wrong").into())
        } else {
            Ok(())
        }
    }
}

/// Polls an engine of [`GROUP`] until it has no more events, and gives it memory on request; virtual time does not pass.
/// Answers all other events. Errors: the group has failed.
pub fn take_events(engine: &mut Engine<SimTransport>, member: usize) -> Outcome<Vec<Event>> {
    let (mut events, mut others) = (Vec::new(), Vec::new());
    loop {
        engine.progress(Duration::ZERO, &mut events);
        if events.is_empty() {
            return Ok(others);
        }
        for event in events.drain(..) {
            match event {
                Event::Incoming { message, bytes, .. } => {
                    engine.accept(GROUP, message, Region::zeroed(bytes as usize))?;
                }
                Event::Failed { failure, .. } => {
                    return Err(format!("member {member}: {failure}").into());
                }
                other => others.push(other),
            }
        }
    }
}
