//! One member as a process: takes orders on standard input, answers on standard output.
//!
//! The first line in is the session's secret; the second, at every member but rank 0, where to
//! meet. Rank 0 answers the first with that address. Every later line is an [`Order`], and every
//! answer an [`Answer`], in JSON. The process ends when its input does, also in the middle of a
//! transfer: no member outlives the program that started it.

mod store;
mod together;

use std::{
    io::{self, BufRead, Write},
    net::{IpAddr, SocketAddr, TcpListener},
    path::PathBuf,
    process::{self, Command},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Duration,
};

use rdmc::{
    Algorithm, Application, CompletionMode, Context, ContextSettings, Fabric, Failure, Group,
    GroupSettings, Memory, Offload, Protection, Region, RegionPool, Schedule, Secret, Window,
    bootstrap::{Deadline, rendezvous},
};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use trace::{Moment, Writer};

use crate::{
    Outcome,
    clock::{ClockId, now_ns},
    timeline, traces,
};

pub use store::{Object, Workload};
pub use together::Together;

/// How long anything may take that is not a transfer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a transfer may take.
const TRANSFER_PATIENCE: Duration = Duration::from_secs(600);
/// The message that opens the connections' windows before anything is timed.
const WARM_UP_BYTES: u64 = 8 << 20;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    rank: u32,
    #[arg(long)]
    members: u32,
    /// Where this member listens
    #[arg(long)]
    listen: IpAddr,
    #[command(flatten)]
    equipment: Equipment,
    /// The file for its part of a trace
    #[arg(long = "trace-to", requires = "trace_part")]
    trace_to: Option<PathBuf>,
    /// Which part that is, in JSON
    #[arg(long)]
    trace_part: Option<String>,
}

/// How the contexts of all members are made.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Equipment {
    /// The network that blocks move over: tcp, or a libfabric provider (verbs, shm, ofi-tcp, ...)
    #[arg(long, default_value_t)]
    pub fabric: Fabric,
    /// How members wait for completions
    #[arg(long, default_value_t)]
    pub completion: CompletionMode,
    /// How blocks are protected over TCP: none, authenticate or encrypt. Unless given, they are not,
    /// since what is measured beside this does not protect them either
    #[arg(long, value_name = "HOW")]
    pub protect: Option<Protection>,
    /// Let the network relay; an error where the fabric cannot
    #[arg(long)]
    pub offload: bool,
    /// Members record what happens when, and answer it with their times
    #[arg(long, hide = true)]
    pub timeline: bool,
    /// The rack of each member, by rank; two racks of equal size unless given
    #[arg(long, hide = true, value_delimiter = ',')]
    pub racks: Vec<u32>,
}

impl Equipment {
    /// What blocks move over, for the head of a report.
    pub fn network(&self) -> String {
        let offload = if self.offload { " with offload" } else { "" };
        let protect = self.protect.map_or(String::new(), |protection| format!(", {protection}"));
        format!("fabric {}{offload}{protect}", self.fabric)
    }

    /// How blocks are protected.
    pub fn protection(&self) -> Protection {
        self.protect.unwrap_or(Protection::None)
    }
}

/// What a member is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Join a group, and warm up; the root then waits for [`Order::Go`].
    Join(Job),
    /// Join several groups, and warm up; then wait for [`Order::GoAt`].
    JoinAll(Together),
    /// Join many groups, and warm up; the first member then waits for [`Order::Send`], and all for
    /// [`Order::Close`].
    Store(Workload),
    /// At the root only: send.
    Go,
    /// Where a group has its root: send, at this time by `CLOCK_MONOTONIC`.
    GoAt(u64),
    /// At the first member: send this object of the [`Workload`].
    Send(usize),
    /// Every object of the [`Workload`] has arrived: close all groups.
    Close,
    /// Come to harm in the next group.
    Perish(Fate),
}

/// What happens to a receiver in the middle of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fate {
    /// How many blocks it has received by then, those of the warm-up not counted.
    pub after_blocks: u64,
    pub harm: Harm,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Harm {
    /// Its process is killed.
    Kill,
    /// Its process stops, while its connections stay.
    Stop,
    /// It runs this shell command, which does something to its network.
    Run(String),
}

/// One group and what is sent in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The group's number, never used twice.
    pub number: u64,
    pub algorithm: String,
    pub block_bytes: u64,
    pub window: u32,
    pub messages_in_flight: u32,
    pub messages: u64,
    pub message_bytes: u64,
    /// Whether small messages are written to everybody at once, not relayed.
    pub small: bool,
}

