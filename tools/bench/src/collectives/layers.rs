//! Where the time of an allreduce of 4 bytes between two members goes: the same exchange of two messages, layer by layer. Both
//! members write at once, and then wait for the other's.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

use collective::{Kind, Op, Reduction, Type};
use rdmc::{Context, ContextSettings, Protection, Secret};
use serde_json::{Value, json};
use team::{Memory, Team, TeamSettings};
use transport::{Completion, EndpointId, PeerMemory, Region, Token, Transport};
use transport_tcp::{TcpCounters, TcpSettings, TcpTransport};

use super::{args::Args, contest::TURN_TIMEOUT};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    report::{Report, median, number},
    sweep::alternate,
};

/// What a write of 4 bytes is on a socket: the transport's frame, the contents and the header of a slot.
const FRAME_BYTES: usize = 84;
const WARM_UP: u32 = 200;

/// From the system up to the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layer {
    BlockingSockets,
    PolledSockets,
    Transport,
    Team,
    Library,
}

/// What member 0 saw of one run.
struct Seen {
    us: f64,
    /// Of the transport, from its beginning.
    counters: Option<TcpCounters>,
    /// How often the thread has slept in the system while it was measured.
    sleeps: u64,
}

/// One operation, and then what the transport has counted.
trait Pair: Send {
    fn operate(&mut self) -> Outcome<()>;

    /// Sends what waits to be sent.
    fn flush(&mut self) {}

    fn counters(self: Box<Self>) -> Option<TcpCounters> {
        None
    }
}

impl Layer {
    const ALL: [Self; 5] =
        [Self::BlockingSockets, Self::PolledSockets, Self::Transport, Self::Team, Self::Library];

    fn name(self) -> &'static str {
        match self {
            Self::BlockingSockets => "sockets, blocking",
            Self::PolledSockets => "sockets, polled",
            Self::Transport => "transport-tcp: a write",
            Self::Team => "team: an allreduce",
            Self::Library => "rdmc: an allreduce",
        }
    }

    /// Runs so many operations between two threads.
    fn run(self, operations: u32) -> Outcome<Seen> {
        match self {
            Self::Transport | Self::Team => {
                // Endpoints belong to the thread that made them.
                let [one, other] = streams()?;
                let make = move |rank: u32, stream: TcpStream| -> Outcome<Box<dyn Pair>> {
                    Ok(match self {
                        Self::Transport => Box::new(Writes::new(stream)?),
                        _ => Box::new(TeamPair::new(rank, stream)?),
                    })
                };
                both(operations, move || make(0, one), move || make(1, other))
            }
            Self::BlockingSockets | Self::PolledSockets => {
                let [one, other] = streams()?;
                let polls = self == Self::PolledSockets;
                both(
                    operations,
                    move || Sockets::boxed(one, polls),
                    move || Sockets::boxed(other, polls),
                )
            }
            Self::Library => {
                let secret = Secret::random()?;
                let context = || {
                    let address = ([127, 0, 0, 1], 0).into();
                    let mut settings = ContextSettings::new(address, secret.clone());
                    settings.protection = Protection::None;
                    Context::start(settings)
                };
                let [one, other] = [context()?, context()?];
                let members = vec![one.address(), other.address()];
                let make = |rank: u32, context: Context| {
                    let settings = rdmc::TeamSettings::new(1, members.clone(), rank);
                    move || -> Outcome<Box<dyn Pair>> {
                        let team = context.create_team(settings)?;
                        Ok(Box::new(LibraryPair { team, _context: context }))
                    }
                };
                both(operations, make(0, one), make(1, other))
            }
        }
    }
}

/// Both ends of a connection over loopback.
fn streams() -> Outcome<[TcpStream; 2]> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok([near, far])
}

/// Runs both members on threads of their own; what member 0 saw.
fn both(
    operations: u32,
    one: impl FnOnce() -> Outcome<Box<dyn Pair>> + Send,
    other: impl FnOnce() -> Outcome<Box<dyn Pair>> + Send,
) -> Outcome<Seen> {
    let (to_one, of_other) = mpsc::channel();
    let (to_other, of_one) = mpsc::channel();
    thread::scope(|scope| {
        let other = scope.spawn(move || measured(operations, other()?, (to_one, of_one)));
        let seen = one().and_then(|pair| measured(operations, pair, (to_other, of_other)));
        let other = other.join().map_err(|_| "a member panicked")?;
        other.and(seen)
    })
}

