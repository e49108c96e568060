//! A whole group in one thread and in virtual time, with the real engine at every member.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use rdmc::{Algorithm, Engine, Event, GroupSettings, Region, Schedule, Window};
use serde_json::{Value, json};
use transport_sim::{Jitter, LinkConfig, SimConfig, SimNet, SimTransport};

use crate::{
    Outcome,
    delays::Delays,
    report::{Report, number},
    sweep::algorithms,
};

/// Bytes in a block; each takes [`BLOCK_NS`] on a port. Small, since 1,024 members share one memory.
const BLOCK_BYTES: u64 = 64;
const BLOCK_NS: u64 = 1_000;
const GROUP: u64 = 1;
/// Members in a rack.
pub const RACK: u32 = 16;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    members: u32,
    /// How many blocks the message has
    #[arg(long, value_name = "K", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    blocks: u32,
    /// How blocks travel; the rack algorithms get racks of 16
    #[arg(long, default_value = "binomial-pipeline", value_parser = algorithms())]
    algorithm: Algorithm,
    /// Where random delays come from: the same seed, the same run
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Every block takes longer by a random part of a block time, up to this
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    jitter: f64,
    /// Delay of every block and control word, in block times
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    latency: f64,
    /// Receives and sends that each member posts ahead
    #[arg(long, value_name = "N", default_value_t = Window::default().receives,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: u32,
    /// Whether to check every copy, or to leave out the bytes and simulate time only
    #[arg(long, value_enum, default_value_t = Contents::Check)]
    contents: Contents,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Contents {
    Check,
    Skip,
}

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
    /// Whether copies are carried and compared.
    pub check: bool,
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
            check: true,
        }
    }
}

/// A member whose program stands still at random.
pub struct Late {
    member: usize,
    delays: Delays,
    /// Until when it stands still.
    until: Option<Duration>,
}

impl Late {
    /// `delay` in block times.
    pub fn new(member: usize, delay: f64, probability: f64, seed: u64) -> Self {
        let delay = Duration::from_nanos((delay * BLOCK_NS as f64) as u64);
        Self { member, delays: Delays::new(delay, probability, seed), until: None }
    }

    /// Whether this member's program stands still instead of doing what it has to do now.
    fn is_late(&mut self, member: usize, now: Duration) -> bool {
        if member != self.member {
            return false;
        }
        match self.until {
            Some(until) if now < until => return true,
            Some(_) => self.until = None,
            None => self.until = self.delays.draw().map(|delay| now + delay),
        }
        self.until.is_some()
    }
}

/// A group in a simulated network.
pub struct World {
    network: SimNet,
    engines: Vec<Engine<SimTransport>>,
    object: Vec<u8>,
    check: bool,
    /// How many members have the message, have closed, and when the last had the message.
    received: usize,
    closed: usize,
    received_at: Duration,
    late: Option<Late>,
}

/// Simulates and prints.
///
/// Errors: a copy is wrong or missing; nothing is delayed and yet it takes another time than the
/// schedule's steps (not for the circulant and rack algorithms, where members run ahead).
pub fn run(args: &Args) -> Outcome<()> {
    let schedule = schedule(args.algorithm, args.members, RACK)?;
    let start = Instant::now();
    let shape = Shape {
        members: args.members,
        blocks: args.blocks,
        seed: args.seed,
        jitter: args.jitter,
        latency: args.latency,
        window: args.window,
        offload: false,
        check: args.contents == Contents::Check,
    };
    let mut world = World::new(&shape, &schedule)?;
    let connected = start.elapsed();
    world.deliver()?;
    let wall = start.elapsed() - connected;
    world.close()?;

    let steps = schedule.steps(args.blocks);
    let taken = world.received_at.as_nanos() as f64 / BLOCK_NS as f64;
    let transfers = u64::from(args.members - 1) * u64::from(args.blocks);
    let what = format!(
        "{}, seed {}, jitter {}, latency {}, window {}",
        args.algorithm, args.seed, args.jitter, args.latency, args.window
    );
    let columns = [
        "members",
        "blocks",
        "steps",
        "lower_bound",
        "block_times",
        "of_the_steps",
        "transfers",
        "wall_s",
    ];
    let mut report = Report::new("sim", what, &columns);
    report.row(vec![
        json!(args.members),
        json!(args.blocks),
        json!(steps),
        json!(schedule::lower_bound_steps(args.members, args.blocks)),
        number(taken),
        if steps == 0 { Value::Null } else { number(taken / steps as f64) },
        json!(transfers),
        number(wall.as_secs_f64()),
    ]);
    let checked = if world.check { "every copy checked, " } else { "" };
    report.note(format!(
        "block times: until the last member has the message. {checked}closed with success at all {} members.",
        args.members
    ));
    report.print(args.json);
    let undelayed = args.jitter == 0.0 && args.latency == 0.0;
    if undelayed
        && keeps_step(args.algorithm)
        && world.received_at != Duration::from_nanos(steps * BLOCK_NS)
    {
        return Err(format!(
            "nothing was delayed, and {taken} block times were taken where the schedule has {steps} steps"
        )
        .into());
    }
    Ok(())
}