/// What a member says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Joined and warm.
    Ready,
    /// Every message has arrived everywhere, and is what it should be.
    Done(Done),
    /// The same of several groups: when each message was all here, unless it was sent from here.
    AllDone(Vec<Option<u64>>),
    /// Sent this object of the [`Workload`] at this time by `CLOCK_MONOTONIC`.
    Sent {
        object: usize,
        at_ns: u64,
    },
    /// It was all here at this time, and is what it should be.
    Arrived {
        object: usize,
        at_ns: u64,
    },
    /// All groups are closed; so much processor time this took, in ns.
    Stored(u64),
    Failed(String),
    /// What [`Order::Perish`] asked for happens now.
    Perishing,
}

/// One member's view of one job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Done {
    /// At the root: just before the first message was sent, by `CLOCK_MONOTONIC`.
    pub started_ns: Option<u64>,
    /// At receivers: when the last message was all here, by the same clock.
    pub received_ns: Option<u64>,
    /// Processor time of this process, user and system, between warm-up and completion.
    pub cpu_ns: u64,
    /// With [`Equipment::timeline`]: all that happened since the warm-up.
    pub timeline: Vec<Moment>,
}

impl Job {
    /// One message, alone, with the usual window.
    pub fn one(algorithm: Algorithm, block_bytes: u64, message_bytes: u64) -> Self {
        Self {
            number: 0,
            algorithm: algorithm.to_string(),
            block_bytes,
            window: Window::default().receives,
            messages_in_flight: 1,
            messages: 1,
            message_bytes,
            small: false,
        }
    }

    /// The same in a group of so many members, with this window or that which they would have.
    pub fn in_group(self, members: u32, window: Option<u32>) -> Self {
        let usual = || Window::for_group(self.block_bytes, members).receives;
        Self { window: window.unwrap_or_else(usual), ..self }
    }

    /// The schedule that all members use; the rack algorithms get two racks of equal size.
    pub fn schedule(&self, members: u32) -> Outcome<Schedule> {
        let racks: Vec<u32> = (0..members).map(|rank| rank * 2 / members).collect();
        self.schedule_in(&racks)
    }

    /// The same with one member for each of these racks.
    pub fn schedule_in(&self, racks: &[u32]) -> Outcome<Schedule> {
        let algorithm: Algorithm = self.algorithm.parse()?;
        Ok(Schedule::with_racks(algorithm, racks, 0)?)
    }

    /// How many blocks a message has.
    pub fn blocks(&self) -> u32 {
        u32::try_from(self.message_bytes.div_ceil(self.block_bytes)).unwrap_or(u32::MAX)
    }
}

/// What the callbacks tell the main thread.
enum Told {
    Received(u64),
    Complete(u64, Region),
    Failed(String),
}

struct Recorder {
    memory: RegionPool,
    told: Sender<Told>,
    fate: Option<Fate>,
    block_bytes: u64,
    blocks: u64,
}

impl Application for Recorder {
    fn incoming(&mut self, _message: u64, _bytes: u64) -> Memory {
        self.memory.take().map_or(Memory::Refuse("no memory is left".into()), Memory::Region)
    }

    fn block(&mut self, message: u64, _offset: u64, bytes: u64) {
        let is_warm_up = message == 0;
        // Several at once, if they came during a callback.
        self.blocks += if is_warm_up { 0 } else { bytes.div_ceil(self.block_bytes) };
        if let Some(fate) = self.fate.take_if(|fate| fate.after_blocks <= self.blocks)
            && let Err(error) = perish(&fate.harm)
        {
            let _ = self.told.send(Told::Failed(format!("could not come to harm: {error}")));
        }
    }

    fn received(&mut self, _message: u64) {
        let _ = self.told.send(Told::Received(now_ns(ClockId::Monotonic)));
    }

    fn complete(&mut self, message: u64, region: Region) {
        let _ = self.told.send(Told::Complete(message, region));
    }

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        let _ = self.told.send(Told::Failed(failure.to_string()));
    }
}

fn perish(harm: &Harm) -> Outcome<()> {
    say(&Answer::Perishing)?;
    match harm {
        Harm::Kill => kill_process(getpid(), Signal::KILL)?,
        Harm::Stop => kill_process(getpid(), Signal::STOP)?,
        Harm::Run(command) => {
            let status = Command::new("sh").args(["-c", command]).status()?;
            if !status.success() {
                return Err(format!("{command}: {status}").into());
            }
        }
    }
    Ok(())
}