/// `end` tells the other member that this one needs it no longer, and hears the same of it.
fn measured(
    operations: u32,
    mut pair: Box<dyn Pair>,
    (end, ended): (Sender<()>, Receiver<()>),
) -> Outcome<Seen> {
    for _ in 0..WARM_UP {
        pair.operate()?;
    }
    let (start, slept) = (Instant::now(), sleeps());
    for _ in 0..operations {
        pair.operate()?;
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(operations);
    let sleeps = sleeps() - slept;
    pair.flush();
    let _ = end.send(());
    // An end by an error is reported there.
    let _ = ended.recv_timeout(TURN_TIMEOUT);
    Ok(Seen { us, sleeps, counters: pair.counters() })
}

/// Voluntary context switches of this thread.
fn sleeps() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Waits as a team does: polls, and lets others run.
fn poll_until(mut is_done: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let start = Instant::now();
    while !is_done()? {
        if start.elapsed() > TURN_TIMEOUT {
            return Err("the other member does not answer".into());
        }
        thread::yield_now();
    }
    Ok(())
}

/// A message each way.
struct Sockets {
    stream: TcpStream,
    polls: bool,
}

impl Sockets {
    fn boxed(stream: TcpStream, polls: bool) -> Outcome<Box<dyn Pair>> {
        stream.set_nonblocking(polls)?;
        stream.set_read_timeout(Some(TURN_TIMEOUT))?;
        Ok(Box::new(Self { stream, polls }))
    }

    fn receive(&mut self) -> Outcome<()> {
        let mut frame = [0; FRAME_BYTES];
        if !self.polls {
            return Ok(self.stream.read_exact(&mut frame)?);
        }
        let mut done = 0;
        poll_until(|| {
            match self.stream.read(&mut frame[done..]) {
                Ok(0) => return Err("the other member is gone".into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            Ok(done == FRAME_BYTES)
        })
    }
}

impl Pair for Sockets {
    fn operate(&mut self) -> Outcome<()> {
        self.stream.write_all(&[0; FRAME_BYTES])?;
        self.receive()
    }
}

/// A write each way.
struct Writes {
    transport: TcpTransport,
    endpoint: EndpointId,
    region: Region,
    completions: Vec<Completion>,
}

impl Writes {
    const BYTES: usize = 4 + collective::HEADER_BYTES;

    fn new(stream: TcpStream) -> Outcome<Self> {
        let mut transport = TcpTransport::new(TcpSettings::default())?;
        let endpoint = transport.open(stream.into())?;
        let memory = PeerMemory::zeroed(Self::BYTES);
        let writes = transport.one_sided().ok_or("TCP has no writes")?;
        writes.expose(endpoint, 0, memory)?;
        transport.write_control(endpoint, &[1])?;
        let region = Region::zeroed(Self::BYTES);
        let mut pair = Self { transport, endpoint, region, completions: Vec::new() };
        pair.wait_for(|it| matches!(it, Completion::Control { .. }))?;
        Ok(pair)
    }

    fn wait_for(&mut self, is_it: impl Fn(&Completion) -> bool) -> Outcome<()> {
        let Self { transport, completions, .. } = self;
        poll_until(|| {
            transport.poll(completions, Duration::ZERO);
            let broken = completions.iter().find(|it| matches!(it, Completion::Broken { .. }));
            if let Some(broken) = broken {
                return Err(format!("{broken:?}").into());
            }
            completions.retain(|it| !matches!(it, Completion::Sent { .. }));
            let found = completions.iter().position(&is_it);
            Ok(found.map(|index| completions.remove(index)).is_some())
        })
    }

    fn receive(&mut self) -> Outcome<()> {
        self.wait_for(|it| matches!(it, Completion::Written { .. }))
    }
}

impl Pair for Writes {
    fn operate(&mut self) -> Outcome<()> {
        let from = self.region.read(0..Self::BYTES)?;
        let writes = self.transport.one_sided().ok_or("TCP has no writes")?;
        writes.post_write(self.endpoint, from, 0, 0, Some(0), Token(0))?;
        self.transport.flush();
        self.receive()
    }

    fn flush(&mut self) {
        self.transport.poll(&mut self.completions, Duration::ZERO);
    }

    fn counters(self: Box<Self>) -> Option<TcpCounters> {
        Some(self.transport.counters())
    }
}

/// An allreduce of the crate below the library.
struct TeamPair(Team<TcpTransport>);

impl TeamPair {
    fn new(rank: u32, stream: TcpStream) -> Outcome<Self> {
        let transport = TcpTransport::new(TcpSettings::default())?;
        let settings = TeamSettings::new(1, 2, rank);
        Ok(Self(Team::new(transport, settings, [(1 - rank, stream.into())])?))
    }
}

impl Pair for TeamPair {
    fn operate(&mut self) -> Outcome<()> {
        let mut memory = [0; 4];
        let by = Some(Reduction::new(Type::F32, Op::Sum)?);
        let team = &mut self.0;
        let lent = Memory::Lent(&mut memory);
        let operation = team.start(Kind::AllReduce, 0, 4, by, lent)?;
        poll_until(|| {
            if team.is_complete(operation)? {
                return Ok(true);
            }
            team.progress(&mut memory, Duration::ZERO);
            Ok(team.is_complete(operation)?)
        })?;
        self.0.take(operation);
        Ok(())
    }

    fn flush(&mut self) {
        self.0.progress(&mut [], Duration::ZERO);
    }

    fn counters(self: Box<Self>) -> Option<TcpCounters> {
        Some(self.0.into_transport().counters())
    }
}

/// An allreduce of the library. The context lives as long as the team.
struct LibraryPair {
    team: rdmc::Team,
    _context: Context,
}

impl Pair for LibraryPair {
    fn operate(&mut self) -> Outcome<()> {
        Ok(self.team.all_reduce(&mut [0.0_f32], Op::Sum, TURN_TIMEOUT)?)
    }
}

/// Measures all layers in turns, and adds a table.
pub fn run(args: &Args, interrupt: &Interrupt, report: &mut Report) -> Outcome<()> {
    let operations = if args.short { 2_000 } else { 20_000 };
    let turns = 2 * args.turns + 1;
    let seen = alternate(Layer::ALL.len(), turns, "layers", |index| {
        interrupt.check()?;
        Layer::ALL[index].run(operations)
    })?;
    report.table(
        "layers",
        "Where the time of an allreduce of 4 bytes between two members over TCP goes, us and counts for each:",
    );
    let all = f64::from(WARM_UP + operations);
    let mut below = f64::NAN;
    for (layer, runs) in Layer::ALL.into_iter().zip(&seen) {
        let us = median(runs.iter().map(|run| run.us).collect());
        let count = |of: fn(&TcpCounters) -> u64| {
            let counts = runs.iter().filter_map(|run| run.counters.as_ref());
            let counts: Vec<f64> = counts.map(|counters| of(counters) as f64 / all).collect();
            if counts.is_empty() { Value::Null } else { number(median(counts)) }
        };
        let sleeps = runs.iter().map(|run| run.sleeps as f64 / f64::from(operations));
        let added = if layer == Layer::BlockingSockets { f64::NAN } else { us - below };
        report.row([
            ("layer", json!(layer.name())),
            ("time_us", number(us)),
            ("more_than_above_us", number(added)),
            ("writes", count(|it| it.write_calls)),
            ("reads", count(|it| it.read_calls)),
            ("reads_or_writes_in_vain", count(|it| it.fruitless_calls)),
            ("polls_for_readiness", count(|it| it.waits)),
            ("bytes_out", count(|it| it.bytes_out)),
            ("sleeps", number(median(sleeps.collect()))),
        ]);
        below = us;
    }
    report.note(
        "layers: two threads of one process, polling and yielding; counts are member 0's system calls. An allreduce of two \
         members is a write each way. Over verbs only in a virtual machine, where devices are software.",
    );
    Ok(())
}