/// Whether members that run as soon as they can stay in step when nothing delays them. By the
/// others some run ahead of the schedule, and then meet other blocks at a port than it says.
fn keeps_step(algorithm: Algorithm) -> bool {
    !algorithm.needs_racks() && algorithm != Algorithm::Circulant
}

/// A schedule from rank 0; the rack algorithms get racks of `rack` members.
pub fn schedule(algorithm: Algorithm, members: u32, rack: u32) -> Outcome<Schedule> {
    let racks: Vec<u32> = (0..members).map(|rank| rank / rack).collect();
    Ok(Schedule::with_racks(algorithm, &racks, 0)?)
}

impl World {
    /// Members that are connected and have sent nothing.
    pub fn new(shape: &Shape, schedule: &Schedule) -> Outcome<Self> {
        let latency_ns = (shape.latency * BLOCK_NS as f64) as u64;
        let config = SimConfig {
            port_rate_bytes_per_s: BLOCK_BYTES * 1_000_000_000 / BLOCK_NS,
            link: LinkConfig { latency_ns, ..LinkConfig::IDEAL },
            block_jitter: Jitter::BlockTimes(shape.jitter),
            carry_bytes: shape.check,
            trace_events: 0,
            ..SimConfig::IDEAL
        };
        let network = SimNet::new(config, shape.seed);
        let mut engines: Vec<_> =
            (0..shape.members).map(|_| Engine::new(network.member())).collect();
        let mut links: Vec<_> = engines.iter().map(|_| Vec::new()).collect();
        for one in 0..shape.members {
            for other in schedule.neighbours(one).filter(|&other| one < other) {
                let (link, back) = network.connect(one as usize, other as usize);
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
            // Virtual time passes only for something: a stall ends the run by itself.
            settings.stall_timeout_ms = 0;
            engine.create(settings, links)?;
        }
        let object =
            (0..u64::from(shape.blocks) * BLOCK_BYTES).map(|index| ((index * 31) >> 3) as u8);
        Ok(Self {
            network,
            engines,
            object: object.collect(),
            check: shape.check,
            received: 0,
            closed: 0,
            received_at: Duration::ZERO,
            late: None,
        })
    }

    /// Delivers one message and closes. Answers in block times, until the last member has the message.
    pub fn deliver_alone(mut self) -> Outcome<f64> {
        self.deliver()?;
        self.close()?;
        Ok(self.received_at.as_nanos() as f64 / BLOCK_NS as f64)
    }

    /// Sends the message, and lets things happen until nothing does any more.
    fn deliver(&mut self) -> Outcome<()> {
        // What is granted when groups are created belongs to no message.
        self.run()?;
        let start = self.network.now();
        self.engines[0].send(GROUP, Region::from_vec(self.object.clone()))?;
        self.poll(0)?;
        self.run()?;
        self.received_at = self.received_at.saturating_sub(start);
        let receivers = self.engines.len() - 1;
        if self.received != receivers {
            return Err(
                format!("{} of {receivers} receivers have the message", self.received).into()
            );
        }
        Ok(())
    }

    /// [`World::deliver`] with a program that is late. Answers in block times, until all others have
    /// the message.
    pub fn deliver_late(&mut self, late: Late) -> Outcome<f64> {
        self.run()?;
        self.late = Some(late);
        self.deliver()?;
        Ok(self.received_at.as_nanos() as f64 / BLOCK_NS as f64)
    }

    fn close(&mut self) -> Outcome<()> {
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
            if !self.late.as_mut().is_some_and(|late| late.is_late(member, now)) {
                self.poll(member)?;
            }
        }
        Ok(())
    }

    /// Who has something to do next.
    fn next(&mut self) -> Option<usize> {
        match self.late.as_ref().and_then(|late| Some((late.member, late.until?))) {
            Some((late, until)) => self.network.run_until(until).or(Some(late)),
            None => self.network.step(),
        }
    }

    /// Polls one member until it has nothing to say, and gives it memory when it asks.
    fn poll(&mut self, member: usize) -> Outcome<()> {
        let mut events = Vec::new();
        loop {
            self.engines[member].progress(Duration::ZERO, &mut events);
            if events.is_empty() {
                return Ok(());
            }
            for event in events.drain(..) {
                match event {
                    Event::Incoming { message, bytes, .. } => {
                        let region = Region::zeroed(bytes as usize);
                        self.engines[member].accept(GROUP, message, region)?;
                    }
                    Event::Received { .. } => {
                        self.received += 1;
                        if self.late.as_ref().is_none_or(|late| late.member != member) {
                            self.received_at = self.network.now();
                        }
                    }
                    Event::Complete { region, .. } => self.check(member, region)?,
                    Event::Closed { .. } => self.closed += 1,
                    Event::Failed { failure, .. } => {
                        return Err(format!("member {member}: {failure}").into());
                    }
                    _ => {}
                }
            }
        }
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