/// Serves until standard input ends.
pub fn run(args: &Args) -> Outcome<()> {
    let writer = match (&args.trace_to, &args.trace_part) {
        (Some(path), Some(part)) => Some(traces::write(path, part)?),
        _ => None,
    };
    if args.equipment.timeline || writer.is_some() {
        timeline::record(args.equipment.timeline, writer.as_ref());
    }
    let orders = listen(writer);
    let secret = Secret::from_hex(&next_line(&orders)?)?;
    let mut settings = ContextSettings::new((args.listen, 0).into(), secret.clone());
    settings.fabric = args.equipment.fabric.clone();
    settings.completion = args.equipment.completion;
    settings.protection = args.equipment.protection();
    let context = Context::start(settings)?;
    let addresses = meet(args, &secret, context.address(), &orders)?;
    let mut member = Member { args, addresses, context, pool: None, fate: None };
    while let Ok(line) = orders.recv() {
        let outcome = match serde_json::from_str(&line)? {
            Order::Join(job) => member.take_part(&job, &orders).map(Answer::Done),
            Order::JoinAll(all) => member.take_part_in_all(&all, &orders).map(Answer::AllDone),
            Order::Store(workload) => member.store(&workload, &orders).map(Answer::Stored),
            Order::Perish(fate) => {
                member.fate = Some(fate);
                continue;
            }
            Order::Go | Order::GoAt(_) | Order::Send(_) | Order::Close => {
                return Err("told to go on before joining".into());
            }
        };
        say(&outcome.unwrap_or_else(|error| Answer::Failed(error.to_string())))?;
    }
    Ok(())
}

/// Learns where everybody is.
fn meet(
    args: &Args,
    secret: &Secret,
    own: SocketAddr,
    orders: &Receiver<String>,
) -> Outcome<Vec<SocketAddr>> {
    let deadline = Deadline::after(PATIENCE);
    if args.rank == 0 {
        let listener = TcpListener::bind((args.listen, 0))?;
        println!("{}", listener.local_addr()?);
        return Ok(rendezvous::host(&listener, secret, args.members, own, deadline)?);
    }
    let address: SocketAddr = next_line(orders)?.parse()?;
    Ok(rendezvous::join(address, secret, Some(args.rank), own, deadline)?.1)
}

struct Member<'a> {
    args: &'a Args,
    addresses: Vec<SocketAddr>,
    context: Context,
    /// Memory of the last job, kept because touching fresh pages takes longer than a transfer.
    pool: Option<RegionPool>,
    fate: Option<Fate>,
}

impl Member<'_> {
    fn take_part(&mut self, job: &Job, orders: &Receiver<String>) -> Outcome<Done> {
        let pool = self.memory_for(job.messages as usize, job.message_bytes);
        let context = &self.context;
        let (sender, told) = mpsc::channel();
        let fate = self.fate.take();
        let report_blocks = fate.is_some();
        let (memory, block_bytes) = (pool.clone(), job.block_bytes);
        let recorder = Recorder { memory, told: sender, fate, block_bytes, blocks: 0 };
        let schedule = match &self.args.equipment.racks[..] {
            [] => job.schedule(self.args.members)?,
            racks => job.schedule_in(racks)?,
        };
        let mut settings = GroupSettings::new(job.number, self.args.rank, schedule);
        settings.block_bytes = job.block_bytes;
        settings.window = Window { receives: job.window, sends: job.window };
        settings.messages_in_flight = job.messages_in_flight;
        settings.report_blocks = report_blocks;
        settings.small = settings.small.filter(|_| job.small);
        settings.offload = self.args.equipment.offload;
        let group = context.create_group(settings, &self.addresses, recorder)?;
        check_offload(&group)?;

        let is_root = self.args.rank == 0;
        let mut objects = Vec::new();
        if is_root {
            for message in 1..=job.messages {
                let object = pool.take().ok_or("no memory is left")?;
                fill(&mut object.write(0..object.len())?, seed(job.number, message));
                objects.push(object);
            }
            group.send(Region::zeroed(job.message_bytes.min(WARM_UP_BYTES) as usize))?;
        }
        let warm = await_completion(&told, 1)?.completed;
        if !is_root {
            warm.into_iter().for_each(|(_, region)| pool.put(region));
        }
        timeline::take();
        say(&Answer::Ready)?;
        if is_root {
            next_line(orders)?;
        }
        let cpu_before = now_ns(ClockId::ProcessCPUTime);
        let started_ns = now_ns(ClockId::Monotonic);
        for object in objects {
            group.send(object)?;
        }
        let all = await_completion(&told, job.messages)?;
        let cpu_ns = now_ns(ClockId::ProcessCPUTime) - cpu_before;
        // Only when all have it is checking it in nobody's way.
        group.close(TRANSFER_PATIENCE)?;
        for (message, region) in all.completed {
            if !is_root {
                check(&region.read(0..region.len())?, seed(job.number, message))?;
            }
            pool.put(region);
        }
        Ok(Done {
            started_ns: is_root.then_some(started_ns),
            received_ns: all.received_ns,
            cpu_ns,
            timeline: timeline::take(),
        })
    }

    /// A touched region for each message; those of the job before, if they fit.
    fn memory_for(&mut self, count: usize, message_bytes: u64) -> RegionPool {
        let bytes = message_bytes as usize;
        let fits = |pool: &RegionPool| pool.region_bytes() == bytes && pool.available() >= count;
        let pool = match self.pool.take().filter(fits) {
            Some(pool) => pool,
            None => RegionPool::new(count, bytes),
        };
        self.pool = Some(pool.clone());
        pool
    }
}

