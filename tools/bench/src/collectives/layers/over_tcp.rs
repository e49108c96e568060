//! Layers over TCP: two threads of this process.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use rdmc::{Context, ContextSettings, Protection, Secret};
use serde_json::{Value, json};
use team::WriteEnds;
use transport_tcp::{TcpCounters, TcpSettings, TcpTransport};

use super::{
    super::contest::TURN_TIMEOUT,
    library_pair::LibraryPair,
    pair::{FRAME_BYTES, Pair, Seen, WARM_UP, Wait, measured},
    team_pair::TeamPair,
    writes::Writes,
};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    report::{Report, median, number},
    sweep::alternate,
};

/// From the system up to the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layer {
    BlockingSockets,
    PolledSockets,
    Transport,
    Team,
    Library,
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
                    let transport = TcpTransport::new(TcpSettings::default())?;
                    let link = stream.into();
                    Ok(match self {
                        Self::Transport => {
                            Box::new(Writes::new(transport, link, true, Wait::Yielding)?)
                        }
                        _ => Box::new(TeamPair::new(
                            transport,
                            link,
                            rank,
                            WriteEnds::Auto,
                            Wait::Yielding,
                        )?),
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
                        Ok(Box::new(LibraryPair::new(context, settings)?))
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
        Wait::Yielding.until(|| {
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

/// Measures all layers in turns, and adds a table.
pub fn run(operations: u32, turns: u32, interrupt: &Interrupt, report: &mut Report) -> Outcome<()> {
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
         members is a write each way.",
    );
    Ok(())
}