/// A figure of offload must not be one of something else.
pub fn check_offload(group: &Group) -> Outcome<()> {
    match group.offload() {
        Offload::Unavailable(reason) => Err(format!("no offload: {reason}").into()),
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Messages {
    received_ns: Option<u64>,
    completed: Vec<(u64, Region)>,
}

/// Waits until this many more messages are complete here.
fn await_completion(told: &Receiver<Told>, messages: u64) -> Outcome<Messages> {
    let mut all = Messages::default();
    while (all.completed.len() as u64) < messages {
        match told.recv_timeout(TRANSFER_PATIENCE) {
            Ok(Told::Received(at_ns)) => all.received_ns = Some(at_ns),
            Ok(Told::Complete(message, region)) => all.completed.push((message, region)),
            Ok(Told::Failed(failure)) => return Err(failure.into()),
            Err(_) => return Err("nothing came for ten minutes".into()),
        }
    }
    Ok(all)
}

fn say(answer: &Answer) -> Outcome<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    io::stdout().write_all(&line)?;
    Ok(())
}

/// Lines of standard input, at whose end this process ends, with its part of a trace.
fn listen(trace: Option<Writer>) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        match trace.map(Writer::close).transpose() {
            Ok(Some(summary)) if summary.lost > 0 => {
                eprintln!("rdmc-bench: a trace lacks {} events: the disk was slow", summary.lost);
            }
            Ok(_) => {}
            Err(error) => eprintln!("rdmc-bench: a trace is not complete: {error}"),
        }
        process::exit(0);
    });
    lines
}

fn next_line(lines: &Receiver<String>) -> Outcome<String> {
    lines.recv().map_err(|_| "standard input ended early".into())
}

/// Where the contents of a message start from; different for every message of every group.
fn seed(group: u64, message: u64) -> u64 {
    (group << 20 | message).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// Contents that differ by place, so that blocks that are swapped, stale or missing show.
fn word(seed: u64, index: u64) -> [u8; 8] {
    (seed ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_le_bytes()
}

/// Contents that [`check`] knows again.
pub fn fill(bytes: &mut [u8], seed: u64) {
    for (index, chunk) in (0..).zip(bytes.chunks_mut(8)) {
        chunk.copy_from_slice(&word(seed, index)[..chunk.len()]);
    }
}

/// Whether these are the contents of [`fill`].
pub fn check(bytes: &[u8], seed: u64) -> Outcome<()> {
    check_from(bytes, seed, 0)
}

/// Whether these are the contents of [`fill`] from this word on, of 8 bytes each.
fn check_from(bytes: &[u8], seed: u64, first_word: u64) -> Outcome<()> {
    let wrong = (first_word..)
        .zip(bytes.chunks(8))
        .find(|(index, chunk)| *chunk != &word(seed, *index)[..chunk.len()]);
    match wrong {
        None => Ok(()),
        Some((index, _)) => {
            Err(format!("wrong contents at byte {}", (index - first_word) * 8).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_is_found() {
        for length in [0, 1, 7, 8, 9, 1_000] {
            let mut bytes = vec![0; length];
            fill(&mut bytes, 5);
            assert!(check(&bytes, 5).is_ok());
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
                assert!(check(&bytes, 5).is_err());
            }
            fill(&mut bytes, 5);
            assert!(bytes.len() < 8 || check_from(&bytes[8..], 5, 1).is_ok());
        }
    }
}
